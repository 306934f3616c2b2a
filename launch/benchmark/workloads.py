"""The measured work: synthetic documents and their batches.

Word ids are uniform over the vocabulary: no speed depends on their distribution. Sentences are as
long as in news text, because sentence lengths determine the shapes.
"""

import pathlib
from collections.abc import Sequence

import numpy as np

from dclm_jax.data.batches import Batch, TrainingBatches
from dclm_jax.data.corpus import Corpus, Manifest
from dclm_jax.data.documents import PLAIN
from dclm_jax.data.vocabulary import FIRST_WORD, SPECIAL_TOKENS, Vocabulary, word_ends

IdDocument = list[np.ndarray]

VOCAB_SIZE, SEGMENT_LENGTH = 10_003, 5
LENGTH_MEAN, LENGTH_SD = 24, 9
LENGTH_LEAST, LENGTH_MOST = 4, 60
TWO_PIECES = 0.2
"""The share of words with two pieces instead of one, under a vocabulary of subwords."""


def sentence_lengths(rng: np.random.Generator, count: int) -> np.ndarray:
    """The numbers of words of `count` sentences, without END."""
    drawn = np.rint(rng.normal(LENGTH_MEAN, LENGTH_SD, size=count))
    return np.clip(drawn, LENGTH_LEAST, LENGTH_MOST).astype(np.int64)


def synthetic_documents(
    seed: int,
    vocab_size: int,
    sentences: Sequence[int] | np.ndarray,
    first_word_end: int = FIRST_WORD,
) -> list[IdDocument]:
    """Documents with the given numbers of sentences; each sentence holds int32 ids of words, or of
    their pieces; the last piece of a word is at least `first_word_end`."""
    rng = np.random.default_rng(seed)
    lengths = sentence_lengths(rng, int(np.sum(sentences)))
    ids = rng.integers(first_word_end, vocab_size, size=lengths.sum(), dtype=np.int32)
    if first_word_end > FIRST_WORD:
        sizes = 1 + (rng.random(len(ids)) < TWO_PIECES)
        last, ids = ids, rng.integers(FIRST_WORD, first_word_end, sizes.sum(), dtype=np.int32)
        ids[np.cumsum(sizes) - 1] = last
        lengths = np.add.reduceat(sizes, np.cumsum(lengths) - lengths)
    split = iter(np.split(ids, np.cumsum(lengths)[:-1]))
    return [[next(split) for _ in range(count)] for count in sentences]


def synthetic_corpus(
    seed: int,
    vocab_size: int = VOCAB_SIZE,
    num_documents: int = 1_000,
    first_word_end: int = FIRST_WORD,
) -> Corpus:
    """A corpus in memory with documents of 8 to 14 sentences."""
    sentences = np.random.default_rng(seed).integers(8, 15, size=num_documents)
    documents = synthetic_documents(seed, vocab_size, sentences, first_word_end)
    lengths = [len(sentence) for document in documents for sentence in document]
    words = (*SPECIAL_TOKENS, *(f"w{index}" for index in range(len(SPECIAL_TOKENS), vocab_size)))
    return Corpus(
        directory=pathlib.Path(),
        split="train",
        tokens=np.concatenate([np.concatenate(document) for document in documents]),
        sentence_offsets=np.concatenate([[0], np.cumsum(lengths)]),
        document_offsets=np.concatenate([[0], np.cumsum(sentences)]),
        vocabulary=Vocabulary(words, (0,) * vocab_size),
        manifest=Manifest(2, vocab_size, {}, {}, {}, PLAIN, {}),
    )


def training_batches(
    batch_size: int,
    count: int,
    seed: int = 0,
    vocab_size: int = VOCAB_SIZE,
    first_word_end: int = FIRST_WORD,
) -> list[Batch]:
    """The first `count` training batches without empty batch elements."""
    batches = TrainingBatches(
        synthetic_corpus(seed, vocab_size, first_word_end=first_word_end),
        segment_length=SEGMENT_LENGTH,
        batch_size=batch_size,
        seed=seed,
    )
    full = (
        batch
        for batch in map(batches, range(batches.steps_per_epoch))
        if batch.mask_BxSxN[:, 0, 0].all()
    )
    return [batch for batch, _ in zip(full, range(count), strict=False)]


def unpacked(batch: Batch) -> list[IdDocument]:
    """The sentences of each batch element, without START, END and padding; peers pack them."""
    lengths_BxS = np.asarray(batch.mask_BxSxN).sum(axis=2) - 1
    targets_BxSxN = np.asarray(batch.targets_BxSxN)
    return [
        [words[:length] for words, length in zip(row, lengths, strict=True) if length >= 0]
        for row, lengths in zip(targets_BxSxN, lengths_BxS, strict=True)
    ]


def num_targets(documents: list[IdDocument], first_word_end: int = FIRST_WORD) -> int:
    """The number of targets: words and ENDs."""
    return sum(
        int(word_ends(sentence, first_word_end).sum()) + 1
        for document in documents
        for sentence in document
    )
