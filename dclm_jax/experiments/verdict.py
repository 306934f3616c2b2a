"""The results of a report in words: one sentence per model with context."""

from collections.abc import Sequence

from dclm_jax.experiments.comparison import Comparison, Row, compare


def verdicts(rows: Sequence[Row]) -> list[str]:
    """One sentence per row of a model with context: whether context helps, and by how much.

    Context helps if two conditions hold: the 95% interval of the ratio of test perplexities, of the
    model to a model without context with the same recipe, is below 1; and the perplexity is lower
    than with no context. Context does not help if the interval is above 1. If only one of the two
    was measured, it decides; without both a row has no sentence.
    """
    return list(filter(None, (_verdict(row, rows) for row in rows if row.has_context)))


def _verdict(row: Row, rows: Sequence[Row]) -> str:
    baselines = [other.model for other in rows if not other.has_context and other.model != "ngram"]
    comparison = next(filter(None, (compare(row, rows, name) for name in baselines)), None)
    claims, intervals = [], []
    if comparison is not None and comparison.interval is not None:
        claims.append(_than_baseline(comparison, comparison.interval))
        if comparison.same_recipe:
            intervals.append(comparison.interval)
    if row.has("arrangements"):
        ablation = row.mean("arrangements", "own") / row.mean("arrangements", "none")
        claims.append(f"{_change(ablation, 0)} than the same model without context")
        intervals.append([ablation, ablation])
    if not claims:
        return ""
    # The noun belongs to the first claim.
    claims[0] = claims[0].replace(" than ", " perplexity than ", 1)
    if row.has("coherence"):
        share = f"{100 * row.mean('coherence', 'mean'):.0f}%"
        claims.append(f"{share} of documents are more probable than a shuffled version")
    return f"{_answer(intervals)} {row.label}: {'; '.join(claims)}."


def _answer(intervals: Sequence[Sequence[float]]) -> str:
    """The answer from the intervals of ratios of perplexities, with context to without."""
    if intervals and all(high < 1 for _, high in intervals):
        return "Context helps"
    if intervals and intervals[0][0] >= 1:
        return "Context does not help"
    return "It is uncertain whether context helps"


def _than_baseline(comparison: Comparison, interval: Sequence[float]) -> str:
    recipe = "" if comparison.same_recipe else " of another recipe"
    sign = -1 if comparison.ratio < 1 else 1
    low, high = sorted(round(100 * sign * (end - 1), 1) + 0.0 for end in interval)
    return (
        f"{_change(comparison.ratio, 1)} than {comparison.baseline}{recipe} "
        f"[{low:.1f}%, {high:.1f}%]"
    )


def _change(ratio: float, decimals: int) -> str:
    """The change that a ratio is, in words."""
    return f"{100 * abs(ratio - 1):.{decimals}f}% {'lower' if ratio < 1 else 'higher'}"
