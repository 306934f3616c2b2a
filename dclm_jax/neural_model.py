"""`NeuralModel`, the base class of trained neural models, and `DocumentState`, the state after the
first sentences of a document.
"""

import abc
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dclm_jax import storage
from dclm_jax.data.documents import Document
from dclm_jax.data.encoding import AnyDocument, Documents, SentenceText
from dclm_jax.data.vocabulary import UNKNOWN
from dclm_jax.decoding import generation
from dclm_jax.decoding.choices import GREEDY, Decoding, Limits, random_keys
from dclm_jax.decoding.next_words import likeliest_words
from dclm_jax.errors import InputError, brief, require_at_least
from dclm_jax.language_model import LanguageModel
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.reading.blocks import MAX_ROWS, batches_of_like_size, power_of_two, size_of
from dclm_jax.reading.continuations import score_after
from dclm_jax.reading.reader import Reader, ReaderState
from dclm_jax.scoring.distributions import SURPRISAL, score_columns
from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.scoring.score_types import DocumentVectors, GeneratedText, SentenceScore
from dclm_jax.scoring.scorer import SummedScorer, sum_pieces
from dclm_jax.training import saved_model

DEFAULT_NUM_SENTENCES, DEFAULT_MAX_SENTENCE_WORDS = 5, 100
_WINDOW = 256
"""Number of documents that are read ahead, so that documents of similar length share a batch."""


@dataclasses.dataclass(frozen=True)
class DocumentState:
    """The state after the first sentences of a document; see `NeuralLanguageModel.read`.

    A state never changes, so that any number of continuations may start from it.
    """

    lm: "NeuralModel"
    state: Any = dataclasses.field(repr=False)

    def read(self, sentences: Document | Sequence[SentenceText]) -> "DocumentState":
        """The state after further sentences, as `NeuralLanguageModel.read` takes them."""
        return self.after(self.lm.encode(sentences))

    def after(self, ids: list[np.ndarray]) -> "DocumentState":
        """The state after further sentences of ids, int [M] each."""
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
        names = score_columns(no_context_too=no_context_too)
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
        """A continuation of the document; see `NeuralLanguageModel.generate`."""
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
            raise no_context_error(self.lm.facts.name)
        return vectors[0]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NeuralModel(LanguageModel):
    """A trained model of the registry.

    Attributes:
      scorer: scores with the model and its parameters.
      validation_perplexity: perplexity of the parameters on the validation split in training.
      corpus_checksums: checksums of the training corpus by file; empty if they are unknown.
      base_card: the section of the model card about the model from which training started, if any.
    """

    scorer: SummedScorer[NeuralScorer]
    validation_perplexity: float
    corpus_checksums: dict[str, str] = dataclasses.field(default_factory=dict)
    base_card: str = ""

    @property
    def model(self) -> DocumentModel:
        """The model: its equations and sizes."""
        return self.scorer.ids.model

    @property
    def params(self) -> Params:
        """The parameters of the model."""
        return self.scorer.ids.params

    @property
    def reader(self) -> Reader:
        """Reads and scores ids sentence by sentence, from any state."""
        return self.scorer.ids.reader

    @abc.abstractmethod
    def without_context(self) -> ReaderState:
        """The reader's state before the first sentence of a document."""

    def vectors(self, documents: Documents) -> Iterator[DocumentVectors]:
        """The vectors of documents in their order, with documents and names as in `score`; input
        may be larger than memory."""
        batch_size = min(self.scorer.ids.batch_size, MAX_ROWS)
        # The index of the whole document among the vectors.
        whole = 0 if self.model.reads_source else -1
        remaining = self.encoded(documents)
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
                    raise no_context_error(self.facts.name)
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
        remaining, first = self.encoded(documents), 0
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
        """The ids, int32 [M], of a prefix, which has fewer than `max_words` words."""
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
        """The score of a sentence from the nats, by name, float [N] of its ids and END."""
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
        assert self.facts.step is not None
        run = saved_model.Facts(
            self.facts.step, self.validation_perplexity, self.vocabulary.fingerprint
        )
        contents = saved_model.Contents(
            self.facts.config,
            self.vocabulary,
            self.facts.text,
            self.corpus_checksums,
            self.params,
            run,
            self.base_card,
        )
        saved_model.write_model(folder, contents, dtype, about)


def no_context_error(name: str) -> InputError:
    """The error for a request that a model without context cannot answer."""
    return InputError(f"{name} has no context; choose a model with context")
