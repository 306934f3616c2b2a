"""Rows of measurements that are made up, their comparisons and intervals."""

import dataclasses
import math

import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.evaluation.significance import ZTest
from dclm_jax.evaluation.target_sums import GROUPINGS
from dclm_jax.report import figures, tables
from dclm_jax.report.results import RunResults
from dclm_jax.report.rows import (
    BASELINES,
    Comparison,
    compared,
    rows_of,
    to_json,
)
from tests.report.made_up import by_column, by_range, coherence, facts, result, sums, table


def test_the_z_tests_by_hand():
    """Differences of nats 1, 2, 3: mean 2, sd 1; of accuracies 0.2, 0, 0.1: mean 0.1, sd 0.1."""
    (drnnlm,) = rows_of([with_outcomes(result("drnnlm", documents=(5.0, 7.0, 9.0)), 0.6, 0.8, 0.5)])
    (ccdclm,) = rows_of([with_outcomes(result("ccdclm", documents=(4.0, 5.0, 6.0)), 0.8, 0.8, 0.6)])
    for row, baseline, sign in ((ccdclm, drnnlm, 1), (drnnlm, ccdclm, -1)):
        comparison = Comparison(row, baseline, True, None)
        assert z_of(comparison.perplexity_test) == pytest.approx(sign * 2 * math.sqrt(3))
        assert z_of(comparison.coherence_test) == pytest.approx(sign * math.sqrt(3))
    a, b = rows_of([result("a", documents=[1.0]), result(documents=[2.0])])
    comparison = Comparison(a, b, True, None)
    assert comparison.perplexity_test is comparison.coherence_test is None


def test_documents_that_no_test_set_draws_are_not_compared():
    """The second document has no outcome; the differences of the others are 0.2 and 0.1."""
    base, other = (
        with_outcomes(result(name), *outcomes)
        for name, outcomes in (("drnnlm", (0.6, 0.8, 0.5)), ("ccdclm", (0.8, 0.8, 0.6)))
    )
    undrawn = [
        dataclasses.replace(
            run,
            coherence=dataclasses.replace(
                run.coherence,
                documents=[
                    dataclasses.replace(outcome, pairs=0, correct=0.0) if number == 1 else outcome
                    for number, outcome in enumerate(run.coherence.documents)
                ],
            ),
        )
        for run in (base, other)
        if run.coherence is not None
    ]
    drnnlm, ccdclm = rows_of(undrawn)
    differences = np.array([0.2, 0.1])
    z = differences.mean() / (differences.std(ddof=1) / math.sqrt(2))
    assert z_of(Comparison(ccdclm, drnnlm, True, None).coherence_test) == pytest.approx(z)
    cells = tables.tables([drnnlm, ccdclm], ["drnnlm"])["coherence"]
    assert "p omits 1 document that no test set draws." in cells.about


def with_outcomes(run: RunResults, *outcomes: float) -> RunResults:
    return dataclasses.replace(run, coherence=coherence(0.7, outcomes))


def z_of(test: ZTest | None) -> float:
    assert test is not None
    return test.z


def test_accuracies_of_several_seeds_are_averaged_by_document():
    """0.6, 0.8 and 0.5 against means of 0.9, 0.8 and 0.7: 0.3, 0, 0.2."""
    base = with_outcomes(result("drnnlm"), 0.6, 0.8, 0.5)
    seeds = [
        with_outcomes(result("ccdclm", 0), 0.8, 0.8, 0.6),
        with_outcomes(result("ccdclm", 1), 1.0, 0.8, 0.8),
    ]
    drnnlm, ccdclm = rows_of([base, *seeds])
    differences = np.array([0.3, 0.0, 0.2])
    z = differences.mean() / (differences.std(ddof=1) / math.sqrt(3))
    assert z_of(Comparison(ccdclm, drnnlm, True, None).coherence_test) == pytest.approx(z)


def test_a_baseline_is_trained_like_the_row():
    def baseline(rows, number, name="rnnlm"):
        """The label of the baseline of a row, and whether it is trained alike."""
        comparison = compared(rows[number], rows, name)
        return comparison and (comparison.baseline.label, comparison.same_recipe)

    wide = {"model.hidden_dim": 64}
    rows = rows_of(
        [
            *(result("rnnlm"), result("rnnlm", **wide), result("ccdclm", **wide)),
            result("ccdclm", **{"model.hidden_dim": 256}),
        ]
    )
    assert baseline(rows, 2) == ("rnnlm, H = 64", True)
    assert baseline(rows, 3) is baseline(rows, 1) is None
    assert baseline(rows, 2, "hrnnlm") is None
    other = rows_of([result("rnnlm"), result("ccdclm", **wide)])
    assert baseline(other, 1) == ("rnnlm", False)
    assert by_column(other, "Perplexity (Ji et al. 2015, Table 2)")[1]["vs rnnlm"] == "+0.0%*"
    lengths = [
        result(model, **{"data.segment_length": length})
        for model in ("rnnlm", "ccdclm")
        for length in (5, 10)
    ]
    assert baseline(rows_of(lengths), 3) == ("rnnlm, L = 10", True)
    assert baseline(rows_of([lengths[0], lengths[3]]), 1) == ("rnnlm", True)


def test_rows_are_compared_over_the_seeds_that_both_have():
    """ccdclm has seed 0 alone, where rnnlm is as good; rlm has no seed of rnnlm's, and
    another recipe."""
    rows = rows_of(
        [
            result("rnnlm", 0, 80.0, documents=(4.0, 5.0, 6.0)),
            result("rnnlm", 1, 120.0, documents=(9.0, 9.0, 9.0)),
            result("ccdclm", 0, 80.0, documents=(3.0, 5.0, 5.0)),
            result("rlm", 2, 80.0, **{"model.hidden_dim": 5}),
        ]
    )
    header, *cells = table(rows, "Perplexity (Ji et al. 2015, Table 2)")
    assert [line[header.index("vs rnnlm")] for line in cells] == ["", "+0.0%", "-20.0%*"]
    comparison = compared(rows[1], rows, "rnnlm")
    assert comparison is not None and comparison.perplexity_test is not None
    # Differences 1, 0, 1: mean 2/3, sd sqrt(1/3).
    assert comparison.perplexity_test.z == pytest.approx(2.0)
    assert comparison.baseline.label == "rnnlm"
    assert (comparison.same_recipe, comparison.seeds) == (True, [0])
    other = compared(rows[2], rows, "rnnlm")
    assert other is not None and other.seeds is None
    saved = to_json(rows, BASELINES)["rows"]
    assert saved[0]["compared"] == {}
    z, p = comparison.perplexity_test
    assert saved[1]["compared"]["rnnlm"]["perplexity"] == {"z": z, "p": p}
    assert saved[1]["compared"]["rnnlm"]["ratio"] == pytest.approx(1.0)


def test_labels_of_what_differs():
    unfinished = result("ccdclm", seed=1)
    unfinished = dataclasses.replace(
        unfinished, facts=dataclasses.replace(unfinished.facts, unfinished=True)
    )
    whole = result("ccdclm", **{"data.segment_length": 0})
    assert [row.label for row in rows_of([result("ccdclm"), whole, unfinished])] == [
        "ccdclm, L = 5",
        "ccdclm, L = whole documents",
        "ccdclm, L = 5, unfinished = True",
    ]
    counts = [result("ngram", **{"binary.sha256": 8 * letter + 56 * "0"}) for letter in "ab"]
    labels = [row.label for row in rows_of(counts)]
    assert labels == ["ngram, sha256 = aaaaaaaa", "ngram, sha256 = bbbbbbbb"]


def test_a_row_is_of_one_training_text_and_different_seeds():
    rows = rows_of([result(), result(seed=1, text="b")])
    assert [row.label for row in rows] == ["rnnlm, training_text = a", "rnnlm, training_text = b"]
    with pytest.raises(InputError, match="runs/rnnlm-0 and runs/rnnlm-0 are the same run"):
        rows_of([result(), result()])


def loop_of_intervals(*nats: tuple[float, ...], targets=(2, 1, 1)) -> np.ndarray:
    """Perplexities in resampled test sets, one document drawn at a time: [resamples, runs]."""
    draws = np.random.default_rng(0).integers(3, size=(1000, 3))
    return np.array(
        [
            [math.exp(sum(run[d] for d in drawn) / sum(targets[d] for d in drawn)) for run in nats]
            for drawn in draws
        ]
    )


def test_intervals_over_documents_against_a_loop():
    """Two seeds of ccdclm against one of rnnlm; its seed 1 is left out of the rows."""
    base, seed_0, seed_1 = (5.0, 7.0, 6.0), (4.0, 7.5, 5.0), (3.0, 8.0, 5.5)
    rows = rows_of(
        [
            result("rnnlm", documents=base),
            result("ccdclm", 0, documents=seed_0),
            result("ccdclm", 1, documents=seed_1),
        ]
    )
    values = loop_of_intervals(base, seed_0, seed_1)
    expected = np.percentile(values[:, 1:].mean(axis=1), [2.5, 97.5])
    interval = rows[1].perplexity_interval()
    assert interval == pytest.approx(expected.tolist())
    cells = by_column(rows, "Perplexity (Ji et al. 2015, Table 2)")[1]
    assert cells["test, 95% interval"] == f"[{expected[0]:.2f}, {expected[1]:.2f}]"
    ratios = np.percentile(values[:, 1] / values[:, 0], [2.5, 97.5])
    comparison = compared(rows[1], rows, "rnnlm")
    assert comparison is not None
    assert comparison.interval == pytest.approx(ratios.tolist())
    low, high = (100 * (value - 1) for value in ratios)
    assert cells["vs rnnlm, 95% interval"] == f"[{low:+.1f}%, {high:+.1f}%]"
    saved = to_json(rows, BASELINES)["rows"][1]
    assert saved["test_interval"] == interval
    assert saved["compared"]["rnnlm"]["interval"] == comparison.interval


def test_perplexities_of_a_group_are_means_over_runs_as_the_test_perplexity_is():
    runs = [
        dataclasses.replace(result(seed=seed), test=sums(100.0, by_range([math.log(value)])))
        for seed, value in enumerate((100.0, 144.0))
    ]
    (row,) = rows_of(runs)
    first, *others = row.group_perplexities(GROUPINGS[0]).values()
    assert first == pytest.approx(122.0) and set(others) == {None}


def test_ratios_by_range_and_their_figures():
    """Document 0 has a target in the first range, 0 and 1 in the second, 2 in the third."""
    base = by_range([2.0, 3.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 1.0])
    better = by_range([1.5, 2.5, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.25])
    all_rows = rows_of(
        [
            dataclasses.replace(result(name), test=sums(100.0, by_token))
            for name, by_token in (("rnnlm", base), ("ccdclm", better))
        ]
    )
    by_token = GROUPINGS[0]
    comparison = compared(all_rows[1], all_rows, "rnnlm")
    assert comparison and (ratios_and_ends := comparison.ratios(by_token))
    values, ends = ratios_and_ends
    np.testing.assert_allclose(values[:3], np.exp([1.5 - 2, (4.5 - 6) / 2, 0.25]))
    assert np.isnan(values[3:]).all() and np.isnan(ends[:, [0, 2, 3, 4, 5]]).all()
    np.testing.assert_allclose(ends[:, 1], np.exp([-1.0, -0.5]))
    drawn = figures.of_rows(all_rows, BASELINES)
    (line,) = drawn["by_token"].lines
    assert (drawn["by_token"].baseline, line.label) == ("rnnlm", "ccdclm")
    assert drawn["by_token"].ticks == by_token.groups
    np.testing.assert_allclose(line.y, 100 * (values - 1))
    for drawn_ends, expected in zip((line.low, line.high), ends, strict=True):
        np.testing.assert_allclose(drawn_ends, 100 * (expected - 1))
    alone = figures.of_rows(rows_of([result("rnnlm")]), BASELINES)["by_token"]
    assert alone.undrawn == "no row can be compared with rnnlm; choose another --baseline"


def test_what_is_not_measured_is_blank():
    bare = RunResults(facts=facts("ccdclm"))
    all_rows = rows_of([result("rnnlm"), bare])
    named = tables.tables(all_rows, BASELINES)
    first, second = by_column(all_rows, "Perplexity (Ji et al. 2015, Table 2)")
    # Training knows a validation perplexity.
    assert (first["validation"], second["validation"]) == ("105.00", "150.00")
    assert {
        second[name] for name in ("test", "test, 95% interval", "bits/word", "vs rnnlm", "p")
    } == {""}
    assert set(named["coherence"].cells[2][1:]) == {""}
    assert named["context"].cells[2] == ["ccdclm", "", "", "", ""]
    assert set(named["by_token"].cells[2][1:]) == {""}
    saved = to_json(all_rows, BASELINES)["rows"][1]
    assert (saved["compared"], saved["test_interval"]) == ({}, None)
    comparison = compared(all_rows[1], all_rows, "rnnlm")
    assert (
        comparison
        and comparison.ratio() is comparison.interval is comparison.perplexity_test is None
    )
    assert list(tables.tables(rows_of([bare]), BASELINES)) == ["perplexity"]
    assert list(figures.of_rows(rows_of([bare]), BASELINES)) == ["learning_curves"]


def test_ratios_and_their_intervals_are_of_means_over_seeds():
    """Two documents of one target each; the seeds differ much, so that means of nats differ from
    nats of means."""
    bases = [by_range([2.0], [3.0]), by_range([4.0], [1.0])]
    better = [by_range([1.0], [3.5]), by_range([3.0], [0.5])]
    all_rows = rows_of(
        [
            dataclasses.replace(result(name, seed=seed), test=sums(100.0, by_token))
            for name, runs in (("rnnlm", bases), ("ccdclm", better))
            for seed, by_token in enumerate(runs)
        ]
    )
    comparison = compared(all_rows[1], all_rows, "rnnlm")
    assert comparison and (ratios_and_ends := comparison.ratios(GROUPINGS[0]))
    # For each row its seeds, with the nats of both documents.
    nats = [[(1.0, 3.5), (3.0, 0.5)], [(2.0, 3.0), (4.0, 1.0)]]
    perplexities = [
        np.mean([np.exp((seed[i] + seed[j]) / 2) for seed in seeds])
        for seeds in nats
        for i, j in ((0, 0), (0, 1), (1, 1))
    ]
    by_draw = np.divide(*np.reshape(perplexities, (2, 3)))
    values, ends = ratios_and_ends
    assert values[0] == pytest.approx(by_draw[1])
    # Each of two documents is drawn twice in a quarter of the test sets.
    assert ends[:, 0] == pytest.approx([by_draw.min(), by_draw.max()])
