"""What is drawn, by the values and places of what a figure holds."""

import math
import sys
import types
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from dclm_jax.errors import InputError
from dclm_jax.report import figures
from dclm_jax.report.figures import Figure, Line, of_rows, ratio_figure
from dclm_jax.report.perplexities import context_figure
from dclm_jax.report.rows import rows_of
from tests.report.made_up import result

CLASSES = ["Noun", "IN", "DT", "JJ", "RB", "Verb", "PRP", "CC", "other", "punctuation", "END"]
VALUES = [452.0, 60.2, 20.0, 1731.0, 300.0, 500.0, 90.0, 30.0, 150.0, 15.0, 2.5]


@pytest.fixture
def saved(monkeypatch):
    """Every drawing of a figure."""
    drawings = []
    drawing = figures.drawing
    monkeypatch.setattr(figures, "drawing", lambda f: drawings.append(drawing(f)) or drawings[-1])
    return drawings


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
def test_points_are_differences_with_their_intervals(saved, tmp_path, num_runs):
    ratios = [0.9, 1.05, 1.0, 0.8, 0.95, 1.02, 0.99, 0.7, 0.88, 1.01, 0.93]
    runs = [series(f"run{i}", [v - 0.01 * i for v in ratios]) for i in range(num_runs)]
    picture = ratio_figure("By class", "what classes are", CLASSES, runs, "rnnlm")
    figures.plot(picture, tmp_path / "points.png")
    assert (tmp_path / "points.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = saved[0].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == CLASSES
    looks = set()
    for run, (line, whiskers) in zip(runs, drawn_points(saved[0]), strict=True):
        np.testing.assert_allclose(line.get_ydata(), 100 * (np.asarray(run.y) - 1), atol=1e-12)
        assert [round(x) for x in line.get_xdata()] == list(range(len(CLASSES)))
        ends = np.stack([run.low, run.high], axis=1)
        np.testing.assert_allclose(np.array(whiskers)[..., 1], 100 * (ends - 1), atol=1e-12)
        np.testing.assert_allclose(np.array(whiskers)[:, 0, 0], line.get_xdata())
        looks.add((to_hex(line.get_color()), line.get_marker()))
    assert len(looks) == num_runs
    places = sorted(x for line, _ in drawn_points(saved[0]) for x in line.get_xdata())
    assert len(set(places)) == num_runs * len(CLASSES)
    (legend,) = saved[0].legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [*(run.label for run in runs), "rnnlm"]
    assert axes.get_ylabel() == "difference in perplexity from rnnlm, %"
    assert axes.get_xlabel() == "what classes are"


def test_perplexities_of_one_run_have_a_logarithmic_axis(saved, tmp_path):
    alone = Figure("", "", "perplexity", [series("run", VALUES)], CLASSES, log_scale=True)
    figures.plot(alone, tmp_path / "alone.png")
    (axes,) = saved[0].axes
    assert axes.get_yscale() == "log" and len(axes.lines) == 1


def test_what_is_not_there_is_left_out(saved, tmp_path):
    values = np.array([0.9, math.nan, 1.1])
    run = Line(
        "run", range(3), values, np.array([0.8, math.nan, math.nan]), values + [0.1, 0.1, math.nan]
    )
    figures.plot(ratio_figure("", "", list("abc"), [run], "rnnlm"), tmp_path / "a.png")
    ((line, whiskers),) = drawn_points(saved[0])
    np.testing.assert_array_equal(np.isnan(line.get_ydata()), [False, True, False])
    assert np.isfinite(saved[0].axes[0].get_ylim()).all()
    np.testing.assert_allclose(whiskers[0][:, 1], [-20, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("lines", "baseline", "reason"),
    [
        ([series("run", [math.nan, math.nan])], "rnnlm", "no run has a value"),
        ([], "rnnlm", "no row can be compared with rnnlm; choose another --baseline"),
        ([], "", "no run has a value"),
        ([Line("point", [1], [2.0])], "", ""),
    ],
)
def test_a_figure_without_a_value_is_not_drawn(lines, baseline, reason):
    assert Figure("Title", "x", "y", lines, baseline=baseline).undrawn == reason


def test_dollar_signs_are_no_formulas(tmp_path):
    picture = ratio_figure("", "x$y$", ["PP$$", "NP$"], [series("$a$", [1.0, 2.0])], "$b$")
    figures.plot(picture, tmp_path / "points.svg")
    svg = (tmp_path / "points.svg").read_text()
    for text in ("PP$$", "NP$", "$a$", "$b$", "x$y$"):
        assert f"<!-- {text} -->" in svg


def test_log_likelihoods_have_an_axis_of_perplexities(saved, tmp_path):
    curve = Line("run", [1, 2], [-math.log(300), -math.log(90)])
    figures.plot(Figure("", "", "", [curve], of_likelihoods=True), tmp_path / "a.png")
    (second,) = saved[0].axes[0].child_axes
    ticks = [label.get_text() for label in second.get_yticklabels()]
    assert ticks == ["100", "150", "200", "300"]
    np.testing.assert_allclose(second.get_yticks(), [-math.log(float(tick)) for tick in ticks])


def test_a_label_that_the_font_lacks_is_drawn_without_a_warning(tmp_path):
    figures.plot(Figure("語", "x", "y", [series("コーパス", [1.0, 2.0])]), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def measured(label, model, context_sentences, perplexity):
    """The label of a run, its model and its perplexity."""
    config = {"model": {"context_sentences": context_sentences}}
    facts = types.SimpleNamespace(name=model, config=config)
    lm: Any = types.SimpleNamespace(facts=facts, adaptation=None)
    return label, lm, perplexity


def by_context(results):
    """The figure of perplexity against n."""
    labels, models, perplexities = zip(*results, strict=True)
    return context_figure(dict(zip(labels, models, strict=True)), perplexities)


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


def test_a_run_over_n_is_a_point(saved, tmp_path):
    point, level = measured("a", "rlm_bow_lf", 4, 20.0), measured("rlm", "rlm", None, 221.0)
    figures.plot(by_context([point, level]), tmp_path / "context.png")
    assert saved[0].axes[0].lines[0].get_ydata().tolist() == [20.0]


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
    figure = Figure("", "", "", [Line("a", [1], [2.0])])
    with pytest.raises(InputError, match="cannot be written"):
        figures.plot(figure, tmp_path / "file" / "a.png")


def test_without_matplotlib(monkeypatch, tmp_path):
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"needs matplotlib: pip install 'dclm_jax\[plots\]'"):
        figures.check_target(tmp_path / "a.png")


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
    made = of_rows(rows_of([result("rnnlm"), result("adclm"), result("rlm")]), ["rnnlm"])
    curves, ratios = looks(made["learning_curves"]), looks(made["by_token"])
    assert len(curves) == 3 and len(ratios) == 2
    assert ratios == {label: curves[label] for label in ratios}
