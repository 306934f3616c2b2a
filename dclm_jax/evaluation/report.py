"""Tables of the DCLM paper (Ji et al. 2015) from measurements of trained runs.

Runs whose configurations differ in nothing but the seed are one row: numbers are means over them.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.errors import InputError
from dclm_jax.evaluation import coherence, context
from dclm_jax.evaluation.compare import aligned
from dclm_jax.evaluation.perplexity import COUNTING_RULE
from dclm_jax.evaluation.plots import Curve
from dclm_jax.models import MODELS
from dclm_jax.training.config import default_config, flat

BOUNDS = (0, 1, 2, 5, 10, 20)
"""First positions of the ranges that tables and pictures show; 0 is the first."""

PLACES = {
    "by_token": "Perplexity by position in the sentence",
    "by_sentence": "Perplexity by position of the sentence in the document",
}
_BASELINES = ("rnnlm", "drnnlm", "hrnnlm")
_SYMBOLS = {"model.embedding_dim": "K", "model.hidden_dim": "H", "data.segment_length": "L"}
_SEED = "training.seed"
_OTHER = "*"
_NOT_THE_RECIPE = (
    _SEED,
    "data.directory",
    "training.checkpoint_every",
    "training.log_every",
    "training.evaluation_batch_size",
)
_LENGTH = "data.segment_length"
_ANY_BASELINE = ("model.name", _LENGTH)
# Of longer segments fewer make a step as long as it was.
_OF_LENGTH = (_LENGTH, "data.batch_size")


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

    def mean(self, *path: str) -> float:
        """The mean over runs of the number at `path` in their measurements."""
        return statistics.fmean(self._values(path))

    def spread(self, *path: str) -> float:
        """The sample standard deviation over runs; nan of a single one."""
        values = self._values(path)
        return statistics.stdev(values) if len(values) > 1 else math.nan

    def array(self, *path: str) -> np.ndarray:
        """The mean over runs of a list of numbers."""
        return np.mean(self._values(path), axis=0)

    def has(self, name: str) -> bool:
        """Whether all runs have that measurement."""
        return all(result.get(name) is not None for result in self.results)

    def _values(self, path: Sequence[str]) -> list[Any]:
        values: list[Any] = self.results
        for name in path:
            values = [value[name] for value in values]
        return values


def rows(results: Sequence[dict[str, Any]]) -> list[Row]:
    """Measurements by configuration, in the order of the paper's models and then as they are given.

    Args:
      results: of `measurement.measure`, each with its run's `config`, keys as "a.b", the
        fingerprint of its `training_text`, whether training is `unfinished`, and `workdir`. What
        was measured may be missing as long as it is not asked for.

    Raises:
      InputError: two runs of one configuration have the same seed.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        group = groups.setdefault(json.dumps(_recipe(result), sort_keys=True), [])
        for other in group:
            if other["config"].get(_SEED) == result["config"].get(_SEED):
                raise InputError(
                    f"{other['workdir']} and {result['workdir']} are the same run: configuration "
                    "and seed are equal"
                )
        group.append(result)
    recipes = [_recipe(group[0]) for group in groups.values()]
    made = [
        Row(_label(recipe, recipes), recipe, group)
        for recipe, group in zip(recipes, groups.values(), strict=True)
    ]
    order = ("ngram", *_BASELINES, "adclm", "codclm", "ccdclm")
    return sorted(
        made, key=lambda row: order.index(row.model) if row.model in order else len(order)
    )


def _recipe(result: Mapping[str, Any]) -> dict[str, Any]:
    name = result["config"]["model.name"]
    # A run of before an option was there has its default.
    defaults = dict(flat(default_config(name).to_dict())) if name in MODELS else {}
    config = {**defaults, **result["config"], "training_text": result["training_text"]}
    if result["unfinished"]:
        config["unfinished"] = True
    return _without(config, _NOT_THE_RECIPE)


def _without(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def _label(recipe: Mapping[str, Any], recipes: Sequence[Mapping[str, Any]]) -> str:
    """The model's name, and what tells it from other rows of the same model."""
    name = recipe["model.name"]
    same = [other for other in recipes if other["model.name"] == name]
    keys = [key for key in recipe if any(other.get(key) != recipe[key] for other in same)]
    values = [
        f"{_SYMBOLS.get(key, key.split('.')[-1])} = {_shown(key, recipe[key])}" for key in keys
    ]
    return f"{name}, {', '.join(values)}" if values else name


def _shown(key: str, value: Any) -> str:
    if key == _LENGTH and value == 0:
        return "whole documents"
    return value[:8] if key.endswith("sha256") else str(value)


def test_perplexity(a: Row, b: Row) -> coherence.ZTest:
    """The one-sided paired z-test over documents of whether A's likelihood is above B's.

    z = mean(d) / (sd(d) / sqrt(n)), d the difference of the nats of a document (means over runs).
    """
    difference = b.array("by_document") - a.array("by_document")
    if len(difference) < 2:
        raise InputError("a z-test over documents needs two of them")
    sd = float(difference.std(ddof=1))
    return coherence.z_test(float(difference.mean()), sd, len(difference), 0.0, 0.0, 1)


def test_coherence(a: Row, b: Row) -> coherence.ZTest:
    """The paper's z-test of whether A's accuracy is above B's; variances are means over runs, which
    have the same pools of permutations."""

    def root_mean_square(row: Row, name: str) -> float:
        return math.sqrt(float(np.mean(np.square([r["coherence"][name] for r in row.results]))))

    def sample(row: Row) -> tuple[float, float, int]:
        sd = root_mean_square(row, "sd")
        return row.mean("coherence", "mean"), sd, row.results[0]["coherence"]["replicates"]

    error = math.hypot(*(root_mean_square(row, "pool_error") for row in (a, b)))
    return coherence.z_test(*sample(a), *sample(b), error)


def baseline(row: Row, all_rows: Sequence[Row], model: str) -> tuple[Row, bool] | None:
    """The row of another `model` to compare a row with, and whether it has the same recipe.

    That is: all keys that both have are equal but L, which should be. If there is none, it is the
    only row of that model.
    """
    others = [other for other in all_rows if other.model == model != row.model]
    same = []
    for other in others:
        shared = set(row.config) & set(other.config) - {*_ANY_BASELINE}
        if all(row.config[key] == other.config[key] for key in shared):
            same.append(other)
    same.sort(key=lambda other: other.config.get(_LENGTH) != row.config.get(_LENGTH))
    if same:
        return same[0], True
    return (others[0], False) if len(others) == 1 else None


class Comparison(NamedTuple):
    """A row against that of a baseline.

    Attributes:
      baseline: the label of the other row.
      same_recipe: whether `baseline` found it to be trained alike.
      seeds: of the runs compared, those that both rows have; None where they share none and all
        runs are compared.
      ratio: of test perplexities.
      perplexity: `test_perplexity`; None where it is not defined.
      coherence: `test_coherence`; None where it is not defined or not measured.
    """

    baseline: str
    same_recipe: bool
    seeds: list[Any] | None
    ratio: float
    perplexity: coherence.ZTest | None
    coherence: coherence.ZTest | None


def compare(row: Row, all_rows: Sequence[Row], model: str) -> Comparison | None:
    """A row against the row of another model that `baseline` finds, if there is one."""
    found = baseline(row, all_rows, model)
    if found is None:
        return None
    other, same_recipe = found
    seeds = [seed for seed in row.seeds if seed in other.seeds]
    if seeds:
        row, other = row.only(seeds), other.only(seeds)
    is_measured = row.has("coherence") and other.has("coherence")
    return Comparison(
        other.label,
        same_recipe,
        seeds or None,
        row.mean("test", "perplexity") / other.mean("test", "perplexity"),
        _test(test_perplexity, row, other),
        _test(test_coherence, row, other) if is_measured else None,
    )


def _test(
    test: Callable[[Row, Row], coherence.ZTest], row: Row, other: Row
) -> coherence.ZTest | None:
    try:
        return test(row, other)
    except InputError:
        return None  # Two rows that do not differ, such as two models without context in coherence.


def tables(all_rows: Sequence[Row]) -> list[tuple[str, str, list[list[str]]]]:
    """Title, explanation and cells (header first) of every table that the rows have numbers for."""
    made = [_perplexity_table(all_rows)]
    if all(row.has("coherence") for row in all_rows):
        made.append(_coherence_table(all_rows))
    return [
        *made,
        _context_table(all_rows),
        _position_table(all_rows, "by_token"),
        _position_table(all_rows, "by_sentence"),
    ]


def _perplexity_table(all_rows: Sequence[Row]) -> tuple[str, str, list[list[str]]]:
    test = all_rows[0].results[0]["test"]
    header = ["model", "K", "H", "parameters", "seeds", "development", "test", "to rnnlm", "p"]
    cells = [header]
    for row in all_rows:
        to_rnnlm = compare(row, all_rows, "rnnlm")
        relative = ""
        if to_rnnlm is not None:
            relative = f"{100 * (to_rnnlm.ratio - 1):+.1f}%{'' if to_rnnlm.same_recipe else _OTHER}"
        cells.append(
            [
                row.label,
                str(row.config.get("model.embedding_dim", "")),
                str(row.config.get("model.hidden_dim", "")),
                f"{row.results[0]['parameters']:,}",
                str(len(row.results)),
                _number(row, "valid", "perplexity"),
                _number(row, "test", "perplexity"),
                relative,
                _p(to_rnnlm and to_rnnlm.perplexity),
            ]
        )
    about = (
        f"exp(sum NLL / targets), {COUNTING_RULE}; {all_rows[0].results[0]['valid']['tokens']:,} "
        f"development and {test['tokens']:,} test targets, vocabulary "
        f"{test['vocabulary_size']:,}, {100 * test['oov_rate']:.2f}% of the test words unknown. "
        "Means and standard deviations over seeds; p: one-sided z-test over documents that the "
        "likelihood is above that of rnnlm. Rows are compared over the seeds that both have, or "
        f"all if there are none. {_OTHER} rnnlm has another recipe."
    )
    return "Perplexity (Table 2)", about, cells


def _coherence_table(all_rows: Sequence[Row]) -> tuple[str, str, list[list[str]]]:
    first = all_rows[0].results[0]["coherence"]
    cells = [["model", "accuracy %", "standard deviation %", *(f"p, {m}" for m in _BASELINES)]]
    for row in all_rows:
        comparisons = [compare(row, all_rows, model) for model in _BASELINES]
        cells.append(
            [
                row.label,
                f"{100 * row.mean('coherence', 'mean'):.2f}",
                f"{100 * row.mean('coherence', 'sd'):.2f}",
                *(_p(one and one.coherence) for one in comparisons),
            ]
        )
    afresh = f"drawn from {first['pool']} of each document" if first["pool"] else "made afresh"
    about = (
        f"A document against a permutation of its sentences: {first['replicates']:,} test sets of "
        f"{first['documents']:,} documents, resampled with replacement, permutations {afresh}, "
        "ties count half. p: the paper's one-sided z-test of the accuracy against each baseline, "
        "with the error of the pool of permutations, if there is one."
    )
    return "Coherence (Table 3)", about, cells


def _context_table(all_rows: Sequence[Row]) -> tuple[str, str, list[list[str]]]:
    names = list(context.ARRANGEMENTS)
    cells = [["model", *names]]
    for row in all_rows:
        values = [row.mean("arrangements", name) for name in names]
        cells.append([row.label, *(f"{value:.2f}" for value in values)])
    about = (
        "Test perplexity of the same sentences: in their own documents; in another order; mixed "
        "with those of all documents; each by itself."
    )
    return "What the context is worth", about, cells


def _position_table(all_rows: Sequence[Row], place: str) -> tuple[str, str, list[list[str]]]:
    cells = [["model", *ranges()]]
    for row in all_rows:
        values = by_range(row, place)
        cells.append([row.label, *("" if math.isnan(v) else f"{v:.1f}" for v in values)])
    return PLACES[place], "Test perplexity of the targets there; 1 is the first.", cells


def length_curves(all_rows: Sequence[Row]) -> list[Curve]:
    """The learning curves of models that were trained with several segment lengths, with any number
    of segments a step (Figure 3): updates, and development log-likelihood in nats a token; of the
    first seed."""
    chosen = []
    for row in all_rows:
        rest = _without(row.config, _OF_LENGTH)
        same = [other for other in all_rows if _without(other.config, _OF_LENGTH) == rest]
        points = row.results[0]["curve"]
        if len({other.config.get(_LENGTH) for other in same}) > 1 and points:
            steps, perplexities = zip(*points, strict=True)
            chosen.append(Curve(row.label, steps, [-math.log(value) for value in perplexities]))
    return chosen


def ranges() -> list[str]:
    """The ranges of `BOUNDS` as text, counted from 1."""
    ends = [*(bound for bound in BOUNDS[1:]), None]
    return [
        f"{first + 1}+" if end is None else str(end) if end == first + 1 else f"{first + 1}-{end}"
        for first, end in zip(BOUNDS, ends, strict=True)
    ]


def by_range(row: Row, place: str) -> list[float]:
    """The perplexity of every range of positions, of all runs of the row together."""
    nll, count = row.array(place, "nll"), row.array(place, "count")
    return context.Sums(nll, count).perplexities(BOUNDS)


def markdown(all_rows: Sequence[Row], pictures: Mapping[str, str]) -> str:
    """The report as text, with links to pictures (title -> file)."""
    parts = []
    for title, about, cells in tables(all_rows):
        header, *body = (f"| {' | '.join(line)} |" for line in cells)
        rule = "|" + "|".join(["---", *["---:"] * (len(cells[0]) - 1)]) + "|"
        parts.append("\n".join([f"## {title}", "", about, "", header, rule, *body]))
    parts += [f"![{title}]({file})" for title, file in pictures.items()]
    return "\n\n".join(parts) + "\n"


def text(all_rows: Sequence[Row]) -> str:
    """The tables for a terminal."""
    return "\n\n".join("\n".join([title, *aligned(cells)]) for title, _, cells in tables(all_rows))


def to_json(all_rows: Sequence[Row]) -> dict[str, Any]:
    """All numbers of all rows, without those of single documents."""
    return {
        "rows": [
            {
                "label": row.label,
                "config": row.config,
                "compared": {
                    model: _comparison_to_json(comparison)
                    for model in _BASELINES
                    if (comparison := compare(row, all_rows, model)) is not None
                },
                "runs": [
                    {"seed": seed, **_without(result, ("identity", "config", "by_document"))}
                    for seed, result in zip(row.seeds, row.results, strict=True)
                ],
            }
            for row in all_rows
        ]
    }


def _comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    tests = {"perplexity": comparison.perplexity, "coherence": comparison.coherence}
    return {
        **comparison._asdict(),
        **{name: test and test._asdict() for name, test in tests.items()},
    }


def _number(row: Row, *path: str) -> str:
    spread = row.spread(*path)
    text = f"{row.mean(*path):.2f}"
    return text if math.isnan(spread) else f"{text} ± {spread:.2f}"


def _p(test: coherence.ZTest | None) -> str:
    if test is None:
        return ""
    return "< 0.0001" if test.p < 0.0001 else f"{test.p:.4f}"
