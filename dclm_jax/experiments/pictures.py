"""What is drawn of runs: rows of measured ones, or what each run left."""

import math
from collections.abc import Mapping, Sequence

from dclm_jax.evaluation import context_ablation
from dclm_jax.experiments.grouping import BASELINES, LENGTH, Row, ratios, without
from dclm_jax.experiments.plots import Curve, Intervals, Picture, Series
from dclm_jax.experiments.report import BLOCKS
from dclm_jax.experiments.runs import FinishedRun

SEGMENT_LENGTH = "segment_length.png"
# Of longer segments fewer make a step as long as it was.
_OF_LENGTH = (LENGTH, "data.batch_size")


def of_rows(
    all_rows: Sequence[Row], baselines: Sequence[str] = BASELINES
) -> dict[str, Picture | Intervals]:
    """What there may be to draw of the rows, by the names of files; see `plots.undrawn`."""
    drawn: dict[str, Picture | Intervals] = {}
    at, ticks = "position, 1 is the first", context_ablation.ranges()
    for place, title in context_ablation.PLACES.items():
        series = []
        for row in all_rows:
            if (found := ratios(row, all_rows, baselines[0], place)) is not None:
                values, (low, high) = found
                series.append(Series(row.label, values, low, high))
        drawn[f"{place}.png"] = Intervals(title, at, ticks, series, baseline=baselines[0])
    if accuracies := block_accuracies(all_rows):
        drawn["blocks.png"] = block_curves(accuracies)
    if curves := length_curves(all_rows):
        title = "Development log-likelihood by updates (Figure 3)"
        drawn[SEGMENT_LENGTH] = Picture(title, "updates", "nats a token", curves)
    return drawn


def development_curves(all_rows: Sequence[Row]) -> Picture:
    """Development perplexity by updates, of the first seed."""
    curves = []
    for row in all_rows:
        if points := row.results[0]["curve"]:
            steps, perplexities = zip(*points, strict=True)
            curves.append(Curve(row.label, steps, perplexities))
    title = "Development perplexity by updates"
    return Picture(title, "updates", "perplexity (log scale)", curves, log_scale=True)


def length_curves(all_rows: Sequence[Row]) -> list[Curve]:
    """The learning curves of models that were trained with several segment lengths, with any number
    of segments a step (Figure 3): updates, and development log-likelihood in nats a token; of the
    first seed."""
    chosen = []
    for row in all_rows:
        rest = without(row.config, _OF_LENGTH)
        same = [other for other in all_rows if without(other.config, _OF_LENGTH) == rest]
        points = row.results[0]["curve"]
        if len({other.config.get(LENGTH) for other in same}) > 1 and points:
            steps, perplexities = zip(*points, strict=True)
            chosen.append(Curve(row.label, steps, [-math.log(value) for value in perplexities]))
    return chosen


def block_accuracies(all_rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """The accuracies of `report.block_table`, by label and sentences of a block."""
    return {
        row.label: {int(n): row.mean(*path, "mean") for n, path in row.blocks.items()}
        for row in all_rows
        if row.blocks
    }


def block_curves(accuracies: Mapping[str, Mapping[int, float]]) -> Picture:
    """Coherence by the sentences of a block; accuracies from 0 to 1."""
    sizes = sorted({size for one in accuracies.values() for size in one})
    curves = [
        Curve(label, list(map(sizes.index, one)), [100 * accuracy for accuracy in one.values()])
        for label, one in accuracies.items()
    ]
    ticks = list(map(str, sizes))
    return Picture(BLOCKS, "sentences of a block", "accuracy %", curves, ticks=ticks)


def learning_curves(runs: Sequence[FinishedRun]) -> Picture:
    """Development perplexity by training tokens, of the runs that were evaluated in training, and
    beside it the perplexity in training."""
    curves = [
        Curve(
            f"{run.label} (best {min(one.perplexity for one in run.curve):.1f})",
            [one.tokens / 1e6 for one in run.curve],
            [one.perplexity for one in run.curve],
            Curve(
                "_in training",
                [tokens / 1e6 for tokens, _ in run.training],
                [perplexity for _, perplexity in run.training],
            ),
        )
        for run in runs
        if run.curve
    ]
    x = "training tokens (millions)"
    y = "perplexity (log scale): development, dashed in training"
    return Picture("Learning curves", x, y, curves, log_scale=True)
