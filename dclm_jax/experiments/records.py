"""All numbers of rows of measured runs, for programs: records, CSV and JSON."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dclm_jax.evaluation import context_ablation
from dclm_jax.evaluation.significance import ZTest
from dclm_jax.experiments.grouping import BASELINES, Comparison, Row, compare, differing, without
from dclm_jax.tables import separated


def of_rows(
    all_rows: Sequence[Row], baselines: Sequence[str] = BASELINES
) -> list[dict[str, str | float | int]]:
    """A flat record a row with all its numbers; what it has not is missing."""
    options = differing([row.config for row in all_rows])
    made = []
    for row in all_rows:
        one: dict[str, Any] = {"label": row.label, "model": row.model}
        one |= {key: row.config[key] for key in options if key in row.config}
        one |= {"parameters": row.results[0]["parameters"], "seeds": len(row.results)}
        for name, split in (("development", "valid"), ("test", "test")):
            one |= _spread(f"{name}_perplexity", row.values(split, "perplexity"))
        one |= _pair("test_perplexity", row.perplexity_interval())
        one["test_known_perplexity"] = row.mean("test", "known_perplexity")
        one["test_bits_per_word"] = row.mean("test", "bits_per_word")
        for name in baselines:
            if (found := compare(row, all_rows, name)) is not None:
                one[f"ratio_to_{name}"] = found.ratio
                one |= _pair(f"ratio_to_{name}", found.interval)
                tests = {"perplexity": found.perplexity, "coherence": found.coherence}
                one |= {f"p_{what}_{name}": test.p for what, test in tests.items() if test}
        for name in ("coherence", "first_kept"):
            if row.has(name):
                one[name] = row.mean(name, "mean")
                one |= _pair(name, row.coherence_interval(name))
        if row.has("blocks"):
            sizes = row.results[0]["blocks"]
            one |= {f"coherence_block_{size}": row.mean("blocks", size, "mean") for size in sizes}
        for kind in row.adapted:
            one |= _spread(
                f"test_perplexity_{kind}", row.values("adapted", kind, "test", "perplexity")
            )
            if row.has("adapted", kind, "coherence"):
                one[f"coherence_{kind}"] = row.mean("adapted", kind, "coherence", "mean")
        if row.has("coherence") and not row.results[0]["coherence"]["keep_first"]:
            one["first_sentence"] = row.mean("coherence", "first_sentence")
        one |= {name: row.mean("arrangements", name) for name in context_ablation.ARRANGEMENTS}
        for place in context_ablation.PLACES:
            values = _positions(row, place).items()
            one |= {f"{place}_{name}": value for name, value in values if value is not None}
        made.append(one)
    return made


def comma_separated(all_rows: Sequence[Row], baselines: Sequence[str] = BASELINES) -> str:
    """`of_rows` as comma-separated values, a line a row."""
    made = of_rows(all_rows, baselines)
    names = list(dict.fromkeys(key for one in made for key in one))
    lines = [names, *(map(one.get, names) for one in made)]
    return "".join(separated(cells, ",") for cells in lines)


def to_json(all_rows: Sequence[Row], baselines: Sequence[str] = BASELINES) -> dict[str, Any]:
    """All numbers of all rows, without those of single documents; positions by `ranges`."""
    return {
        "rows": [
            {
                "label": row.label,
                "config": row.config,
                "test_interval": row.perplexity_interval(),
                "compared": {
                    name: _compared(comparison)
                    for name in baselines
                    if (comparison := compare(row, all_rows, name)) is not None
                },
                "runs": [
                    {
                        "seed": seed,
                        **without(result, ("config", "by_document")),
                        **{
                            place: _positions(row.only([seed]), place)
                            for place in context_ablation.PLACES
                        },
                    }
                    for seed, result in zip(row.seeds, row.results, strict=True)
                ],
            }
            for row in all_rows
        ]
    }


def _spread(name: str, values: np.ndarray) -> dict[str, float]:
    several = {f"{name}_sd": float(values.std(ddof=1))} if len(values) > 1 else {}
    return {name: float(values.mean()), **several}


def _pair(name: str, ends: list[float] | None) -> dict[str, float]:
    return {} if ends is None else {f"{name}_low": ends[0], f"{name}_high": ends[1]}


def _positions(row: Row, place: str) -> dict[str, float | None]:
    values = zip(context_ablation.ranges(), row.sums(place).perplexities.tolist(), strict=True)
    return {name: None if math.isnan(value) else value for name, value in values}


def _compared(comparison: Comparison) -> dict[str, Any]:
    return {
        name: value._asdict() if isinstance(value, ZTest) else value
        for name, value in comparison._asdict().items()
    }
