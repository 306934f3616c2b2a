"""Facts and results of runs, which all rows, tables and figures of a report are made of."""

import dataclasses
import datetime
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dclm_jax import files, storage
from dclm_jax.coherence.compare import Bootstrap, FirstSentence
from dclm_jax.coherence.results import FIRST_DECIDES, Coherence, OrderResult
from dclm_jax.data.datasets import Dataset
from dclm_jax.errors import InputError
from dclm_jax.evaluation import adaptation
from dclm_jax.evaluation.adaptation import Tuning
from dclm_jax.evaluation.context_ablation import ContextAblation, ContextPerplexities
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.results import Evaluation, Results, ResultT, label_of
from dclm_jax.evaluation.target_sums import GROUPINGS, Grouping, Targets, TargetSums
from dclm_jax.language_model import LanguageModel, require_no_source
from dclm_jax.log import logger
from dclm_jax.scoring.adaptation import Setting
from dclm_jax.training.config import flat
from dclm_jax.training.workdir import CORPUS_FILE, METRICS_FILE, RESULT_FILE, metrics_lines


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Options of a report.

    Attributes:
      measure: measure the results that are not saved. By default their cells are blank.
      bootstrap: number of resampled test sets for coherence; 0 skips coherence.
      permutation_pool: number of permutations per document from which test sets draw. Each takes
        the time of one test set. 0 shuffles every draw, as in Ji et al. (2015).
      fix_first: number of sentences at the start of each document that stay in place.
      seed: random seed for permutations, test sets and the context ablation.
      adaptations: settings of test-time adaptation by kind, see `evaluation.adaptation`.
      data: prepared corpus. Default: the training corpus of the first run.
      baseline: baseline of all rows: the workdir of one of the runs, or the name of a model, such
        as rnnlm, that has a run of the same recipe. Default: rnnlm for perplexity; rnnlm, drnnlm
        and hrnnlm for coherence.
    """

    measure: bool = False
    bootstrap: int = 1000
    permutation_pool: int = 50
    fix_first: int = 0
    seed: int = 0
    adaptations: Mapping[str, Setting] = dataclasses.field(default_factory=dict)
    data: str | None = None
    baseline: str | None = None

    def __post_init__(self) -> None:
        if self.bootstrap < 0 or self.bootstrap == 1:
            raise InputError(f"--bootstrap is {self.bootstrap}; choose 0, or 2 or more")
        # The test checks its options, also if coherence is skipped.
        self.bootstrap_test()

    def bootstrap_test(self) -> Bootstrap:
        """The test of coherence; of one test set if coherence is skipped."""
        shuffle = Shuffle(fix_first=self.fix_first)
        return Bootstrap(shuffle, self.seed, self.bootstrap or 1, self.permutation_pool)


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """Facts of a run that need no measurement; an n-gram model has no training steps.

    Attributes:
      config: the configuration, with keys such as "a.b".
      objective: see `perplexity.COUNTING_RULES`.
      has_context: whether the score of a sentence depends on earlier sentences.
      has_pieces: whether the vocabulary has pieces of words, so that no word is OOV.
      usual_oov_rate: OOV rate of the test split of the training corpus; None if unknown.
      step: training step of the parameters.
      training_text: beginning of the checksum of the training text; None if unknown.
      seconds: time of training; None if unknown.
      curve: training steps and their validation perplexities.
      validation: least perplexity of the curve; None if the report has another corpus.
      unfinished: whether training has not ended.
    """

    workdir: str
    config: dict[str, Any]
    parameters: int
    objective: str
    has_context: bool
    has_pieces: bool
    usual_oov_rate: float | None
    step: int | None
    matmul_precision: str | None
    training_text: str | None = None
    seconds: int | None = None
    curve: Sequence[tuple[int, float]] = ()
    validation: float | None = None
    unfinished: bool = False

    @property
    def seed(self) -> int | None:
        """The random seed of training; None for a model without a seed."""
        return self.config.get("training.seed")


@dataclasses.dataclass(frozen=True)
class ModelResults:
    """Results of a model on the test split; None if they are missing.

    Attributes:
      test: sums over all targets.
      coherence: the bootstrap, with the accuracy if only the first sentence is moved.
    """

    test: TargetSums | None = None
    coherence: OrderResult[Coherence] | None = None

    def to_json(self) -> dict[str, Any]:
        """All numbers, without numbers of single documents."""
        test, coherence = self.test, self.coherence
        return {
            "test": test and test.perplexity.to_json(),
            "coherence": coherence and dataclasses.asdict(coherence.result),
        }


@dataclasses.dataclass(frozen=True)
class RunResults(ModelResults):
    """Facts and results of a run; None for results that are missing.

    Attributes:
      valid: sums over all targets of the validation split.
      contexts: perplexities in other contexts.
      first_fixed: coherence with the first sentence fixed.
      adapted: results with test-time adaptation by its kind.
      settings: settings of test-time adaptation by its kind.
    """

    facts: RunFacts = dataclasses.field(kw_only=True)
    valid: TargetSums | None = None
    contexts: ContextPerplexities | None = None
    first_fixed: Coherence | None = None
    adapted: Mapping[str, ModelResults] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def numbers(self) -> dict[str, Any]:
        """All numbers by their names in `to_json`, such as "test.perplexity" and
        "adapted.cache.coherence.mean"; None for missing results."""
        return flat(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Facts and numbers, without numbers of single documents; None for missing results."""
        facts = dataclasses.asdict(self.facts)
        del facts["config"]
        contexts, fixed = self.contexts, self.first_fixed
        test = self.test and self.test.perplexity.perplexity
        return {
            "seed": self.facts.seed,
            **facts,
            "valid": self.valid and self.valid.perplexity.to_json(),
            **super().to_json(),
            "contexts": contexts and {"original": test, **dataclasses.asdict(contexts)},
            "first_fixed": fixed and dataclasses.asdict(fixed),
            "adapted": {
                kind: {"setting": self.settings[kind], **results.to_json()}
                for kind, results in self.adapted.items()
            },
            **{grouping.name: self.group_perplexities(grouping) for grouping in GROUPINGS},
        }

    def group_perplexities(self, grouping: Grouping) -> dict[str, float | None]:
        """Test perplexities by group; None for a group without targets."""
        if self.test is None:
            return dict.fromkeys(grouping.groups)
        values = zip(grouping.groups, grouping.sums(self.test).perplexities.tolist(), strict=True)
        return {name: None if math.isnan(value) else value for name, value in values}


def facts_of(lm: LanguageModel, directory: str) -> RunFacts:
    """Facts of the run of a model, for a report on the corpus in a directory."""
    require_no_source(lm)
    facts = RunFacts(
        workdir=lm.facts.workdir,
        config=flat(lm.facts.config),
        parameters=lm.facts.num_parameters,
        objective=lm.scorer.objective,
        has_context=lm.scorer.context_order != 0,
        has_pieces=lm.vocabulary.has_pieces,
        usual_oov_rate=lm.facts.text.oov_rates.get("test"),
        step=lm.facts.step,
        matmul_precision=lm.facts.matmul_precision,
    )
    wanted = {METRICS_FILE, CORPUS_FILE, RESULT_FILE}
    with storage.fetched(lm.facts.workdir, wanted.intersection) as folder:
        if (folder / CORPUS_FILE).exists():
            with files.reading(folder / CORPUS_FILE):
                checksum = storage.file_sha256(folder / CORPUS_FILE)
            facts = dataclasses.replace(facts, training_text=checksum[:8])
        if not (folder / METRICS_FILE).exists():
            return facts
        lines = metrics_lines(folder)
        evaluations = [line for line in lines if line.kind == "valid"]
        if not evaluations:
            raise InputError(
                f"{folder / METRICS_FILE}: no line of kind 'valid'; train until the first "
                "evaluation"
            )
        training_corpus = lm.facts.config["data"]["directory"]
        is_own = bool(training_corpus) and (
            storage.resolve(training_corpus) == storage.resolve(directory)
        )
        return dataclasses.replace(
            facts,
            seconds=round(lines[-1].seconds),
            curve=[(line.step, line.perplexity) for line in evaluations],
            validation=min(line.perplexity for line in evaluations) if is_own else None,
            unfinished=not (folder / RESULT_FILE).exists(),
        )


class Forecast:
    """Logs how many results are measured, and estimates the time left from the last result of each
    kind (an evaluation of a split, by a model with or without context)."""

    def __init__(self):
        self._left: dict[str, str] = {}
        self._total = 0
        self._seconds: dict[str, float] = {}

    def expect(self, kinds: Mapping[str, str]) -> None:
        """Logs the number of results to measure, given the kind of each by its label."""
        self._left, self._total = dict(kinds), len(kinds)
        if kinds:
            logger.info(f"results to measure: {len(kinds):,}")

    def measured(self, label: str, seconds: float) -> None:
        """Logs the progress, and the time left if it is known for all remaining kinds. Results that
        were not expected, such as those of adaptations, are not logged."""
        if label not in self._left:
            return
        self._seconds[self._left.pop(label)] = seconds
        left = self._left.values()
        progress = f"results measured: {self._total - len(left):,} of {self._total:,}"
        if left and set(left) <= self._seconds.keys():
            seconds = sum(map(self._seconds.__getitem__, left))
            progress += f", about {datetime.timedelta(seconds=round(seconds))} left"
        logger.info(progress)


@dataclasses.dataclass(frozen=True)
class Collector:
    """Collects the results of runs on the splits of a corpus.

    Attributes:
      missing: labels of the results that are not saved and were not measured.
      forecast: logs the progress of measuring.
    """

    valid: Dataset
    test: Dataset
    options: ReportOptions
    results: Results
    missing: list[str] = dataclasses.field(default_factory=list)
    forecast: Forecast = dataclasses.field(default_factory=Forecast)

    def collect(
        self, models: Sequence[LanguageModel], facts: Sequence[RunFacts]
    ) -> list[RunResults]:
        """The results of the runs of models, aligned one to one with them and their facts."""
        evaluations = [(self.valid, Targets()), (self.test, Targets())]
        evaluations += [(self.test, evaluation) for evaluation in self._further()]
        unsaved = {
            label_of(lm, dataset, evaluation): _kind(lm, dataset, evaluation)
            for lm in models
            if self.options.measure
            for dataset, evaluation in evaluations
            if self.results.saved(lm, dataset, evaluation) is None
        }
        self.forecast.expect(unsaved)
        runs = list(map(self._run, models, facts))
        if first_decides(runs) and max(map(len, self.test.sentences)) >= 3:
            test = dataclasses.replace(self.options, fix_first=1).bootstrap_test()
            fixed = (self._result(lm, self.test, test) for lm in models)
            runs = [
                dataclasses.replace(run, first_fixed=drawn and drawn.result)
                for run, drawn in zip(runs, fixed, strict=True)
            ]
        return list(map(self._with_adaptation, models, runs))

    def _run(self, lm: LanguageModel, facts: RunFacts) -> RunResults:
        return RunResults(
            facts=facts,
            test=self._result(lm, self.test, Targets()),
            valid=self._result(lm, self.valid, Targets()),
            contexts=self._result(lm, self.test, ContextAblation(self.options.seed)),
            coherence=self._coherence(lm),
        )

    def _further(self) -> list[Evaluation[Any]]:
        """The evaluations of a run besides its perplexities."""
        seed, coherence = self.options.seed, []
        if self.options.bootstrap:
            coherence.append(self.options.bootstrap_test())
            if not self.options.fix_first:
                coherence.append(FirstSentence(seed=seed))
        return [ContextAblation(seed), *coherence]

    def _with_adaptation(self, lm: LanguageModel, run: RunResults) -> RunResults:
        adapted, settings = {}, {}
        for kind, setting in self.options.adaptations.items():
            if adaptation.obstacle(lm, kind):
                continue
            tuning = Tuning.of(lm, kind, setting, self.valid.source["data"])
            tuned_adaptation = tuning.given or self._result(lm, self.valid, tuning)
            if tuned_adaptation is None:
                continue
            adaptive = adaptation.adapted(lm, tuned_adaptation, tuning.data)
            measured = self._result(adaptive, self.test, Targets())
            adapted[kind] = ModelResults(measured, self._coherence(adaptive))
            settings[kind] = tuned_adaptation.setting
        return dataclasses.replace(run, adapted=adapted, settings=settings)

    def _coherence(self, lm: LanguageModel) -> OrderResult[Coherence] | None:
        if not self.options.bootstrap:
            return None
        drawn = self._result(lm, self.test, self.options.bootstrap_test())
        if drawn is None or self.options.fix_first:
            return drawn
        first = self._result(lm, self.test, FirstSentence(seed=self.options.seed))
        if first is None:
            return None
        coherence = dataclasses.replace(drawn.result, first_sentence=first.result)
        return dataclasses.replace(drawn, result=coherence)

    def _result(
        self, lm: LanguageModel, dataset: Dataset, evaluation: Evaluation[ResultT]
    ) -> ResultT | None:
        label = label_of(lm, dataset, evaluation)
        if self.options.measure:
            start = time.monotonic()
            result = self.results.measured(lm, dataset, evaluation)
            self.forecast.measured(label, time.monotonic() - start)
            return result
        result = self.results.saved(lm, dataset, evaluation)
        if result is None:
            self.missing.append(label)
        return result


def _kind(lm: LanguageModel, dataset: Dataset, evaluation: Evaluation[Any]) -> str:
    # Without context a model takes less time.
    return f"{evaluation.title} ({dataset.name}), context order {lm.scorer.context_order}"


def first_decides(runs: Sequence[RunResults]) -> bool:
    """Whether some model identifies the order of documents from the first sentence."""
    shares = [run.coherence.result.first_sentence for run in runs if run.coherence]
    return any(share is not None and share >= FIRST_DECIDES for share in shares)
