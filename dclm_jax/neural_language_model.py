"""The classes of trained neural models: `NeuralLanguageModel` and `Autoencoder`.

Log-probabilities are natural logarithms (nats); a surprisal is a negative log-probability. Methods
take documents as `dclm_jax.data.encoding` defines them.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NoReturn

import numpy as np

from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.encoding import AnyDocument, OfSentence, SentenceText
from dclm_jax.data.vocabulary import END_TOKEN, START_TOKEN, word_ends
from dclm_jax.decoding.choices import GREEDY, Decoding, Limits
from dclm_jax.decoding.ordering import DEFAULT_BEAM, Ordered, order_sentences
from dclm_jax.errors import InputError
from dclm_jax.neural_model import (
    DEFAULT_MAX_SENTENCE_WORDS,
    DEFAULT_NUM_SENTENCES,
    DocumentState,
    NeuralModel,
)
from dclm_jax.reading.reader import ReaderState
from dclm_jax.scoring.distributions import Measured, needs_no_context
from dclm_jax.scoring.score_types import GeneratedText, SentenceAttention
from dclm_jax.scoring.scorer import first_pieces

DEFAULT_MAX_LENGTH_RATIO = 1.5


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NeuralLanguageModel(NeuralModel):
    """A neural language model: it scores, reads, orders and continues documents."""

    kind: ClassVar[str] = "a neural language model"

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
        (passed,) = self.encoded([document])
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
    reads_source: ClassVar[bool] = True

    def _measured(
        self, documents: Iterable[OfSentence], names: Sequence[str]
    ) -> Iterator[tuple[OfSentence, list[Measured]]]:
        if needs_no_context(names):
            self.without_context()
        return super()._measured(documents, names)

    def without_context(self) -> NoReturn:
        """Refuses scores without context."""
        raise InputError(
            f"{self.facts.name} is an autoencoder, whose sentences have no score without a source; "
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
