"""A page of measurements and readings that are made up, with text that looks like markup."""

import dataclasses
import itertools
from typing import Any

import numpy as np

from dclm_jax.report import page
from dclm_jax.report.report import Report
from dclm_jax.report.rows import Row, rows_of
from dclm_jax.scoring.distributions import SURPRISAL, SURPRISAL_NO_CONTEXT
from dclm_jax.scoring.score_types import DocumentScore, SentenceScore
from tests.report.made_up import by_range, result, sums

HOSTILE = "<script>document.title='run'</script>"
SENTENCES = [
    f"the state of the union is {HOSTILE} & \"strong\" 'so' .",
    "we thank the congress for a sentence that goes on and on beyond the margin of a telephone .",
    "let us keep it so .",
]


def rows() -> list[Row]:
    """Three configurations, of which one has two seeds."""
    made = []
    for model, seed, test, accuracy, factor in (
        ("rnnlm", 0, 100.0, 0.5, 1.0),
        ("ccdclm", 0, 90.0, 0.8, 0.9),
        ("adclm", 0, 85.0, 0.9, 0.8),
        ("adclm", 1, 86.0, 0.9, 0.8),
    ):
        run = result(model, seed, test, accuracy)
        nats = [[4.0, 3.0, 2.0], [5.0, 3.5, 2.5], [4.5, 3.2, 1.0]]
        by_token = by_range(*([factor * value for value in row] for row in nats))
        curve = [(100 * step, test * (1 + 3 / step)) for step in range(1, 30)]
        made.append(
            dataclasses.replace(
                run,
                facts=dataclasses.replace(run.facts, curve=curve),
                test=sums(test, by_token),
            )
        )
    return rows_of(made)


def reading(label: str, *, reads_context: bool) -> DocumentScore:
    """Every sentence with numbers from a generator."""
    rng = np.random.default_rng(len(label))
    sentences = []
    for before, text in itertools.pairwise(["", *SENTENCES]):
        tokens = [*text.split(), "</s>"]
        surprisals = rng.gamma(2, 2, len(tokens))
        alone = surprisals
        if before and reads_context:
            alone = surprisals + rng.normal(0.3, 1.5, len(tokens))
        known = [True] * len(tokens)
        measures = {SURPRISAL: surprisals.tolist(), SURPRISAL_NO_CONTEXT: alone.tolist()}
        sentences.append(SentenceScore(tokens, known, measures))
    return DocumentScore(f"Test document 4 {HOSTILE}", sentences)


def content(all_rows=None, *, examples=True) -> dict[str, Any]:
    """The content of a report, with two examples."""
    report = Report(rows() if all_rows is None else all_rows, ("rnnlm",))
    readings = [
        reading(row.label, reads_context=row.facts.has_context)
        for row in page.example_rows(report.rows)
    ]
    *first, last = report.rows
    return {
        "rows": [*first, dataclasses.replace(last, label=f"{last.label} {HOSTILE}")],
        "verdicts": [*report.verdicts, f"A verdict {HOSTILE}"],
        "tables": report.tables,
        "plots": report.figures,
        "documents": [readings, readings] if examples else [],
        "provenance": {"command": f"python -m launch.report {HOSTILE}", "corpus": HOSTILE},
    }


def text() -> str:
    """The page as a file."""
    return page.report(**content())
