"""A trained model in Python: restore a run, score, read and generate text, measure perplexity.

Log-probabilities are natural logarithms (nats); a surprisal is a negative log-probability.

Documents are lists of sentences, each a string of words separated by spaces or a list of words, or
`dclm_jax.data.documents.Document`s. Sentences without words are omitted, as in files: the model
neither scores nor reads such sentences. After the last document of a call, a warning counts the
omitted sentences. Indices in results are positions in the documents as they were passed.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from dclm_jax import ngram, storage
from dclm_jax.coherence.compare import OrderTest, compare
from dclm_jax.coherence.measure import CoherenceOptions, CoherenceResults, measure_coherence
from dclm_jax.coherence.results import OrderResult
from dclm_jax.data.alternatives import Choice
from dclm_jax.data.corpus import TrainingText
from dclm_jax.data.documents import PLAIN, Document, OnDocument, TextOptions, columns
from dclm_jax.data.readers import parse_documents
from dclm_jax.data.vocabulary import END_TOKEN, START_TOKEN, Vocabulary
from dclm_jax.decoding import generation
from dclm_jax.decoding.choices import GREEDY, Decoding
from dclm_jax.decoding.generation import Limits
from dclm_jax.decoding.ordering import DEFAULT_BEAM, Ordered, order_sentences
from dclm_jax.errors import InputError, brief, require_at_least
from dclm_jax.evaluation import datasets, distributions, interpolation, measures, minimal_pairs
from dclm_jax.evaluation.adaptation import Adaptation, adapt
from dclm_jax.evaluation.datasets import Dataset
from dclm_jax.evaluation.distributions import (
    DIVERGENCE,
    SURPRISAL,
    column_names,
    surprisal_columns,
)
from dclm_jax.evaluation.minimal_pairs import Outcome
from dclm_jax.evaluation.perplexity import Perplexity
from dclm_jax.evaluation.scoring import (
    Continuation,
    Scorer,
    WordScorer,
    with_no_context,
)
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.nn.precision import SCORING_PRECISION
from dclm_jax.reading.blocks import MAX_ROWS, batches_of_like_size, power_of_two, size_of
from dclm_jax.reading.continuations import SentenceReader, score_after
from dclm_jax.reading.reader import Reader
from dclm_jax.score_types import (
    DocumentScore,
    DocumentVectors,
    GeneratedText,
    SentenceAttention,
    SentenceScore,
    require_free_names,
)
from dclm_jax.training import saved_model
from dclm_jax.training.progress import count_parameters
from dclm_jax.training.workdir import (
    opened,
    read_config,
    read_corpus_checksums,
    read_training_text,
    restore_run,
)

Sentence = str | Sequence[str]
"""Words separated by spaces, or a list of words."""
Documents = Iterable[Document | Sequence[Sentence]]
AnyDocument = TypeVar("AnyDocument", bound=Document | Sequence[Sentence])
OfSentence = TypeVar("OfSentence")
OfTest = TypeVar("OfTest")

DEFAULT_BATCH_SIZE = 32
DEFAULT_NUM_SENTENCES, DEFAULT_MAX_SENTENCE_WORDS = 5, 100
DEFAULT_MAX_LENGTH_RATIO = 1.5
_PACKAGE = os.path.join(os.path.dirname(__file__), "")
_WINDOW = 256
"""Number of documents that are read ahead, so that documents of similar length share a batch."""


@dataclasses.dataclass(frozen=True)
class DocumentState:
    """The state after the first sentences of a document; see `LanguageModel.read`.

    A state never changes, so that any number of continuations may start from it.
    """

    lm: "LanguageModel"
    state: Any = dataclasses.field(repr=False)

    def read(self, *sentences: Sentence) -> "DocumentState":
        """The state after these further sentences."""
        return self.after(self.lm.encode(sentences))

    def after(self, ids: list[np.ndarray]) -> "DocumentState":
        """The state after further sentences of word ids."""
        if not ids:
            return self
        return DocumentState(self.lm, self.lm.reader.read(self.state, [ids])[0])

    def score(
        self, candidates: Sequence[Sentence], *, no_context_too: bool = False
    ) -> list[SentenceScore]:
        """The score of each candidate as the next sentence. A candidate without words has the
        log-probability of END directly after START.

        Args:
          no_context_too: as in `LanguageModel.score`.
        """
        states, reader = [self.state], self.lm.reader
        if no_context_too:
            self.lm.require_language_model("a score without context")
            states.append(reader.open(1))
        words = _words(candidates, "the candidates are")
        ids = list(map(self.lm.vocabulary.encode, words))
        names = surprisal_columns(no_context_too=no_context_too)
        nll = (score_after(reader, state, [0] * len(ids), ids) for state in states)
        measures = (dict(zip(names, values, strict=True)) for values in zip(*nll, strict=True))
        return list(map(SentenceScore.of, words, ids, measures))

    def next_words(self, prefix: Sentence = "", k: int = 10) -> list[tuple[str, float]]:
        """The k likeliest next words with their log-probabilities in nats, likeliest first.

        Args:
          prefix: the first words of the sentence.
          k: number of words; END counts as a word.
        """
        require_at_least("k", k, 1)
        (words,) = _words([prefix])
        (log_probs_V,) = self.lm.reader.next(self.state, self.lm.vocabulary.encode(words))
        best = np.argsort(-log_probs_V, kind="stable")[:k]
        return [(self.lm.vocabulary.words[i], float(log_probs_V[i])) for i in best]

    def generate(
        self,
        num_sentences: int = DEFAULT_NUM_SENTENCES,
        decoding: Decoding = GREEDY,
        *,
        max_sentence_words: int = DEFAULT_MAX_SENTENCE_WORDS,
        seed: int = 0,
    ) -> GeneratedText:
        """A continuation of the document; see `LanguageModel.generate`."""
        self.lm.require_generating()
        limits = Limits(num_sentences, max_sentence_words)
        keys = generation.random_keys([seed], [0])
        (text,) = generation.generate(self.state, decoding, [limits], keys)
        return self.lm.to_words(text)

    @property
    def vector(self) -> np.ndarray:
        """The state as one vector, float [X] (`DocumentModel.vector`)."""
        vectors = self.lm.reader.vectors(self.state)
        if vectors is None:
            raise _without_context(self.lm.name)
        return vectors[0]


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """A model of any kind with its vocabulary.

    Attributes:
      name: name of the model, as in its configuration.
      num_parameters: number of trained scalars, or of stored n-grams of all orders.
      vocabulary: the words and their ids.
      config: configuration of the training run.
      make_scorer, make_reader: functions that make `scorer` and `reader` at first use; a model that
        only scores whole documents has no reader.
      step, validation_perplexity: training step of the parameters, and their perplexity on the
        validation split in training; None for n-gram models.
      text: text options of the training corpus, and its OOV rates.
      corpus_checksums: checksums of the training corpus by file; empty if they are unknown.
      model: a model of the registry; None for other models and with adaptation.
      params: the parameters, without adaptation; None for models that have no parameters.
      matmul_precision: precision of products (`nn.precision`); None for n-gram models, which have
        no products, and for mixtures.
      batch_size: maximum number of documents scored or encoded together.
      adaptation: test-time adaptation to each scored document, if any.
    """

    name: str
    num_parameters: int
    vocabulary: Vocabulary
    config: dict[str, Any]
    make_scorer: Callable[[], WordScorer]
    make_reader: Callable[[], SentenceReader[Any]] | None = None
    step: int | None = None
    validation_perplexity: float | None = None
    model: DocumentModel | None = None
    params: Params | None = None
    matmul_precision: str | None = None
    text: TrainingText = TrainingText()
    corpus_checksums: dict[str, str] = dataclasses.field(default_factory=dict)
    batch_size: int = DEFAULT_BATCH_SIZE
    adaptation: Adaptation | None = None

    def __repr__(self) -> str:
        return f"LanguageModel({self.summary}, {len(self.vocabulary):,} entries)"

    @functools.cached_property
    def scorer(self) -> WordScorer:
        """Scores word ids."""
        return self.make_scorer()

    @functools.cached_property
    def reader(self) -> SentenceReader[Any]:
        """Reads word ids incrementally."""
        if self.make_reader is None:
            raise InputError(
                f"{self.title} only scores whole documents; use a single model without adaptation "
                "to read incrementally or generate"
            )
        return self.make_reader()

    @functools.cached_property
    def fingerprint(self) -> str:
        """The checksum of the configuration and the parameters without adaptation."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for leaf in jax.tree.leaves(self.params):
            digest.update(np.asarray(leaf).tobytes())
        return digest.hexdigest()[:16]

    @property
    def reads_source(self) -> bool:
        """Whether the model is an autoencoder, whose documents have a source."""
        return self.model is not None and self.model.reads_source

    def require_language_model(self, purpose: str) -> None:
        """Raises an InputError for autoencoders."""
        if self.reads_source:
            raise InputError(
                f"{purpose} needs a language model, and {self.name} is an autoencoder; use "
                "launch.reconstruct or launch.evaluate"
            )

    def require_generating(self) -> Reader:
        """The reader of a model that continues texts."""
        self.require_language_model("a continuation")
        return generation.require_words(self.reader)

    def require_reconstructing(self) -> Reader:
        """The reader of a model that reconstructs texts."""
        if not self.reads_source:
            raise InputError(
                f"{self.name} is a language model, which continues texts; use launch.generate, or "
                "choose an autoencoder"
            )
        return generation.require_words(self.reader)

    @property
    def title(self) -> str:
        """The name, and the kind of test-time adaptation, if any."""
        return f"{self.name} + {self.adaptation.kind}" if self.adaptation else self.name

    @property
    def summary(self) -> str:
        """Name, size, step and precision in one line."""
        step = "" if self.step is None else f", step {self.step:,}"
        precision = self.matmul_precision and f", matmul precision {self.matmul_precision}"
        return f"{self.title}, {self.num_parameters:,} parameters{step}{precision or ''}"

    def encode(self, document: Document | Sequence[Sentence]) -> list[np.ndarray]:
        """The word ids of a document's sentences; sentences without words are omitted."""
        (encoded,) = _encoded(self.vocabulary, [document], keep_empty=True)
        return encoded.sentences

    def documents(
        self, text: str, options: TextOptions | None = None, *, name: str = "text"
    ) -> list[Document]:
        """The documents in a text, for `score`, `read` and all other methods.

        Args:
          text: a text such as "It rained. We left."
          options: text options, by default `string_options`.
          name: name of the text; documents without a name are called NAME:LINE.

        A Python warning counts omitted words and invisible characters.
        """
        if not isinstance(text, str):
            raise InputError(f"text is {brief(text)}; expected a string")
        return list(parse_documents(text, options or self.string_options(), name, report=_warn))

    def string_options(self) -> TextOptions:
        """The text options of the training corpus for strings: a model trained on tagged text reads
        lines of words."""
        options = self.text.options or PLAIN
        if options.format == "tagged":
            options = dataclasses.replace(options, format=PLAIN.format)
        return options

    def read_text(self, text: str, options: TextOptions | None = None) -> DocumentState:
        """The state after the only document of `documents(text, options)`."""
        document, *others = self.documents(text, options)
        if others:
            raise InputError(f"the text has {1 + len(others)} documents; expected one")
        return self.read(document)

    def surprisals(
        self,
        documents: Documents,
        *,
        no_context_too: bool = False,
        measures: Sequence[str] = (SURPRISAL,),
    ) -> dict[str, np.ndarray]:
        """A table with one row per target of documents, which `pandas.DataFrame` accepts.

        Args:
          documents, no_context_too, measures: as for `score`.

        Returns:
          Columns of equal length: "document" (its name), "sentence" and "position" (int64, both
          from 1; a sentence without words has a number and no row), "word", "surprisal" (float64,
          nats), with `no_context_too` "surprisal_no_context" (nats, without earlier sentences), the
          other measures (float64), and "known" (bool), as in `SentenceScore`; then the columns of
          the documents' tables (strings; None where a document has no cell).
        """
        names = surprisal_columns(no_context_too=no_context_too)
        names += column_names(measures, no_context_too=no_context_too)
        scores = self.score(documents, no_context_too=no_context_too, measures=measures)
        rows = [row for score in scores for row in score.rows()]
        carried = dict.fromkeys(name for row in rows for name in row.columns)
        require_free_names(carried)
        kinds = {"document": object, "sentence": np.int64, "position": np.int64, "word": object}
        table = {
            name: np.array([getattr(row, name) for row in rows], kind)
            for name, kind in kinds.items()
        }
        for name in names:
            table[name] = np.array([row.measures[name] for row in rows], np.float64)
        table["known"] = np.array([row.known for row in rows], bool)
        table_cells = {
            name: np.array([row.columns.get(name) for row in rows], object) for name in carried
        }
        return {**table, **table_cells}

    def score(
        self,
        documents: Documents,
        *,
        no_context_too: bool = False,
        measures: Sequence[str] = (SURPRISAL,),
    ) -> Iterator[DocumentScore]:
        """Scores documents in their order; input may be larger than memory.

        Args:
          documents: `dclm_jax.data.documents.Document`s, or lists of sentences; a sentence is a
            string of words separated by spaces, or a list of words. Scores are aligned one to one
            with documents and their sentences: a sentence without words has no targets and log P 0.
          no_context_too: whether to score every sentence also without context, as the first
            sentence of a document (`log_probs_no_context`).
          measures: names of `evaluation.distributions.WORD_MEASURES`; the surprisal is always
            included. With other measures, which a single model of words has, surprisals are equal
            up to rounding. `no_context_too` adds each measure without earlier sentences.

        Yields:
          One score per document, with the Document's id, or with its position from 0, as its name.
        """
        if no_context_too:
            self.require_language_model("a score without context")
        surprisals = surprisal_columns(no_context_too=no_context_too)
        others = column_names(measures, no_context_too=no_context_too)
        without_words = SentenceScore(0.0, [], [], {name: [] for name in [*surprisals, *others]})
        encoded = _encoded(self.vocabulary, documents, keep_empty=True)
        for document, measured in self._measured(encoded, surprisals, others):
            words = filter(None, document.words)
            scores = map(SentenceScore.of, words, document.sentences, measured)
            cells = {}
            if isinstance(document.passed, Document) and document.passed.rows:
                cells = columns(document.passed)
            yield DocumentScore.of(document.id, document.aligned(scores, without_words), cells)

    def _measured(
        self, documents: Iterable[OfSentence], surprisals: Sequence[str], others: Sequence[str]
    ) -> Iterator[tuple[OfSentence, list[dict[str, np.ndarray]]]]:
        """Documents with the surprisals and other measures of these names of every sentence."""
        no_context_too = len(surprisals) > 1
        if not others:
            score = functools.partial(with_no_context, self.scorer)
            for document, *nll in (score if no_context_too else self.scorer.score)(documents):
                sentences = zip(*nll, strict=True)
                yield document, [dict(zip(surprisals, nats, strict=True)) for nats in sentences]
            return
        model, params = self.require_distribution()
        if DIVERGENCE in others:
            self.require_language_model("a divergence")
            no_context_too = True
        for document, measured in distributions.measure(
            model, params, documents, no_context_too=no_context_too, batch_size=self.batch_size
        ):
            names = [*surprisals, *others]
            yield document, [{name: sentence[name] for name in names} for sentence in measured]

    def minimal_pairs(self, choices: Iterable[Choice | Sequence[Sentence]]) -> Iterator[Outcome]:
        """Chooses among alternative sentences; input may be larger than memory.

        Args:
          choices: `data.alternatives.Choice`s, or lists of alternatives, the right one
            first. `evaluation.minimal_pairs.accuracies` averages the outcomes.
        """
        self.require_language_model("a choice of sentences")
        requests = (request for choice in choices for request in self._requests(choice))
        scored = self.scorer.score(requests)
        return minimal_pairs.outcomes(scored, end_is_target=self.scorer.objective == "words")

    def _requests(self, choice: Choice | Sequence[Sentence]) -> list[Continuation]:
        """The documents to score for a choice, one per alternative."""
        if not isinstance(choice, Choice):
            choice = Choice(choice)
        words, before = (
            _words(sentences, f"{choice.where}: the alternatives are")
            for sentences in (choice.alternatives, choice.context)
        )
        minimal_pairs.require_different(choice, words)
        context = [self.vocabulary.encode(sentence) for sentence in before if sentence]
        return [
            Continuation([*context, self.vocabulary.encode(alternative)], owner=choice)
            for alternative in words
        ]

    def require_distribution(self) -> tuple[DocumentModel, Params]:
        """The model and the parameters of a single model without adaptation, whose distribution of
        the next word is the distribution that is scored."""
        if self.model is None or self.params is None:
            others = ", ".join(distributions.WORD_MEASURES[1:])
            raise InputError(
                f"{self.title} scores only the words of a text, so that {others} are not known; "
                "choose the measure surprisal, or a single neural model without adaptation"
            )
        return self.model, self.params

    def attention(self, document: Document | Sequence[Sentence]) -> list[SentenceAttention]:
        """The attention weights of every target of a document, as `score` takes it; see
        `Reader.attention`. A sentence without words has no targets and no positions."""
        (encoded,) = _encoded(self.vocabulary, [document], keep_empty=True)
        if self.model is None or not isinstance(reader := self.reader, Reader):
            raise InputError(
                f"{self.name} has no attention to earlier sentences; choose a model with "
                "attention, such as adclm"
            )
        words = [*filter(None, encoded.words)]
        attention = []
        weights_of = reader.attention(encoded.sentences)
        for t, (targets, weights) in enumerate(zip(words, weights_of, strict=True)):
            earlier = words[max(0, t - reader.model.attended_sentences) : t]
            if reader.model.attends_to == "sentences":
                positions = list(map(" ".join, earlier))
            elif reader.model.attends_to == "words":
                inputs = [word for sentence in earlier for word in (START_TOKEN, *sentence)]
                positions = inputs or ["c_0"]
            else:
                memory = [word for sentence in words[:t] for word in (*sentence, END_TOKEN)]
                positions = ["softmax", *memory[len(memory) - (weights.shape[1] - 1) :]]
            attention.append(SentenceAttention([*targets, END_TOKEN], positions, weights))
        return encoded.aligned(attention, SentenceAttention([], [], np.zeros((0, 0), np.float32)))

    def read(
        self,
        sentences: Document | Sequence[Sentence] = (),
        source: Document | Sequence[Sentence] | None = None,
    ) -> DocumentState:
        """The state after the first sentences of a document.

        Args:
          sentences: a document, as `score` takes it.
          source: the source of the document, for an autoencoder.
        """
        if source is None and self.reads_source:
            raise InputError(f"{self.name} is an autoencoder; pass the source of the document")
        if source is not None and not self.reads_source:
            raise InputError(f"{self.name} reads no source; pass only the sentences")
        reader = self.reader
        documents = [sentences] if source is None else [source, sentences]
        encoded = _encoded(self.vocabulary, documents, keep_empty=True)
        *sources, ids = (document.sentences for document in encoded)
        if not sources:
            return DocumentState(self, reader.open(1)).after(ids)
        if not sources[0]:
            raise InputError("the source has no words; pass a source with words")
        return DocumentState(self, self.require_reconstructing().open(1, sources)).after(ids)

    def order(self, sentences: Document | Sequence[Sentence], beam: int = DEFAULT_BEAM) -> Ordered:
        """The likeliest order of a document's sentences, see `decoding.ordering`.

        Returns:
          Indices of the sentences with words; log P of this order in nats, and whether the order is
          proven to be the likeliest.
        """
        self.require_language_model("an order")
        documents = [*_encoded(self.vocabulary, [sentences])]
        if not documents:
            raise InputError("there are no words to put in order; pass a sentence with words")
        (document,) = documents
        ordered = order_sentences(self.reader, document.sentences, beam)
        indices = [index for index, words in enumerate(document.words) if words]
        return ordered._replace(order=[indices[i] for i in ordered.order])

    def vectors(self, documents: Documents) -> Iterator[DocumentVectors]:
        """The vectors of documents in their order, with documents and names as in `score`; input
        may be larger than memory."""
        batch_size = min(self.batch_size, MAX_ROWS)
        reader = self.reader
        if not isinstance(reader, Reader):
            raise _without_context(self.name)
        # The index of the whole document among the vectors.
        whole = 0 if self.reads_source else -1
        remaining = _encoded(self.vocabulary, documents, keep_empty=True)
        while window := list(itertools.islice(remaining, max(_WINDOW, batch_size))):
            encoded = [document.sentences for document in window]
            for document in window:
                if not document.sentences:
                    raise InputError(
                        f"document {document.id} has no words, and so no vector; remove it"
                    )
            sizes = [size_of(ids, reads_source=self.reads_source) for ids in encoded]
            vectors_of: dict[int, np.ndarray] = {}
            for indices, _ in batches_of_like_size(sizes, power_of_two(batch_size)):
                together = [encoded[index] for index in indices]
                vectors = reader.vectors_along(together)
                if vectors is None:
                    raise _without_context(self.name)
                vectors_of.update(zip(indices, vectors, strict=True))
            for index, document in enumerate(window):
                read = np.cumsum(list(map(bool, document.words)))
                yield DocumentVectors(
                    document.id, vectors_of[index][whole], vectors_of[index][read]
                )

    def generate(
        self,
        documents: Iterable[AnyDocument],
        num_sentences: int = DEFAULT_NUM_SENTENCES,
        decoding: Decoding = GREEDY,
        *,
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
          max_sentence_words: maximum number of words per sentence.
          seed: random seed for sampling. The text of a document depends on the seed, the number of
            the document and the document, not on other documents.
          samples: number of texts per document; text s, counted from 0, is the first text with the
            seed `seed` + s.

        Yields:
          Every document with its texts.
        """
        reader, limits = self.require_generating(), Limits(num_sentences, max_sentence_words)
        return self._texts(reader, documents, lambda ids: limits, decoding, seed, samples)

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
        reader = self.require_reconstructing()
        if not 0 < max_length_ratio < math.inf:
            raise InputError(f"max_length_ratio is {max_length_ratio}; expected a number above 0")

        def limits(ids: list[np.ndarray]) -> Limits:
            words = sum(map(len, ids))
            if not words:
                raise InputError("a document has no words; remove it")
            max_words = max(1, int(max_length_ratio * words))
            return Limits(max_words, max_words, max_words)

        return self._texts(reader, documents, limits, decoding, seed, samples)

    def _texts(
        self,
        reader: Reader,
        documents: Iterable[AnyDocument],
        limits: Callable[[list[np.ndarray]], Limits],
        decoding: Decoding,
        seed: int,
        samples: int,
    ) -> Iterator[tuple[AnyDocument, list[GeneratedText]]]:
        """Texts for documents, generated for a window of documents at a time."""
        require_at_least("samples", samples, 1)
        remaining, first = _encoded(self.vocabulary, documents, keep_empty=True), 0
        while window := list(itertools.islice(remaining, _WINDOW)):
            ids = [document.sentences for document in window for _ in range(samples)]
            texts = generation.generate_many(
                reader,
                ids,
                decoding,
                list(map(limits, ids)),
                generation.random_keys(
                    [seed + sample for _ in window for sample in range(samples)],
                    [first + number for number in range(len(window)) for _ in range(samples)],
                ),
            )
            spelled = map(self.to_words, texts)
            for document in window:
                yield document.passed, list(itertools.islice(spelled, samples))
            first += len(window)

    def to_words(self, text: generation.Text) -> GeneratedText:
        """A generated text as words, with its scores."""
        sentences = [
            SentenceScore.of(self.vocabulary.decode(ids.tolist()), ids, {SURPRISAL: -log_probs})
            for ids, log_probs in zip(text.sentences, text.log_probs, strict=True)
        ]
        log_probs = [*(sentence.log_prob for sentence in sentences), *text.decisions]
        return GeneratedText(math.fsum(log_probs), sentences, text.has_ended)

    def perplexity(self, documents: Documents | Dataset) -> Perplexity:
        """The perplexity of documents, as `score` takes them; documents without words are
        omitted."""
        dataset = self._dataset(documents)
        (measured,) = interpolation.measure([self.scorer], dataset.documents)
        return self.with_training_oov(dataclasses.replace(measured, **dataset.counts))

    def coherence(self, documents: Documents | Dataset, **options: Any) -> CoherenceResults:
        """Order-discrimination accuracy: how often a document is more probable than its sentences
        in another order.

        Args:
          documents: documents, as `score` takes them. Documents without words are omitted;
            documents of one sentence are counted, but not tested.
          **options: attributes of `CoherenceOptions`, such as permutations=20 or
            extra_tests=["insertion"].
        """
        self.require_language_model("coherence")
        encoded = self._dataset(documents).sentences
        return measure_coherence(
            encoded,
            CoherenceOptions(**options),
            functools.partial(self.compare_orders, encoded),
        )

    def compare_orders(
        self,
        documents: Sequence[Sequence[np.ndarray]],
        test: OrderTest[OfTest],
        *,
        on_document: OnDocument = lambda done: None,
    ) -> OrderResult[OfTest]:
        """Documents of word ids compared with the orders of a test; see `coherence.compare`."""
        reader = self.reader if self.model is not None else None
        return compare(self.scorer, documents, test, reader=reader, on_document=on_document)

    def measure(self, documents: Documents | Dataset) -> dict[str, Any]:
        """The values of `evaluation.measures.MEASURES` by name, for documents as `perplexity` takes
        them."""
        new = [kind() for kind in measures.MEASURES]
        dataset = self._dataset(documents)
        interpolation.measure([self.scorer], dataset.documents, measures=[new])
        return {each.name: each.value() for each in new}

    def with_training_oov(self, measured: Perplexity) -> Perplexity:
        """The perplexity with the OOV rate of the test split of the training corpus."""
        return dataclasses.replace(measured, own_oov_rate=self.text.unknown_rates.get("test"))

    def adapt(
        self,
        kind: str,
        *,
        tune_on: Documents | Dataset | None = None,
        data: str | None = None,
        label: str | None = None,
        on_document: OnDocument = lambda done: None,
        **setting: float | None,
    ) -> "LanguageModel":
        """The model with test-time adaptation to each document; it scores documents.

        Args:
          kind: "cache" (neural), "unigram" (cache) or "dynamic" (evaluation).
          tune_on: documents, as `score` takes them, on which missing numbers of the setting are
            tuned; they should differ from the measured documents.
          data, label, on_document: as for `evaluation.adaptation.adapt`.
          **setting: weight, theta, window and strength of a neural cache, weight and strength of a
            unigram cache, rate, decay and sentences of dynamic evaluation.
        """
        make_scorer, adaptation = adapt(
            self,
            kind,
            setting,
            tune_on=None if tune_on is None else self._dataset(tune_on),
            data=data,
            label=label,
            on_document=on_document,
        )
        return dataclasses.replace(
            self, make_scorer=make_scorer, make_reader=None, model=None, adaptation=adaptation
        )

    def save(self, folder: storage.PathLike, *, dtype: str = "float16", about: str = "") -> None:
        """Saves the model as a new folder, which `restore` and every command read like a run.

        The folder has plain files and no path of this machine, so that it may be shared; see
        `training.saved_model`.

        Args:
          folder: a folder that does not exist yet, or an address.
          dtype: "float16" or "float32", the type of the saved parameters. float32 reproduces all
            scores; float16 takes half of the space and rounds parameters to eleven bits.
          about: Markdown text for the model card, such as sources and licence of the training text.
        """
        params, step, perplexity = self.params, self.step, self.validation_perplexity
        if self.model is None or params is None or step is None or perplexity is None:
            raise InputError(
                f"{self.title} cannot be saved; save a single neural model without adaptation"
            )
        if not isinstance(about, str):
            raise InputError(f"about is {brief(about)}; expected a string")
        run = saved_model.Facts(step, perplexity, self.vocabulary.fingerprint)
        saved_model.write_model(
            folder,
            saved_model.Contents(
                self.config, self.vocabulary, self.text, self.corpus_checksums, params, run
            ),
            dtype,
            about,
        )

    def _dataset(self, documents: Documents | Dataset) -> Dataset:
        if isinstance(documents, Dataset):
            return documents
        encoded = _encoded(self.vocabulary, documents)
        return Dataset(lambda: encoded, None, {"input": "documents"})


def restore(
    workdir: str | os.PathLike[str],
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    matmul_precision: str = SCORING_PRECISION,
) -> LanguageModel:
    """The best model of a run of `launch.train`, the model of a run of `launch.ngram`, a saved
    model, or a pretrained model.

    Args:
      workdir: workdir of the run, or folder of `LanguageModel.save`: a directory or an address such
        as gs://bucket/run; or the name of a pretrained model, such as english, unless the current
        directory has a run of this name.
      batch_size: maximum number of documents scored or encoded together; it changes speed and
        memory, not scores.
      matmul_precision: precision of products in place of the precision in training
        (`nn.precision.MATMUL_PRECISIONS`). Only "highest" gives the same scores on any device.
    """
    require_at_least("batch_size", batch_size, 1)
    with opened(workdir) as folder:
        text, corpus_checksums = read_training_text(folder), read_corpus_checksums(folder)
        if read_config(folder)["model"]["name"] == ngram.NAME:
            counted = ngram.restore_run(folder)
            return LanguageModel(
                name=ngram.NAME,
                num_parameters=sum(counted.counts),
                vocabulary=counted.vocabulary,
                config=counted.config,
                text=text,
                make_scorer=lambda: counted.scorer,
                make_reader=lambda: counted.scorer,
            )
        run = restore_run(folder)
    model = dataclasses.replace(run.model, matmul_precision=matmul_precision)
    return LanguageModel(
        name=model.name,
        num_parameters=count_parameters(run.params),
        vocabulary=run.vocabulary,
        config=run.config,
        step=run.step,
        validation_perplexity=run.info.get("perplexity"),
        text=text,
        corpus_checksums=corpus_checksums,
        make_scorer=functools.partial(Scorer, model, run.params, batch_size=batch_size),
        make_reader=functools.partial(Reader, model, run.params),
        model=model,
        params=run.params,
        matmul_precision=matmul_precision,
        batch_size=batch_size,
    )


def mix(
    first: LanguageModel,
    second: LanguageModel,
    weight: float | None = None,
    *,
    tune_on: Documents | Dataset | None = None,
) -> LanguageModel:
    """The mixture p = w p_first + (1 - w) p_second for every target, which scores documents.

    Args:
      first, second: models with one vocabulary.
      weight: w, from 0 to 1.
      tune_on: documents, as `LanguageModel.score` takes them, on which the weight is tuned; they
        should differ from the measured documents.
    """
    a, b = (datasets.describe_vocabulary(lm.vocabulary) for lm in (first, second))
    if a != b:
        raise InputError(
            f"the models have different vocabularies ({a}; {b}); choose models of one corpus"
        )
    if (weight is None) == (tune_on is None):
        raise InputError(
            "a mixture needs either a weight or documents to tune it on; pass weight=W or "
            "tune_on=documents"
        )
    scorers = first.scorer, second.scorer
    if tune_on is not None:
        weight = interpolation.tune(scorers, first._dataset(tune_on)).weight
    assert weight is not None
    scorer = interpolation.MixedScorer(*scorers, weight)

    return LanguageModel(
        name="mixture",
        num_parameters=first.num_parameters + second.num_parameters,
        vocabulary=first.vocabulary,
        config={"weight": weight, "first": first.config, "second": second.config},
        make_scorer=lambda: scorer,
        text=first.text,
        batch_size=first.batch_size,
    )


def _without_context(name: str) -> InputError:
    return InputError(f"{name} has no context; choose a model with context")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Document(datasets.Encoded, Generic[AnyDocument]):
    """A document as it was passed, and the words of all its sentences. Only sentences with words
    have ids and are read."""

    passed: AnyDocument
    words: list[list[str]]

    def aligned(self, results: Iterable[OfSentence], empty: OfSentence) -> list[OfSentence]:
        """The results of sentences with words, and `empty` for sentences without words."""
        remaining = iter(results)
        return [next(remaining) if sentence else empty for sentence in self.words]


def _encoded(
    vocabulary: Vocabulary, documents: Iterable[AnyDocument], *, keep_empty: bool = False
) -> Iterator[_Document[AnyDocument]]:
    """Documents with word ids, streamed, with their ids or their positions from 0 as names.

    At the end a warning counts omitted sentences without words and, unless `keep_empty`, omitted
    documents. If no document remains there is no warning, because the caller raises an error.
    """
    if isinstance(documents, str) or not isinstance(documents, Iterable):
        raise InputError(
            f"documents are {brief(documents)}; expected a list of documents (for raw text: "
            "score(documents(text)))"
        )
    num_documents = empty_sentences = empty_documents = 0
    for index, document in enumerate(documents):
        words = _words(document)
        with_words = [sentence for sentence in words if sentence]
        empty_sentences += len(words) - len(with_words)
        if not (with_words or keep_empty):
            empty_documents += 1
            continue
        num_documents += 1
        name = document.id if isinstance(document, Document) else str(index)
        encoded = datasets.encode(vocabulary, with_words, name)
        yield _Document(**vars(encoded), passed=document, words=words)
    if num_documents and (empty_sentences or empty_documents):
        note = f"; documents without words: {empty_documents:,}" if empty_documents else ""
        _warn(f"sentences without words omitted: {empty_sentences:,}{note}")


def _words(document: Document | Sequence[Sentence], what: str = "a document is") -> list[list[str]]:
    sentences = document.sentences if isinstance(document, Document) else document
    if isinstance(sentences, str) or not isinstance(sentences, Iterable):
        raise InputError(
            f"{what} {brief(sentences)}; expected a list of sentences, such as "
            '["a sentence .", "another one ."] (for raw text: read_text, documents)'
        )
    return [
        sentence.split() if isinstance(sentence, str) else _checked(sentence)
        for sentence in sentences
    ]


def _checked(sentence: Any) -> list[str]:
    words = list(sentence) if isinstance(sentence, Iterable) else [sentence]
    for word in words:
        if not isinstance(word, str) or len(word.split()) != 1:
            raise InputError(f"a word is {brief(word)}; expected a string without white space")
    return words


def _warn(message: str) -> None:
    """Warns at the line that called this package."""
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(sys._getframe()))
    inside_package = itertools.takewhile(lambda file: file.startswith(_PACKAGE), files)
    warnings.warn(message, stacklevel=1 + sum(1 for _ in inside_package))
