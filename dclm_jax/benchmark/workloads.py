"""The measured work: synthetic documents, their batches, and the FLOPs of a training step.

Word ids are uniform over the vocabulary: no speed depends on their distribution. Sentences are as
long as in news text, because sentence lengths determine the shapes.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from dclm_jax import files, models
from dclm_jax.data.batches import Batch, TrainingBatches
from dclm_jax.data.corpus import TOKEN_DTYPE, Corpus, Manifest, open_array
from dclm_jax.data.documents import PLAIN
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.models.base import DocumentModel

Document = list[np.ndarray]

LENGTH_MEAN, LENGTH_SD = 24, 9
LENGTH_LEAST, LENGTH_MOST = 4, 60


@dataclasses.dataclass(frozen=True)
class Size:
    """The sizes of models and corpus: V, K, H, layers, L and number of documents."""

    vocab_size: int = 10_003
    embedding_dim: int = 128
    hidden_dim: int = 128
    num_layers: int = 2
    segment_length: int = 5
    num_documents: int = 1_000

    def model(self, name: str, cell: str = "lstm") -> DocumentModel:
        """A model of this size, without dropout."""
        return models.create(
            name,
            vocab_size=self.vocab_size,
            embedding_dim=self.embedding_dim,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
            cell=cell,
        )


OURS, MATRIX_PRODUCT = "ours", "matrix product"


@dataclasses.dataclass(frozen=True)
class Setting:
    """The options that all benchmarks of a run share. `directory` is temporary. With `tuned_peers`
    peers also run with the allocator setting of our commands."""

    directory: pathlib.Path
    size: Size = Size()
    rounds: int = 5
    seed: int = 0
    tuned_peers: bool = True

    @property
    def accelerated(self) -> bool:
        return jax.default_backend() != "cpu"

    def training_batches(self, batch_size: int, count: int) -> list[Batch]:
        """Consecutive full batches of synthetic documents."""
        corpus = synthetic_corpus(
            self.seed, self.size.vocab_size, self.size.num_documents, self.directory
        )
        length = self.size.segment_length
        return training_batches(corpus, length, batch_size, count, self.seed)


def sentence_lengths(rng: np.random.Generator, count: int) -> np.ndarray:
    """The numbers of words of `count` sentences, without END."""
    drawn = np.rint(rng.normal(LENGTH_MEAN, LENGTH_SD, size=count))
    return np.clip(drawn, LENGTH_LEAST, LENGTH_MOST).astype(np.int64)


def synthetic_documents(
    seed: int, vocab_size: int, sentences: Sequence[int] | np.ndarray
) -> list[Document]:
    """Documents with the given numbers of sentences; each sentence holds int32 ids of words."""
    rng = np.random.default_rng(seed)
    lengths = sentence_lengths(rng, int(np.sum(sentences)))
    ids = rng.integers(len(SPECIAL_TOKENS), vocab_size, size=lengths.sum(), dtype=np.int32)
    split = iter(np.split(ids, np.cumsum(lengths)[:-1]))
    return [[next(split) for _ in range(count)] for count in sentences]


def synthetic_corpus(
    seed: int, vocab_size: int, num_documents: int, directory: pathlib.Path
) -> Corpus:
    """A corpus of documents of 8 to 14 sentences, with words on disk as in a prepared corpus."""
    sentences = np.random.default_rng(seed).integers(8, 15, size=num_documents)
    documents = synthetic_documents(seed, vocab_size, sentences)
    lengths = [len(sentence) for document in documents for sentence in document]
    path = directory / "train.tokens.bin"
    tokens = np.concatenate([np.concatenate(document) for document in documents])
    files.write_bytes(path, tokens.tobytes())
    words = (*SPECIAL_TOKENS, *(f"w{index}" for index in range(len(SPECIAL_TOKENS), vocab_size)))
    return Corpus(
        directory=directory,
        split="train",
        tokens=open_array(path, TOKEN_DTYPE, len(tokens)),
        sentence_offsets=np.concatenate([[0], np.cumsum(lengths)]),
        document_offsets=np.concatenate([[0], np.cumsum(sentences)]),
        vocabulary=Vocabulary(words, (0,) * vocab_size),
        manifest=Manifest(2, vocab_size, {}, {}, {}, PLAIN, {}),
    )


def training_batches(
    corpus: Corpus, segment_length: int, batch_size: int, count: int, seed: int
) -> list[Batch]:
    """The first `count` training batches without empty batch elements."""
    batches = TrainingBatches(
        corpus, segment_length=segment_length, batch_size=batch_size, seed=seed
    )
    full = (
        batch
        for batch in map(batches, range(batches.steps_per_epoch))
        if batch.mask_BxSxN[:, 0, 0].all()
    )
    return [batch for batch, _ in zip(full, range(count), strict=False)]


def documents_of(batch: Batch) -> list[Document]:
    """The sentences of each batch element, without START, END and padding; peers pack them."""
    lengths_BxS = np.asarray(batch.mask_BxSxN).sum(axis=2) - 1
    targets_BxSxN = np.asarray(batch.targets_BxSxN)
    return [
        [words[:length] for words, length in zip(row, lengths, strict=True) if length >= 0]
        for row, lengths in zip(targets_BxSxN, lengths_BxS, strict=True)
    ]


def count_targets(documents: list[Document]) -> int:
    """The number of targets: words and ENDs."""
    return sum(len(sentence) + 1 for document in documents for sentence in document)


def useful_flops(model: DocumentModel, documents: list[Document]) -> int:
    """The FLOPs of a training step on real tokens, without padding and recomputation.

    A multiply-add counts as 2 FLOPs, and the backward pass counts twice as much as the forward
    pass. Matrix products and attention's weighted sums are counted, and elementwise work is not.
    Products of the context alone are counted once per sentence.
    """
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    attention = shapes.get("attention")
    once_a_token, once_a_sentence = 0, 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        part, name = path[0].key, path[-1].key
        if len(leaf.shape) < 2 or part in (*model.tables, "attention"):
            continue
        is_context = name == "context" and model.name != "adclm"
        if is_context or part in _PARTS_OF_SENTENCES:
            once_a_sentence += leaf.size
        else:
            once_a_token += leaf.size
    lengths = [[len(sentence) + 1 for sentence in document] for document in documents]
    tokens, sentences = sum(map(sum, lengths)), sum(map(len, lengths))
    multiply_adds = tokens * once_a_token + sentences * once_a_sentence
    if attention is not None:
        hidden_dim, attention_dim = attention["query"].shape
        for queries, keys in _attended(model, lengths):
            multiply_adds += (queries + keys) * hidden_dim * attention_dim
            multiply_adds += queries * keys * (attention_dim + hidden_dim)
    return 3 * 2 * multiply_adds


_PARTS_OF_SENTENCES = ("sentence_encoder", "sentence_decoder", "ending")


def _attended(model: DocumentModel, lengths: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Pairs (number of queries, number of attended states). With a source, the states after a
    document's sentences attend to one state per sentence of the source. Otherwise the positions of
    a sentence attend to the positions of the previous sentence; the positions of a first sentence
    attend to one vector."""
    for document in lengths:
        if model.reads_source:
            yield len(document), len(document)
        else:
            yield from zip(document, [1, *document[:-1]], strict=True)
