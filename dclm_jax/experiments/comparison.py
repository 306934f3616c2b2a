"""Results of runs as rows: grouped by configuration, labelled, compared with baselines.

Runs whose configurations differ in nothing but the seed are one row: numbers are means over them.
"""

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.errors import InputError, printable
from dclm_jax.evaluation import significance
from dclm_jax.evaluation.significance import ZTest, z_test

BASELINES = ("rnnlm", "drnnlm", "hrnnlm")
"""Models that others are compared with."""
LENGTH = "data.segment_length"

_ORDER = {name: n for n, name in enumerate(("ngram", *BASELINES, "adclm", "codclm", "ccdclm"))}
_SYMBOLS = {"model.embedding_dim": "K", "model.hidden_dim": "H", LENGTH: "L"}
_SEED = "training.seed"
_NORMAL = 1.96
_NOT_THE_RECIPE = (
    *(_SEED, "data.directory", "training.checkpoint_every", "training.log_every"),
    "training.evaluation_batch_size",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """Runs of one configuration and several seeds.

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
    def seeds(self) -> list[Any]:
        """The seed of every run; None for a model that has none."""
        return [result["config"].get(_SEED) for result in self.results]

    def only(self, seeds: Sequence[Any]) -> "Row":
        """The row of the runs with these seeds."""
        kept = [r for r, seed in zip(self.results, self.seeds, strict=True) if seed in seeds]
        return dataclasses.replace(self, results=kept)

    def has(self, *path: str) -> bool:
        """Whether all runs have the measurement at `path`."""
        values: list[Any] = self.results
        for name in path:
            values = [None if value is None else value.get(name) for value in values]
        return all(value is not None for value in values)

    def values(self, *path: str) -> np.ndarray:
        """The numbers, or lists of them, at `path` in the measurements: [runs, ...]. A number that
        JSON does not have is infinite."""
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
        """Whether nats and numbers of targets of each test document are measured."""
        return self.has("by_document") and self.has("by_token")

    def resampled(self) -> np.ndarray:
        """Test perplexities, means over runs, in resampled test sets [resamples]: of the same
        documents for all rows."""
        nats_DxR = self.values("by_document").T
        targets_Dx1 = self.values("by_token", "count")[0].sum(axis=1, keepdims=True)
        return np.exp(significance.resample(nats_DxR, targets_Dx1)).mean(axis=1)

    def sums(self, place: str) -> significance.Sums:
        """Nats, means over runs, and targets of every document by `place`."""
        return significance.Sums(
            self.values(place, "nll").mean(axis=0), self.values(place, "count").mean(axis=0)
        )

    def perplexity_interval(self) -> list[float] | None:
        """The ends of the 95% interval of the test perplexity over documents."""
        return _interval(self.resampled()) if self.has_documents else None

    def coherence_interval(self, *path: str) -> list[float] | None:
        """The ends of the 95% interval of an accuracy over documents, as a normal distribution has
        them: the standard deviation over resampled test sets is the standard error."""
        if not self.has(*path):
            return None
        squares = [np.square(self.values(*path, key)).mean() for key in ("sd", "pool_error")]
        half, mean = _NORMAL * math.sqrt(sum(squares)), self.mean(*path, "mean")
        return [max(0.0, mean - half), min(1.0, mean + half)]


def rows(results: Sequence[dict[str, Any]]) -> list[Row]:
    """Results of runs by configuration, in the order of the paper's models and then as given.

    Args:
      results: `results.facts` of each run, with what was measured of it.
    """
    workdirs = {result["objective"]: result["workdir"] for result in results}
    if len(workdirs) > 1:
        objectives = " and ".join(f"{place} predicts {what}" for what, place in workdirs.items())
        raise InputError(f"{objectives}; expected one kind, because perplexities do not compare")
    grouped: dict[str, Row] = {}
    for result in results:
        recipe = _recipe(result)
        group = grouped.setdefault(json.dumps(recipe, sort_keys=True), Row("", recipe, [])).results
        for other in group:
            if other["config"].get(_SEED) == result["config"].get(_SEED):
                raise InputError(
                    f"{other['workdir']} and {result['workdir']} are the same run: configuration "
                    "and seed are equal"
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
    """The entries of other keys."""
    return {key: value for key, value in config.items() if key not in keys}


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys of hyper-parameters that several configurations have with different values."""

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
    if key == LENGTH and value == 0:
        return "whole documents"
    text = str(value)
    return printable(text[:8] if key.endswith("sha256") else text)


def _label(recipe: Mapping[str, Any], recipes: Sequence[Mapping[str, Any]]) -> str:
    """The model's name, and what tells it from other rows of the same model."""
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
      same_recipe: whether both are trained alike.
      seeds: the seeds that both have, whose runs are compared; None where they share none and all
        runs are compared.
    """

    row: Row
    other: Row
    same_recipe: bool
    seeds: list[Any] | None


def paired(row: Row, all_rows: Sequence[Row], name: str) -> Pair | None:
    """A row and the row to compare it with, if there is one.

    `name` is the label of a row, which is then compared with all other rows, or a model. Among the
    model's rows, the row with the same training is chosen: all shared keys are equal except L,
    which should be equal. If there is no such row, the model's only row is chosen.
    """
    others = [
        other
        for other in all_rows
        if other.label == name != row.label or other.model == name != row.model
    ]

    def is_alike(other: Row) -> bool:
        shared = (row.config.keys() & other.config.keys()) - {"model.name", LENGTH}
        return all(row.config[key] == other.config[key] for key in shared)

    def has_other_length(other: Row) -> bool:
        return other.config.get(LENGTH) != row.config.get(LENGTH)

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
    """A row against the row of the baseline `name`, if there is one and both are measured."""
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
        _defined(test_perplexity, row, other),
        _defined(test_coherence, row, other) if has_coherence else None,
    )


def ratios(
    row: Row, all_rows: Sequence[Row], name: str, place: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """The ratios of the row's perplexities by `place` to those of its baseline [ranges], and the
    ends of their 95% intervals over documents [2, ranges], nan where there is no interval; None
    without a baseline or a measurement."""
    pair = paired(row, all_rows, name)
    if pair is None or not (pair.row.has(place) and pair.other.has(place)):
        return None
    sums, others = pair.row.sums(place), pair.other.sums(place)
    return sums.perplexities / others.perplexities, significance.of_ratio(sums, others)


def test_perplexity(a: Row, b: Row) -> ZTest:
    """The one-sided paired z-test over documents of whether A's likelihood is above B's.

    z = mean(d) / (sd(d) / sqrt(n)), d the difference of the nats of a document (means over runs).
    """
    difference = b.values("by_document").mean(axis=0) - a.values("by_document").mean(axis=0)
    if len(difference) < 2:
        raise InputError("a z-test over documents needs two of them")
    sd = float(difference.std(ddof=1))
    return z_test(float(difference.mean()), sd, len(difference), 0.0, 0.0, 1)


def test_coherence(a: Row, b: Row) -> ZTest:
    """The z-test over test sets of whether A's accuracy is above B's; variances are means over
    runs, which have the same pools of permutations."""

    def root_mean_square(row: Row, name: str) -> float:
        return math.sqrt(np.mean(np.square(row.values("coherence", name))))

    means = [row.mean("coherence", "mean") for row in (a, b)]
    sds = [root_mean_square(row, "sd") for row in (a, b)]
    n, other_n = (row.results[0]["coherence"]["replicates"] for row in (a, b))
    error = math.hypot(*(root_mean_square(row, "pool_error") for row in (a, b)))
    return z_test(means[0], sds[0], n, means[1], sds[1], other_n, error)


def _defined(test: Callable[[Row, Row], ZTest], row: Row, other: Row) -> ZTest | None:
    """None for two rows that do not differ, such as models without context in coherence."""
    with contextlib.suppress(InputError):
        return test(row, other)


def _interval(resampled: np.ndarray) -> list[float] | None:
    ends = significance.interval(resampled[:, None])[:, 0]
    return None if np.isnan(ends).any() else ends.tolist()
