"""All numbers of a report as JSON; missing results are absent."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dclm_jax.evaluation.significance import ZTest
from dclm_jax.evaluation.target_sums import GROUPINGS
from dclm_jax.report.results import ModelResults, RunResults
from dclm_jax.report.rows import Comparison, Row, compare


def to_json(all_rows: Sequence[Row], baselines: Sequence[str]) -> dict[str, Any]:
    """All numbers of all rows, without numbers of single documents."""
    return {
        "rows": [
            {
                "label": row.label,
                "config": row.config,
                "test_interval": row.perplexity_interval(),
                "compared": {
                    name: _json_of(comparison)
                    for name in baselines
                    if (comparison := compare(row, all_rows, name)) is not None
                },
                "runs": [_run_json(row, run) for run in row.runs],
            }
            for row in all_rows
        ]
    }


def _run_json(row: Row, run: RunResults) -> dict[str, Any]:
    facts = dataclasses.asdict(run.facts)
    del facts["config"]
    test, contexts, fixed = run.test, run.contexts, run.first_fixed
    return {
        "seed": run.facts.seed,
        **facts,
        "valid": run.valid and run.valid.perplexity.to_json(),
        **_test_json(run),
        "arrangements": contexts
        and {"own": test and test.perplexity.perplexity, **dataclasses.asdict(contexts)},
        "first_kept": fixed and dataclasses.asdict(fixed),
        "adapted": {
            kind: {"setting": run.settings[kind], **_test_json(results)}
            for kind, results in run.adapted.items()
        },
        **{
            grouping.name: dataclasses.replace(row, runs=[run]).group_perplexities(grouping)
            for grouping in GROUPINGS
        },
    }


def _test_json(results: ModelResults) -> dict[str, Any]:
    test, coherence = results.test, results.coherence
    return {
        "test": test and test.perplexity.to_json(),
        "coherence": coherence and dataclasses.asdict(coherence.result),
    }


def _json_of(comparison: Comparison) -> dict[str, Any]:
    return {
        name: value._asdict() if isinstance(value, ZTest) else value
        for name, value in comparison._asdict().items()
    }
