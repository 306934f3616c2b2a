"""Intervals over documents: against a plain loop, and by how often they hold the truth."""

import itertools
import math
import re

import numpy as np
import pytest

from dclm_jax.evaluation import significance
from dclm_jax.evaluation.significance import (
    Difference,
    Sums,
    differences,
    interval,
    of_ratio,
    resample,
    z_test,
)


def test_resampled_means_against_a_loop(monkeypatch):
    """Documents drawn one by one; 150 resamples are more than one chunk."""
    monkeypatch.setattr(significance, "RESAMPLES", 150)
    rng = np.random.default_rng(5)
    nats, targets = rng.random((7, 3)), rng.integers(1, 9, size=(7, 3))
    means = resample(nats, targets, seed=2)
    draws = np.random.default_rng(2)
    # The same stream, as many numbers at once as it likes.
    chunks = [draws.integers(7, size=(size, 7)) for size in (100, 50)]
    for row, drawn in zip(means, np.concatenate(chunks), strict=True):
        for column in range(3):
            total = sum(nats[d, column] for d in drawn) / sum(targets[d, column] for d in drawn)
            assert row[column] == pytest.approx(total)
    shared = resample(nats, targets[:, :1], seed=2)
    np.testing.assert_allclose(shared[:, 0], means[:, 0])


def test_ends_are_percentiles():
    values = np.arange(1001.0)[:, None]
    np.testing.assert_allclose(interval(values), [[25.0], [975.0]])
    np.testing.assert_allclose(interval(np.append(values, [[np.nan]], axis=0)), [[25.0], [975.0]])


def test_what_one_document_has_has_no_interval():
    targets = np.array([[1, 0, 0], [2, 3, 0], [1, 0, 0]])
    ends = interval(resample(targets * 1.5, targets))
    np.testing.assert_allclose(ends[:, 0], 1.5)
    assert np.isnan(ends[:, 1:]).all()


def test_perplexities_of_places_by_hand():
    """Two documents; the last place is empty."""
    sums = Sums(np.array([[1.0, 3.0, 0.0], [1.0, 5.0, 0.0]]), np.array([[1, 2, 0], [0, 4, 0]]))
    np.testing.assert_allclose(sums.perplexities[:2], np.exp([2.0, 8.0 / 6]), rtol=1e-12)
    assert np.isnan(sums.perplexities[2])


def test_ratios_are_of_paired_documents():
    rng = np.random.default_rng(3)
    count = rng.integers(5, 20, size=(12, 2))
    run = Sums(rng.random((12, 2)) * count * 5, count)
    tenth_less = Sums(run.nll + count * np.log(0.9), count)
    np.testing.assert_allclose(of_ratio(tenth_less, run), np.full((2, 2), 0.9))
    baseline = Sums(rng.random((12, 2)) * count * 5, count)
    expected = interval(run.resampled() / baseline.resampled())
    np.testing.assert_allclose(of_ratio(run, baseline), expected)
    ratios = run.perplexities / baseline.perplexities
    assert (expected[0] < ratios).all() and (ratios < expected[1]).all()


def test_intervals_hold_the_truth_as_often_as_they_say(monkeypatch):
    monkeypatch.setattr(significance, "RESAMPLES", 300)
    rng = np.random.default_rng(1)
    held = 0
    for trial in range(300):
        targets = rng.integers(50, 150, size=(60, 1))
        nats = targets * 5.0 + np.sqrt(targets) * rng.normal(0, 2, size=(60, 1))
        low, high = interval(resample(nats, targets, seed=trial))[:, 0]
        held += low < 5.0 < high
    assert held / 300 == pytest.approx(0.94, abs=0.03)


@pytest.mark.parametrize("at_once", [4096, 4])
def test_differences_of_runs_against_all_exchanges(at_once, monkeypatch):
    """Of six documents there are 64 ways to give the two results of each to the runs."""
    monkeypatch.setattr(significance, "_DOCUMENTS", at_once)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 3)) + [0.0, 0.0, 1.2]
    counts = np.full((6, 1), 4)
    comparisons = differences(Sums(values, counts))
    assert [(comparison.a, comparison.b) for comparison in comparisons] == [(0, 1), (0, 2), (1, 2)]
    resampled = resample(values, counts)
    for comparison in comparisons:
        apart = values[:, comparison.a] - values[:, comparison.b]
        assert comparison.difference == pytest.approx(apart.sum() / 24)
        ends = interval((resampled[:, comparison.a] - resampled[:, comparison.b])[:, None])[:, 0]
        assert (comparison.low, comparison.high) == tuple(ends)
        signs = np.array(list(itertools.product([-1, 1], repeat=6)))
        exact = np.mean(np.abs(signs @ apart) >= abs(apart.sum()) - 1e-12)
        assert comparison.p == pytest.approx(exact, abs=0.02)
    ordered = sorted(comparisons, key=lambda comparison: comparison.p)
    times = [min(1, k * comparison.p) for k, comparison in zip((3, 2, 1), ordered, strict=True)]
    expected = np.maximum.accumulate(times).tolist()
    assert [comparison.p_holm for comparison in ordered] == pytest.approx(expected)


def test_a_corrected_p_is_at_least_that_of_every_smaller_p():
    """The third run differs equally from both others, which are the same: p, p and 1."""
    first = np.arange(8.0)
    third = first + [1.0, -0.5, 1.0, 1.0, -0.2, 1.0, 0.1, 1.0]
    values = np.stack([first, first, third], axis=1)
    same, *differing = differences(Sums(values, np.ones((8, 1))))
    p, again = (pair.p for pair in differing)
    assert p == again < 0.2
    assert [pair.p_holm for pair in differing] == [3 * p, 3 * p] and same.p_holm == 1


def test_p_counts_the_difference_itself_among_the_exchanges():
    """No exchange of thirty equal differences is as large as they are."""
    nll = np.stack([np.ones(30), np.zeros(30)], axis=1)
    (pair,) = differences(Sums(nll, np.ones((30, 1))))
    assert pair.p == 1 / (1 + significance.EXCHANGES)


def test_runs_that_are_the_same_do_not_differ():
    (same,) = differences(Sums(np.ones((5, 2)), np.ones((5, 1))))
    assert (same.difference, same.low, same.high, same.p, same.p_holm) == (0, 0, 0, 1, 1)
    (alone,) = differences(Sums(np.ones((1, 2)), np.ones((1, 1))))
    assert alone.to_json("xy")["low"] is None


def test_a_table_and_json_of_differences():
    pair = Difference(a=0, b=2, difference=-0.0204, low=-0.05, high=-1e-9, p=0.01, p_holm=0.03)
    assert pair.to_json(["x", "y", "z"]) == {**pair._asdict(), "a": "x", "b": "z"}
    options = {"group": "test", "unit": "points", "scale": 100, "digits": 1}
    header, _, row = significance.difference_table({"swaps": [pair]}, ["x", "y", "z"], **options)
    assert re.split("  +", header.strip()) == [
        *("test", "runs", "difference, points", "95% interval", "p", "p (Holm)")
    ]
    assert re.split("  +", row.strip()) == [
        *("swaps", "x - z", "-2.0", "[-5.0, +0.0]", "0.0100", "0.0300")
    ]
    assert significance.difference_table({"swaps": []}, ["x"], **options) == []


def test_z_by_hand():
    # (0.8 - 0.7) / sqrt(0.03^2 / 9 + 0.04^2 / 16) = 0.1 / sqrt(0.0001 + 0.0001)
    result = z_test(0.1, 0.0002)
    assert result == pytest.approx((0.1 / math.sqrt(0.0002), 7.687e-13), rel=1e-3)
    # The 95th percentile of the normal distribution.
    assert z_test(1.6448536, 1.0) == pytest.approx((1.6448536, 0.05))
    assert z_test(-1.6448536, 1.0) == pytest.approx((-1.6448536, 0.95))
    assert z_test(0.0, 0.001) == (0.0, 0.5)
    assert z_test(0.0, 0.0) is None
