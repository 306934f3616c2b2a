"""Rows of measurements that are made up, their comparisons and intervals."""

import math

import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.evaluation.measures import ByToken
from dclm_jax.evaluation.significance import ZTest
from dclm_jax.experiments import comparison, figures, tables
from dclm_jax.experiments.comparison import BASELINES
from tests.experiments.made_up import by_column, by_range, result, table


def test_the_z_tests_by_hand():
    """Differences 1, 2, 3: mean 2, sd 1, three documents; accuracies 0.8 and 0.7, sd 0.04."""
    rnnlm = comparison.rows([result("drnnlm", accuracy=0.7, documents=(5.0, 7.0, 9.0))])[0]
    ccdclm = comparison.rows([result("ccdclm", accuracy=0.8, documents=(4.0, 5.0, 6.0))])[0]
    expected = pytest.approx(2 * math.sqrt(3))
    assert z_of(comparison.test_perplexity(ccdclm, rnnlm)) == expected
    assert -z_of(comparison.test_perplexity(rnnlm, ccdclm)) == expected
    z = 0.1 / math.sqrt(2 * 0.04**2 / 100 + 2 * 0.003**2)
    assert z_of(comparison.test_coherence(ccdclm, rnnlm)) == pytest.approx(z)
    (a, b) = comparison.rows([result("a", documents=[1]), result(documents=[2])])
    assert comparison.test_perplexity(a, b) is None
    assert comparison.test_coherence(a, b) is None


def z_of(test: ZTest | None) -> float:
    assert test is not None
    return test.z


def test_z_of_the_papers_table():
    """Table 3: the printed means and standard deviations, R = 1000, give 43.2 and 34.7."""
    rows = comparison.rows([result(name, accuracy=0.8) for name in ("hrnnlm", "ccdclm", "adclm")])
    printed = {"hrnnlm": (0.7532, 0.0442), "ccdclm": (0.8326, 0.0377), "adclm": (0.8172, 0.0381)}
    by_model = {row.model: row for row in rows}
    for name, (mean, sd) in printed.items():
        values = {"mean": mean, "sd": sd, "replicates": 1000, "pool_error": 0.0}
        by_model[name].results[0]["coherence"] |= values
    for name, z in (("ccdclm", 43.22), ("adclm", 34.68)):
        test = comparison.test_coherence(by_model[name], by_model["hrnnlm"])
        assert z_of(test) == pytest.approx(z, abs=0.01)


def test_a_baseline_is_trained_like_the_row():
    def baseline(rows, number, name="rnnlm"):
        """The label of the baseline of a row, and whether it is trained alike."""
        pair = comparison.paired(rows[number], rows, name)
        return pair and (pair.other.label, pair.same_recipe)

    wide = {"model.hidden_dim": 64}
    rows = comparison.rows(
        [
            *(result("rnnlm"), result("rnnlm", **wide), result("ccdclm", **wide)),
            result("ccdclm", **{"model.hidden_dim": 256}),
        ]
    )
    assert baseline(rows, 2) == ("rnnlm, H = 64", True)
    assert baseline(rows, 3) is baseline(rows, 1) is None
    assert baseline(rows, 2, "hrnnlm") is None
    other = comparison.rows([result("rnnlm"), result("ccdclm", **wide)])
    assert baseline(other, 1) == ("rnnlm", False)
    assert by_column(other, "Perplexity (Ji et al. 2015, Table 2)")[1]["vs rnnlm"] == "+0.0%*"
    lengths = [
        result(model, **{"data.segment_length": length})
        for model in ("rnnlm", "ccdclm")
        for length in (5, 10)
    ]
    assert baseline(comparison.rows(lengths), 3) == ("rnnlm, L = 10", True)
    assert baseline(comparison.rows([lengths[0], lengths[3]]), 1) == ("rnnlm", True)


def test_rows_are_compared_over_the_seeds_that_both_have():
    """ccdclm has seed 0 alone, where rnnlm is as good; rlm has no seed of rnnlm's, and
    another recipe."""
    rows = comparison.rows(
        [
            result("rnnlm", 0, 80.0, documents=(4.0, 5.0, 6.0)),
            result("rnnlm", 1, 120.0, documents=(9.0, 9.0, 9.0)),
            result("ccdclm", 0, 80.0, documents=(3.0, 5.0, 5.0)),
            result("rlm", 2, 80.0, **{"model.hidden_dim": 5}),
        ]
    )
    header, *cells = table(rows, "Perplexity (Ji et al. 2015, Table 2)")
    assert [line[header.index("vs rnnlm")] for line in cells] == ["", "+0.0%", "-20.0%*"]
    compared = comparison.compare(rows[1], rows, "rnnlm")
    assert compared is not None and compared.perplexity is not None
    # Differences 1, 0, 1: mean 2/3, sd sqrt(1/3).
    assert compared.perplexity.z == pytest.approx(2.0)
    assert (compared.baseline, compared.same_recipe, compared.seeds) == ("rnnlm", True, [0])
    other = comparison.compare(rows[2], rows, "rnnlm")
    assert other is not None and other.seeds is None
    saved = tables.to_json(rows, BASELINES)["rows"]
    assert saved[0]["compared"] == {}
    z, p = compared.perplexity
    assert saved[1]["compared"]["rnnlm"]["perplexity"] == {"z": z, "p": p}
    assert saved[1]["compared"]["rnnlm"]["ratio"] == 1.0


def test_labels_of_what_differs():
    unfinished = result("ccdclm", seed=1) | {"unfinished": True}
    whole = result("ccdclm", **{"data.segment_length": 0})
    assert [row.label for row in comparison.rows([result("ccdclm"), whole, unfinished])] == [
        "ccdclm, L = 5",
        "ccdclm, L = whole documents",
        "ccdclm, L = 5, unfinished = True",
    ]
    counts = [result("ngram", **{"binary.sha256": 8 * letter + 56 * "0"}) for letter in "ab"]
    labels = [row.label for row in comparison.rows(counts)]
    assert labels == ["ngram, sha256 = aaaaaaaa", "ngram, sha256 = bbbbbbbb"]


def test_a_row_is_of_one_training_text_and_different_seeds():
    rows = comparison.rows([result(), result(seed=1, text="b")])
    assert [row.label for row in rows] == ["rnnlm, training_text = a", "rnnlm, training_text = b"]
    with pytest.raises(InputError, match="runs/rnnlm-0 and runs/rnnlm-0 are the same run"):
        comparison.rows([result(), result()])


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
    """Two seeds of ccdclm against one of rnnlm; its seed 1 is left out of the comparison."""
    base, seed_0, seed_1 = (5.0, 7.0, 6.0), (4.0, 7.5, 5.0), (3.0, 8.0, 5.5)
    rows = comparison.rows(
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
    compared = comparison.compare(rows[1], rows, "rnnlm")
    assert compared is not None
    assert compared.interval == pytest.approx(ratios.tolist())
    low, high = (100 * (value - 1) for value in ratios)
    assert cells["vs rnnlm, 95% interval"] == f"[{low:+.1f}%, {high:+.1f}%]"
    saved = tables.to_json(rows, BASELINES)["rows"][1]
    assert saved["test_interval"] == interval
    assert saved["compared"]["rnnlm"]["interval"] == compared.interval


def test_ratios_by_range_and_their_figures():
    """Document 0 has a target in the first range, 0 and 1 in the second, 2 in the third."""
    better = result("ccdclm", documents=(4.0, 2.5, 1.0))
    better["by_token"]["nll"] = by_range([1.5, 2.5, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.25])["nll"]
    rows = comparison.rows([result("rnnlm"), better])
    pair = comparison.ratios(rows[1], rows, "rnnlm", "by_token")
    assert pair is not None
    values, ends = pair
    np.testing.assert_allclose(values[:3], np.exp([1.5 - 2, (4.5 - 6) / 2, 0.25]))
    assert np.isnan(values[3:]).all() and np.isnan(ends[:, [0, 2, 3, 4, 5]]).all()
    np.testing.assert_allclose(ends[:, 1], np.exp([-1.0, -0.5]))
    drawn = figures.of_rows(rows, BASELINES)
    (line,) = drawn["by_token"].lines
    assert (drawn["by_token"].baseline, line.label) == ("rnnlm", "ccdclm")
    assert drawn["by_token"].ticks == ByToken.ranges()
    np.testing.assert_allclose(line.y, 100 * (values - 1))
    for drawn_ends, expected in zip((line.low, line.high), ends, strict=True):
        np.testing.assert_allclose(drawn_ends, 100 * (expected - 1))
    alone = figures.of_rows(comparison.rows([result("rnnlm")]), BASELINES)["by_token"]
    assert alone.undrawn == "no row can be compared with rnnlm; choose another --baseline"


def test_what_is_not_measured_is_blank():
    missing = {"valid": None, "test": None, "arrangements": None, "by_token": None}
    missing |= {"by_sentence": None, "by_document": None, "coherence": None}
    rows = comparison.rows([result("rnnlm"), {**result("ccdclm"), **missing}])
    named = tables.tables(rows, BASELINES)
    first, second = by_column(rows, "Perplexity (Ji et al. 2015, Table 2)")
    # Training knows a validation perplexity.
    assert (first["validation"], second["validation"]) == ("105.00", "150.00")
    assert {
        second[name] for name in ("test", "test, 95% interval", "bits/word", "vs rnnlm", "p")
    } == {""}
    assert set(named["coherence"].cells[2][1:]) == {""}
    assert named["context"].cells[2] == ["ccdclm", "", "", "", ""]
    assert set(named["by_token"].cells[2][1:]) == {""}
    saved = tables.to_json(rows, BASELINES)["rows"][1]
    assert (saved["compared"], saved["test_interval"]) == ({}, None)
    nothing = comparison.rows([{**result("ccdclm"), **missing}])
    assert list(tables.tables(nothing, BASELINES)) == ["perplexity"]
    assert list(figures.of_rows(nothing, BASELINES)) == ["learning_curves"]


@pytest.mark.parametrize("missing", ["by_token", "by_document", "test"])
def test_rows_without_some_measurement_are_not_compared(missing):
    first, second = result("rnnlm", 0, 100.0), result("ccdclm", 0, 80.0) | {missing: None}
    rows = comparison.rows([first, second])
    assert [comparison.compare(row, rows, "rnnlm") for row in rows[1:]] == [None]
