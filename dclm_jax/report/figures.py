"""Figures: lines with or without intervals, drawn by matplotlib.

matplotlib is imported when the first figure is drawn. Colours stay distinct for colour-blind
readers; legends are outside the axes.
"""

import io
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dclm_jax import files
from dclm_jax.errors import InputError, importing, printable
from dclm_jax.evaluation.target_sums import GROUPINGS
from dclm_jax.report.rows import Row, compared, test_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

FORMATS = ("png", "pdf", "svg")
"""File formats of figures."""
# The palette of Okabe and Ito.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_SIZE = (10, 5)

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
      lines: connected points, or points with 95% intervals if the lines have intervals.
      ticks: names of x = 0, 1, 2, ... instead of numbers.
      log_scale: whether the y axis is logarithmic.
      baseline: the run or model at 0, if values are differences from it.
      of_likelihoods: whether the values are log-likelihoods, in nats per target; a second axis then
        has their perplexities.
    """

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    ticks: Sequence[str] | None = None
    log_scale: bool = False
    baseline: str = ""
    of_likelihoods: bool = False

    @property
    def undrawn(self) -> str:
        """The reason why the figure is not drawn; empty if it is drawn."""
        if self.baseline and not self.lines:
            return f"no row can be compared with {self.baseline}; choose another --baseline"
        has_values = any(np.isfinite(line.y).any() for line in self.lines)
        return "" if has_values else "no run has a value"


def ratio_figure(
    title: str, x: str, ticks: Sequence[str], ratios: Sequence[Line], baseline: str
) -> Figure:
    """A figure of ratios of perplexities to a baseline, as differences in percent, by named
    positions."""
    lines = [
        line._replace(y=_percent(line.y), low=_percent(line.low), high=_percent(line.high))
        for line in ratios
    ]
    y = f"difference in perplexity from {baseline}, %"
    return Figure(title, x, y, lines, ticks, baseline=baseline)


def _percent(ratios: Numbers) -> np.ndarray:
    return 100 * (np.asarray(ratios, float) - 1)


def of_rows(all_rows: Sequence[Row], baselines: Sequence[str]) -> dict[str, Figure]:
    """The figures of rows by name; see `Figure.undrawn`."""
    figures = {"learning_curves": _learning_curves(all_rows)}
    if not any(row.results(test_of) for row in all_rows):
        return figures
    for grouping in GROUPINGS:
        name, title, _, x, ticks = grouping
        lines = []
        for look, row in enumerate(all_rows):
            comparison = compared(row, all_rows, baselines[0])
            if comparison and (ratios := comparison.ratios(grouping)) is not None:
                values, (low, high) = ratios
                lines.append(Line(row.label, range(len(ticks)), values, low, high, look))
        figures[name] = ratio_figure(title, x, ticks, lines, baselines[0])
    return figures


def _learning_curves(all_rows: Sequence[Row]) -> Figure:
    """Validation log-likelihood by training steps, of the first seed (Ji et al. 2015, Figure 3)."""
    lines = []
    for look, row in enumerate(all_rows):
        if points := row.facts.curve:
            steps, perplexities = zip(*points, strict=True)
            likelihoods = [-math.log(perplexity) for perplexity in perplexities]
            lines.append(Line(row.label, steps, likelihoods, look=look))
    title = "Validation log-likelihood by training steps (Ji et al. 2015, Figure 3)"
    y = "validation log-likelihood, nats per target"
    return Figure(title, "training steps", y, lines, of_likelihoods=True)


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuses, before long work, a path to which no figure can be written."""
    # matplotlib may be missing.
    _new_figure()
    _format(path)


def _new_figure() -> "Drawing":
    with importing("a figure", "plots"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    # Figure instead of pyplot: it has no global state and never needs a display.
    figure = Figure(figsize=_SIZE, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plot(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure, whole or not at all; the suffix of `path` chooses the format."""
    files.write_bytes(path, content(figure, _format(path)))


def content(figure: Figure, file_format: str = "png") -> bytes:
    """The content of a file with a figure; `file_format` is one of `FORMATS`."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        # A label in a script that the font lacks is drawn as boxes.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        drawing(figure).savefig(stream, format=file_format)
    return stream.getvalue()


def drawing(figure: Figure) -> "Drawing":
    """A figure that can be drawn (see `Figure.undrawn`) as matplotlib draws it."""
    drawn = _new_figure()
    axes = drawn.add_subplot()
    for index in range(len(figure.lines)):
        _draw_line(axes, figure, index)
    if figure.baseline:
        axes.axhline(0, color="black", linewidth=1, label=_plain(figure.baseline))
    if figure.ticks is not None:
        names = list(map(_plain, figure.ticks))
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    if figure.log_scale:
        axes.set_yscale("log")
    axes.set(xlabel=_plain(figure.x), ylabel=_plain(figure.y))
    axes.grid(alpha=0.4)
    if figure.of_likelihoods:
        _add_perplexities(axes)
    drawn.suptitle(_plain(figure.title))
    has_intervals = any(len(line.low) for line in figure.lines)
    title = "vertical lines: 95% intervals" if has_intervals else None
    drawn.legend(loc="outside right upper", title=title)
    return drawn


def _draw_line(axes: "Axes", figure: Figure, index: int) -> None:
    """Draws a line, or its points with their intervals, side by side at every tick."""
    line = figure.lines[index]
    look = index if line.look is None else line.look
    x, colour = np.asarray(line.x, float), COLOURS[look % len(COLOURS)]
    style: dict[str, Any] = {"marker": _MARKERS[look % len(_MARKERS)], "markersize": 4}
    if len(line.low):
        x = x + 0.8 * ((index + 0.5) / len(figure.lines) - 0.5)
        axes.vlines(x, line.low, line.high, color=colour)
        style["linestyle"] = ""
    axes.plot(x, line.y, label=_plain(line.label), color=colour, **style)


def _add_perplexities(axes: "Axes") -> None:
    """A second y axis with the perplexities of log-likelihoods, at round numbers."""
    low, high = axes.get_ylim()
    with np.errstate(over="ignore"):
        ends = np.exp([-high, -low])
    steps = [digit * 10.0**power for power in range(9) for digit in (1, 1.5, 2, 3, 5, 7)]
    ticks = [step for step in steps if ends[0] <= step <= ends[1]]
    second = axes.secondary_yaxis("right")
    second.set_yticks([-math.log(tick) for tick in ticks], [f"{tick:,g}" for tick in ticks])
    second.set_ylabel("validation perplexity")


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
