"""Pictures of results. matplotlib is imported when the first one is made.

Colours stay distinct for colour-blind readers; legends stand beside the data.
"""

import io
import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dclm_jax import files
from dclm_jax.errors import InputError, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from dclm_jax.language_model import SentenceAttention

# Okabe and Ito's; page.css has those of pages.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Where the largest value is more than this many times the smallest, an axis is logarithmic.
_LINEAR_RATIO = 8
# Of heat maps: the side of a word's square in inches, squares for labels and in a picture.
_SQUARE, _LABELS, _MOST_SQUARES = 0.17, 10, 60_000
# Markers tell lines apart; on every point of a long one they would hide it.
_MOST_MARKERS = 12
GRID = "#b0b0b0"
LINE = "line of "
"""The begin of the gid of a line and of its intervals, before its label."""


class Curve(NamedTuple):
    """A line in a picture: its name, its points, and a dashed one that belongs to it."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    beside: "Curve | None" = None


class Picture(NamedTuple):
    """Lines over one another, `log_scale` of the y axis, and names of x = 0, 1, 2, ... as `ticks`
    in place of numbers."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_scale: bool = False
    ticks: Sequence[str] | None = None


class Series(NamedTuple):
    """A model's perplexities at several places, or their ratios to those of another one, and the
    ends of their intervals; nan where there is none."""

    label: str
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Intervals(NamedTuple):
    """Points with their intervals: `x` says what the `ticks` are. With a `baseline` the values are
    ratios to it."""

    title: str
    x: str
    ticks: Sequence[str]
    series: Sequence[Series]
    baseline: str = ""


class Result(NamedTuple):
    """A run in a picture of perplexity against n, the number of context sentences; None for a
    model without this option. Runs of one model are joined by a line."""

    label: str
    model: str
    context_sentences: int | None
    perplexity: float


def check_target(path: str | os.PathLike[str]) -> None:
    """Finds out before long work whether a picture can be made."""
    figure, _ = new_figure((1, 1))
    supported = figure.canvas.get_supported_filetypes()
    if _format(path) not in supported:
        raise InputError(
            f"{path}: cannot write the plot: its name has none of the suffixes "
            + ", ".join(f".{name}" for name in sorted(supported))
        )


def new_figure(size: tuple[float, float]) -> "tuple[Figure, Axes]":
    """An empty figure, width and height in inches, and its axes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install 'dclm_jax[plots]'") from error
    # A Figure of its own, not pyplot: no global state, and no display is ever looked for.
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Writes a picture, whole or not at all; the suffix of `path` chooses the format."""
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format=_format(path))
    except ValueError as error:
        raise InputError(f"{path}: cannot write the plot: {error}") from error
    files.write_bytes(path, picture.getvalue())


def undrawn(picture: Picture | Intervals) -> str:
    """Why there is nothing to see in a picture; empty if there is."""
    if isinstance(picture, Picture):
        most = max((int(np.isfinite(one.y).sum()) for one in picture.curves), default=0)
    else:
        if not picture.series:
            return f"no row can be compared with {picture.baseline}; --baseline names another one"
        most = max(int(np.isfinite(one.values).sum()) for one in picture.series)
    return "" if most > 1 else "a single point is no plot" if most else "there is no point to draw"


def labels(picture: Picture | Intervals) -> list[str]:
    """The labels of a picture's lines."""
    lines = picture.curves if isinstance(picture, Picture) else picture.series
    return [line.label for line in lines]


def draw(picture: Picture | Intervals, path: str | os.PathLike[str]) -> str:
    """Draws a picture and says so, or why it is not drawn; for what it raises see `plot`."""
    if reason := undrawn(picture):
        return f"{path}: not drawn: {reason}"
    plot(picture, path)
    return f"{picture.title}: {path}"


def plot(picture: Picture | Intervals, path: str | os.PathLike[str]) -> None:
    """Draws a picture; a number of `Intervals` that is infinite raises `InputError`."""
    save(figure_of(picture), path)


def figure_of(
    picture: Picture | Intervals, looks: Sequence[int] | None = None, *, in_page: bool = False
) -> "Figure":
    """The figure of a picture.

    Args:
      picture: something to see, see `undrawn`.
      looks: numbers that tell colours and marks of its lines; by default those of their order.
      in_page: whether it stands in a column of a page, below its title, with its legend below.
    """
    looks = range(len(labels(picture))) if looks is None else looks
    if isinstance(picture, Picture):
        figure, axes = new_figure((8, 5))
        _draw_curves(axes, picture, looks)
    else:
        num_ticks = len(picture.ticks)
        figure, axes = new_figure((4 + 0.45 * num_ticks + 0.08 * num_ticks * len(looks), 5))
        _draw_intervals(axes, picture, looks)
    axes.set_xlabel(_plain(picture.x))
    axes.grid(axis="y" if isinstance(picture, Intervals) else "both", color=GRID, alpha=0.4)
    axes.set_axisbelow(True)
    if in_page:
        # Above the axis there is room for a long name.
        figure.suptitle(axes.get_ylabel(), x=0.01, ha="left", fontsize=9)
        axes.set_ylabel("")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(length=0, which="both")
    else:
        axes.set_title(_plain(picture.title))
    handles, names = axes.get_legend_handles_labels()
    names = [textwrap.fill(name, 45) for name in names]
    title = "lines: 95% intervals" if isinstance(picture, Intervals) else None
    place = "outside lower left" if in_page else "outside right upper"
    legend = figure.legend(handles, names, loc=place, title=title, alignment="left")
    if in_page:
        legend.set_frame_on(False)
        figure.set_size_inches(4.3, 3.3 + 0.2 * "\n".join(names).count("\n"))
    return figure


def _draw_curves(axes: "Axes", picture: Picture, looks: Sequence[int]) -> None:
    for look, curve in zip(looks, picture.curves, strict=True):
        every = math.ceil(len(curve.x) / _MOST_MARKERS) or 1
        _line(axes, look, curve, marker=_marker(look), markersize=5, markevery=every)
        if curve.beside is not None:
            _line(axes, look, curve.beside, linestyle="--", linewidth=0.8)
    if picture.log_scale:
        axes.set_yscale("log")
        _number_decades(axes.yaxis)
    if picture.ticks is None:
        axes.set_xlim(left=0)
        axes.locator_params(axis="x", nbins=6)
        axes.xaxis.set_major_formatter(lambda value, _: number(value))
    else:
        axes.set_xticks(range(len(picture.ticks)), list(map(_plain, picture.ticks)))
    axes.set_ylabel(_plain(picture.y))


def _draw_intervals(axes: "Axes", picture: Intervals, looks: Sequence[int]) -> None:
    """Points with their intervals, side by side at every tick.

    The axis fits the values: a long interval is cut by the frame, so that it hides no difference.
    """
    perplexities = {
        series.label: [value for value in series.values if not np.isnan(value)]
        for series in picture.series
    }
    _require_finite(perplexities)
    places = np.arange(len(picture.ticks))
    for index, (look, series) in enumerate(zip(looks, picture.series, strict=True)):
        x = places + 0.8 * ((index + 0.5) / len(picture.series) - 0.5)
        ends = axes.vlines(x, series.low, series.high, color=_colour(look), linewidth=1.5)
        ends.set_gid(_gid(series.label))
        points = Curve(series.label, x.tolist(), series.values.tolist())
        _line(axes, look, points, linestyle="", marker=_marker(look), markersize=5)
    if picture.baseline:
        axes.axhline(1, color="black", linewidth=1, label=_plain(picture.baseline))
        axes.set_ylabel(_plain(f"perplexity relative to {picture.baseline}"))
        axes.yaxis.set_major_formatter(lambda value, _: percent(value))
        axes.set_ylim(*limits_of_ratios(picture))
    else:
        _set_scale(axes, [value for values in perplexities.values() for value in values])
    axes.set_xlim(-0.6, len(picture.ticks) - 0.4)
    axes.set_xticks(places, list(map(_plain, picture.ticks)))
    axes.tick_params(axis="x", length=0)
    across = {"transform": axes.get_xaxis_transform(), "color": GRID, "alpha": 0.6}
    axes.vlines(places[1:] - 0.5, *(0, 1), linewidth=0.8, zorder=0, **across)


def limits_of_ratios(picture: Intervals) -> tuple[float, float]:
    """The ends of an axis that shows 1, all values and the intervals that are not far longer."""
    values = [value for one in picture.series for value in one.values if not np.isnan(value)]
    low, high = min(1.0, *values), max(1.0, *values)
    room = max(high - low, 0.01)
    ends = [end for one in picture.series for end in (*one.low, *one.high)]
    ends = [end for end in ends if low - room < end < high + room]
    return min(low, *ends) - 0.1 * room, max(high, *ends) + 0.1 * room


def plot_grid(
    rows: tuple[str, Sequence[str]],
    columns: tuple[str, Sequence[str]],
    perplexities: Mapping[tuple[str, str], float],
    path: str | os.PathLike[str],
) -> None:
    """Draws a grid search of two keys as a table of colours, the lowest perplexity framed.

    Args:
      rows: name and values of the key of the y axis, from below.
      columns: the same of the x axis.
      perplexities: by values of row and column. What is missing or not finite stays empty.
      path: picture to write.
    """
    values = np.array(
        [[perplexities.get((row, column), np.nan) for column in columns[1]] for row in rows[1]]
    )
    values[~np.isfinite(values)] = np.nan
    if np.all(np.isnan(values)):
        raise InputError(f"{path}: there is no finite perplexity to draw")
    figure, axes = new_figure((3 + 0.9 * len(columns[1]), 2 + 0.6 * len(rows[1])))
    from matplotlib.patches import Rectangle

    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    # Dark is good, also where there is one perplexity alone.
    image = axes.imshow(
        values,
        cmap="viridis",
        norm="log" if high > _LINEAR_RATIO * low else "linear",
        vmin=low,
        vmax=high if high > low else low + 1,
        origin="lower",
        aspect="auto",
    )
    for (y, x), value in np.ndenumerate(values):
        # With two decimals, and fewer where they would not fit in.
        decimals = 2 if value < 100 else 1 if value < 1000 else 0
        text = "–" if np.isnan(value) else f"{value:,.{decimals}f}"
        is_light = np.isnan(value) or float(np.asarray(image.norm(value))) > 0.6
        axes.text(x, y, text, ha="center", va="center", color="black" if is_light else "white")
        if value == low:
            # Within the square of a cell, whose outer edges the axes would cover.
            frame = {"fill": False, "edgecolor": COLOURS[1], "linewidth": 3}
            axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, **frame))
    axes.set_xticks(range(len(columns[1])), list(map(_plain, columns[1])))
    axes.set_yticks(range(len(rows[1])), list(map(_plain, rows[1])))
    axes.tick_params(length=0)
    axes.set(xlabel=_plain(columns[0]), ylabel=_plain(rows[0]))
    axes.set_title("Development perplexity (best framed)")
    scale = figure.colorbar(image, ax=axes)
    if high > _LINEAR_RATIO * low:
        _number_decades(scale.ax.yaxis)
    save(figure, path)


def plot_attention(sentences: "Sequence[SentenceAttention]", path: str | os.PathLike[str]) -> None:
    """Draws what the words of a document attend to: a heat map for each sentence that has two
    positions or more to attend to, its words from left to right, the positions from above.
    """
    numbered = [(n, one) for n, one in enumerate(sentences, 1) if len(one.positions) > 1]
    if not numbered:
        raise InputError(f"{path}: no sentence of the document has two positions to attend to")
    columns = max(len(one.targets) for _, one in numbered)
    rows = [len(one.positions) for _, one in numbered]
    width, height = columns + _LABELS, sum(rows) + _LABELS * len(rows)
    if width * height > _MOST_SQUARES:
        raise InputError(
            f"{path}: {len(rows)} sentences of up to {columns - 1} words are too much for a "
            "picture; expected fewer"
        )
    figure, alone = new_figure((_SQUARE * max(width, 25), _SQUARE * height))
    alone.remove()
    grid = figure.subplots(len(rows), squeeze=False, height_ratios=rows)[:, 0]
    for axes, (number, one) in zip(grid, numbered, strict=True):
        image = axes.imshow(one.weights.T, cmap="Blues", vmin=0, aspect="auto")
        # Words are as wide in all of them.
        axes.set(xlim=(-0.5, columns - 0.5), frame_on=False)
        axes.set_xticks(range(len(one.targets)), _short(one.targets), rotation=90, fontsize=7)
        axes.set_yticks(range(len(one.positions)), _short(one.positions), fontsize=7)
        axes.tick_params(length=0)
        axes.set_title(f"sentence {number}", fontsize=8, loc="left")
        figure.colorbar(image, ax=axes).ax.tick_params(labelsize=7)
    save(figure, path)


def _short(names: Sequence[str]) -> list[str]:
    """Names of ticks, of which sentences may be long."""
    return [_plain(name if len(name) <= 40 else f"{name[:39]}…") for name in names]


def plot_context(results: Sequence[Result], path: str | os.PathLike[str]) -> None:
    """Draws perplexity against n, one line a model (Wang and Cho 2015, Figure 2).

    Runs without n are horizontal lines.
    """
    lines = require_context(results)
    _require_finite({one.label: [one.perplexity] for one in results})
    figure, axes = new_figure((8, 5))
    ticks = sorted({number for line in lines.values() for number in line})
    ends = ticks[0] / 1.25, ticks[-1] * 1.25
    for index, (model, line) in enumerate(lines.items()):
        numbers = sorted(line)
        curve = Curve(model, numbers, [line[number].perplexity for number in numbers])
        _line(axes, index, curve, marker=_marker(index))
    level = [one for one in results if one.context_sentences is None]
    for index, one in enumerate(level, start=len(lines)):
        curve = Curve(f"{one.label} ({one.perplexity:.1f})", ends, [one.perplexity] * 2)
        _line(axes, index, curve, linestyle=("--", ":", "-.")[index % 3])
    _set_scale(axes, [one.perplexity for one in results])
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, map(str, ticks))
    axes.minorticks_off()
    axes.set(xlim=ends, xlabel="n, context sentences", title="Perplexity by context")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    save(figure, path)


def require_context(results: Sequence[Result]) -> dict[str, dict[int, Result]]:
    """The runs that have n, by model and n."""
    lines: dict[str, dict[int, Result]] = {}
    for one in results:
        if one.context_sentences is None:
            continue
        other = lines.setdefault(one.model, {}).setdefault(one.context_sentences, one)
        if other is not one:
            raise InputError(
                f"{other.label} and {one.label} are both {one.model} with n = "
                f"{one.context_sentences}; a line in the plot has one run for each n"
            )
    if not lines:
        raise InputError(
            "there is nothing to plot perplexity against: no run has model.context_sentences; "
            "by part of speech it can be drawn for any model"
        )
    if len(results) == 1:
        raise InputError(
            f"{results[0].label} alone is a single point, which is no plot; expected several runs"
        )
    return lines


def _line(axes: "Axes", look: int, curve: Curve, **style: Any) -> None:
    (line,) = axes.plot(curve.x, curve.y, color=_colour(look), label=_plain(curve.label), **style)
    line.set_gid(_gid(curve.label))


def _gid(label: str) -> str:
    return f"{LINE}{printable(label)}"


def _colour(look: int) -> str:
    return COLOURS[look % len(COLOURS)]


def _marker(look: int) -> str:
    return _MARKERS[look % len(_MARKERS)]


def _set_scale(axes: "Axes", values: Sequence[float]) -> None:
    """Makes the y axis of perplexities logarithmic where that shows more."""
    axes.set_ylabel("perplexity")
    if max(values) > _LINEAR_RATIO * min(values):
        axes.set(yscale="log", ylabel="perplexity (log scale)")
        _number_decades(axes.yaxis)


def _number_decades(axis: "Axis") -> None:
    """Gives a logarithmic axis numbers that people read."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = axis.get_view_interval()
    # In less than a decade hardly one of the logarithmic ticks would have a number.
    round_numbers = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
    is_wide = high > _LINEAR_RATIO * low
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if is_wide else round_numbers)
    axis.set_major_formatter(lambda value, _: number(value))
    axis.set_minor_formatter("")


def number(value: float) -> str:
    """A number as people read it at an axis."""
    return f"{value:,.7g}"


def percent(ratio: float) -> str:
    """How far a ratio is from 1."""
    percent = round(100 * (ratio - 1), 6)
    return f"{percent:+.4g}%" if percent else "0%"


def _require_finite(perplexities: Mapping[str, Sequence[float]]) -> None:
    for label, values in perplexities.items():
        if not np.all(np.isfinite(values)):
            raise InputError(f"a perplexity of {label} is not finite and cannot be drawn")


def _plain(text: str) -> str:
    """Text as one line whose dollar signs, as in the tag PRP$, do not begin a formula."""
    return printable(text).replace("$", r"\$")


def _format(path: str | os.PathLike[str]) -> str:
    return Path(path).suffix[1:].lower()
