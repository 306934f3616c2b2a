"""Results of runs as rows: grouped by configuration, labelled, compared with baselines.

Runs whose configurations differ only in the seed are one row; its numbers are means over the runs.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dclm_jax import storage
from dclm_jax.coherence.results import Coherence
from dclm_jax.errors import InputError, printable
from dclm_jax.evaluation import significance
from dclm_jax.evaluation.results import ResultT
from dclm_jax.evaluation.significance import Sums, ZTest, z_test
from dclm_jax.evaluation.target_sums import Grouping, TargetSums
from dclm_jax.report.results import ModelResults, RunFacts, RunResults

BASELINES = ("rnnlm", "drnnlm", "hrnnlm")
"""Models with which other models are compared."""
_LENGTH = "data.segment_length"

_MODELS = ("ngram", *BASELINES, "adclm", "codclm", "ccdclm", "pointer_drnnlm")
_ORDER = {name: n for n, name in enumerate(_MODELS)}
_SYMBOLS = {"model.embedding_dim": "K", "model.hidden_dim": "H", _LENGTH: "L"}
_NORMAL = 1.96
_NOT_THE_RECIPE = (
    *("training.seed", "data.directory", "training.checkpoint_every", "training.log_every"),
    "training.evaluation_batch_size",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """Runs of one configuration with different seeds.

    Attributes:
      label: the model's name, and the settings that differ from other rows of that model.
      config: the configuration without the seed, with keys such as "a.b".
      runs: facts and results of each run.
    """

    label: str
    config: dict[str, Any]
    runs: list[RunResults]

    @property
    def model(self) -> str:
        """The model's name."""
        return self.config["model.name"]

    @property
    def facts(self) -> RunFacts:
        """The facts of the first run."""
        return self.runs[0].facts

    @property
    def seeds(self) -> list[int | None]:
        """The seed of every run; None for a model without a seed."""
        return [run.facts.seed for run in self.runs]

    def only(self, seeds: Sequence[int | None]) -> "Row":
        """The row of the runs with these seeds."""
        return dataclasses.replace(self, runs=[r for r in self.runs if r.facts.seed in seeds])

    def results(self, get: Callable[[RunResults], ResultT | None]) -> list[ResultT] | None:
        """The result that `get` returns for every run; None if it is missing in a run."""
        results = [result for run in self.runs if (result := get(run)) is not None]
        return results if len(results) == len(self.runs) else None

    def values(self, name: str) -> list[float] | None:
        """A number of every run, by its name in `RunResults.numbers`; None if it is missing in a
        run."""
        return self.results(lambda run: run.numbers.get(name))

    def mean(self, name: str) -> float | None:
        """The mean of a number over runs; None if it is missing in a run."""
        values = self.values(name)
        return None if values is None else float(np.mean(values))

    @property
    def adapted(self) -> list[str]:
        """The kinds of test-time adaptation that were measured in every run."""
        return [
            kind for kind in self.runs[0].adapted if all(kind in run.adapted for run in self.runs)
        ]

    def sums(self, get: Callable[[TargetSums], Sums]) -> Sums | None:
        """The nats (means over runs) and the numbers of targets of the test documents by column;
        None if a run has no test results."""
        tests = self.results(test_of)
        if tests is None:
            return None
        nll, counts = zip(*map(get, tests), strict=True)
        return Sums(np.mean(nll, axis=0), counts[0])

    def group_perplexities(self, grouping: Grouping) -> dict[str, float | None]:
        """Test perplexities by group, means over runs; None for a group without targets."""
        return {name: self.mean(f"{grouping.name}.{name}") for name in grouping.groups}

    def resampled(self) -> np.ndarray:
        """Test perplexities in resampled test sets [resamples], means over runs. The test sets are
        equal for all rows; all runs must have test results."""
        by_document = [test.by_document for test in self.results(test_of) or ()]
        nats_DxR = np.concatenate([sums.nll for sums in by_document], axis=1)
        return Sums(nats_DxR, by_document[0].count).resampled().mean(axis=1)

    def perplexity_interval(self) -> list[float] | None:
        """The ends of the 95% interval of the test perplexity over documents."""
        return None if self.results(test_of) is None else _interval(self.resampled())

    def coherence_interval(
        self, get: Callable[[RunResults], Coherence | None]
    ) -> list[float] | None:
        """The ends of the 95% interval of an accuracy over documents, from the normal distribution.
        The standard deviation over resampled test sets is the standard error."""
        results = self.results(get)
        if results is None:
            return None
        variance = np.mean([_sd(result) ** 2 + result.pool_error**2 for result in results])
        half, mean = _NORMAL * math.sqrt(variance), np.mean([result.mean for result in results])
        return [max(0.0, float(mean - half)), min(1.0, float(mean + half))]


def test_of(run: ModelResults) -> TargetSums | None:
    """The sums over the targets of the test split."""
    return run.test


def coherence_of(run: ModelResults) -> Coherence | None:
    """The accuracy in distinguishing test documents from permutations."""
    return run.coherence and run.coherence.result


def _sd(result: Coherence) -> float:
    """The standard deviation over two or more resampled test sets."""
    assert result.sd is not None
    return result.sd


def rows_of(runs: Sequence[RunResults]) -> list[Row]:
    """Rows of runs by configuration: the models of Ji et al. (2015) in their order, then others.

    Runs of models that predict different things, and two runs of one configuration and seed, are
    refused.
    """
    workdirs = {run.facts.objective: run.facts.workdir for run in runs}
    if len(workdirs) > 1:
        predictions = " and ".join(f"{place} predicts {what}" for what, place in workdirs.items())
        raise InputError(
            f"{predictions}, so their perplexities are not comparable; choose runs of one kind"
        )
    grouped: dict[str, Row] = {}
    for run in runs:
        recipe = _recipe(run.facts)
        row = grouped.setdefault(json.dumps(recipe, sort_keys=True), Row("", recipe, []))
        for other in row.runs:
            if other.facts.seed == run.facts.seed:
                raise InputError(
                    f"{other.facts.workdir} and {run.facts.workdir} are the same run: "
                    "configuration and seed are equal; remove one workdir"
                )
        row.runs.append(run)
    recipes = [row.config for row in grouped.values()]
    labelled = [dataclasses.replace(r, label=_label(r.config, recipes)) for r in grouped.values()]
    return sorted(labelled, key=lambda row: _ORDER.get(row.model, len(_ORDER)))


def baselines_of(all_rows: Sequence[Row], value: str | None) -> Sequence[str]:
    """The baselines that a value of --baseline names: a row by the work directory of one of its
    runs, or a model."""
    if value is None:
        return BASELINES
    for row in all_rows:
        if storage.resolve(value) in [storage.resolve(run.facts.workdir) for run in row.runs]:
            return (row.label,)
    models = sorted({row.model for row in all_rows})
    if value not in models:
        raise InputError(
            f"--baseline is {value}; choose a run of --workdirs, or one of the models "
            + ", ".join(models)
        )
    return (value,)


def _recipe(facts: RunFacts) -> dict[str, Any]:
    config = facts.config | {"training_text": facts.training_text}
    if facts.unfinished:
        config["unfinished"] = True
    return without(config, _NOT_THE_RECIPE)


def without(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The entries whose keys are not in `keys`."""
    return {key: value for key, value in config.items() if key not in keys}


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys of hyper-parameters whose values differ between configurations."""

    def differs(key: str) -> bool:
        values = [config[key] for config in configs if key in config]
        return any(value != values[0] for value in values)

    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if key != "model.name" and differs(key)]


def symbol(key: str) -> str:
    """The name of a hyper-parameter in tables."""
    *_, last = key.split(".")
    return _SYMBOLS.get(key, printable(key if last == "name" else last))


def option_text(key: str, value: Any) -> str:
    """The value of a hyper-parameter in tables."""
    if key == _LENGTH and value == 0:
        return "whole documents"
    text = str(value)
    return printable(text[:8] if key.endswith("sha256") else text)


def _label(recipe: Mapping[str, Any], recipes: Sequence[Mapping[str, Any]]) -> str:
    """The model's name, and the settings that distinguish it from other rows of the model."""
    name = recipe["model.name"]
    same = [other for other in recipes if other["model.name"] == name]
    keys = [key for key in recipe if any(other.get(key) != recipe[key] for other in same)]
    values = [f"{symbol(key)} = {option_text(key, recipe[key])}" for key in keys]
    return f"{name}, {', '.join(values)}" if values else name


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A row and the row of its baseline, with the runs that are compared.

    Attributes:
      row: the row.
      baseline: the row of the baseline.
      same_recipe: whether both have the same recipe.
      seeds: the shared seeds, whose runs are compared; None if no seed is shared and all runs are
        compared.
    """

    row: Row
    baseline: Row
    same_recipe: bool
    seeds: list[Any] | None

    def ratio(self, name: str = "test.perplexity") -> float | None:
        """The ratio of the means of a number over runs; None without results."""
        mean, other = self.row.mean(name), self.baseline.mean(name)
        return None if mean is None or other is None else mean / other

    @property
    def is_measured(self) -> bool:
        """Whether test perplexities or coherence accuracies are compared."""
        return self.ratio() is not None or self.coherence_test is not None

    @property
    def interval(self) -> list[float] | None:
        """The ends of the 95% interval of the ratio of test perplexities over documents; None
        without results or for fewer than two documents."""
        if self.ratio() is None:
            return None
        return _interval(self.row.resampled() / self.baseline.resampled())

    def ratios(self, grouping: Grouping) -> tuple[np.ndarray, np.ndarray] | None:
        """Ratios of mean perplexities by group [groups], and the ends of their 95% intervals over
        documents [2, groups], nan without an interval; None without results."""
        tests, others = self.row.results(test_of), self.baseline.results(test_of)
        if tests is None or others is None:
            return None
        means, baseline = (
            np.array([*row.group_perplexities(grouping).values()], float)
            for row in (self.row, self.baseline)
        )
        resampled, of_baseline = (
            np.mean([grouping.sums(test).resampled() for test in of_runs], axis=0)
            for of_runs in (tests, others)
        )
        with np.errstate(invalid="ignore"):
            return means / baseline, significance.interval(resampled / of_baseline)

    @property
    def perplexity_test(self) -> ZTest | None:
        """The z-test of whether the row has a higher likelihood than the baseline: `paired_test` of
        the nats of documents; None without results."""
        nats, baseline = (
            row.sums(lambda test: test.by_document) for row in (self.row, self.baseline)
        )
        if nats is None or baseline is None:
            return None
        return paired_test(baseline.nll[:, 0] - nats.nll[:, 0])

    @property
    def coherence_test(self) -> ZTest | None:
        """The z-test of whether the row has a higher accuracy than the baseline: `paired_test` of
        the accuracies on documents that a test set draws; None without results. It does not depend
        on the number of resampled test sets.

        Ji et al. (2015) test over test sets, by a formula that they do not state: z = 36.55 and
        31.26 in their Table 3. Such a z grows with the number of test sets.
        """
        of_row, of_baseline = (
            row.results(lambda run: run.coherence) for row in (self.row, self.baseline)
        )
        if of_row is None or of_baseline is None:
            return None
        accuracy, other = (
            np.mean([result.accuracies for result in results], axis=0)
            for results in (of_row, of_baseline)
        )
        difference = accuracy - other
        return paired_test(difference[~np.isnan(difference)])

    def to_json(self) -> dict[str, Any]:
        """All numbers as a JSON object."""
        tests = {"perplexity": self.perplexity_test, "coherence": self.coherence_test}
        return {
            "baseline": self.baseline.label,
            "same_recipe": self.same_recipe,
            "seeds": self.seeds,
            "ratio": self.ratio(),
            "interval": self.interval,
            **{name: test and test._asdict() for name, test in tests.items()},
        }


def compared(row: Row, all_rows: Sequence[Row], name: str) -> Comparison | None:
    """The comparison of a row with a baseline; None without a row of the baseline.

    `name` is the label of a row or a model. Among the rows of a model, a row with the same recipe
    is chosen: all shared keys except L are equal, and L is equal if such a row exists. If no row
    has the same recipe and the model has only one row, that row is chosen.
    """
    others = [
        other
        for other in all_rows
        if other.label == name != row.label or other.model == name != row.model
    ]

    def is_alike(other: Row) -> bool:
        shared = (row.config.keys() & other.config.keys()) - {"model.name", _LENGTH}
        return all(row.config[key] == other.config[key] for key in shared)

    def has_other_length(other: Row) -> bool:
        return other.config.get(_LENGTH) != row.config.get(_LENGTH)

    other = min(filter(is_alike, others), key=has_other_length, default=None)
    same_recipe = other is not None
    if other is None:
        if len(others) != 1:
            return None
        (other,) = others
    seeds = [seed for seed in row.seeds if seed in other.seeds]
    if not seeds:
        return Comparison(row, other, same_recipe, None)
    return Comparison(row.only(seeds), other.only(seeds), same_recipe, seeds)


def to_json(all_rows: Sequence[Row], baselines: Sequence[str]) -> dict[str, Any]:
    """All numbers of all rows, without numbers of single documents."""
    return {
        "rows": [
            {
                "label": row.label,
                "config": row.config,
                "test_interval": row.perplexity_interval(),
                "compared": {
                    name: comparison.to_json()
                    for name in baselines
                    if (comparison := compared(row, all_rows, name)) and comparison.is_measured
                },
                "runs": [run.to_json() for run in row.runs],
            }
            for row in all_rows
        ]
    }


def change_text(ratio: float) -> str:
    """The change that a ratio is, in percent."""
    return f"{100 * (ratio - 1):+.1f}%"


def paired_test(difference_D: np.ndarray) -> ZTest | None:
    """A one-sided paired z-test of whether a mean difference over documents is above 0.

    z = mean(d) / (sd(d) / sqrt(n)), d the difference of a document (means over runs). The result is
    None if there are fewer than two documents, or if all differences are equal.
    """
    if len(difference_D) < 2:
        return None
    variance = float(difference_D.var(ddof=1)) / len(difference_D)
    return z_test(float(difference_D.mean()), variance)


def _interval(resampled: np.ndarray) -> list[float] | None:
    ends = significance.interval(resampled[:, None])[:, 0]
    return None if np.isnan(ends).any() else ends.tolist()
