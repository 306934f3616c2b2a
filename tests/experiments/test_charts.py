"""Charts of a page: the places of marks against the ticks beside them, and the numbers in words."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from dclm_jax.experiments import charts, plots
from dclm_jax.experiments.plots import Curve, Intervals, Picture, Series

CURVES = Picture(
    "Curves <b>",
    "updates",
    "perplexity",
    [
        Curve("a & b", [0, 500, 1000], [900.0, math.inf, 150.0]),
        Curve("c", [250, 1000], [400.0, 100.0], Curve("_", [250, 1000], [300.0, 90.0])),
    ],
    log_scale=True,
)
RATIOS = Intervals(
    "Ratios",
    "position",
    ["1", "2-3", "4+"],
    [
        Series("x", np.array([0.9, 1.1, np.nan]), np.array([0.8, 1.0, np.nan]), np.full(3, 9.0)),
        Series("y", np.array([0.95, 1.0, 1.02]), np.full(3, np.nan), np.full(3, np.nan)),
    ],
    baseline="rnnlm",
)


def drawn(picture, looks=None):
    """The SVG of a picture and its lines by their labels."""
    svg = charts.svg(picture, "one", looks or charts.looks_of([picture]))
    root = ElementTree.fromstring(svg)
    lines = [one for one in root.iter("g") if one.get("class") == "line"]
    return root, {one.findtext("title") or "": one for one in lines}


def marks(line):
    """The places of the marks of a line."""
    return [(float(one.get("x", "")), float(one.get("y", ""))) for one in line.iter("use")]


def test_marks_are_where_the_ticks_say():
    root, lines = drawn(CURVES)
    first, second = marks(lines["a & b"]), marks(lines["c"])
    # What is infinite is not drawn.
    assert (len(first), len(second)) == (2, 2)
    texts = [one.text for one in root.iter("text")]
    assert {"0", "200", "400", "600", "800", "1,000"} <= set(texts)
    # Both axes by two points each: x is linear and y logarithmic.
    (x0, y900), (x1000, y150) = first
    (x250, y400), (other, y100) = second
    assert other == pytest.approx(x1000)
    assert x250 == pytest.approx(x0 + (x1000 - x0) / 4, abs=0.01)
    unit = (y100 - y900) / math.log(9)
    for y, value in ((y400, 400), (y150, 150)):
        assert y == pytest.approx(y900 + unit * math.log(900 / value), abs=0.01)
    dashed = [one for one in root.iter("path") if "stroke-dasharray" in one.get("style", "")]
    assert len(dashed) == 1


def test_ratios_stand_at_their_range_beside_their_intervals():
    root, lines = drawn(RATIOS)
    first, second = marks(lines["x"])[:2], marks(lines["y"])
    # 1.1 - 0.9 and 1.02 - 0.95 have one scale.
    unit = (first[0][1] - first[1][1]) / 0.2
    for (_, y), value in zip(second, [0.95, 1.0, 1.02], strict=True):
        assert y == pytest.approx(first[0][1] - unit * (value - 0.9), abs=0.01)
    assert "+10%" in [one.text for one in root.iter("text")]
    # The range of the second line is the first one's, to the right of it.
    assert all(one[0] < other[0] for one, other in zip(first, second, strict=False))
    assert second[1][0] - second[0][0] == pytest.approx(first[1][0] - first[0][0], abs=0.01)


def test_the_numbers_are_in_a_table():
    assert charts.cells(CURVES) == [
        ["updates", "a & b", "c", "c, dashed"],
        ["0", "900", "", ""],
        ["250", "", "400", "300"],
        ["1,000", "150", "100", "90"],
    ]
    assert charts.cells(RATIOS) == [
        ["position", "x", "y"],
        ["1", "-10.0% [-20.0%, +800.0%]", "-5.0%"],
        ["2-3", "+10.0% [+0.0%, +800.0%]", "+0.0%"],
        ["4+", "", "+2.0%"],
    ]


def test_many_lines_are_told_apart_by_their_marks():
    lines = [Curve(str(n), [0, 1], [n, n + 1]) for n in range(8)]
    _, lines = drawn(Picture("", "", "", lines))
    looks = [(one.findall(".//defs/path")[0].get("d"), colour(one)) for one in lines.values()]
    assert len(set(looks)) == 8
    assert {name for _, name in looks} == {f"var(--c{n})" for n in range(len(plots.COLOURS))}


def colour(line):
    (name,) = {*re.findall(r"var\(--c\d\)", ElementTree.tostring(line, encoding="unicode"))}
    return name


def test_a_row_looks_alike_in_all_pictures():
    looks = charts.looks_of([Picture("", "", "", [Curve("rnnlm", [], [])]), RATIOS])
    assert looks == {"rnnlm": 0, "x": 1, "y": 2}
    for one, other in ((looks, ["var(--c1)", "var(--c2)"]), (None, ["var(--c0)", "var(--c1)"])):
        _, lines = drawn(RATIOS, one)
        assert list(map(colour, lines.values())) == other


def test_a_figure_has_the_colours_of_the_page_and_ids_of_its_own():
    made = [charts.svg(RATIOS, name, charts.looks_of([RATIOS])) for name in ("one", "two")]
    ids = [{*re.findall(' id="([^"]+)"', one)} for one in made]
    assert ids[0] and not ids[0] & ids[1]
    for svg in made:
        assert not re.search("#[0-9a-fA-F]{6}|https?:|<style", svg)
        assert ids[made.index(svg)] >= {*re.findall(r'#([^")]+)[")]', svg)}


def test_text_of_a_figure_stays_text_in_one_line():
    hostile = '</svg><script>$a$ & "b"\x00\ud800\n'
    curve = Curve(hostile, [0, 1], [1, 2])
    root, lines = drawn(Picture("", "", hostile, [curve]))
    shown = '</svg><script>$a$ & "b"\\x00\\ud800\\n'
    assert [*lines] == [shown]
    assert [one.text for one in root.iter("text")].count(shown) == 2
