"""Language models of every kind, which score text.

Log-probabilities are natural logarithms (nats); a surprisal is a negative log-probability. Methods
take documents as `dclm_jax.data.encoding` defines them.
"""

import collections
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from dclm_jax.data.corpus import TrainingText
from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import PLAIN, Document, TextOptions, columns, require_free_names
from dclm_jax.data.encoding import (
    Documents,
    Encoded,
    Encoder,
    OfSentence,
    SentenceText,
    words_of,
)
from dclm_jax.data.named_texts import named_documents
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError, brief
from dclm_jax.reading.continuations import SentenceReader
from dclm_jax.scoring.adaptation import Adaptation
from dclm_jax.scoring.distributions import (
    OTHER_COLUMNS,
    SURPRISAL,
    SURPRISAL_NO_CONTEXT,
    WORD_MEASURES,
    Measured,
    measure_documents,
    needs_no_context,
    score_columns,
)
from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.scoring.other_contexts import OtherContexts, in_other_contexts
from dclm_jax.scoring.perplexity import Perplexity, perplexity_of
from dclm_jax.scoring.score_files import RESULT_COLUMNS
from dclm_jax.scoring.score_types import DocumentScore, SentenceScore
from dclm_jax.scoring.scorer import Scorer, SummedScorer, with_no_context

DEFAULT_BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts of a model that need no measurement.

    Attributes:
      name: name of the model, as in its configuration.
      num_parameters: number of trained scalars, or of stored n-grams of all orders.
      config: configuration of the training run.
      text: text options of the training corpus, and its OOV rates.
      step: training step of the parameters; None for n-gram models and mixtures.
      matmul_precision: precision of products (`nn.precision`); None for n-gram models, which have
        no products, and for mixtures.
      workdir: workdir of the run; empty for a model without a run.
    """

    name: str
    num_parameters: int
    config: dict[str, Any]
    text: TrainingText = TrainingText()
    step: int | None = None
    matmul_precision: str | None = None
    workdir: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LanguageModel:
    """A model with its vocabulary, which scores documents: a neural model, an n-gram model, a
    mixture, or a model with test-time adaptation.

    Attributes:
      facts: the model's name, size, configuration and training text.
      vocabulary: the words and their ids.
      scorer: scores words and END from the ids of documents.
      adaptation: test-time adaptation to each scored document, if any.
    """

    facts: ModelFacts
    vocabulary: Vocabulary
    scorer: Scorer
    adaptation: Adaptation | None = None

    kind: ClassVar[str] = "a language model"
    """The kind of model in messages."""
    reads_source: ClassVar[bool] = False
    """Whether the model scores a document given a source."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary}, {self.vocabulary.size})"

    @functools.cached_property
    def fingerprint(self) -> str:
        """The checksum of the configuration and the parameters, without adaptation."""
        digest = hashlib.sha256(json.dumps(self.facts.config, sort_keys=True).encode())
        for leaf in jax.tree.leaves(self.scorer.params):
            digest.update(np.asarray(leaf).tobytes())
        return digest.hexdigest()[:16]

    @property
    def title(self) -> str:
        """The name, and the kind of test-time adaptation, if any."""
        return self._with_adaptation(self.facts.name)

    @property
    def label(self) -> str:
        """The workdir, or the name of a model without a run, and the kind of test-time adaptation,
        if any."""
        return self._with_adaptation(self.facts.workdir or self.facts.name)

    def _with_adaptation(self, name: str) -> str:
        return f"{name} + {self.adaptation.kind}" if self.adaptation else name

    @property
    def summary(self) -> str:
        """Name, size, step and precision in one line."""
        facts = self.facts
        step = "" if facts.step is None else f", step {facts.step:,}"
        precision = facts.matmul_precision and f", matmul precision {facts.matmul_precision}"
        return f"{self.title}, {facts.num_parameters:,} parameters{step}{precision or ''}"

    @property
    def reader(self) -> SentenceReader[Any]:
        """The reader of ids, which scores sentence by sentence from any state. Mixtures and models
        with test-time adaptation have no reader."""
        return self.scorer.reader

    def encoder(self) -> Encoder:
        """An encoder of one text, which knows the OOV rate of the training corpus, or its number of
        pieces per word."""
        has_pieces, text = self.vocabulary.has_pieces, self.facts.text
        rates = text.pieces_per_word if has_pieces else text.oov_rates
        return Encoder(self.vocabulary, rates.get("test"), text.options or PLAIN)

    def encoded(self, documents: Documents) -> Iterator[Encoded]:
        """Documents with word ids, streamed."""
        return self.encoder().documents(documents, keep_empty=True)

    def dataset(self, documents: Documents | Dataset) -> Dataset:
        """Documents as a dataset, which is read once; documents without words are omitted."""
        if isinstance(documents, Dataset):
            return documents
        encoded = self.encoder().documents(documents)
        return Dataset(lambda: encoded, None, {"input": "documents"})

    def encode(self, document: Document | Sequence[SentenceText]) -> list[np.ndarray]:
        """The ids of the sentences with words of a document, int32 [M] each."""
        (passed,) = self.encoded([document])
        return passed.sentences

    def documents(
        self,
        text: str | Iterable[str],
        options: TextOptions | None = None,
        *,
        name: str | None = None,
    ) -> list[Document]:
        """The documents in a text or in several texts, which all methods take.

        Args:
          text: a text such as "It rained. We left."; or a list of texts, named 0, 1, ...; or an
            object whose `items` are names and texts, such as a pandas.Series or a dict.
          options: text options, by default `string_options`.
          name: name of a single text; by default text1, text2, ... in the order of calls. A
            document is named after its text, or NAME:LINE if the text has several documents.

        Warnings in the log count omitted words and invisible characters.
        """
        return named_documents(text, options or self.string_options(), name)

    def oov_words(self, documents: Documents) -> dict[str, int]:
        """The OOV words of documents and their counts, most frequent first. Under a vocabulary of
        subwords only the text's own spelling of OOV words is OOV."""
        words = [word for text in documents for words in words_of(text) for word in words]
        counts = collections.Counter(itertools.compress(words, self.vocabulary.is_unknown(words)))
        return dict(counts.most_common())

    def string_options(self) -> TextOptions:
        """The text options of the training corpus for strings: a model trained on tagged text reads
        lines of words."""
        options = self.facts.text.options or PLAIN
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
        names = score_columns(measures, no_context_too=no_context_too, other_contexts=has_others)
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
            included. Other measures need a single neural model of words without adaptation;
            surprisals are then equal up to rounding. `no_context_too` adds each measure without
            earlier sentences.

        Yields:
          One score per document, with the Document's id, or with its position from 0, as its name.
        """
        names = score_columns(measures, no_context_too=no_context_too)
        all_names = [*names, *(OTHER_COLUMNS if other_contexts else ())]
        without_words = SentenceScore([], [], {name: [] for name in all_names})
        passed = self.encoded(documents)
        if not isinstance(other_contexts, OtherContexts | None):
            raise InputError(
                f"other_contexts is {brief(other_contexts)}; expected an OtherContexts, such as "
                "dclm_jax.OtherContexts(10)"
            )
        if other_contexts is None:
            all_measured = self._measured(passed, names)
        else:
            passed = list(passed)
            all_measured = self._with_other_contexts(
                passed, self._measured(passed, names), other_contexts
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
        self, documents: Iterable[OfSentence], names: Sequence[str]
    ) -> Iterator[tuple[OfSentence, list[Measured]]]:
        """Documents, with the measures of these names of each sentence."""
        no_context_too = needs_no_context(names)
        if {*names} - {SURPRISAL, SURPRISAL_NO_CONTEXT}:
            for document, measured in self.distributions(documents, no_context_too=no_context_too):
                yield document, [{name: sentence[name] for name in names} for sentence in measured]
            return
        score = functools.partial(with_no_context, self.scorer)
        for document, *nll in (score if no_context_too else self.scorer.score)(documents):
            sentences = zip(*nll, strict=True)
            yield document, [dict(zip(names, nats, strict=True)) for nats in sentences]

    def _with_other_contexts(
        self,
        documents: Sequence[Encoded],
        all_measured: Iterator[tuple[Encoded, list[Measured]]],
        options: OtherContexts,
    ) -> Iterator[tuple[Encoded, list[Measured]]]:
        """Adds the surprisals with the contexts of other documents."""
        pool = None
        if options.documents is not None:
            pool = list(self.dataset(options.documents).documents)
        scored = in_other_contexts(self.scorer, documents, options, pool)
        for (document, measured), (_, others) in zip(all_measured, scored, strict=True):
            both = zip(measured, others, strict=True)
            yield document, [{**measures, **scores.columns()} for measures, scores in both]

    def distributions(
        self, documents: Iterable[OfSentence], *, no_context_too: bool
    ) -> Iterator[tuple[OfSentence, list[Measured]]]:
        """Documents with the measures of the distribution of every target
        (`scoring.distributions.measure_documents`), which only a single neural model has."""
        scorer = self.scorer.ids if isinstance(self.scorer, SummedScorer) else None
        if not isinstance(scorer, NeuralScorer):
            others = ", ".join(WORD_MEASURES[1:])
            raise InputError(
                f"{self.title} scores only the words of a text, so that {others} are not known; "
                "choose the measure surprisal, or a single neural model without adaptation"
            )
        return measure_documents(scorer, documents, no_context_too=no_context_too)

    def perplexity(self, documents: Documents | Dataset) -> Perplexity:
        """The perplexity of documents, as `score` takes them; documents without words are
        omitted."""
        dataset = self.dataset(documents)
        return self.described(perplexity_of(self.scorer, dataset.documents), dataset)

    def described(self, measured: Perplexity, dataset: Dataset) -> Perplexity:
        """A perplexity with the counts of its dataset and the OOV rate of the test split of the
        training corpus."""
        rate = None if self.vocabulary.has_pieces else self.facts.text.oov_rates.get("test")
        return dataclasses.replace(measured, usual_oov_rate=rate, **dataset.counts)


def require_no_source(lm: LanguageModel) -> None:
    """Raises an `InputError` if a model gives a document a probability only given a source."""
    if lm.reads_source:
        raise InputError(
            f"{lm.label} is an autoencoder, whose documents have no probability without a source; "
            "choose a language model"
        )
