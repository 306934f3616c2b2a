"""Figures of `plots` for a page: as inline SVG in the page's colours, and as numbers."""

import io
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree import ElementTree

from dclm_jax.experiments import plots
from dclm_jax.experiments.plots import Curve, Intervals, Picture, labels

# What page.css has in place of the colours of a file.
_THEME = {colour.lower(): f"var(--c{index})" for index, colour in enumerate(plots.COLOURS)}
_THEME |= {"#000000": "var(--ink)", plots.GRID: "var(--edge)"}
_COLOUR = re.compile("|".join(_THEME))


def svg(picture: Picture | Intervals, name: str, looks: Mapping[str, int]) -> str:
    """The picture as an SVG element, which `{name}-title` and `{name}-lines` describe.

    Args:
      picture: something to see, see `plots.undrawn`.
      name: of the figure in the page.
      looks: as `looks_of` gives them for all pictures of the page.
    """
    import matplotlib

    figure = plots.figure_of(picture, [looks[label] for label in labels(picture)], in_page=True)
    drawn = io.BytesIO()
    # Text stays text, in a font of the reader's; two figures share no ids.
    fonts: Any = {
        "svg.fonttype": "none",
        "font.sans-serif": ["DejaVu Sans", "system-ui"],
    }
    with matplotlib.rc_context(fonts | {"svg.hashsalt": name}):
        figure.savefig(drawn, format="svg", transparent=True)
    root = ElementTree.fromstring(drawn.getvalue())
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]
        values = {key.rpartition("}")[2]: value for key, value in node.items()}
        node.attrib = {
            key: _COLOUR.sub(lambda match: _THEME[match[0]], value) for key, value in values.items()
        }
        if node.tag == "g":
            gid = node.attrib.pop("id", "")
            if gid.startswith(plots.LINE):
                node.set("class", "line")
                ElementTree.SubElement(node, "title").text = gid.removeprefix(plots.LINE)
    # The name of the program and the style of all lines.
    for child in root.findall("metadata") + root.findall("defs")[:1]:
        root.remove(child)
    described = f"{name}-title {name}-lines"
    root.attrib = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-labelledby": described}
    return ElementTree.tostring(root, encoding="unicode")


def looks_of(pictures: Iterable[Picture | Intervals]) -> dict[str, int]:
    """A number for each label, in the order in which they appear."""
    names = dict.fromkeys(label for picture in pictures for label in labels(picture))
    return {name: number for number, name in enumerate(names)}


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


def _points(curve: Curve) -> list[tuple[float, float]]:
    """The points of a curve that are finite."""
    pairs = ((float(x), float(y)) for x, y in zip(curve.x, curve.y, strict=True))
    return [pair for pair in pairs if all(map(math.isfinite, pair))]


def _place(picture: Picture, x: float) -> str:
    return f"{x:,.6g}" if picture.ticks is None else picture.ticks[round(x)]


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def _with_interval(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return ""
    return _change(value) + (f" [{_change(low)}, {_change(high)}]" if math.isfinite(low) else "")
