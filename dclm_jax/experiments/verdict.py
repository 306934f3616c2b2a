"""The results of a report in words: one sentence per model with context."""

from collections.abc import Sequence

from dclm_jax.experiments.comparison import Comparison, Row, compare


def verdicts(rows: Sequence[Row]) -> list[str]:
    """One sentence per row of a model with context: whether context helps, and by how much.

    Context helps if the 95% interval of the ratio of test perplexities, of the model to a model
    without context, is below 1. Without such a model, context helps if the perplexity is lower than
    with no context. A row without a measurement of either has no sentence.
    """
    return list(filter(None, (_verdict(row, rows) for row in rows if row.has_context)))


def _verdict(row: Row, rows: Sequence[Row]) -> str:
    baselines = [other.model for other in rows if not other.has_context and other.model != "ngram"]
    comparison = next(filter(None, (compare(row, rows, name) for name in baselines)), None)
    claims, ratio, ends = [], None, None
    if comparison is not None and comparison.interval is not None:
        ratio, ends = comparison.ratio, comparison.interval
        claims.append(_than_baseline(comparison, ends))
    if row.has("arrangements"):
        ablation = row.mean("arrangements", "own") / row.mean("arrangements", "none")
        claims.append(f"{_change(ablation, 0)} than the same model without context")
        ratio, ends = (ratio, ends) if ends else (ablation, [ablation] * 2)
    if ratio is None or ends is None:
        return ""
    # The noun belongs to the first claim.
    claims[0] = claims[0].replace(" than ", " perplexity than ", 1)
    if row.has("coherence"):
        share = f"{100 * row.mean('coherence', 'mean'):.0f}%"
        claims.append(f"{share} of documents are more probable than their shuffled versions")
    return f"{_answer(ends)} {row.label}: {'; '.join(claims)}."


def _answer(ends: Sequence[float]) -> str:
    low, high = ends
    if high < 1:
        return "Context helps"
    return "Context does not help" if low >= 1 else "Context may or may not help"


def _than_baseline(comparison: Comparison, ends: Sequence[float]) -> str:
    recipe = "" if comparison.same_recipe else " of another recipe"
    sign = -1 if comparison.ratio < 1 else 1
    low, high = sorted(round(100 * sign * (end - 1), 1) + 0.0 for end in ends)
    return (
        f"{_change(comparison.ratio, 1)} than {comparison.baseline}{recipe} "
        f"[{low:.1f}%, {high:.1f}%]"
    )


def _change(ratio: float, decimals: int) -> str:
    """The change that a ratio is, in words."""
    return f"{100 * abs(ratio - 1):.{decimals}f}% {'lower' if ratio < 1 else 'higher'}"
