"""The results of a report in words: one sentence per model with context."""

import math
from collections.abc import Sequence

from dclm_jax.evaluation.target_sums import GROUPINGS
from dclm_jax.report.rows import Comparison, Row, compared


def verdicts(rows: Sequence[Row]) -> list[str]:
    """One sentence per row of a model with context: whether context helps, and by how much.

    Context helps if two conditions hold: the 95% interval of the ratio of test perplexities, of the
    model to a model without context with the same recipe, is below 1; and the perplexity is lower
    than with the context of other documents. Context does not help if the interval is not below 1
    anywhere. If only one of the two was measured, it decides; without both a row has no sentence.
    First sentences of documents have no context, so that their gain over the baseline is no effect
    of context.
    """
    return list(filter(None, (_verdict(row, rows) for row in rows if row.facts.has_context)))


def _verdict(row: Row, rows: Sequence[Row]) -> str:
    claims, changes, first_sentences = [], [], []
    measured = (_with_baseline(row, rows, name) for name in _baselines(rows))
    if (compared_rows := next(filter(None, measured), None)) is not None:
        comparison, ratio, ends = compared_rows
        # All claims are about the runs that are compared.
        row, baseline = comparison.row, comparison.baseline
        low, high = sorted(round((-1 if ratio < 1 else 1) * end, 1) + 0.0 for end in ends)
        claims.append(f"{_text(ratio, 1)} than {baseline.label} [{low:.1f}%, {high:.1f}%]")
        changes.append(ends)
        first_sentences = _of_first_sentences(row, baseline, ratio)
    original = row.mean("test.perplexity")
    others = row.mean("contexts.other")
    if (
        original is not None
        and others is not None
        and 0 < (ablation := original / others) < math.inf
    ):
        claims.insert(0, f"{_text(ablation, 0)} than with the context of other documents")
        changes.append((_change(ablation), _change(ablation)))
    if not claims:
        return ""
    claims += first_sentences
    # The noun belongs to the first claim.
    claims[0] = claims[0].replace(" than ", " perplexity than ", 1)
    accuracy = row.mean("coherence.mean")
    if accuracy is not None:
        share = f"{100 * accuracy:.0f}%"
        claims.append(f"documents are more probable than {share} of their shuffled versions")
    return f"{_answer(changes)} {row.label}: {'; '.join(claims)}."


def _baselines(rows: Sequence[Row]) -> list[str]:
    """The names of neural models without context."""
    return [row.model for row in rows if not row.facts.has_context and row.model != "ngram"]


def _with_baseline(
    row: Row, rows: Sequence[Row], name: str
) -> tuple[Comparison, float, tuple[float, float]] | None:
    """The comparison of a row with a model of the same recipe, the ratio of their perplexities, and
    the 95% interval of the change in percent; None without a finite comparison."""
    comparison = compared(row, rows, name)
    if comparison is None or not comparison.same_recipe:
        return None
    ratio, interval = comparison.ratio(), comparison.interval
    if ratio is None or interval is None or not 0 < ratio < math.inf:
        return None
    low, high = map(_change, interval)
    return comparison, ratio, (low, high)


def _of_first_sentences(row: Row, baseline: Row, ratio: float) -> list[str]:
    """The claim about first sentences of documents, given the ratio of perplexities of all
    sentences; none unless both rows have measured some."""
    (grouping,) = [grouping for grouping in GROUPINGS if grouping.name == "by_sentence"]
    first, of_baseline = (
        rows.group_perplexities(grouping)[grouping.groups[0]] for rows in (row, baseline)
    )
    if not first or not of_baseline or not 0 < (first_ratio := first / of_baseline) < math.inf:
        return []
    change = f"a {_text(first_ratio, 0)}"
    if change.startswith("a 0%"):
        change = "an equal"
    too = ", too" if max(ratio, first_ratio) < 1 and change != "an equal" else ""
    return [f"first sentences, which have no context, have {change} perplexity{too}"]


def _answer(changes: Sequence[tuple[float, float]]) -> str:
    """The answer from intervals of changes of the perplexity by context, in percent."""
    if all(high < 0 for _, high in changes):
        return "Context helps"
    if changes[0][0] >= 0:
        return "Context does not help"
    return "It is uncertain whether context helps"


def _change(ratio: float) -> float:
    """The change that a ratio is, in percent, to one decimal."""
    return round(100 * (ratio - 1), 1)


def _text(ratio: float, decimals: int) -> str:
    """The change that a ratio is, in words."""
    return f"{100 * abs(ratio - 1):.{decimals}f}% {'lower' if ratio < 1 else 'higher'}"
