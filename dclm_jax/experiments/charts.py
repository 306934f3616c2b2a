"""Pictures of results as figures of a page: inline SVG from the same data as those of `plots`.

Lengths are units of the view box, x to the right and y downwards. The colours are the page's: what
belongs to a line has the class "c{its look modulo COLOURS}", so that a theme may change them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

import numpy as np

from dclm_jax.experiments import plots
from dclm_jax.experiments.markup import disclosure, element, table
from dclm_jax.experiments.plots import Curve, Intervals, Picture

COLOURS = 6
WIDTH, HEIGHT = 440, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 430, 30, 236
# Circle, square, triangle, diamond, triangle downwards, plus, cross; of about the same area.
_MARKERS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.5-3.5h7v7h-7z",
    "M0-4.5l4.7 8.2h-9.4z",
    "M0-5l5 5l-5 5l-5-5z",
    "M0 4.5l4.7-8.2h-9.4z",
    "M-1.5-4.7h3v3.2h3.2v3h-3.2v3.2h-3v-3.2h-3.2v-3h3.2z",
    "M-4.4-2.2l2.2-2.2l2.2 2.2l2.2-2.2l2.2 2.2l-2.2 2.2l2.2 2.2l-2.2 2.2l-2.2-2.2l-2.2 2.2"
    "l-2.2-2.2l2.2-2.2z",
)
# Markers tell lines apart; on every point of a long one they would hide it.
_MOST_MARKERS = 12
_MOST_TICKS = 8
_FEWEST_TICKS = 3

Scale = Callable[[float], float]


def figure(
    picture: Picture | Intervals, name: str, looks: Mapping[str, int] | None = None
) -> Element:
    """The picture with its title, its legend, and a table of its numbers; if there is nothing to
    see, why.

    Args:
      picture: what to draw.
      name: of the figure in the page.
      looks: by the labels of lines, numbers that tell colours and marks, so that several pictures
        of a page have the same; by default those of this picture.
    """
    if reason := plots.undrawn(picture):
        return element("p", f"{picture.title} is not drawn: {reason}.", class_="missing")
    numbers = looks or looks_of([picture])
    own = [numbers[label] for label in labels(picture)]
    drawn = _curves(picture, own) if isinstance(picture, Picture) else _intervals(picture, own)
    keys = [
        element("li", _swatch(look), element("span", label), class_=_colour(look))
        for look, label in zip(own, labels(picture), strict=True)
    ]
    svg = element(
        "svg",
        element("title", picture.title, id=f"{name}-title"),
        element("desc", described(picture), id=f"{name}-desc"),
        *drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )
    behind = table(f"{picture.title}: the numbers", cells(picture))
    return element(
        "figure",
        element("figcaption", picture.title),
        svg,
        element("ul", *keys, class_="legend"),
        disclosure("The numbers of this picture", behind),
        id=name,
    )


def labels(picture: Picture | Intervals) -> list[str]:
    """The labels of a picture's lines."""
    lines = picture.curves if isinstance(picture, Picture) else picture.series
    return [line.label for line in lines]


def looks_of(pictures: Iterable[Picture | Intervals]) -> dict[str, int]:
    """A number for each label, in the order in which they appear."""
    names = dict.fromkeys(label for picture in pictures for label in labels(picture))
    return {name: number for number, name in enumerate(names)}


def described(picture: Picture | Intervals) -> str:
    """What is to be seen, for those who do not see it."""
    told = []
    if isinstance(picture, Picture):
        what = f"{picture.y} by {picture.x}"
        for curve in picture.curves:
            if points := _points(curve):
                ends = (f"{y:.5g} at {_place(picture, x)}" for x, y in (points[0], points[-1]))
                told.append(f"{curve.label} from {' to '.join(ends)}")
    else:
        what = f"{_ratio_to(picture)} by {picture.x}"
        for one in picture.series:
            shown = zip(picture.ticks, one.values, strict=True)
            values = [f"{_change(value)} at {name}" for name, value in shown if np.isfinite(value)]
            told.append(f"{one.label} {', '.join(values)}")
    return f"{what[:1].upper()}{what[1:]}. {'; '.join(told)}."


def cells(picture: Picture | Intervals) -> list[list[str]]:
    """All numbers of a picture, a column for each line, blank where there is none."""
    if isinstance(picture, Intervals):
        columns = [
            [_with_interval(*ends) for ends in zip(one.values, one.low, one.high, strict=True)]
            for one in picture.series
        ]
        header = [picture.x, *(one.label for one in picture.series)]
        return [header, *map(list, zip(picture.ticks, *columns, strict=True))]
    lines = [
        (label, dict(_points(one)))
        for curve in picture.curves
        for label, one in ((curve.label, curve), (f"{curve.label}, dashed", curve.beside))
        if one is not None
    ]
    rows = [
        [_place(picture, x), *(f"{line[x]:.5g}" if x in line else "" for _, line in lines)]
        for x in sorted({x for _, line in lines for x in line})
    ]
    return [[picture.x, *(label for label, _ in lines)], *rows]


def ticks(low: float, high: float, log_scale: bool = False) -> list[float]:
    """Round numbers from `low` to `high`, some three to eight of them."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    found: list[float] = []
    if log_scale:
        found = _within(LogLocator(subs=plots.LOG_TICKS).tick_values(low, high), low, high)
        found = found[:: math.ceil(len(found) / _MOST_TICKS)]
    if len(found) < _FEWEST_TICKS:
        locator = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
        found = _within(locator.tick_values(low, high), low, high)
    return found


def _within(values: Sequence[float], low: float, high: float) -> list[float]:
    room = 1e-9 * (high - low)
    return [float(value) for value in values if low - room <= value <= high + room]


def _curves(picture: Picture, looks: Sequence[int]) -> Iterator[Element]:
    lines = [line for one in picture.curves for line in (one, one.beside) if line is not None]
    points = [point for line in lines for point in _points(line)]
    last = max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    # On a logarithmic axis room is a factor.
    room = 0.05 * (high - low or abs(high) or 1)
    low, high = (low / 1.05, high * 1.05) if picture.log_scale else (low - room, high + room)
    y = _scale(low, high, _BOTTOM, _TOP, log_scale=picture.log_scale)
    values = ticks(low, high, log_scale=picture.log_scale)
    yield from _y_axis(picture.y, y, [(value, plots.number(value)) for value in values])
    if picture.ticks is None:
        x = _scale(0, last, _LEFT, _RIGHT - 8)
        marked = [(x(value), f"{value:,.6g}") for value in ticks(0, last)]
    else:
        x = _scale(-0.5, len(picture.ticks) - 0.5, _LEFT, _RIGHT)
        marked = [(x(place), text) for place, text in enumerate(picture.ticks)]
    yield from _x_axis(picture.x, marked)

    def places(curve: Curve) -> list[tuple[float, float]]:
        return [(x(a), y(b)) for a, b in _points(curve)]

    for look, curve in zip(looks, picture.curves, strict=True):
        line = places(curve)
        markers = line[:: math.ceil(len(line) / _MOST_MARKERS) or 1]
        yield element(
            "g",
            element("title", curve.label),
            _path(places(curve.beside), "dashed") if curve.beside is not None else None,
            _path(line),
            *(_marker(look, *place) for place in markers),
            class_=f"line {_colour(look)}",
        )


def _intervals(picture: Intervals, looks: Sequence[int]) -> Iterator[Element]:
    low, high = plots.limits_of_ratios(picture)
    y = _scale(low, high, _BOTTOM, _TOP)
    marked = [(value, plots.percent(value)) for value in ticks(low, high)]
    yield from _y_axis(_ratio_to(picture), y, marked)
    width = (_RIGHT - _LEFT) / len(picture.ticks)
    centres = [_LEFT + width * (place + 0.5) for place in range(len(picture.ticks))]
    yield from _x_axis(picture.x, list(zip(centres, picture.ticks, strict=True)))
    for centre in centres[1:]:
        yield _path([(centre - width / 2, _TOP), (centre - width / 2, _BOTTOM)], "grid")
    yield _path([(_LEFT, y(1)), (_RIGHT, y(1))], "baseline")
    for index, (look, one) in enumerate(zip(looks, picture.series, strict=True)):
        offset = 0.8 * width * ((index + 0.5) / len(picture.series) - 0.5)
        group = element("g", element("title", one.label), class_=f"line {_colour(look)}")
        for centre, value, *ends in zip(centres, one.values, one.low, one.high, strict=True):
            at = centre + offset
            if np.isfinite(ends).all():
                # A long interval is cut by the frame, so that it hides no difference.
                group.append(_path([(at, y(min(max(end, low), high))) for end in ends]))
            if np.isfinite(value):
                group.append(_marker(look, at, y(value)))
        yield group


def _scale(low: float, high: float, start: float, end: float, *, log_scale: bool = False) -> Scale:
    """From values to places: `low` is at `start` and `high` at `end`."""
    of = math.log if log_scale else float
    span = of(high) - of(low) or 1.0
    return lambda value: start + (of(value) - of(low)) / span * (end - start)


def _y_axis(name: str, y: Scale, marked: Sequence[tuple[float, str]]) -> Iterator[Element]:
    yield element("text", name, x=4, y=16, class_="name")
    for value, text in marked:
        yield _path([(_LEFT, y(value)), (_RIGHT, y(value))], "grid")
        yield _text(text, _LEFT - 6, y(value) + 4, "end")
    yield _path([(_LEFT, _TOP), (_LEFT, _BOTTOM)], "axis")


def _x_axis(name: str, marked: Sequence[tuple[float, str]]) -> Iterator[Element]:
    yield _path([(_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)], "axis")
    for place, text in marked:
        yield _text(text, place, _BOTTOM + 18, "middle")
    yield _text(name, (_LEFT + _RIGHT) / 2, HEIGHT - 8, "middle")


def _text(text: str, x: float, y: float, anchor: str) -> Element:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _path(points: Sequence[tuple[float, float]], class_: str | None = None) -> Element:
    return element("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_=class_)


def _marker(index: int, x: float, y: float) -> Element:
    place = f"translate({x:.1f} {y:.1f})"
    return element("path", d=_MARKERS[index % len(_MARKERS)], transform=place, class_="marker")


def _swatch(index: int) -> Element:
    hidden = {"aria_hidden": "true", "viewBox": "-12 -6 24 12", "class_": "swatch"}
    return element("svg", _path([(-12, 0), (12, 0)]), _marker(index, 0, 0), **hidden)


def _colour(index: int) -> str:
    return f"c{index % COLOURS}"


def _points(curve: Curve) -> list[tuple[float, float]]:
    """The points of a curve that are finite."""
    pairs = ((float(x), float(y)) for x, y in zip(curve.x, curve.y, strict=True))
    return [pair for pair in pairs if all(map(math.isfinite, pair))]


def _place(picture: Picture, x: float) -> str:
    return f"{x:,.6g}" if picture.ticks is None else picture.ticks[round(x)]


def _ratio_to(picture: Intervals) -> str:
    return f"perplexity relative to {picture.baseline}"


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def _with_interval(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return ""
    return _change(value) + (f" [{_change(low)}, {_change(high)}]" if math.isfinite(low) else "")
