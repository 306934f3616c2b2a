"""Models that score text: perplexities, surprisals, and choices among alternatives.

Log-probabilities are natural logarithms (nats); a surprisal is a negative log-probability. Methods
take documents as `dclm_jax.data.encoding` defines them.
"""

import abc
import collections
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from dclm_jax.coherence.measure import CoherenceOptions, CoherenceResults, measure_coherence
from dclm_jax.data.corpus import TrainingText
from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import (
    PLAIN,
    Document,
    OnDocument,
    TextOptions,
    columns,
    require_free_names,
)
from dclm_jax.data.encoding import (
    Documents,
    Encoded,
    Encoder,
    OfSentence,
    SentenceText,
    words_of,
)
from dclm_jax.data.readers import parse_documents
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation import adaptation, minimal_pairs
from dclm_jax.evaluation.adaptation import Adaptation, Tuning
from dclm_jax.evaluation.minimal_pairs import Choice, Outcome
from dclm_jax.evaluation.target_sums import Targets, TargetSums
from dclm_jax.log import logger
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.ngram import NGramScorer
from dclm_jax.reading.continuations import SentenceReader
from dclm_jax.scoring import distributions
from dclm_jax.scoring.distributions import (
    DIVERGENCE,
    OTHER_COLUMNS,
    SURPRISAL,
    Measured,
    measure_columns,
    surprisal_columns,
)
from dclm_jax.scoring.other_contexts import OtherContexts, in_other_contexts
from dclm_jax.scoring.perplexity import Perplexity
from dclm_jax.scoring.score_files import RESULT_COLUMNS
from dclm_jax.scoring.score_types import DocumentScore, SentenceScore
from dclm_jax.scoring.scorer import (
    Continuation,
    SummedScorer,
    TargetScorer,
    with_no_context,
)
from dclm_jax.tables import has_text

OfTest = TypeVar("OfTest")
DEFAULT_BATCH_SIZE = 32
_TEXTS = itertools.count(1)
"""Numbers of texts without a name."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScoringModel(abc.ABC):
    """A model with its vocabulary, which scores documents.

    Attributes:
      name: name of the model, as in its configuration.
      num_parameters: number of trained scalars, or of stored n-grams of all orders.
      vocabulary: the words and their ids.
      config: configuration of the training run.
      text: text options of the training corpus, and its OOV rates.
      step: training step of the parameters; None for n-gram models and mixtures.
      matmul_precision: precision of products (`nn.precision`); None for n-gram models, which have
        no products, and for mixtures.
      batch_size: maximum number of documents scored or encoded together.
      adaptation: test-time adaptation to each scored document, if any.
      workdir: workdir of the run; empty for a model without a run.
    """

    name: str
    num_parameters: int
    vocabulary: Vocabulary
    config: dict[str, Any]
    text: TrainingText = TrainingText()
    step: int | None = None
    matmul_precision: str | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    adaptation: Adaptation | None = None
    workdir: str = ""

    kind: ClassVar[str] = "a model"
    """The kind of model in messages."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary}, {self.vocabulary.size})"

    @functools.cached_property
    def scorer(self) -> TargetScorer:
        """Scores words and END from the ids of documents."""
        return self._make_scorer()

    @abc.abstractmethod
    def _make_scorer(self) -> TargetScorer: ...

    def __getstate__(self) -> dict[str, Any]:
        # Compiled scorers cannot be pickled, and are made again.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @functools.cached_property
    def fingerprint(self) -> str:
        """The checksum of the configuration and the parameters without adaptation."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """The name, and the kind of test-time adaptation, if any."""
        return f"{self.name} + {self.adaptation.kind}" if self.adaptation else self.name

    @property
    def label(self) -> str:
        """The workdir, or the name of a model without a run, and the kind of test-time adaptation,
        if any."""
        name = self.workdir or self.name
        return f"{name} + {self.adaptation.kind}" if self.adaptation else name

    @property
    def summary(self) -> str:
        """Name, size, step and precision in one line."""
        step = "" if self.step is None else f", step {self.step:,}"
        precision = self.matmul_precision and f", matmul precision {self.matmul_precision}"
        return f"{self.title}, {self.num_parameters:,} parameters{step}{precision or ''}"

    def encoder(self) -> Encoder:
        """An encoder of one text, which knows the OOV rate of the training corpus, or its number of
        pieces per word."""
        has_pieces, text = self.vocabulary.has_pieces, self.text
        rates = text.pieces_per_word if has_pieces else text.unknown_rates
        return Encoder(self.vocabulary, rates.get("test"), text.options or PLAIN)

    def _encoded(self, documents: Documents) -> Iterator[Encoded]:
        return self.encoder().documents(documents, keep_empty=True)

    def _dataset(self, documents: Documents | Dataset) -> Dataset:
        """Documents as a dataset, which is read once; documents without words are omitted."""
        if isinstance(documents, Dataset):
            return documents
        encoded = self.encoder().documents(documents)
        return Dataset(lambda: encoded, None, {"input": "documents"})

    def encode(self, document: Document | Sequence[SentenceText]) -> list[np.ndarray]:
        """The word ids of a document's sentences; sentences without words are omitted."""
        (passed,) = self._encoded([document])
        return passed.sentences

    def documents(
        self,
        text: str | Iterable[str],
        options: TextOptions | None = None,
        *,
        name: str | None = None,
    ) -> list[Document]:
        """The documents in a text or in several texts, for `score`, `read` and all other methods.

        Args:
          text: a text such as "It rained. We left."; or a list of texts, named 0, 1, ...; or an
            object whose `items` are names and texts, such as a pandas.Series or a dict.
          options: text options, by default `string_options`.
          name: name of a single text; by default text1, text2, ... in the order of calls. A
            document is named after its text, or NAME:LINE if the text has several documents.

        Warnings in the log count omitted words and invisible characters.
        """
        if isinstance(text, str):
            texts: Iterable[Any] = [(name or f"text{next(_TEXTS)}", text)]
        elif name is None and isinstance(text, Iterable):
            items = getattr(text, "items", None)
            texts = items() if items else enumerate(text)
        else:
            raise InputError(
                f"text is {brief(text)}; expected a string, or several strings without a name"
            )
        options = options or self.string_options()
        documents: dict[str, Document] = {}
        empty = []
        for key, string in texts:
            if not (isinstance(text, str) or has_text(string)):
                empty.append(key)
                parsed = [Document(str(key), [])]
            elif isinstance(string, str):
                parsed = parse_documents(string, options, str(key))
                empty += [key] * (not any(document.sentences for document in parsed))
            else:
                raise InputError(f"text {brief(key)} is {brief(string)}; expected a string")
            for document in parsed:
                if document.id in documents:
                    raise InputError(
                        f"two documents are named {brief(document.id)}; give each text its own name"
                    )
                documents[document.id] = document
        if documents and len(empty) == len(documents):
            raise InputError("no text of the texts has words; expected text")
        if empty:
            logger.warning(
                f"texts without words (empty, NA, NaN, None and similar): {len(empty):,}, such as "
                f"{brief(empty[0])}; their documents have no words"
            )
        return list(documents.values())

    def oov_words(self, documents: Documents) -> dict[str, int]:
        """The OOV words of documents and their counts, most frequent first. Under a vocabulary of
        subwords only the text's own spelling of OOV words is OOV."""
        words = [word for text in documents for words in words_of(text) for word in words]
        counts = collections.Counter(itertools.compress(words, self.vocabulary.is_unknown(words)))
        return dict(counts.most_common())

    def string_options(self) -> TextOptions:
        """The text options of the training corpus for strings: a model trained on tagged text reads
        lines of words."""
        options = self.text.options or PLAIN
        if options.format == "tagged":
            options = dataclasses.replace(options, format=PLAIN.format)
        return options

    def surprisals(
        self,
        documents: Documents,
        *,
        other_contexts: OtherContexts | None = None,
        no_context_too: bool = False,
        measures: Sequence[str] = (SURPRISAL,),
    ) -> dict[str, np.ndarray]:
        """A table with one row per target of documents, which `pandas.DataFrame` accepts.

        Args:
          documents, other_contexts, no_context_too, measures: as for `score`.

        Returns:
          Columns of equal length: "document" (its name), "sentence" and "position" (int64, both
          from 1; a sentence without words has a number and no row), "word", "surprisal" (float64,
          nats), with `other_contexts` "surprisal_other_context" and its standard deviation
          "surprisal_other_context_sd", with `no_context_too` "surprisal_no_context" (without
          earlier sentences), the other measures (float64), and "known" (bool), as in
          `SentenceScore`; then the columns of the documents' tables (strings; None where a document
          has no cell).
        """
        has_others = other_contexts is not None
        names = surprisal_columns(no_context_too=no_context_too, other_contexts=has_others)
        names += measure_columns(measures, no_context_too=no_context_too)
        scores = self.score(
            documents,
            other_contexts=other_contexts,
            no_context_too=no_context_too,
            measures=measures,
        )
        rows = [row for score in scores for row in score.rows()]
        carried = dict.fromkeys(name for row in rows for name in row.columns)
        require_free_names(carried, RESULT_COLUMNS)
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
        other_contexts: OtherContexts | None = None,
        no_context_too: bool = False,
        measures: Sequence[str] = (SURPRISAL,),
    ) -> Iterator[DocumentScore]:
        """Scores documents in their order; without `other_contexts` input may be larger than
        memory.

        Args:
          documents: `dclm_jax.data.documents.Document`s, or lists of sentences; a sentence is a
            string of words separated by spaces, or a list of words. Scores are aligned one to one
            with documents and their sentences: a sentence without words has no targets and log P 0.
          other_contexts: scores every sentence also with the contexts of other documents
            (`scoring.other_contexts`). This surprisal minus the surprisal with the own context
            is the effect of this context (`log_probs_other_context`). None for no such scores.
          no_context_too: whether to score every sentence also without context, as the first
            sentence of a document (`log_probs_no_context`).
          measures: names of `scoring.distributions.WORD_MEASURES`; the surprisal is always
            included. With other measures, which a single model of words has, surprisals are equal
            up to rounding. `no_context_too` adds each measure without earlier sentences.

        Yields:
          One score per document, with the Document's id, or with its position from 0, as its name.
        """
        surprisals = surprisal_columns(no_context_too=no_context_too)
        others = measure_columns(measures, no_context_too=no_context_too)
        names = [*surprisals, *others, *(OTHER_COLUMNS if other_contexts else ())]
        without_words = SentenceScore([], [], {name: [] for name in names})
        passed = self._encoded(documents)
        if not isinstance(other_contexts, OtherContexts | None):
            raise InputError(
                f"other_contexts is {brief(other_contexts)}; expected an OtherContexts, such as "
                "dclm_jax.OtherContexts(10)"
            )
        if other_contexts is None:
            all_measured = self._measured(passed, surprisals, others)
        else:
            passed = list(passed)
            all_measured = self._with_other_contexts(
                passed, self._measured(passed, surprisals, others), other_contexts
            )
        for document, measured in all_measured:
            words = filter(None, document.words)
            scores = [
                SentenceScore.of(sentence, self.vocabulary, measures)
                for sentence, measures in zip(words, measured, strict=True)
            ]
            cells = {}
            if isinstance(document.passed, Document) and document.passed.rows:
                cells = columns(document.passed)
            yield DocumentScore(document.id, document.aligned(scores, without_words), cells)

    def _measured(
        self, documents: Iterable[OfSentence], surprisals: Sequence[str], others: Sequence[str]
    ) -> Iterator[tuple[OfSentence, list[Measured]]]:
        """Documents with the surprisals and other measures of these names of every sentence."""
        no_context_too = len(surprisals) > 1 or DIVERGENCE in others
        if others:
            for document, measured in self.distributions(documents, no_context_too=no_context_too):
                names = [*surprisals, *others]
                yield document, [{name: sentence[name] for name in names} for sentence in measured]
            return
        score = functools.partial(with_no_context, self.scorer)
        for document, *nll in (score if no_context_too else self.scorer.score)(documents):
            sentences = zip(*nll, strict=True)
            yield document, [dict(zip(surprisals, nats, strict=True)) for nats in sentences]

    def _with_other_contexts(
        self,
        documents: Sequence[Encoded],
        all_measured: Iterator[tuple[Encoded, list[Measured]]],
        options: OtherContexts,
    ) -> Iterator[tuple[Encoded, list[Measured]]]:
        """Adds the surprisals with the contexts of other documents."""
        pool = None
        if options.documents is not None:
            pool = list(self._dataset(options.documents).documents)
        scored = in_other_contexts(self.scorer, documents, options, pool)
        for (document, measured), (_, others) in zip(all_measured, scored, strict=True):
            both = zip(measured, others, strict=True)
            yield document, [{**measures, **scores.columns()} for measures, scores in both]

    def distributions(
        self, documents: Iterable[OfSentence], *, no_context_too: bool
    ) -> Iterator[tuple[OfSentence, list[Measured]]]:
        """Documents with the measures of the distribution of every target
        (`scoring.distributions.measure_documents`), which only a single neural model has."""
        others = ", ".join(distributions.WORD_MEASURES[1:])
        raise InputError(
            f"{self.title} scores only the words of a text, so that {others} are not known; "
            "choose the measure surprisal, or a single neural model without adaptation"
        )

    def perplexity(self, documents: Documents | Dataset) -> Perplexity:
        """The perplexity of documents, as `score` takes them; documents without words are
        omitted."""
        return self.target_sums(documents).perplexity

    def target_sums(self, documents: Documents | Dataset) -> TargetSums:
        """Sums by position and document, for documents as `perplexity` takes them."""
        return Targets().measure(self, self._dataset(documents), lambda done: None)

    def with_training_oov(self, measured: Perplexity) -> Perplexity:
        """The perplexity with the OOV rate of the test split of the training corpus."""
        rate = None if self.vocabulary.has_pieces else self.text.unknown_rates.get("test")
        return dataclasses.replace(measured, own_oov_rate=rate)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TextScorer(ScoringModel):
    """A language model of any kind."""

    kind: ClassVar[str] = "a language model"

    def minimal_pairs(
        self, choices: Iterable[Choice | Sequence[SentenceText]]
    ) -> Iterator[Outcome]:
        """Chooses among alternative sentences; input may be larger than memory.

        Args:
          choices: `evaluation.minimal_pairs.Choice`s, or lists of alternatives, the right one
            first. An alternative is a sentence, or a list of sentences that are lists of words.
            `evaluation.minimal_pairs.accuracies` averages the outcomes.
        """
        requests = self._requests(choices)
        return minimal_pairs.outcomes(self.scorer, requests)

    def _requests(
        self, choices: Iterable[Choice | Sequence[SentenceText]]
    ) -> Iterator[Continuation]:
        """The documents to score, one per alternative."""
        encoder = self.encoder()
        for passed in choices:
            choice = passed if isinstance(passed, Choice) else Choice(passed)
            alternatives = minimal_pairs.sentences_of_alternatives(choice, encoder.words_of)
            before = encoder.words_of(choice.context, f"{choice.where}: the context is")
            context = [encoder.encode(sentence) for sentence in before if sentence]
            for words in alternatives:
                sentences = [encoder.encode(sentence) for sentence in words]
                yield Continuation([*context, *sentences], len(sentences), choice)
        encoder.log_oov()

    def coherence(self, documents: Documents | Dataset, **options: Any) -> CoherenceResults:
        """Order-discrimination accuracy: how often a document is more probable than its sentences
        in another order.

        Args:
          documents: documents, as `score` takes them. Documents without words are omitted;
            documents of one sentence are counted, but not tested.
          **options: attributes of `CoherenceOptions`, such as permutations=20 or
            extra_tests=["insertion"].
        """
        dataset = self._dataset(documents)
        return measure_coherence(
            dataset.sentences,
            CoherenceOptions(**options),
            lambda test: test.measure(self, dataset, lambda done: None),
        )

    @property
    def neural(self) -> tuple[DocumentModel, Params] | None:
        """A neural model without adaptation and its parameters, to which test-time adaptation adds
        a neural cache or gradient steps."""
        return None

    def adapt(
        self,
        kind: str,
        *,
        tune_on: Documents | Dataset | None = None,
        data: str | None = None,
        on_document: OnDocument = lambda done: None,
        **setting: float | None,
    ) -> "AdaptedModel":
        """The model with test-time adaptation to each document; it scores documents.

        Args:
          kind: "cache" (neural), "unigram" (cache) or "dynamic" (evaluation).
          tune_on: documents, as `score` takes them, on which missing numbers of the setting are
            tuned; they should differ from the measured documents.
          data: the prepared corpus whose training text scales the steps of dynamic evaluation; by
            default the model's corpus.
          on_document: called with the number of documents read to tune a setting.
          **setting: weight, theta, window and strength of a neural cache, weight and strength of a
            unigram cache, rate and decay of dynamic evaluation.
        """
        tuning = Tuning.of(self, kind, setting, data)
        tuned_adaptation = tuning.given
        if tuned_adaptation is None:
            if tune_on is None:
                raise InputError(
                    f"--adapt={kind}: {', '.join(tuning.missing)} missing; give numbers, or "
                    "documents to tune on"
                )
            tuned_adaptation = tuning.measure(self, self._dataset(tune_on), on_document)
        return self.adapted(tuned_adaptation, data)

    def adapted(self, adaptation: Adaptation, data: str | None = None) -> "AdaptedModel":
        """The model with this test-time adaptation; for `data` see `adapt`."""
        fields: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(ScoringModel)
        }
        fields["adaptation"] = adaptation
        return AdaptedModel(**fields, base=self, data=data)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AdaptedModel(TextScorer):
    """A model with test-time adaptation, which only scores.

    Attributes:
      base: the model without adaptation.
      data: see `TextScorer.adapt`.
    """

    base: TextScorer
    data: str | None = None

    def _make_scorer(self) -> TargetScorer:
        assert self.adaptation is not None
        return adaptation.adapted_scorer(self.base, self.adaptation, self.data)

    def adapt(self, kind: str, **options: Any) -> NoReturn:
        """Refuses a second adaptation."""
        del kind, options
        raise InputError(f"{self.title} is already adapted; adapt its attribute `base`")

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the model without adaptation."""
        return self.base.fingerprint


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SentenceModel(TextScorer):
    """A language model that also reads and scores sentence by sentence, from any state."""

    @property
    @abc.abstractmethod
    def reader(self) -> SentenceReader[Any]:
        """Reads word ids incrementally."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NGramModel(SentenceModel):
    """An n-gram model (`dclm_jax.ngram`)."""

    ngrams: NGramScorer

    kind: ClassVar[str] = "an n-gram model"

    def _make_scorer(self) -> TargetScorer:
        return SummedScorer(self.ngrams, self.vocabulary.first_word_end)

    @property
    def reader(self) -> NGramScorer:
        """Reads word ids incrementally."""
        return self.ngrams
