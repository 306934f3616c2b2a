"""Runs as rows of tables: grouped by configuration, labelled, compared with baselines.

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
from dclm_jax.models import MODELS
from dclm_jax.training.config import default_config, flat

BASELINES = ("rnnlm", "drnnlm", "hrnnlm")
"""Models that others are compared with."""

_ORDER = {name: n for n, name in enumerate(("ngram", *BASELINES, "adclm", "codclm", "ccdclm"))}
LENGTH = "data.segment_length"
_SYMBOLS = {"model.embedding_dim": "K", "model.hidden_dim": "H", LENGTH: "L"}
_SEED = "training.seed"
_NORMAL = 1.96
_NOT_THE_RECIPE = (
    *(_SEED, "data.directory", "training.checkpoint_every", "training.log_every"),
    "training.evaluation_batch_size",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """Runs of one configuration and several seeds; `results` are their measurements."""

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

    def values(self, *path: str) -> np.ndarray:
        """What is at `path` in the measurements, numbers or lists of them: [runs, ...]."""
        values: list[Any] = self.results
        for name in path:
            values = [value[name] for value in values]
        return np.array(values)

    def mean(self, *path: str) -> float:
        """The mean over runs of the number at `path`."""
        return float(self.values(*path).mean())

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

    def has(self, *path: str) -> bool:
        """Whether all runs have the measurement at `path`."""
        found: list[Any] = self.results
        for name in path:
            found = [None if one is None else one.get(name) for one in found]
        return all(one is not None for one in found)

    @property
    def adapted(self) -> dict[str, Any]:
        """What was measured of a model that adapts itself, by how it does that."""
        return self.results[0].get("adapted") or {}

    @property
    def blocks(self) -> dict[str, tuple[str, ...]]:
        """Where the accuracies are by the sentences of a block, if they were measured."""
        sizes = self.results[0]["blocks"] if self.has("blocks") else {}
        paths: dict[str, tuple[str, ...]] = {"1": ("coherence",)} if sizes else {}
        return paths | {size: ("blocks", size) for size in sizes}

    def perplexity_interval(self) -> list[float] | None:
        """The ends of the 95% interval of the test perplexity over documents."""
        ends = significance.interval(self.resampled()[:, None])[:, 0]
        return None if np.isnan(ends).any() else ends.tolist()

    def coherence_interval(self, *path: str) -> list[float] | None:
        """The ends of the 95% interval of an accuracy over documents, as a normal distribution has
        them: the standard deviation over resampled test sets is the standard error."""
        if not self.has(path[0]):
            return None
        squares = [np.square(self.values(*path, key)).mean() for key in ("sd", "pool_error")]
        half, mean = _NORMAL * math.sqrt(sum(squares)), self.mean(*path, "mean")
        return [max(0.0, mean - half), min(1.0, mean + half)]


def rows(results: Sequence[dict[str, Any]]) -> list[Row]:
    """Measurements by configuration, in the order of the paper's models and then as they are given.

    Args:
      results: of `measurement.measure`, each with its run's `config`, keys as "a.b", the
        fingerprint of its `training_text`, whether training is `unfinished`, and `workdir`. What
        was measured may be missing as long as it is not asked for.
    """
    # An older measurement does not say: there were no bags then.
    objectives = {one.get("objective", "words"): one["workdir"] for one in results}
    if len(objectives) > 1:
        told = " and ".join(f"{place} predicts {what}" for what, place in objectives.items())
        raise InputError(f"{told}; expected one kind, because perplexities do not compare")
    made: dict[str, Row] = {}
    for result in results:
        recipe = _recipe(result)
        group = made.setdefault(json.dumps(recipe, sort_keys=True), Row("", recipe, [])).results
        for other in group:
            if other["config"].get(_SEED) == result["config"].get(_SEED):
                raise InputError(
                    f"{other['workdir']} and {result['workdir']} are the same run: configuration "
                    "and seed are equal"
                )
        group.append(result)
    recipes = [row.config for row in made.values()]
    labelled = [dataclasses.replace(r, label=_label(r.config, recipes)) for r in made.values()]
    return sorted(labelled, key=lambda row: _ORDER.get(row.model, len(_ORDER)))


def _recipe(result: Mapping[str, Any]) -> dict[str, Any]:
    config = with_defaults(result["config"]) | {"training_text": result["training_text"]}
    if result["unfinished"]:
        config["unfinished"] = True
    return without(config, _NOT_THE_RECIPE)


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, keys as "a.b", with the defaults of options that an older run lacks."""
    name = config["model.name"]
    defaults = flat(default_config(name).to_dict()) if name in MODELS else {}
    return {**defaults, **config}


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys of hyper-parameters that several configurations have with different values."""

    def differs(key: str) -> bool:
        values = [config[key] for config in configs if key in config]
        return any(value != values[0] for value in values)

    keys = dict.fromkeys(key for config in configs for key in config)
    ignored = {"model.name", *_NOT_THE_RECIPE} - {_SEED}
    return [key for key in keys if key not in ignored and differs(key)]


def symbol(key: str) -> str:
    """What tables call a hyper-parameter."""
    *_, last = key.split(".")
    return _SYMBOLS.get(key, printable(key if last == "name" else last))


def without(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The entries of other keys."""
    return {key: value for key, value in config.items() if key not in keys}


def _label(recipe: Mapping[str, Any], recipes: Sequence[Mapping[str, Any]]) -> str:
    """The model's name, and what tells it from other rows of the same model."""
    name = recipe["model.name"]
    same = [other for other in recipes if other["model.name"] == name]
    keys = [key for key in recipe if any(other.get(key) != recipe[key] for other in same)]
    values = [f"{symbol(key)} = {shown_value(key, recipe[key])}" for key in keys]
    return f"{name}, {', '.join(values)}" if values else name


def shown_value(key: str, value: Any) -> str:
    """What tables write for the value of a hyper-parameter."""
    if key == LENGTH and value == 0:
        return "whole documents"
    return printable(str(value)[:8] if key.endswith("sha256") else str(value))


def shown_option(config: Mapping[str, Any], key: str) -> str:
    """`shown_value` of a hyper-parameter, blank if the configuration has it not."""
    return shown_value(key, config[key]) if key in config else ""


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


def baseline(row: Row, all_rows: Sequence[Row], name: str) -> tuple[Row, bool] | None:
    """The row to compare a row with, and whether it has the same recipe.

    `name` is the label of a row, which serves all others, or a model, of which the row is taken
    that is trained alike: all keys that both have are equal but L, which should be. If there is
    none, it is the only row of that model.
    """
    others = [
        other
        for other in all_rows
        if other.label == name != row.label or other.model == name != row.model
    ]

    def is_alike(other: Row) -> bool:
        shared = (row.config.keys() & other.config.keys()) - {"model.name", LENGTH}
        return all(row.config[key] == other.config[key] for key in shared)

    same = filter(is_alike, others)
    if best := min(
        same, key=lambda one: one.config.get(LENGTH) != row.config.get(LENGTH), default=None
    ):
        return best, True
    return (others[0], False) if len(others) == 1 else None


class Comparison(NamedTuple):
    """A row against that of a baseline.

    Attributes:
      baseline: the label of the other row.
      same_recipe: whether `baseline` found it to be trained alike.
      seeds: of the runs compared, those that both rows have; None where they share none and all
        runs are compared.
      ratio: of test perplexities.
      interval: the ends of its 95% interval over documents (`evaluation.significance`); None where
        there are fewer than two.
      perplexity: `test_perplexity`; None where it is not defined.
      coherence: `test_coherence`; None where it is not defined or not measured.
    """

    baseline: str
    same_recipe: bool
    seeds: list[Any] | None
    ratio: float
    interval: list[float] | None
    perplexity: ZTest | None
    coherence: ZTest | None


def paired(row: Row, other: Row) -> tuple[Row, Row, list[Any] | None]:
    """Two rows with the runs of the seeds that both have, and these; all runs if there are none."""
    seeds = [seed for seed in row.seeds if seed in other.seeds]
    return (row.only(seeds), other.only(seeds), seeds) if seeds else (row, other, None)


def compare(row: Row, all_rows: Sequence[Row], name: str) -> Comparison | None:
    """A row against the row that `baseline` finds, if there is one."""
    found = baseline(row, all_rows, name)
    if found is None:
        return None
    row, other, seeds = paired(row, found[0])
    ratios = row.resampled() / other.resampled()
    ends = significance.interval(ratios[:, None])[:, 0].tolist()
    return Comparison(
        other.label,
        found[1],
        seeds,
        row.mean("test", "perplexity") / other.mean("test", "perplexity"),
        None if math.isnan(ends[0]) else ends,
        _defined(test_perplexity, row, other),
        _defined(test_coherence, row, other)
        if row.has("coherence") and other.has("coherence")
        else None,
    )


def ratios(
    row: Row, all_rows: Sequence[Row], name: str, place: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """The ratios of the row's perplexities by `place` to those of the row that `baseline` finds
    [ranges], and the ends of their 95% intervals over documents [2, ranges], nan where there is no
    interval; None without a baseline."""
    found = baseline(row, all_rows, name)
    if found is None:
        return None
    row, other, _ = paired(row, found[0])
    own, others = row.sums(place), other.sums(place)
    return own.perplexities / others.perplexities, significance.of_ratio(own, others)


def _defined(test: Callable[[Row, Row], ZTest], row: Row, other: Row) -> ZTest | None:
    """None for two rows that do not differ, such as models without context in coherence."""
    with contextlib.suppress(InputError):
        return test(row, other)
