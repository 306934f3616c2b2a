"""A trained neural model in Python: it scores, reads, orders and generates text.

Log-probabilities are natural logarithms (nats); a surprisal is a negative log-probability. Methods
take documents as `dclm_jax.data.encoding` defines them.
"""

import abc
import dataclasses
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

import jax
import numpy as np

from dclm_jax import storage
from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.encoding import AnyDocument, Documents, OfSentence, SentenceText
from dclm_jax.data.vocabulary import END_TOKEN, START_TOKEN, UNKNOWN, word_ends
from dclm_jax.decoding import generation
from dclm_jax.decoding.choices import GREEDY, Decoding, Limits, random_keys
from dclm_jax.decoding.next_words import likeliest_words
from dclm_jax.decoding.ordering import DEFAULT_BEAM, Ordered, order_sentences
from dclm_jax.errors import InputError, brief, require_at_least
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.reading.blocks import MAX_ROWS, batches_of_like_size, power_of_two, size_of
from dclm_jax.reading.continuations import score_after
from dclm_jax.reading.reader import Reader, ReaderState
from dclm_jax.scoring import distributions
from dclm_jax.scoring.distributions import DIVERGENCE, SURPRISAL, Measured, surprisal_columns
from dclm_jax.scoring.score_types import (
    DocumentVectors,
    GeneratedText,
    SentenceAttention,
    SentenceScore,
)
from dclm_jax.scoring.scorer import Scorer, SummedScorer, first_pieces, sum_pieces
from dclm_jax.text_scorer import ScoringModel, SentenceModel
from dclm_jax.training import saved_model

DEFAULT_NUM_SENTENCES, DEFAULT_MAX_SENTENCE_WORDS = 5, 100
DEFAULT_MAX_LENGTH_RATIO = 1.5
_WINDOW = 256
"""Number of documents that are read ahead, so that documents of similar length share a batch."""


@dataclasses.dataclass(frozen=True)
class DocumentState:
    """The state after the first sentences of a document; see `LanguageModel.read`.

    A state never changes, so that any number of continuations may start from it.
    """

    lm: "NeuralModel"
    state: Any = dataclasses.field(repr=False)

    def read(self, sentences: Document | Sequence[SentenceText]) -> "DocumentState":
        """The state after further sentences, as `LanguageModel.read` takes them."""
        return self.after(self.lm.encode(sentences))

    def after(self, ids: list[np.ndarray]) -> "DocumentState":
        """The state after further sentences of word ids."""
        if not ids:
            return self
        return DocumentState(self.lm, self.lm.reader.read(self.state, [ids])[0])

    def score(
        self, candidates: Sequence[SentenceText], *, no_context_too: bool = False
    ) -> list[SentenceScore]:
        """The score of each candidate as the next sentence. A candidate without words has the
        log-probability of END directly after START.

        Args:
          no_context_too: as in `LanguageModel.score`.
        """
        states, reader = [self.state], self.lm.reader
        if no_context_too:
            states.append(self.lm.without_context())
        encoder = self.lm.encoder()
        words = encoder.words_of(candidates, "the candidates are")
        ids = list(map(encoder.encode, words))
        encoder.log_oov()
        names = surprisal_columns(no_context_too=no_context_too)
        nll = [score_after(reader, state, [0] * len(ids), ids) for state in states]
        return [
            self.lm.sentence_score(sentence, dict(zip(names, values, strict=True)))
            for sentence, *values in zip(words, *nll, strict=True)
        ]

    def next_words(self, prefix: SentenceText = "", k: int = 10) -> list[tuple[str, float]]:
        """The k likeliest next words with their log-probabilities in nats, likeliest first. With a
        vocabulary of subwords a word may have several pieces, and the result is exact.

        Args:
          prefix: the first words of the sentence.
          k: number of words; END counts as a word.
        """
        require_at_least("k", k, 1)
        encoder = self.lm.encoder()
        (words,) = encoder.words_of([prefix])
        ids = encoder.encode(words)
        encoder.log_oov()
        return likeliest_words(self.lm.reader, self.state, self.lm.vocabulary, ids, k)

    def generate(
        self,
        num_sentences: int = DEFAULT_NUM_SENTENCES,
        decoding: Decoding = GREEDY,
        *,
        prefix: SentenceText = "",
        max_sentence_words: int = DEFAULT_MAX_SENTENCE_WORDS,
        seed: int = 0,
    ) -> GeneratedText:
        """A continuation of the document; see `LanguageModel.generate`."""
        ids = self.lm.prefix_ids(prefix, max_sentence_words)
        limits = Limits(num_sentences, max_sentence_words)
        keys = random_keys([seed], [0])
        (text,) = generation.generate(self.state, decoding, [limits], keys, ids)
        return self.lm.to_words(text, lambda: self.state)

    @property
    def vector(self) -> np.ndarray:
        """The state as one vector, float [X] (`DocumentModel.vector`)."""
        vectors = self.lm.reader.vectors(self.state)
        if vectors is None:
            raise _without_context(self.lm.name)
        return vectors[0]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NeuralModel(ScoringModel):
    """A trained model of the registry.

    Attributes:
      model, params: the model and its parameters.
      validation_perplexity: perplexity of the parameters on the validation split in training.
      corpus_checksums: checksums of the training corpus by file; empty if they are unknown.
      base_card: the section of the model card about the model from which training started, if any.
    """

    model: DocumentModel
    params: Params
    step: int = 0
    validation_perplexity: float
    corpus_checksums: dict[str, str] = dataclasses.field(default_factory=dict)
    base_card: str = ""

    def _make_scorer(self) -> SummedScorer:
        scorer = Scorer(self.model, self.params, batch_size=self.batch_size)
        return SummedScorer(scorer, self.model.first_word_end)

    @functools.cached_property
    def reader(self) -> Reader:
        """Reads word ids incrementally."""
        return Reader(self.model, self.params)

    @functools.cached_property
    def fingerprint(self) -> str:
        """The checksum of the configuration and the parameters."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for leaf in jax.tree.leaves(self.params):
            digest.update(np.asarray(leaf).tobytes())
        return digest.hexdigest()[:16]

    @abc.abstractmethod
    def without_context(self) -> ReaderState: ...

    def distributions(
        self, documents: Iterable[OfSentence], *, no_context_too: bool
    ) -> Iterator[tuple[OfSentence, list[Measured]]]:
        """Documents with the measures of the distribution of every target; see
        `scoring.distributions.measure_documents`."""
        return distributions.measure_documents(
            self.model,
            self.params,
            documents,
            no_context_too=no_context_too,
            batch_size=self.batch_size,
        )

    def vectors(self, documents: Documents) -> Iterator[DocumentVectors]:
        """The vectors of documents in their order, with documents and names as in `score`; input
        may be larger than memory."""
        batch_size = min(self.batch_size, MAX_ROWS)
        # The index of the whole document among the vectors.
        whole = 0 if self.model.reads_source else -1
        remaining = self._encoded(documents)
        while window := list(itertools.islice(remaining, max(_WINDOW, batch_size))):
            ids_of = [document.sentences for document in window]
            for document in window:
                if not document.sentences:
                    raise InputError(
                        f"document {document.id} has no words, and so no vector; remove it"
                    )
            sizes = [size_of(ids, reads_source=self.model.reads_source) for ids in ids_of]
            vectors_of: dict[int, np.ndarray] = {}
            for indices, _ in batches_of_like_size(sizes, power_of_two(batch_size)):
                together = [ids_of[index] for index in indices]
                vectors = self.reader.vectors_along(together)
                if vectors is None:
                    raise _without_context(self.name)
                vectors_of.update(zip(indices, vectors, strict=True))
            for index, document in enumerate(window):
                read = np.cumsum(list(map(bool, document.words)))
                yield DocumentVectors(
                    document.id, vectors_of[index][whole], vectors_of[index][read]
                )

    def _texts(
        self,
        documents: Iterable[AnyDocument],
        limits: Callable[[list[np.ndarray]], Limits],
        decoding: Decoding,
        seed: int,
        samples: int,
        prefix: np.ndarray | Sequence[int] = (),
    ) -> Iterator[tuple[AnyDocument, list[GeneratedText]]]:
        """Texts for documents, generated for a window of documents at a time."""
        generation.require_words(self.reader)
        require_at_least("samples", samples, 1)
        remaining, first = self._encoded(documents), 0
        while window := list(itertools.islice(remaining, _WINDOW)):
            ids = [document.sentences for document in window for _ in range(samples)]
            texts = generation.generate_many(
                self.reader,
                ids,
                decoding,
                list(map(limits, ids)),
                random_keys(
                    [seed + sample for _ in window for sample in range(samples)],
                    [first + number for number in range(len(window)) for _ in range(samples)],
                ),
                prefix,
            )
            spelled = [
                self.to_words(text, functools.partial(self._opened, before))
                for text, before in zip(texts, ids, strict=True)
            ]
            for number, document in enumerate(window):
                yield document.passed, spelled[number * samples : (number + 1) * samples]
            first += len(window)

    def prefix_ids(self, prefix: SentenceText, max_words: int) -> np.ndarray:
        """The ids of a prefix, which has fewer than `max_words` words."""
        encoder = self.encoder()
        (words,) = encoder.words_of([prefix])
        if words and len(words) >= max_words:
            raise InputError(
                f"the prefix has {len(words)} words, and max_sentence_words is {max_words}; choose "
                "a larger max_sentence_words"
            )
        ids = encoder.encode(words)
        encoder.log_oov()
        if self.vocabulary.has_pieces and UNKNOWN in ids:
            raise InputError(
                f"the prefix has the word {self.vocabulary.unknown_token}, which the model does "
                "not predict; write another word"
            )
        return ids

    def _opened(self, ids: list[np.ndarray]) -> ReaderState:
        """The reader's state before a text that is generated for a document."""
        reads_source = self.model.reads_source
        return self.reader.open(1, [ids]) if reads_source else self.reader.after([ids])

    def sentence_score(self, words: list[str], nats: dict[str, np.ndarray]) -> SentenceScore:
        """The score of a sentence from the nats, by name, of its ids and END."""
        ids, first_word_end = self.vocabulary.encode(words), self.vocabulary.first_word_end
        summed = {name: sum_pieces(ids, array, first_word_end) for name, array in nats.items()}
        return SentenceScore.of(words, self.vocabulary, summed)

    def to_words(
        self, text: generation.Generated, opened: Callable[[], ReaderState]
    ) -> GeneratedText:
        """A generated text as words, with its scores. A text with a word that the vocabulary
        divides into other pieces is scored after the state that `opened` returns, so that its
        log-probability is that of its words."""
        words = [self.vocabulary.decode(ids.tolist()) for ids in text.sentences]
        if self.vocabulary.has_pieces:
            ids = list(map(self.vocabulary.encode, words))
            if not all(map(np.array_equal, ids, text.sentences)):
                text = generation.scored(opened(), text, ids)
        pairs = zip(words, text.log_probs, strict=True)
        sentences = [
            self.sentence_score(sentence, {SURPRISAL: -log_probs}) for sentence, log_probs in pairs
        ]
        log_probs = [*(sentence.log_prob for sentence in sentences), *text.decisions]
        return GeneratedText(math.fsum(log_probs), sentences, text.has_ended)

    def save(self, folder: storage.PathLike, *, dtype: str = "float16", about: str = "") -> None:
        """Saves the model as a new folder, which `restore` and every command read like a run.

        The folder has plain files and no path of this machine, so that it may be shared; see
        `training.saved_model`.

        Args:
          folder: a folder that does not exist yet, or an address.
          dtype: "float16" or "float32", the type of the saved parameters. float32 reproduces all
            scores; float16 takes half of the space and rounds parameters to eleven bits.
          about: Markdown text for the model card, such as sources and licence of the training text.
            The card also has what the card of the model says from which training started.
        """
        if not isinstance(about, str):
            raise InputError(f"about is {brief(about)}; expected a string")
        run = saved_model.Facts(self.step, self.validation_perplexity, self.vocabulary.fingerprint)
        contents = saved_model.Contents(
            self.config,
            self.vocabulary,
            self.text,
            self.corpus_checksums,
            self.params,
            run,
            self.base_card,
        )
        saved_model.write_model(folder, contents, dtype, about)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LanguageModel(NeuralModel, SentenceModel):
    """A neural language model: it scores, reads, orders and continues documents."""

    kind: ClassVar[str] = "a neural language model"

    @property
    def neural(self) -> tuple[DocumentModel, Params]:
        """The model and its parameters."""
        return self.model, self.params

    def read(self, sentences: Document | Sequence[SentenceText] = ()) -> DocumentState:
        """The state after the first sentences of a document, as `score` takes it."""
        return DocumentState(self, self.without_context()).after(self.encode(sentences))

    def without_context(self) -> ReaderState:
        """The reader's state before the first sentence of a document."""
        return self.reader.open(1)

    def read_text(self, text: str, options: TextOptions | None = None) -> DocumentState:
        """The state after the only document of `documents(text, options)`."""
        document, *others = self.documents(text, options)
        if others:
            raise InputError(f"the text has {1 + len(others)} documents; expected one")
        return self.read(document)

    def attention(self, document: Document | Sequence[SentenceText]) -> list[SentenceAttention]:
        """The attention weights of every target of a document, as `score` takes it; see
        `Reader.attention`. A sentence without words has no targets and no positions."""
        (passed,) = self._encoded([document])
        words = [*filter(None, passed.words)]
        first = [first_pieces(ids, self.model.first_word_end) for ids in passed.sentences]
        attention = []
        weights_of = self.reader.attention(passed.sentences)
        for t, (targets, weights) in enumerate(zip(words, weights_of, strict=True)):
            positions = self._attended(words[:t], first[:t], weights.shape[1])
            # Adjacent positions of the pieces of a word are one position.
            starts = [index for index, (_, is_first) in enumerate(positions) if is_first]
            names = [positions[index][0] for index in starts]
            weights = weights[first[t]]
            if starts:
                weights = np.add.reduceat(weights, starts, axis=1)
            attention.append(SentenceAttention([*targets, END_TOKEN], names, weights))
        return passed.aligned(attention, SentenceAttention([], [], np.zeros((0, 0), np.float32)))

    def _attended(
        self, words: list[list[str]], first: list[np.ndarray], size: int
    ) -> list[tuple[str, bool]]:
        """The names of the `size` positions that a sentence attends to after the sentences `words`,
        and whether each is the first of its word; `first` has the first pieces of the words."""
        earlier = slice(max(0, len(words) - self.model.attended_sentences), None)
        if self.model.attends_to == "sentences":
            return [(" ".join(sentence), True) for sentence in words[earlier]]
        of_words = self.model.attends_to == "words"
        pairs = [*zip(words, first, strict=True)][earlier if of_words else slice(None)]
        positions = []
        for sentence, starts in pairs:
            lengths = np.diff(starts).tolist()
            inner = [
                (word, number == 0)
                for word, length in zip(sentence, lengths, strict=True)
                for number in range(length)
            ]
            inputs = [(START_TOKEN, True), *inner]
            positions += inputs if of_words else [*inner, (END_TOKEN, True)]
        if of_words:
            return positions or [("c_0", True)]
        # The oldest word may have lost its first pieces.
        memory = positions[len(positions) - (size - 1) :]
        memory = [(word, is_first or not n) for n, (word, is_first) in enumerate(memory)]
        return [("softmax", True), *memory]

    def order(
        self, sentences: Document | Sequence[SentenceText], beam: int = DEFAULT_BEAM
    ) -> Ordered:
        """The likeliest order of a document's sentences, see `decoding.ordering`.

        Returns:
          Indices of the sentences with words; log P of this order in nats, and whether the order is
          proven to be the likeliest.
        """
        documents = [*self.encoder().documents([sentences])]
        if not documents:
            raise InputError("there are no words to put in order; pass a sentence with words")
        (document,) = documents
        ordered = order_sentences(self.reader, document.sentences, beam)
        indices = [index for index, words in enumerate(document.words) if words]
        return ordered._replace(order=[indices[i] for i in ordered.order])

    def generate(
        self,
        documents: Iterable[AnyDocument],
        num_sentences: int = DEFAULT_NUM_SENTENCES,
        decoding: Decoding = GREEDY,
        *,
        prefix: SentenceText = "",
        max_sentence_words: int = DEFAULT_MAX_SENTENCE_WORDS,
        seed: int = 0,
        samples: int = 1,
    ) -> Iterator[tuple[AnyDocument, list[GeneratedText]]]:
        """Continues documents in their order; input may be larger than memory.

        Args:
          documents: documents, as `score` takes them; for a document without words, the text is a
            new document.
          num_sentences: maximum number of sentences; a model that decides where a document ends
            may generate fewer.
          decoding: options for the choice of words.
          prefix: the first words of the first sentence of each text, which are part of the text and
            of its log-probability.
          max_sentence_words: maximum number of words per sentence.
          seed: random seed for sampling. The text of a document depends on the seed, the number of
            the document and the document, not on other documents.
          samples: number of texts per document; text s, counted from 0, is the first text with the
            seed `seed` + s.

        Yields:
          Every document with its texts.
        """
        limits = Limits(num_sentences, max_sentence_words)
        ids = self.prefix_ids(prefix, max_sentence_words)
        return self._texts(documents, lambda _: limits, decoding, seed, samples, ids)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Autoencoder(NeuralModel):
    """A trained autoencoder: it scores documents given their sources, by default the documents
    themselves, and reconstructs them."""

    kind: ClassVar[str] = "an autoencoder"

    def _measured(
        self, documents: Iterable[OfSentence], surprisals: Sequence[str], others: Sequence[str]
    ) -> Iterator[tuple[OfSentence, list[Measured]]]:
        if len(surprisals) > 1 or DIVERGENCE in others:
            self.without_context()
        return super()._measured(documents, surprisals, others)

    def without_context(self) -> NoReturn:
        """Refuses scores without context."""
        raise InputError(
            f"{self.name} is an autoencoder, whose sentences have no score without a source; "
            "choose a language model"
        )

    def read(
        self,
        source: Document | Sequence[SentenceText],
        sentences: Document | Sequence[SentenceText] = (),
    ) -> DocumentState:
        """The state after a source and the first sentences of its document, which are documents as
        `score` takes them."""
        ids = self.encode(source)
        if not ids:
            raise InputError("the source has no words; pass a source with words")
        return DocumentState(self, self.reader.open(1, [ids])).after(self.encode(sentences))

    def reconstruct(
        self,
        documents: Iterable[AnyDocument],
        decoding: Decoding = GREEDY,
        *,
        max_length_ratio: float = DEFAULT_MAX_LENGTH_RATIO,
        seed: int = 0,
        samples: int = 1,
    ) -> Iterator[tuple[AnyDocument, list[GeneratedText]]]:
        """Reconstructions of documents by an autoencoder.

        Args:
          documents: the sources, documents with words, as `score` takes them.
          decoding: options for the choice of words.
          max_length_ratio: maximum number of words of a text, as a multiple of the words of its
            source (Li et al. 2015, section 4.2).
          seed, samples: as for `generate`.

        Yields:
          Every document with its texts.
        """
        if not 0 < max_length_ratio < math.inf:
            raise InputError(f"max_length_ratio is {max_length_ratio}; expected a number above 0")

        def limits(ids: list[np.ndarray]) -> Limits:
            first_word_end = self.vocabulary.first_word_end
            words = sum(int(word_ends(sentence, first_word_end).sum()) for sentence in ids)
            if not words:
                raise InputError("a document has no words; remove it")
            max_words = max(1, int(max_length_ratio * words))
            return Limits(max_words, max_words, max_words)

        return self._texts(documents, limits, decoding, seed, samples)


def _without_context(name: str) -> InputError:
    return InputError(f"{name} has no context; choose a model with context")
