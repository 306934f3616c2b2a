"""Pictures of results. matplotlib is imported when the first one is made.

Colours stay distinct for colour-blind readers; legends stand beside the data.
"""

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dclm_jax import files
from dclm_jax.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.patches import Rectangle

# Okabe and Ito's.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_HATCHES = ("", "//", "..", "xx")
# Where the largest value is more than this many times the smallest, an axis is logarithmic.
_LINEAR_RATIO = 8
# Decades alone would leave most axes, which span less than one, without a labelled tick.
_LOG_TICKS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
# Bars with their values written above them; more would be too narrow for the digits.
_MAX_WRITTEN = 80


class Curve(NamedTuple):
    """A line in a picture: its name, and its points."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


class Picture(NamedTuple):
    """Lines over one another.

    Attributes:
      title, x, y: of the picture and its axes.
      curves: what to draw.
      log_scale: of the y axis.
      ticks: names of x = 0, 1, 2, ..., in place of numbers.
    """

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_scale: bool = False
    ticks: Sequence[str] | None = None


class Result(NamedTuple):
    """A run in a picture of perplexity against the number of context sentences.

    Attributes:
      label: of this run.
      model: whose runs are joined by a line.
      context_sentences: n, or None for a model without this option.
      perplexity: of the text.
    """

    label: str
    model: str
    context_sentences: int | None
    perplexity: float


def check_target(path: str | os.PathLike[str]) -> None:
    """Finds out before long work whether a picture can be made.

    Raises:
      InputError: matplotlib is not installed, or `path` has no suffix that it can write.
    """
    figure, _ = new_figure((1, 1))
    supported = figure.canvas.get_supported_filetypes()
    if _format(path) not in supported:
        raise InputError(
            f"{path}: cannot write the plot: its name has none of the suffixes "
            + ", ".join(f".{name}" for name in sorted(supported))
        )


def new_figure(size: tuple[float, float]) -> "tuple[Figure, Axes]":
    """An empty figure, width and height in inches, and its axes.

    Raises:
      InputError: matplotlib is not installed.
    """
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
    """Writes a picture, whole or not at all; the suffix of `path` chooses the format.

    Raises:
      InputError: `path` has no suffix that matplotlib can write, or cannot be written.
    """
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format=_format(path))
    except ValueError as error:
        raise InputError(f"{path}: cannot write the plot: {error}") from error
    files.write_bytes(path, picture.getvalue())


def colour(index: int) -> str:
    """The colour of the run `index`; they repeat after the last."""
    return _COLOURS[index % len(_COLOURS)]


def use_log_scale(axes: "Axes") -> None:
    """Makes the y axis logarithmic, with numbers that people read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=_LOG_TICKS))
    axes.yaxis.set_major_formatter(FuncFormatter(_tick))
    axes.yaxis.set_minor_formatter(NullFormatter())


def plot_curves(picture: Picture, path: str | os.PathLike[str]) -> None:
    """Draws lines over one another.

    Raises:
      InputError: matplotlib is not installed, or `path` cannot be written.
    """
    figure, axes = new_figure((8, 5))
    for index, curve in enumerate(picture.curves):
        axes.plot(
            curve.x,
            curve.y,
            marker=_MARKERS[index // len(_COLOURS) % len(_MARKERS)],
            markersize=3,
            color=colour(index),
            label=plain(curve.label),
        )
    if picture.log_scale:
        use_log_scale(axes)
    if picture.ticks is None:
        axes.set_xlim(left=0)
    else:
        axes.set_xticks(range(len(picture.ticks)), picture.ticks)
    axes.set_xlabel(picture.x)
    axes.set_ylabel(picture.y)
    axes.set_title(picture.title)
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


def plot_classes(
    classes: Sequence[str],
    perplexities: Mapping[str, Sequence[float]],
    path: str | os.PathLike[str],
) -> None:
    """Draws bars in groups, one group a class (Wang and Cho 2015, Figure 3).

    Args:
      classes: names on the x axis.
      perplexities: of each run, by its label, one a class.
      path: picture to write.

    Raises:
      InputError: a perplexity is not finite, matplotlib is not installed, or `path` cannot be
        written.
    """
    _require_finite(perplexities)
    num_bars = len(classes) * len(perplexities)
    written = num_bars <= _MAX_WRITTEN
    figure, axes = new_figure((4 + 0.3 * len(classes) + (0.2 if written else 0.08) * num_bars, 5))
    width = 0.84 / len(perplexities)
    for index, (label, values) in enumerate(perplexities.items()):
        offset = (index - (len(perplexities) - 1) / 2) * width
        bars = axes.bar(
            np.arange(len(classes)) + offset,
            values,
            0.94 * width,
            color=colour(index),
            hatch=_HATCHES[index // len(_COLOURS) % len(_HATCHES)],
            edgecolor="white",
            linewidth=0,
            label=plain(label),
        )
        if written:
            texts = [f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in values]
            axes.bar_label(bars, texts, padding=2, rotation=90, fontsize=7)
    low, high = _set_scale(axes, perplexities.values())
    if axes.get_yscale() == "log":
        # The room above is for what is written there.
        axes.set_ylim(low / 1.5, high * (high / low) ** 0.15)
    else:
        axes.set_ylim(0, high * 1.15)
    axes.set_xlim(-0.6, len(classes) - 0.4)
    axes.set_xticks(range(len(classes)), list(map(plain, classes)))
    axes.tick_params(axis="x", length=0)
    axes.set_title("Perplexity by part of speech")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    figure.legend(loc="outside right upper")
    save(figure, path)


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

    Raises:
      InputError: there is no finite perplexity, matplotlib is not installed, or `path` cannot be
        written.
    """
    finite = {place: value for place, value in perplexities.items() if np.isfinite(value)}
    if not finite:
        raise InputError(f"{path}: there is no finite perplexity to draw")
    values = np.array(
        [[finite.get((row, column), np.nan) for column in columns[1]] for row in rows[1]]
    )
    figure, axes = new_figure((3 + 0.9 * len(columns[1]), 2 + 0.6 * len(rows[1])))
    low, high = min(finite.values()), max(finite.values())
    logarithmic = high > _LINEAR_RATIO * low
    # Dark is good, also where there is one perplexity alone.
    image = axes.imshow(
        values,
        cmap="viridis",
        norm="log" if logarithmic else "linear",
        vmin=low,
        vmax=high if high > low else low + 1,
        origin="lower",
        aspect="auto",
    )
    for (y, x), value in np.ndenumerate(values):
        empty = np.isnan(value)
        shade = 1.0 if empty else float(np.asarray(image.norm(value)))
        axes.text(
            x,
            y,
            "–" if empty else _written(value),
            ha="center",
            va="center",
            color="black" if shade > 0.6 else "white",
        )
        if value == low:
            axes.add_patch(_frame(x, y))
    axes.set_xticks(range(len(columns[1])), list(map(plain, columns[1])))
    axes.set_yticks(range(len(rows[1])), list(map(plain, rows[1])))
    axes.tick_params(length=0)
    axes.set_xlabel(plain(columns[0]))
    axes.set_ylabel(plain(rows[0]))
    axes.set_title("Development perplexity (best framed)")
    _add_scale(figure, axes, image, logarithmic)
    save(figure, path)


def plot_context(results: Sequence[Result], path: str | os.PathLike[str]) -> None:
    """Draws perplexity against n, one line a model (Wang and Cho 2015, Figure 2).

    Runs without n are horizontal lines.

    Raises:
      InputError: no run has n, two runs of a model have the same, a perplexity is not finite,
        matplotlib is not installed, or `path` cannot be written.
    """
    lines = require_context(results)
    _require_finite({one.label: [one.perplexity] for one in results})
    figure, axes = new_figure((8, 5))
    ticks = sorted({number for line in lines.values() for number in line})
    styles: Iterator[int] = iter(range(len(results)))
    for (model, line), index in zip(lines.items(), styles, strict=False):
        numbers = sorted(line)
        axes.plot(
            numbers,
            [line[number].perplexity for number in numbers],
            marker=_MARKERS[index % len(_MARKERS)],
            color=colour(index),
            label=plain(model),
        )
    flat = [one for one in results if one.context_sentences is None]
    for one, index in zip(flat, styles, strict=False):
        axes.axhline(
            one.perplexity,
            linestyle=("--", ":", "-.")[index % 3],
            color=colour(index),
            label=plain(f"{one.label} ({one.perplexity:.1f})"),
        )
    _set_scale(axes, [[one.perplexity for one in results]])
    axes.set_xscale("log", base=2)
    axes.set_xlim(ticks[0] / 1.25, ticks[-1] * 1.25)
    axes.set_xticks(ticks, map(str, ticks))
    axes.minorticks_off()
    axes.set_xlabel("n, context sentences")
    axes.set_title("Perplexity by context")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    save(figure, path)


def require_context(results: Sequence[Result]) -> dict[str, dict[int, Result]]:
    """The runs that have n, by model and n.

    Raises:
      InputError: no run has n, or two runs of a model have the same.
    """
    lines: dict[str, dict[int, Result]] = {}
    for one in results:
        if one.context_sentences is None:
            continue
        line = lines.setdefault(one.model, {})
        other = line.setdefault(one.context_sentences, one)
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
    return lines


def _set_scale(axes: "Axes", values: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Makes the y axis of perplexities logarithmic where that shows more; the least and largest."""
    flat = [value for one in values for value in one]
    low, high = min(flat), max(flat)
    if high > _LINEAR_RATIO * low:
        use_log_scale(axes)
        axes.set_ylabel("perplexity (log scale)")
    else:
        axes.set_ylabel("perplexity")
    return low, high


def _require_finite(perplexities: Mapping[str, Sequence[float]]) -> None:
    for label, values in perplexities.items():
        if not np.all(np.isfinite(values)):
            raise InputError(f"a perplexity of {label} is not finite and cannot be drawn")


def _add_scale(figure: "Figure", axes: "Axes", image: "AxesImage", logarithmic: bool) -> None:
    """The perplexities that the colours stand for, beside the axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    if not logarithmic:
        figure.colorbar(image, ax=axes)
        return
    ticks = LogLocator(subs=_LOG_TICKS)
    figure.colorbar(image, ax=axes, ticks=ticks, format=FuncFormatter(_tick)).minorticks_off()


def _frame(x: float, y: float) -> "Rectangle":
    """Lies within the square of a cell, whose outer edges the axes would cover."""
    from matplotlib.patches import Rectangle

    corner = (x - 0.46, y - 0.46)
    return Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=_COLOURS[1], linewidth=3)


def _written(perplexity: float) -> str:
    """With two decimals, and fewer where they would not fit in."""
    return f"{perplexity:,.{2 if perplexity < 100 else 1 if perplexity < 1000 else 0}f}"


def _tick(value: float, position: int | None = None) -> str:
    del position
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def plain(text: str) -> str:
    """Text whose dollar signs, as in the tag PRP$, do not begin a formula."""
    return text.replace("$", r"\$")


def _format(path: str | os.PathLike[str]) -> str:
    return Path(path).suffix[1:].lower()
