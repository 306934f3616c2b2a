"""Figures: lines with or without intervals, drawn by matplotlib.

matplotlib is imported when the first figure is drawn. Colours stay distinct for colour-blind
readers; legends are outside the axes.
"""

import io
import math
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dclm_jax import files
from dclm_jax.errors import InputError, importing, printable
from dclm_jax.evaluation import measures
from dclm_jax.experiments.comparison import Row, change_text, ratios

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

FORMATS = ("png", "pdf", "svg")
"""File formats of figures."""
# The palette of Okabe and Ito.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# An axis is logarithmic if the largest value is more than this multiple of the smallest value.
_LINEAR_RATIO = 8
# Markers distinguish lines; a marker on every point of a long line would hide the line.
_MOST_MARKERS = 12
_GRID = "#b0b0b0"

Numbers = Sequence[float] | np.ndarray


class Line(NamedTuple):
    """A line: its label, its points (nan for a missing point), the ends of their intervals, and the
    number of its colour and marker, by default its index in the figure."""

    label: str
    x: Numbers
    y: Numbers
    low: Numbers = ()
    high: Numbers = ()
    look: int | None = None


class Figure(NamedTuple):
    """A figure with several lines.

    Attributes:
      title, x, y: titles of the figure and of its axes.
      lines: connected points, or points with intervals if the first line has intervals.
      ticks: names of x = 0, 1, 2, ... instead of numbers.
      log_scale: whether the y axis is logarithmic if the range of values is large.
      baseline: the run or model in the denominator, if values are ratios.
    """

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    ticks: Sequence[str] | None = None
    log_scale: bool = False
    baseline: str = ""

    @property
    def undrawn(self) -> str:
        """The reason why the figure is not drawn; empty if it is drawn."""
        if self.baseline and not self.lines:
            return f"no row can be compared with {self.baseline}; choose another --baseline"
        points = max((int(np.isfinite(line.y).sum()) for line in self.lines), default=0)
        return ("no run has a value", "a figure needs two points", "")[min(points, 2)]

    @property
    def has_intervals(self) -> bool:
        """Whether points have intervals."""
        return any(len(line.low) > 0 for line in self.lines)

    @property
    def interval_ends(self) -> list[float]:
        """The low and high ends of all intervals; nan for a missing interval."""
        return [end for line in self.lines for end in (*line.low, *line.high)]

    def cells(self) -> list[list[str]]:
        """All numbers as a table with one column per line, blank without a number."""
        columns = {line.label: self._column(line) for line in self.lines}
        places = sorted({x for column in columns.values() for x in column})
        rows = [
            [
                f"{x:,.6g}" if self.ticks is None else self.ticks[round(x)],
                *(column.get(x, "") for column in columns.values()),
            ]
            for x in places
        ]
        return [[self.x, *columns], *rows]

    def _column(self, line: Line) -> dict[float, str]:
        form = change_text if self.baseline else "{:.5g}".format
        column = {}
        for at, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
            if math.isfinite(x) and math.isfinite(y):
                column[x] = form(y)
                if self.has_intervals and math.isfinite(line.low[at]):
                    column[x] += f" [{form(line.low[at])}, {form(line.high[at])}]"
        return column


def ratio_figure(
    title: str, x: str, ticks: Sequence[str], lines: Sequence[Line], baseline: str
) -> Figure:
    """A figure of perplexities relative to a baseline, by named positions."""
    y = f"difference in perplexity from {baseline}, %"
    return Figure(title, x, y, lines, ticks, baseline=baseline)


def of_rows(all_rows: Sequence[Row], baselines: Sequence[str]) -> dict[str, Figure]:
    """The figures of rows by name; see `Figure.undrawn`."""
    figures = {"learning_curves": _learning_curves(all_rows)}
    for kind in measures.by_position():
        if not any(row.has(kind.name) for row in all_rows):
            continue
        ticks, lines = kind.ranges(), []
        for look, row in enumerate(all_rows):
            if (pair := ratios(row, all_rows, baselines[0], kind.name)) is not None:
                values, (low, high) = pair
                lines.append(Line(row.label, range(len(ticks)), values, low, high, look))
        x = "position, from 1"
        figures[kind.name] = ratio_figure(kind.title, x, ticks, lines, baselines[0])
    return figures


def _learning_curves(all_rows: Sequence[Row]) -> Figure:
    """Validation log-likelihood by training steps, of the first seed (Ji et al. 2015, Figure 3)."""
    lines = []
    for look, row in enumerate(all_rows):
        if points := row.results[0]["curve"]:
            steps, perplexities = zip(*points, strict=True)
            likelihoods = [-math.log(perplexity) for perplexity in perplexities]
            lines.append(Line(row.label, steps, likelihoods, look=look))
    title = "Validation log-likelihood by training steps (Ji et al. 2015, Figure 3)"
    return Figure(title, "training steps", "validation log-likelihood, nats per target", lines)


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuses, before long work, a path to which no figure can be written."""
    # matplotlib may be missing.
    new_figure((1, 1))
    _format(path)


def new_figure(size: tuple[float, float]) -> "tuple[Drawing, Axes]":
    """An empty figure, width and height in inches, and its axes."""
    with importing("a figure", "plots"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    # Figure instead of pyplot: it has no global state and never needs a display.
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save(figure: "Drawing", path: str | os.PathLike[str]) -> None:
    """Writes a figure, whole or not at all; the suffix of `path` chooses the format."""
    content = io.BytesIO()
    figure.savefig(content, format=_format(path))
    files.write_bytes(path, content.getvalue())


def draw(figure: Figure, path: str | os.PathLike[str]) -> str:
    """Draws a figure if it has something to draw, and returns a line about it; see `plot`."""
    if figure.undrawn:
        return f"{path}: not drawn: {figure.undrawn}"
    plot(figure, path)
    return f"{figure.title}: {path}"


def plot(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Draws a figure; raises `InputError` for an infinite number with intervals."""
    save(drawing(figure), path)


def drawing(figure: Figure) -> "Drawing":
    """A figure that can be drawn (see `Figure.undrawn`) as matplotlib draws it."""
    num_ticks, num_lines = len(figure.ticks or ()), len(figure.lines)
    width = 4 + 0.45 * num_ticks + 0.08 * num_ticks * num_lines if figure.has_intervals else 8
    drawn, axes = new_figure((width, 5))
    for index in range(num_lines):
        _draw_line(axes, figure, index)
    _draw_x_axis(axes, figure)
    _draw_y_axis(axes, figure)
    axes.grid(axis="y" if figure.has_intervals else "both", color=_GRID, alpha=0.4)
    axes.set_axisbelow(True)
    axes.set_title(textwrap.fill(_plain(figure.title), 70))
    handles, names = axes.get_legend_handles_labels()
    names = [textwrap.fill(name, 45) for name in names]
    title = "vertical lines: 95% intervals" if figure.has_intervals else ""
    low, high = axes.get_ylim()
    if any(end < low or end > high for end in figure.interval_ends):
        title += ";\nsome intervals extend beyond the frame"
    drawn.legend(handles, names, loc="outside right upper", title=title, alignment="left")
    _widen(drawn, axes, has_named_ticks=figure.ticks is not None)
    return drawn


def _widen(drawn: "Drawing", axes: "Axes", *, has_named_ticks: bool) -> None:
    """Makes a figure wide enough for its title and, if ticks have names, for these names. The
    widths are known only after the layout."""
    drawn.draw_without_rendering()
    needed = axes.title.get_window_extent().width
    if has_named_ticks:
        widths = np.array([label.get_window_extent().width for label in axes.get_xticklabels()])
        low, high = axes.get_xlim()
        gap = 0.1 * drawn.dpi
        needed = max(needed, (high - low) * ((widths[1:] + widths[:-1]) / 2 + gap).max(initial=0))
    missing = needed - axes.get_window_extent().width
    if missing > 0:
        drawn.set_figwidth(drawn.get_figwidth() + missing / drawn.dpi)


def _draw_line(axes: "Axes", figure: Figure, index: int) -> None:
    """Draws a line, or its points with their intervals, side by side at every tick."""
    line = figure.lines[index]
    look = index if line.look is None else line.look
    marks: dict[str, Any] = {"marker": _MARKERS[look % len(_MARKERS)], "markersize": 5}
    style: dict[str, Any] = {"color": COLOURS[look % len(COLOURS)]}
    x = np.asarray(line.x, float)
    if figure.has_intervals:
        x = x + 0.8 * ((index + 0.5) / len(figure.lines) - 0.5)
        axes.vlines(x, line.low, line.high, linewidth=1.5, **style)
        marks["linestyle"] = ""
    else:
        marks["markevery"] = math.ceil(len(x) / _MOST_MARKERS) or 1
    axes.plot(x, line.y, label=_plain(line.label), **marks, **style)


def _draw_x_axis(axes: "Axes", figure: Figure) -> None:
    axes.set_xlabel(_plain(figure.x))
    if figure.ticks is None:
        axes.set_xlim(left=0)
        axes.locator_params(axis="x", nbins=6)
        axes.xaxis.set_major_formatter("{x:,.7g}")
        return
    places = np.arange(len(figure.ticks))
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.set_xticks(places, [textwrap.fill(_plain(tick), 12) for tick in figure.ticks])
    if figure.has_intervals:
        axes.tick_params(axis="x", length=0)
        across = {"transform": axes.get_xaxis_transform(), "color": _GRID, "alpha": 0.6}
        axes.vlines(places[1:] - 0.5, *(0, 1), linewidth=0.8, zorder=0, **across)


def _draw_y_axis(axes: "Axes", figure: Figure) -> None:
    """The axis fits the values. The frame cuts long intervals, which would otherwise hide
    differences."""
    from matplotlib.ticker import LogLocator

    axes.set_ylabel(_plain(figure.y))
    values = [value for line in figure.lines for value in line.y if np.isfinite(value)]
    if figure.baseline:
        axes.axhline(1, color="black", linewidth=1, label=_plain(figure.baseline))
        axes.yaxis.set_major_formatter(lambda value, _: percent(value))
        low, high = min(1.0, *values), max(1.0, *values)
        margin = max(high - low, 0.01)
        ends = [end for end in figure.interval_ends if low - margin < end < high + margin]
        axes.set_ylim(min(low, *ends) - 0.1 * margin, max(high, *ends) + 0.1 * margin)
    elif figure.log_scale and max(values) > _LINEAR_RATIO * min(values):
        axes.set(yscale="log", ylabel=_plain(f"{figure.y} (log scale)"))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:,.7g}")
        axes.yaxis.set_minor_formatter("")


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    content = io.BytesIO()
    drawing(figure).savefig(content, format="png")
    return content.getvalue()


def percent(ratio: float) -> str:
    """The difference of a ratio from 1, in percent."""
    percent = round(100 * (ratio - 1), 6)
    return f"{percent:+.4g}%" if percent else "0%"


def _plain(text: str) -> str:
    """Text as one line whose dollar signs, as in the tag PRP$, do not begin a formula."""
    return printable(text).replace("$", r"\$")


def _format(path: str | os.PathLike[str]) -> str:
    """The format of a file, one of FORMATS, by its suffix."""
    if (suffix := Path(path).suffix[1:].lower()) not in FORMATS:
        raise InputError(
            f"{path}: cannot write the figure; choose a name with one of the suffixes "
            + ", ".join(f".{name}" for name in FORMATS)
        )
    return suffix
