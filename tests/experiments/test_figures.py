"""What is drawn, by the values and places of what a figure holds."""

import itertools
import math
import sys
import types
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from dclm_jax.errors import InputError
from dclm_jax.experiments import comparison, figures
from dclm_jax.experiments.evaluation import context_figure
from dclm_jax.experiments.figures import Figure, Line, of_rows, ratio_figure
from dclm_jax.experiments.subjects import Subject
from tests.experiments.made_up import result

CLASSES = ["Noun", "IN", "DT", "JJ", "RB", "Verb", "PRP", "CC", "other", "punctuation", "END"]
VALUES = [452.0, 60.2, 20.0, 1731.0, 300.0, 500.0, 90.0, 30.0, 150.0, 15.0, 2.5]


@pytest.fixture
def saved(monkeypatch):
    """Every drawing that is saved."""
    drawings = []
    save = figures.save

    def keep(drawing, path):
        save(drawing, path)
        drawings.append(drawing)

    monkeypatch.setattr(figures, "save", keep)
    return drawings


def texts_of(figure):
    """The texts of a figure with their boxes, after everything has found its place."""
    renderer = figure.canvas.get_renderer()
    (axes,) = figure.axes
    texts = [*axes.get_xticklabels(), *axes.get_yticklabels(), *axes.texts, axes.title]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts]


def require_readable(figure):
    """No text lies on another one or outside the picture, and the legend is beside the data and the
    title."""
    (axes,) = figure.axes
    low, high = axes.get_ylim()
    for legend in figure.legends:
        for place in (axes, axes.title):
            assert not legend.get_window_extent().overlaps(place.get_window_extent())
    hidden = {
        label.get_text()
        for tick, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        if not low <= tick <= high
    }
    texts = [(text, box) for text, box in texts_of(figure) if text and text not in hidden]
    for (first, box), (other, other_box) in itertools.combinations(texts, 2):
        assert not box.overlaps(other_box), (first, other)
    for text, box in texts:
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1, text


def series(label, values, half=0.05):
    values = np.array(values)
    return Line(label, range(len(values)), values, values - half, values + half)


def drawn_points(figure):
    """What is drawn of each series: its values by tick, and the ends of its intervals."""
    (axes,) = figure.axes
    lines = [line for line in axes.lines if line.get_marker() not in ("None", None, "")]
    whiskers = [collection.get_segments() for collection in axes.collections][: len(lines)]
    return list(zip(lines, whiskers, strict=True))


@pytest.mark.parametrize("num_runs", [1, 9])
def test_points_are_ratios_with_their_intervals(saved, tmp_path, num_runs):
    ratios = [0.9, 1.05, 1.0, 0.8, 0.95, 1.02, 0.99, 0.7, 0.88, 1.01, 0.93]
    runs = [series(f"run{i}", [v - 0.01 * i for v in ratios]) for i in range(num_runs)]
    picture = ratio_figure("By class", "what classes are", CLASSES, runs, "rnnlm")
    figures.plot(picture, tmp_path / "points.png")
    assert (tmp_path / "points.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = saved[0].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == CLASSES
    looks = set()
    for run, (line, whiskers) in zip(runs, drawn_points(saved[0]), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), run.y)
        assert [round(x) for x in line.get_xdata()] == list(range(len(CLASSES)))
        for x, low, high, whisker in zip(
            line.get_xdata(), run.low, run.high, whiskers, strict=True
        ):
            np.testing.assert_allclose(whisker, [[x, low], [x, high]])
        looks.add((to_hex(line.get_color()), line.get_marker()))
    assert len(looks) == num_runs
    places = sorted(x for line, _ in drawn_points(saved[0]) for x in line.get_xdata())
    assert len(set(places)) == num_runs * len(CLASSES)
    (legend,) = saved[0].legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [*(run.label for run in runs), "rnnlm"]
    assert axes.get_ylabel() == "difference in perplexity from rnnlm, %"
    assert axes.get_xlabel() == "what classes are"
    percents = {label.get_text() for label in axes.get_yticklabels()}
    assert "0%" in percents and "-10%" in percents
    require_readable(saved[0])


def test_differences_fill_the_axis_and_long_intervals_do_not_hide_them(saved, tmp_path):
    wide = Line("run", [0, 1], np.array([0.9, 0.92]), np.array([0.1, 0.91]), np.array([8.0, 0.93]))
    figures.plot(ratio_figure("", "", ["a", "b"], [wide], "rnnlm"), tmp_path / "a.png")
    low, high = saved[0].axes[0].get_ylim()
    assert 0.8 < low < 0.9 and 1.0 < high < 1.1
    assert "some intervals extend beyond the frame" in saved[0].legends[0].get_title().get_text()
    # Values that differ by a thousandth are not blown up to fill the axis.
    close = series("run", [0.9999, 1.0], half=0.0)
    figures.plot(ratio_figure("", "", ["a", "b"], [close], "rnnlm"), tmp_path / "b.png")
    low, high = saved[1].axes[0].get_ylim()
    assert high - low == pytest.approx(0.0021, abs=1e-4)
    assert "frame" not in saved[1].legends[0].get_title().get_text()


def test_perplexities_of_one_run_have_an_axis_that_fits_them(saved, tmp_path):
    for values in ([10.0, 70.0], [10.0, 90.0]):
        lines = [series("run", values)]
        alone = Figure("", "", "perplexity", lines, ["a", "b"], log_scale=True)
        figures.plot(alone, tmp_path / "alone.png")
    linear, log = (figure.axes[0] for figure in saved)
    assert (linear.get_yscale(), linear.get_ylabel()) == ("linear", "perplexity")
    assert (log.get_yscale(), log.get_ylabel()) == ("log", "perplexity (log scale)")
    assert log.get_ylim()[0] < 10 and log.get_ylim()[1] > 90
    assert len(linear.lines) == 1
    for ticks in (CLASSES, ["conjunction", "determiner"]):
        run = series("a long name of a run", VALUES[: len(ticks)])
        figures.plot(Figure("title " * 30, "", "perplexity", [run], ticks), tmp_path / "c.png")
        require_readable(saved[-1])
        assert saved[-1].axes[0].get_title().count("\n") == 2


def test_what_is_not_there_is_left_out(saved, tmp_path):
    values = np.array([0.9, math.nan, 1.1])
    run = Line(
        "run", range(3), values, np.array([0.8, math.nan, math.nan]), values + [0.1, 0.1, math.nan]
    )
    figures.plot(ratio_figure("", "", list("abc"), [run], "rnnlm"), tmp_path / "a.png")
    ((line, whiskers),) = drawn_points(saved[0])
    np.testing.assert_array_equal(np.isnan(line.get_ydata()), [False, True, False])
    assert np.isfinite(saved[0].axes[0].get_ylim()).all()
    np.testing.assert_allclose(whiskers[0][:, 1], [0.8, 1.0])


@pytest.mark.parametrize(
    ("lines", "baseline", "reason"),
    [
        (2 * [series("run", [0.9, math.nan])], "rnnlm", "a figure needs two points"),
        (2 * [series("run", [math.nan, math.nan])], "rnnlm", "no run has a value"),
        ([], "rnnlm", "no row can be compared with rnnlm; choose another --baseline"),
        (2 * [Line("run", [1], [2.0])], "", "a figure needs two points"),
        ([], "", "no run has a value"),
    ],
)
def test_a_single_point_is_no_figure(tmp_path, lines, baseline, reason):
    path = tmp_path / "a.png"
    figure = Figure("Title", "x", "y", lines, baseline=baseline)
    assert figures.draw(figure, path) == f"{path}: not drawn: {reason}" and not path.exists()
    curve = Figure(
        "Title", "x", "y", [Line("point", [1], [2.0]), Line("curve", [1, 2], [2.0, 3.0])]
    )
    assert figures.draw(curve, path) == f"Title: {path}" and path.exists()


def test_dollar_signs_are_no_formulas(saved, tmp_path):
    picture = ratio_figure("", "x$y$", ["PP$$", "NP$"], [series("$a$", [1.0, 2.0])], "$b$")
    figures.plot(picture, tmp_path / "points.svg")
    svg = (tmp_path / "points.svg").read_text()
    for text in ("PP$$", "NP$", "$a$", "$b$", "x$y$"):
        assert f"<!-- {text} -->" in svg


def measured(label, model, context_sentences, perplexity):
    """A run and its perplexity."""
    config = {"model": {"context_sentences": context_sentences}}
    lm: Any = types.SimpleNamespace(name=model, adaptation=None, config=config)
    return Subject(label, "", lm), perplexity


def by_context(results):
    """The figure of perplexity against n."""
    subjects, perplexities = zip(*results, strict=True)
    return context_figure(subjects, perplexities)


RESULTS = [
    measured("lf_4", "rlm_bow_lf", 4, 110.0),
    measured("lf_1", "rlm_bow_lf", 1, 114.0),
    measured("lf_2", "rlm_bow_lf", 2, 112.0),
    measured("att_8", "rlm_seqbow_att_lf", 8, 105.0),
    measured("att_1", "rlm_seqbow_att_lf", 1, 115.0),
    measured("kn5", "ngram", None, 148.0),
    measured("rlm", "rlm", None, 121.0),
]


def test_lines_are_models_over_n_and_others_are_level(saved, tmp_path):
    figures.plot(by_context(RESULTS), tmp_path / "deep" / "context.png")
    (axes,) = saved[0].axes
    lf, att, kn5, rlm = axes.lines
    # The places of n = 1, 2, 4 and 8.
    assert (lf.get_xdata().tolist(), lf.get_ydata().tolist()) == ([0, 1, 2], [114, 112, 110])
    assert (att.get_xdata().tolist(), att.get_ydata().tolist()) == ([0, 3], [115, 105])
    assert (set(kn5.get_ydata()), set(rlm.get_ydata())) == ({148.0}, {121.0})
    assert len({line.get_color() for line in axes.lines}) == 4
    labels = [text.get_text() for text in saved[0].legends[0].get_texts()]
    assert labels == ["rlm_bow_lf", "rlm_seqbow_att_lf", "kn5 (148.0)", "rlm (121.0)"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "4", "8"]
    assert axes.get_xlim()[0] < 0 < 3 < axes.get_xlim()[1]
    assert axes.get_yscale() == "linear"
    require_readable(saved[0])


def test_a_single_run_over_n_is_no_plot(saved, tmp_path):
    point, level = measured("a", "rlm_bow_lf", 4, 20.0), measured("rlm", "rlm", None, 221.0)
    with pytest.raises(InputError, match="^a is a single point, and a figure needs two"):
        by_context([point])
    figures.plot(by_context([point, level]), tmp_path / "context.png")
    (axes,) = saved[0].axes
    assert axes.lines[0].get_ydata().tolist() == [20.0] and axes.get_yscale() == "log"
    require_readable(saved[0])


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (RESULTS[5:], "no run has model.context_sentences, against which"),
        (
            [*RESULTS, measured("again", "rlm_bow_lf", 2, 99.0)],
            "lf_2 and again are both rlm_bow_lf with n = 2",
        ),
    ],
)
def test_what_cannot_be_drawn(results, message):
    with pytest.raises(InputError, match=message):
        by_context(results)


@pytest.mark.parametrize("name", ["plot.gif", "plot"])
def test_a_format_that_does_not_exist_is_refused(tmp_path, name):
    target = tmp_path / name
    message = f"^{target}: cannot write the figure.* with one of the suffixes .png, .pdf, .svg$"
    with pytest.raises(InputError, match=message):
        figures.check_target(target)


def test_targets_that_can_be_written(tmp_path):
    for name in ("a.png", "a.PNG", "a.pdf", "a.svg"):
        figures.check_target(tmp_path / name)
    (tmp_path / "file").write_text("")
    figure, _ = figures.new_figure((1, 1))
    with pytest.raises(InputError, match="cannot be written"):
        figures.save(figure, tmp_path / "file" / "a.png")


def test_without_matplotlib(monkeypatch, tmp_path):
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"needs matplotlib: pip install 'dclm_jax\[plots\]'"):
        figures.check_target(tmp_path / "a.png")


@pytest.mark.parametrize("ends", [(46, 46.9), (90, 400), (8, 30000)])
def test_ticks_of_a_logarithmic_axis_are_few_and_told_apart(saved, tmp_path, ends):
    curves = [Line("", [0, 1], ends)]
    figures.plot(Figure("", "", "", curves, log_scale=True), tmp_path / "a.png")
    (axes,) = saved[0].axes
    low, high = axes.get_ylim()
    labels = [
        label.get_text()
        for tick, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        if low <= tick <= high
    ]
    assert len(set(labels)) == len(labels) and 3 <= len(labels) <= 12


def test_long_labels_are_wrapped_and_marks_of_long_lines_are_few(saved, tmp_path):
    curve = Line("long " * 20, list(range(100)), list(range(100)))
    figures.plot(Figure("", "", "", [curve]), tmp_path / "a.png")
    (legend,) = saved[0].legends
    (text,) = legend.get_texts()
    assert max(map(len, text.get_text().split("\n"))) <= 45
    assert saved[0].axes[0].lines[0].get_markevery() == 9


CURVES = Figure(
    "Curves <b>",
    "updates",
    "perplexity",
    [
        Line("a & b", [0, 500, 1000], [900.0, math.inf, 150.0]),
        Line("c", [250, 1000], [400.0, 100.0]),
    ],
    log_scale=True,
)
RATIOS = ratio_figure(
    "Ratios",
    "position",
    ["1", "2-3", "4+"],
    [
        Line("x", range(3), [0.9, 1.1, math.nan], [0.8, 1.0, math.nan], np.full(3, 9.0)),
        Line("y", range(3), [0.95, 1.0, 1.02], np.full(3, math.nan), np.full(3, math.nan)),
    ],
    "rnnlm",
)


def test_the_numbers_are_in_a_table():
    assert CURVES.cells() == [
        ["updates", "a & b", "c"],
        ["0", "900", ""],
        ["250", "", "400"],
        ["1,000", "150", "100"],
    ]
    assert RATIOS.cells() == [
        ["position", "x", "y"],
        ["1", "-10.0% [-20.0%, +800.0%]", "-5.0%"],
        ["2-3", "+10.0% [+0.0%, +800.0%]", "+0.0%"],
        ["4+", "", "+2.0%"],
    ]


def looks(picture):
    """The colour and the marker of each line of a picture by its label."""
    (axes,) = figures.drawing(picture).axes
    return {
        line.get_label(): (to_hex(line.get_color()), line.get_marker())
        for line in axes.lines
        if line.get_marker() not in ("None", None, "")
    }


def test_many_lines_are_told_apart_by_their_marks():
    many = [Line(str(n), [0, 1], [n, n + 1]) for n in range(8)]
    assert len(set(looks(Figure("", "", "", many)).values())) == 8


def test_a_row_looks_alike_in_all_figures():
    """rnnlm, the first row, has no ratio."""
    made = of_rows(comparison.rows([result("rnnlm"), result("adclm"), result("rlm")]), ["rnnlm"])
    curves, ratios = looks(made["learning_curves"]), looks(made["by_token"])
    assert len(curves) == 3 and len(ratios) == 2
    assert ratios == {label: curves[label] for label in ratios}


def test_a_figure_of_a_page_is_a_png_file():
    assert figures.png(RATIOS).startswith(b"\x89PNG")
