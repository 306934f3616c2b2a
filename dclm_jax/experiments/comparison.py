"""Results of runs as rows: grouped by configuration, labelled, compared with baselines.

Runs whose configurations differ only in the seed are one row; its numbers are means over the runs.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.errors import InputError, printable
from dclm_jax.evaluation import significance
from dclm_jax.evaluation.significance import ZTest, z_test

BASELINES = ("rnnlm", "drnnlm", "hrnnlm")
"""Models with which other models are compared."""
_LENGTH = "data.segment_length"

_MODELS = ("ngram", *BASELINES, "adclm", "codclm", "ccdclm", "pointer_drnnlm")
_ORDER = {name: n for n, name in enumerate(_MODELS)}
_SYMBOLS = {"model.embedding_dim": "K", "model.hidden_dim": "H", _LENGTH: "L"}
_SEED = "training.seed"
_NORMAL = 1.96
_NOT_THE_RECIPE = (
    *(_SEED, "data.directory", "training.checkpoint_every", "training.log_every"),
    "training.evaluation_batch_size",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """Runs of one configuration with different seeds.

    Attributes:
      label: the model's name, and the settings that differ from other rows of that model.
      config: the configuration without the seed, with keys such as "a.b".
      results: facts and measurements of each run; None for measurements that are missing.
    """

    label: str
    config: dict[str, Any]
    results: list[dict[str, Any]]

    @property
    def model(self) -> str:
        """The model's name."""
        return self.config["model.name"]

    @property
    def has_context(self) -> bool:
        """Whether the score of a sentence depends on earlier sentences."""
        return self.results[0]["has_context"]

    @property
    def seeds(self) -> list[Any]:
        """The seed of every run; None for a model without a seed."""
        return [result["config"].get(_SEED) for result in self.results]

    def only(self, seeds: Sequence[Any]) -> "Row":
        """The row of the runs with these seeds."""
        results = [r for r, seed in zip(self.results, self.seeds, strict=True) if seed in seeds]
        return dataclasses.replace(self, results=results)

    def has(self, *path: str) -> bool:
        """Whether all runs have the measurement at `path`."""
        values: list[Any] = self.results
        for name in path:
            values = [None if value is None else value.get(name) for value in values]
        return all(value is not None for value in values)

    def values(self, *path: str) -> np.ndarray:
        """The numbers, or lists of numbers, at `path` in the measurements: [runs, ...]. A null of
        JSON becomes infinity."""
        values: list[Any] = self.results
        for name in path:
            values = [value[name] for value in values]
        return np.array([math.inf if value is None else value for value in values])

    def mean(self, *path: str) -> float:
        """The mean over runs of the number at `path`."""
        return float(self.values(*path).mean())

    @property
    def adapted(self) -> list[str]:
        """The kinds of test-time adaptation that were measured."""
        adapted = self.results[0].get("adapted") or {}
        return [kind for kind in adapted if self.has("adapted", kind)]

    @property
    def has_documents(self) -> bool:
        """Whether the nats and the number of targets of each test document are measured."""
        return self.has("by_document") and self.has("by_token")

    def resampled(self) -> np.ndarray:
        """Test perplexities in resampled test sets [resamples], means over runs. The test sets are
        equal for all rows."""
        nats_DxR = self.values("by_document").T
        targets_Dx1 = self.values("by_token", "count")[0].sum(axis=1, keepdims=True)
        return np.exp(significance.resample(nats_DxR, targets_Dx1)).mean(axis=1)

    def sums(self, place: str) -> significance.Sums:
        """For every document and range of positions by `place`, the nats (means over runs) and the
        number of targets."""
        return significance.Sums(
            self.values(place, "nll").mean(axis=0), self.values(place, "count").mean(axis=0)
        )

    def perplexity_interval(self) -> list[float] | None:
        """The ends of the 95% interval of the test perplexity over documents."""
        return _interval(self.resampled()) if self.has_documents else None

    def coherence_interval(self, *path: str) -> list[float] | None:
        """The ends of the 95% interval of an accuracy over documents, from the normal distribution.
        The standard deviation over resampled test sets is the standard error."""
        if not self.has(*path):
            return None
        squares = [np.square(self.values(*path, key)).mean() for key in ("sd", "pool_error")]
        half, mean = _NORMAL * math.sqrt(sum(squares)), self.mean(*path, "mean")
        return [max(0.0, mean - half), min(1.0, mean + half)]


def rows(results: Sequence[dict[str, Any]]) -> list[Row]:
    """Rows of results by configuration: the models of Ji et al. (2015) in their order, then others.

    Args:
      results: `results.facts` of each run, with its measurements.
    """
    workdirs = {result["objective"]: result["workdir"] for result in results}
    if len(workdirs) > 1:
        predictions = " and ".join(f"{place} predicts {what}" for what, place in workdirs.items())
        raise InputError(
            f"{predictions}, so their perplexities are not comparable; choose runs of one kind"
        )
    grouped: dict[str, Row] = {}
    for result in results:
        recipe = _recipe(result)
        group = grouped.setdefault(json.dumps(recipe, sort_keys=True), Row("", recipe, [])).results
        for other in group:
            if other["config"].get(_SEED) == result["config"].get(_SEED):
                raise InputError(
                    f"{other['workdir']} and {result['workdir']} are the same run: configuration "
                    "and seed are equal; remove one workdir"
                )
        group.append(result)
    recipes = [row.config for row in grouped.values()]
    labelled = [dataclasses.replace(r, label=_label(r.config, recipes)) for r in grouped.values()]
    return sorted(labelled, key=lambda row: _ORDER.get(row.model, len(_ORDER)))


def _recipe(result: Mapping[str, Any]) -> dict[str, Any]:
    config = result["config"] | {"training_text": result["training_text"]}
    if result["unfinished"]:
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


class Pair(NamedTuple):
    """A row and the row of its baseline, with the runs that are compared.

    Attributes:
      row: the row.
      other: the baseline's row.
      same_recipe: whether both have the same recipe.
      seeds: the shared seeds, whose runs are compared; None if no seed is shared and all runs are
        compared.
    """

    row: Row
    other: Row
    same_recipe: bool
    seeds: list[Any] | None


def paired(row: Row, all_rows: Sequence[Row], name: str) -> Pair | None:
    """A row and the row to compare it with; None without such a row.

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
        return Pair(row, other, same_recipe, None)
    return Pair(row.only(seeds), other.only(seeds), same_recipe, seeds)


class Comparison(NamedTuple):
    """A comparison of a row with the row of a baseline.

    Attributes:
      baseline: label of the baseline's row.
      same_recipe, seeds: see `Pair`.
      ratio: ratio of test perplexities.
      interval: ends of the 95% interval of the ratio over documents (`evaluation.significance`);
        None for fewer than two documents.
      perplexity: `test_perplexity`; None if undefined.
      coherence: `test_coherence`; None if undefined or not measured.
    """

    baseline: str
    same_recipe: bool
    seeds: list[Any] | None
    ratio: float
    interval: list[float] | None
    perplexity: ZTest | None
    coherence: ZTest | None


def compare(row: Row, all_rows: Sequence[Row], name: str) -> Comparison | None:
    """Compares a row with the row of the baseline `name`; None without a baseline, or if one of the
    rows is not measured."""
    pair = paired(row, all_rows, name)
    if pair is None:
        return None
    row, other, same_recipe, seeds = pair
    if not all(each.has("test") and each.has_documents for each in (row, other)):
        return None
    has_coherence = row.has("coherence") and other.has("coherence")
    return Comparison(
        other.label,
        same_recipe,
        seeds,
        row.mean("test", "perplexity") / other.mean("test", "perplexity"),
        _interval(row.resampled() / other.resampled()),
        test_perplexity(row, other),
        test_coherence(row, other) if has_coherence else None,
    )


def ratios(
    row: Row, all_rows: Sequence[Row], name: str, place: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Ratios of perplexities of the row to perplexities of its baseline, by `place` [ranges], and
    the ends of their 95% intervals over documents [2, ranges], nan without an interval; None
    without a baseline or a measurement."""
    pair = paired(row, all_rows, name)
    if pair is None or not (pair.row.has(place) and pair.other.has(place)):
        return None
    sums, others = pair.row.sums(place), pair.other.sums(place)
    return sums.perplexities / others.perplexities, significance.of_ratio(sums, others)


def change_text(ratio: float) -> str:
    """The change that a ratio is, in percent."""
    return f"{100 * (ratio - 1):+.1f}%"


def test_perplexity(a: Row, b: Row) -> ZTest | None:
    """A one-sided paired z-test over documents: whether A has a higher likelihood than B.

    z = mean(d) / (sd(d) / sqrt(n)), d the difference of the nats of a document (means over runs).
    The result is None if there are fewer than two documents, or if all differences are equal.
    """
    difference = b.values("by_document").mean(axis=0) - a.values("by_document").mean(axis=0)
    if len(difference) < 2:
        return None
    sd = float(difference.std(ddof=1))
    return z_test(float(difference.mean()), sd**2 / len(difference))


def test_coherence(a: Row, b: Row) -> ZTest | None:
    """A z-test over R test sets: whether A has a higher accuracy than B. Variances are means over
    runs, which have the same pools of permutations. The result is None if the accuracies do not
    vary, such as those of two models without context.

    z = (mean_a - mean_b) / sqrt(sd_a^2 / R_a + sd_b^2 / R_b + e_a^2 + e_b^2), where e is the
    standard error from the pool, which does not decrease with R. The test is about this split, not
    about other documents or other training runs, and z grows with R. Ji et al. (2015) test by a
    formula that they do not state. For their Table 3 the formula above, without e, gives z = 43.22
    and 34.68, and the paper reports 36.55 and 31.26.
    """
    variance = 0.0
    for row in (a, b):
        sd, error = row.values("coherence", "sd"), row.values("coherence", "pool_error")
        replicates = row.results[0]["coherence"]["replicates"]
        variance += float(np.mean(sd**2) / replicates + np.mean(error**2))
    return z_test(a.mean("coherence", "mean") - b.mean("coherence", "mean"), variance)


def _interval(resampled: np.ndarray) -> list[float] | None:
    ends = significance.interval(resampled[:, None])[:, 0]
    return None if np.isnan(ends).any() else ends.tolist()
