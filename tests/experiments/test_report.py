"""Rows and tables of measurements that are made up, and one real measurement."""

import csv
import io
import json
import math
from typing import Any

import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.evaluation import coherence, context, perplexity
from dclm_jax.evaluation.orders import Arrangement
from dclm_jax.experiments import grouping, measurement, plots, report
from tests.evaluation.test_context import DOCUMENTS, Neighbours
from tests.exhaustive import also
from tests.fuzzing import single_faults, value_or_input_error


def result(
    model: Any = "rnnlm",
    seed: Any = 0,
    test: Any = 100.0,
    accuracy: Any = 0.5,
    documents: Any = (5.0, 7.0, 6.0),
    text: Any = "a",
    first: Any = 0.5,
    **config: Any,
) -> dict[str, Any]:
    """A measurement as `measurement.measure` and launch.report make it."""
    counted = {"tokens": 10, "vocabulary_size": 12, "oov_rate": 0.05}
    return {
        "workdir": f"runs/{model}-{seed}",
        "parameters": 1234,
        "step": 20,
        "seconds": 60,
        "curve": [[10, 200.0], [20, 150.0]],
        "training_text": text,
        "unfinished": False,
        "config": {
            "model.name": model,
            "model.embedding_dim": 8,
            "model.hidden_dim": 4,
            "data.segment_length": 5,
            "data.directory": f"somewhere/{seed}",
            "training.seed": seed,
            **config,
        },
        "valid": {"perplexity": test + 5, **counted},
        "test": {
            "perplexity": test,
            "known_perplexity": test + 0.5,
            "bits_per_word": 7.5,
            **counted,
        },
        "arrangements": {"own": test, "shuffled": test + 1, "mixed": test + 2, "none": test + 3},
        "by_token": by_range([2.0, 3.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 1.0]),
        "by_sentence": by_range([5.0], [3.0], [1.0]),
        "by_document": list(documents),
        "coherence": {
            "mean": accuracy,
            "sd": 0.04 if accuracy != 0.5 else 0.0,
            "replicates": 100,
            "documents": 3,
            "pool": 50,
            "pool_error": 0.003 if accuracy != 0.5 else 0.0,
            "keep_first": 0,
            "left_out": 0,
            "first_sentence": first,
        },
    }


def by_range(*documents: list[float]) -> dict[str, list[list[float]]]:
    """Nats of documents in the first ranges; one target wherever there are any."""
    nll = [[*one, *[0.0] * (len(context.BOUNDS) - len(one))] for one in documents]
    return {"nll": nll, "count": [[int(value > 0) for value in one] for one in nll]}


def table(rows, title):
    (cells,) = [cells for name, _, cells in report.tables(rows) if name.startswith(title)]
    return cells


def by_column(rows, title):
    header, *cells = table(rows, title)
    return [dict(zip(header, line, strict=True)) for line in cells]


def test_runs_that_differ_in_the_seed_are_one_row_in_the_papers_order():
    rows = grouping.rows(
        [result("ccdclm", 0, 80.0), result("rnnlm", 0, 100.0), result("ccdclm", 1, 84.0)]
    )
    assert [(row.label, len(row.results)) for row in rows] == [("rnnlm", 1), ("ccdclm", 2)]
    first, second = by_column(rows, "Perplexity (Table 2)")
    columns = ["model", "K", "H", "parameters", "seeds", "development", "test"]
    assert list(first)[:7] == columns
    assert [first[name] for name in columns] == "rnnlm 8 4 1,234 1 105.00 100.00".split()
    assert [first[name] for name in ("to rnnlm", "to rnnlm, 95%", "p")] == ["", "", ""]
    assert [second[name] for name in columns[:5]] == ["ccdclm", "8", "4", "1,234", "2"]
    assert [second[name] for name in columns[5:]] == ["87.00 ± 2.83", "82.00 ± 2.83"]
    assert second["to rnnlm"] == "-20.0%"  # of the one seed that both have


def test_rows_of_one_seed_are_told():
    first, second = result("rnnlm", 0, 100.0), result("ccdclm", 0, 80.0)
    for results, told in (
        ([first, second], "One seed of all rows: another one may move a perplexity"),
        ([first, second, result("ccdclm", 1, 84.0)], "One seed of rnnlm: another one may move"),
        ([first], "exp(sum NLL"),
    ):
        assert report.tables(grouping.rows(results))[0].about.startswith(told)


def test_rows_of_one_model_are_told_apart_by_what_differs():
    rows = grouping.rows(
        [result("ccdclm", **{"data.segment_length": length}) for length in (1, 10)]
        + [result("rnnlm")]
    )
    assert [row.label for row in rows] == ["rnnlm", "ccdclm, L = 1", "ccdclm, L = 10"]
    curves = report.length_curves(rows)
    assert [curve.label for curve in curves] == ["ccdclm, L = 1", "ccdclm, L = 10"]
    assert list(curves[0].x) == [10, 20]
    np.testing.assert_allclose(curves[0].y, [-math.log(200), -math.log(150)])
    assert report.length_curves(rows[:2]) == []
    one = {"data.segment_length": 1, "data.batch_size": 99}
    made = report.length_curves(grouping.rows([result("ccdclm"), result("ccdclm", **one)]))
    assert [curve.label for curve in made] == [
        "ccdclm, batch_size = 16, L = 5",
        "ccdclm, batch_size = 99, L = 1",
    ]
    other = {"data.segment_length": 1, "optimizer.learning_rate": 99.0}
    assert report.length_curves(grouping.rows([result("ccdclm"), result("ccdclm", **other)])) == []


def test_coherence_by_blocks_is_measured_and_shown_by_their_size():
    drawn: Any = {"replicates": 20, "pool": 3, "keep_first": 0, "seed": 1}
    documents: Any = [[[n + 3] for n in range(size)] for size in (2, 5, 9, 10)]
    found: Any = {
        size: measurement.measure_coherence(Neighbours(), documents, block=size, **drawn)
        for size in (1, 2, 4)
    }
    for size, one in found.items():
        expected = coherence.bootstrap(
            Neighbours(), documents, arrangement=Arrangement(size), **drawn
        )
        assert (one["mean"], one["documents"]) == (expected.mean, {1: 4, 2: 3, 4: 3}[size])
        assert (one["first_sentence"] is None) == (size > 1)
    blocks = {str(size): {**found[size], "mean": 0.75, "sd": 0.03} for size in (2, 4)}
    rows = grouping.rows([{**result(), "blocks": blocks}, result("ccdclm")])
    (cells,) = [one.cells for one in report.tables(rows) if "block" in one.title]
    # 1.96 times the root of 0.03 squared and the squared error of the pool.
    half = [1.96 * math.hypot(0.03, found[size]["pool_error"]) for size in (2, 4)]
    shown = [f"75.00 [{0.75 - one:.1%}, {min(0.75 + one, 1):.1%}]" for one in half]
    assert cells == [["model", "1", "2", "4"], ["rnnlm", "50.00 [50.0%, 50.0%]", *shown]]
    picture = report.pictures(rows)["blocks.png"]
    assert isinstance(picture, plots.Picture)
    assert [(one.label, one.x, one.y) for one in picture.curves] == [
        ("rnnlm", [0, 1, 2], [50, 75, 75])
    ]
    assert picture.ticks == ["1", "2", "4"]
    assert report.records(rows)[0]["coherence_block_4"] == 0.75


def test_rows_that_adapt_themselves_are_compared_with_a_baseline_that_does():
    def adapted(perplexity):
        measured = {"test": {"perplexity": perplexity}, "coherence": None}
        return {"adapted": {"cache": measured}}

    made = [
        {**result("rnnlm", test=100.0), **adapted(80.0)},
        {**result("ccdclm", test=90.0), **adapted(76.0)},
        {**result("ccdclm", 1, test=96.0), **adapted(79.0)},
        result("ngram", test=120.0),
        result("drnnlm", test=110.0),
    ]
    rows = grouping.rows([one | {"coherence": None} for one in made])
    about, cells = next(one[1:] for one in report.tables(rows) if one.title.startswith("Adapted"))
    assert cells == [
        ["model", "as it is", "as it is to rnnlm", "cache", "cache to rnnlm"],
        ["ngram", "120.00", "+20.0%", "", ""],
        ["rnnlm", "100.00", "", "80.00", ""],
        ["drnnlm", "110.00", "+10.0%", "", ""],
        # The ratio is that of the seed that both have.
        ["ccdclm", "93.00 ± 4.24", "-10.0%", "77.50 ± 2.12", "-5.0%"],
    ]
    assert "tuned on the development set" in about
    record = next(one for one in report.records(rows) if one["model"] == "ccdclm")
    assert (record["test_perplexity_cache"], record["test_perplexity_cache_sd"]) == (
        77.5,
        pytest.approx(2.1213203),
    )
    assert "coherence_cache" not in record
    without = grouping.rows([result("rnnlm"), result("ccdclm")])
    assert not any(one.title.startswith("Adapted") for one in report.tables(without))


def test_rows_that_adapt_themselves_have_a_coherence_beside_their_own():
    def adapted(accuracy):
        measured = {"test": {"perplexity": 80.0}, "coherence": {"mean": accuracy}}
        return {"adapted": {"unigram": measured}}

    made = [
        {**result("ccdclm", accuracy=0.8), **adapted(0.7)},
        {**result("ccdclm", 1, accuracy=0.9), **adapted(0.6)},
        # Measured as it is alone.
        result("drnnlm", accuracy=0.5),
    ]
    rows = grouping.rows(made)
    cells = report.adaptation_table(rows, "rnnlm").cells
    assert [line[-2:] for line in cells] == [
        ["coherence as it is %", "coherence unigram %"],
        ["50.00", ""],
        ["85.00", "65.00"],
    ]
    drnnlm, ccdclm = report.records(rows)
    assert ccdclm["coherence_unigram"] == pytest.approx(0.65)
    assert "coherence_unigram" not in drnnlm


def test_the_z_tests_by_hand():
    """Differences 1, 2, 3: mean 2, sd 1, three documents; accuracies 0.8 and 0.7, sd 0.04."""
    rnnlm = grouping.rows([result("drnnlm", accuracy=0.7, documents=(5.0, 7.0, 9.0))])[0]
    ccdclm = grouping.rows([result("ccdclm", accuracy=0.8, documents=(4.0, 5.0, 6.0))])[0]
    assert grouping.test_perplexity(ccdclm, rnnlm).z == pytest.approx(2 * math.sqrt(3))
    assert grouping.test_perplexity(rnnlm, ccdclm).z == pytest.approx(-2 * math.sqrt(3))
    z = 0.1 / math.sqrt(2 * 0.04**2 / 100 + 2 * 0.003**2)
    assert grouping.test_coherence(ccdclm, rnnlm).z == pytest.approx(z)
    with pytest.raises(InputError, match="needs two"):
        grouping.test_perplexity(
            *grouping.rows([result("a", documents=[1]), result(documents=[2])])
        )


def test_a_baseline_is_trained_like_the_row():
    rows = grouping.rows(
        [
            result("rnnlm"),
            result("rnnlm", **{"model.hidden_dim": 64}),
            result("ccdclm", **{"model.hidden_dim": 64}),
            result("ccdclm", **{"model.hidden_dim": 256}),
        ]
    )
    by_label = {row.label: row for row in rows}
    found = grouping.baseline(by_label["ccdclm, H = 64"], rows, "rnnlm")
    assert found == (by_label["rnnlm, H = 64"], True)
    assert grouping.baseline(by_label["ccdclm, H = 256"], rows, "rnnlm") is None
    assert grouping.baseline(by_label["ccdclm, H = 64"], rows, "hrnnlm") is None
    assert grouping.baseline(by_label["rnnlm, H = 64"], rows, "rnnlm") is None
    other = grouping.rows([result("rnnlm"), result("ccdclm", **{"model.hidden_dim": 64})])
    assert grouping.baseline(other[1], other, "rnnlm") == (other[0], False)
    assert by_column(other, "Perplexity (Table 2)")[1]["to rnnlm"] == "+0.0%*"
    lengths = [
        result(model, **{"data.segment_length": length})
        for model in ("rnnlm", "ccdclm")
        for length in (5, 10)
    ]
    made = grouping.rows(lengths)
    assert grouping.baseline(made[3], made, "rnnlm") == (made[1], True)
    only = grouping.rows([lengths[0], lengths[3]])
    assert grouping.baseline(only[1], only, "rnnlm") == (only[0], True)


def test_rows_are_compared_over_the_seeds_that_both_have():
    """ccdclm has seed 0 alone, where rnnlm is as good; rlm has no seed of rnnlm's."""
    rows = grouping.rows(
        [
            result("rnnlm", 0, 80.0, documents=(4.0, 5.0, 6.0)),
            result("rnnlm", 1, 120.0, documents=(9.0, 9.0, 9.0)),
            result("ccdclm", 0, 80.0, documents=(3.0, 5.0, 5.0)),
            result("rlm", 2, 80.0),
        ]
    )
    header, *cells = table(rows, "Perplexity (Table 2)")
    assert [line[header.index("to rnnlm")] for line in cells] == ["", "+0.0%", "-20.0%*"]
    compared = grouping.compare(rows[1], rows, "rnnlm")
    assert compared is not None and compared.perplexity is not None
    # Differences 1, 0, 1: mean 2/3, sd sqrt(1/3).
    assert compared.perplexity.z == pytest.approx(2.0)
    assert (compared.baseline, compared.same_recipe, compared.seeds) == ("rnnlm", True, [0])
    other = grouping.compare(rows[2], rows, "rnnlm")
    assert other is not None and other.seeds is None
    saved = report.to_json(rows)["rows"]
    assert saved[0]["compared"] == {}
    z, p = compared.perplexity
    assert saved[1]["compared"]["rnnlm"]["perplexity"] == {"z": z, "p": p}
    assert saved[1]["compared"]["rnnlm"]["ratio"] == 1.0


def test_labels_of_what_differs():
    unfinished = result("ccdclm", seed=1) | {"unfinished": True}
    whole = result("ccdclm", **{"data.segment_length": 0})
    assert [row.label for row in grouping.rows([result("ccdclm"), whole, unfinished])] == [
        "ccdclm, L = 5",
        "ccdclm, L = whole documents",
        "ccdclm, L = 5, unfinished = True",
    ]
    counts = [result("ngram", **{"binary.sha256": 8 * letter + 56 * "0"}) for letter in "ab"]
    labels = [row.label for row in grouping.rows(counts)]
    assert labels == ["ngram, sha256 = aaaaaaaa", "ngram, sha256 = bbbbbbbb"]


def test_a_row_is_no_better_than_itself_at_chance():
    rows = grouping.rows([result("rnnlm"), result("rlm"), result("ccdclm", accuracy=0.8)])
    header, *cells = table(rows, "Coherence (Table 3)")
    compared = ["p, rnnlm", "p, drnnlm", "p, hrnnlm"]
    assert header[:4] == ["model", "accuracy %", "standard deviation %", "95%"]
    assert header[4:] == [*compared, "first sentence alone %"]
    # 1.96 times the root of 0.04^2 + 0.003^2 is 0.0786.
    assert cells == [
        ["rnnlm", "50.00", "0.00", "[50.0%, 50.0%]", "", "", "", "50.00"],
        ["ccdclm", "80.00", "4.00", "[72.1%, 87.9%]", "< 0.0001", "", "", "50.00"],
        ["rlm", "50.00", "0.00", "[50.0%, 50.0%]", "", "", "", "50.00"],
    ]


def test_positions_are_shown_in_ranges():
    rows = grouping.rows([result()])
    header, cells = table(rows, "Perplexity by position in the sentence")
    assert header == ["model", "1", "2", "3-5", "6-10", "11-20", "21+"]
    expected = [f"{math.exp(value):.1f}" for value in (2.0, 3.0, 1.0)]
    assert cells == ["rnnlm", *expected, "", "", ""]


def test_a_row_is_of_one_training_text_and_different_seeds():
    rows = grouping.rows([result(), result(seed=1, text="b")])
    assert [row.label for row in rows] == ["rnnlm, training_text = a", "rnnlm, training_text = b"]
    with pytest.raises(InputError, match="runs/rnnlm-0 and runs/rnnlm-0 are the same run"):
        grouping.rows([result(), result()])


def test_an_option_that_an_older_run_lacks_has_its_default():
    older, newer = result(), result(seed=1, **{"model.recurrent_dropout": 0.0})
    assert len(grouping.rows([older, newer])) == 1
    changed = result(seed=1, **{"model.recurrent_dropout": 0.5})
    assert [row.label for row in grouping.rows([older, changed])] == [
        "rnnlm, recurrent_dropout = 0.0",
        "rnnlm, recurrent_dropout = 0.5",
    ]


def loop_of_intervals(*nats: tuple[float, ...], targets=(2, 1, 1)) -> np.ndarray:
    """Perplexities in resampled test sets, one document drawn at a time: [resamples, runs]."""
    draws = np.random.default_rng(0).integers(3, size=(1000, 3))
    return np.array(
        [
            [math.exp(sum(one[d] for d in drawn) / sum(targets[d] for d in drawn)) for one in nats]
            for drawn in draws
        ]
    )


def test_intervals_over_documents_against_a_loop():
    """Two seeds of ccdclm against one of rnnlm; its seed 1 is left out of the comparison."""
    base, one, other = (5.0, 7.0, 6.0), (4.0, 7.5, 5.0), (3.0, 8.0, 5.5)
    rows = grouping.rows(
        [
            result("rnnlm", documents=base),
            result("ccdclm", 0, documents=one),
            result("ccdclm", 1, documents=other),
        ]
    )
    values = loop_of_intervals(base, one, other)
    expected = np.percentile(values[:, 1:].mean(axis=1), [2.5, 97.5])
    found = report.perplexity_interval(rows[1])
    assert found == pytest.approx(expected.tolist())
    cells = by_column(rows, "Perplexity (Table 2)")[1]
    assert cells["test, 95%"] == f"[{expected[0]:.2f}, {expected[1]:.2f}]"
    ratios = np.percentile(values[:, 1] / values[:, 0], [2.5, 97.5])
    comparison = grouping.compare(rows[1], rows, "rnnlm")
    assert comparison is not None
    assert comparison.interval == pytest.approx(ratios.tolist())
    low, high = (100 * (value - 1) for value in ratios)
    assert cells["to rnnlm, 95%"] == f"[{low:+.1f}%, {high:+.1f}%]"
    saved = report.to_json(rows)["rows"][1]
    assert saved["test_interval"] == found
    assert saved["compared"]["rnnlm"]["interval"] == comparison.interval


def test_ratios_by_range_and_their_pictures():
    """Document 0 has a target in the first range, 0 and 1 in the second, 2 in the third."""
    better = result("ccdclm", documents=(4.0, 2.5, 1.0))
    better["by_token"]["nll"] = by_range([1.5, 2.5, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.25])["nll"]
    rows = grouping.rows([result("rnnlm"), better])
    found = grouping.ratios(rows[1], rows, "rnnlm", "by_token")
    assert found is not None
    values, ends = found
    np.testing.assert_allclose(values[:3], np.exp([1.5 - 2, (4.5 - 6) / 2, 0.25]))
    assert np.isnan(values[3:]).all() and np.isnan(ends[:, [0, 2, 3, 4, 5]]).all()
    np.testing.assert_allclose(ends[:, 1], np.exp([-1.0, -0.5]))
    pictures = report.pictures(rows)
    tokens, sentences = pictures["by_token.png"], pictures["by_sentence.png"]
    assert isinstance(tokens, plots.Intervals) and tokens.baseline == "rnnlm"
    (series,) = tokens.series
    assert series.label == "ccdclm" and tokens.ticks == report.ranges()
    np.testing.assert_array_equal(series.values, values)
    np.testing.assert_array_equal([series.low, series.high], ends)
    assert plots.undrawn(tokens) == ""
    # All sentences are in the first range.
    assert plots.undrawn(sentences) == "a single point is no plot"
    alone = report.pictures(grouping.rows([result("rnnlm")]))["by_token.png"]
    expected = "no row can be compared with rnnlm; --baseline names another one"
    assert plots.undrawn(alone) == expected


def test_any_row_or_model_is_a_baseline():
    rows = grouping.rows(
        [
            result("rnnlm", test=100.0),
            result("ccdclm", test=80.0),
            result("ccdclm", test=90.0, accuracy=0.7, **{"data.segment_length": 10}),
            result("adclm", test=60.0, accuracy=0.8, **{"model.hidden_dim": 64}),
        ]
    )
    assert [row.label for row in rows] == ["rnnlm", "adclm", "ccdclm, L = 5", "ccdclm, L = 10"]
    made = report.tables(rows, ["ccdclm, L = 10"])
    header, *cells = made[0].cells
    at = header.index("to ccdclm, L = 10")
    # 100, 60 and 80 to 90; what has another H has another recipe.
    assert [line[at] for line in cells] == ["+11.1%", "-33.3%*", "-11.1%", ""]
    header, *cells = made[1].cells
    assert header[4:-1] == ["p, ccdclm, L = 10"]
    assert [bool(line[4]) for line in cells] == [True, True, True, False]
    # Of a model the row of the same L.
    cells = report.tables(rows, ["ccdclm"])[0].cells
    at = cells[0].index("to ccdclm")
    assert [line[at] for line in cells[1:]] == ["+25.0%", "", "", ""]


def test_what_cannot_be_compared_is_blank_and_told():
    rows = grouping.rows([result("adclm"), result("ccdclm")])
    (_, about, (header, *cells)), *_ = report.tables(rows)
    for column in ("to rnnlm", "to rnnlm, 95%", "p"):
        assert [line[header.index(column)] for line in cells] == ["", ""]
    assert "Blank for want of a comparison: adclm; ccdclm. A run of rnnlm that is" in about
    assert "or --baseline with one of the runs" in about
    (_, about, _), *_ = report.tables(grouping.rows([result("rnnlm"), result("ccdclm")]))
    assert "Blank" not in about


def test_hyper_parameters_that_differ_are_columns():
    rates = {"optimizer.learning_rate": 0.5}
    rows = grouping.rows(
        [result("rnnlm"), result("ccdclm", **rates), result("ngram", **{"ngram.order": 5})]
    )
    first, *others = by_column(rows, "Perplexity (Table 2)")
    assert list(first)[:5] == ["model", "K", "H", "learning_rate", "parameters"]
    rate = str(0.1)
    assert [line["learning_rate"] for line in (first, *others)] == ["", rate, "0.5"]


def test_both_accuracies_where_the_first_sentence_decides():
    given_away, plain = result("adclm", accuracy=0.95, first=0.9), result("rnnlm")
    assert report.first_decides([plain, given_away])
    assert not report.first_decides([plain, {**plain, "coherence": None}])
    header, *_ = table(grouping.rows([plain, given_away]), "Coherence")
    assert header[-1] == "first sentence alone %"
    for one, mean in ((given_away, 0.64), (plain, 0.5)):
        one["first_kept"] = {"mean": mean, "sd": 0.1 if mean > 0.5 else 0.0, "pool_error": 0.0}
    rows = grouping.rows([plain, given_away])
    first, second = by_column(rows, "Coherence")
    assert [first["first kept %"], first["first sentence alone %"]] == ["50.00", "50.00"]
    assert [second["first kept %"], second["first kept, 95%"]] == ["64.00", "[44.4%, 83.6%]"]
    assert (second["accuracy %"], second["first sentence alone %"]) == ("95.00", "90.00")
    (_, about, _) = report.tables(rows)[1]
    assert "WARNING" in about
    kept = [result("rnnlm"), result("adclm", accuracy=0.6)]
    for one in kept:
        one["coherence"] |= {"keep_first": 2, "left_out": 7, "first_sentence": None}
    assert not report.first_decides(kept)
    (_, about, (header, *_)) = report.tables(grouping.rows(kept))[1]
    assert "first sentence alone %" not in header
    told = "kept at the begin of each document: 2 (7 documents left out for fewer than two others)"
    assert told in about


def test_comma_separated_values_are_all_numbers():
    rows = grouping.rows(
        [result("rnnlm"), result("ccdclm", 0, 80.0, 0.8), result("ccdclm", 1, 84.0, 0.9)]
    )
    text = report.comma_separated(rows)
    first, second = csv.DictReader(io.StringIO(text))
    assert text.startswith("label,model,parameters,seeds,development_perplexity")
    assert (first["label"], first["test_perplexity"], first["test_perplexity_sd"]) == (
        *("rnnlm", "100.0"),
        "",
    )
    assert float(second["test_perplexity_sd"]) == pytest.approx(math.sqrt(8))
    assert float(second["ratio_to_rnnlm"]) == pytest.approx(0.8)
    found = [float(second[f"test_perplexity_{end}"]) for end in ("low", "high")]
    assert found == report.perplexity_interval(rows[1])
    assert float(second["coherence"]) == pytest.approx(0.85)
    assert (second["shuffled"], second["first_sentence"]) == ("83.0", "0.5")
    assert float(second["by_token_2"]) == pytest.approx(math.exp(3))
    assert (first["ratio_to_rnnlm"], second["by_token_1"]) == ("", repr(math.exp(2)))
    assert "by_token_21+" not in second and None not in second


def test_known_targets_stand_beside_all_and_many_unknown_words_are_told():
    first = result("rnnlm")
    rows = grouping.rows([first])
    table = report.tables(rows)[0]
    assert table.cells[1][table.cells[0].index("test, known")] == "100.50"
    assert "warning" not in table.about
    rates = {"oov_rate": 0.05, "own_oov_rate": 0.001}
    many = first | {"test": first["test"] | rates}
    told = report.tables(grouping.rows([many]))[0].about
    assert told.startswith("warning: 5.00% of the words are unknown, 0.10% of those of the run's")
    (record,) = report.records(rows)
    assert record["test_known_perplexity"] == 100.5


def test_latex_is_escaped():
    rows = grouping.rows([result("rnnlm"), result("rnnlm", 1), result("a_b&c", test=90.0)])
    text = report.latex(report.tables(rows))
    assert text.startswith("% \\usepackage{booktabs}\n\n\\begin{table}\n")
    assert "    rnnlm & 8 & 4 & 1,234 & 2 & 105.00 $\\pm$ 0.00 & 100.00 $\\pm$ 0.00 & " in text
    assert "    a\\_b\\&c & 8 & 4 & " in text and "-10.0\\%" in text
    assert text.count("\\toprule") == text.count("\\bottomrule") == text.count("\\end{table}") == 5
    lines = text.splitlines()
    columns = [line.replace("\\&", "").count("&") + 1 for line in lines if line.endswith("\\\\")]
    # Header, two rows, and as many columns as are declared.
    assert columns == [13] * 3 + [8] * 3 + [5] * 3 + [7] * 6
    assert [line.partition("{l")[2].count("r") for line in lines if "tabular}{l" in line] == [
        *(12, 7, 4, 6),
        6,
    ]


def test_markdown_and_json():
    rows = grouping.rows([result("rnnlm"), result("ccdclm", test=90.0, accuracy=0.8)])
    text = report.markdown(report.tables(rows), {"a.png": "A picture"}, ["b.png is not drawn."])
    assert "| rnnlm | 100.00 | 101.00 | 102.00 | 103.00 |" in text
    assert text.endswith("![A picture](a.png)\n\nb.png is not drawn.\n")
    assert "10 development and 10 test targets, vocabulary 12, 5.00% of the test words" in text
    saved = report.to_json(rows)["rows"]
    assert [row["label"] for row in saved] == ["rnnlm", "ccdclm"]
    assert saved[1]["runs"][0]["test"]["perplexity"] == 90.0
    assert "by_document" not in saved[1]["runs"][0]
    assert saved[1]["runs"][0]["by_token"] == {
        "1": pytest.approx(math.exp(2)),
        "2": pytest.approx(math.exp(3)),
        "3-5": pytest.approx(math.exp(1)),
        **dict.fromkeys(["6-10", "11-20", "21+"]),
    }


def test_a_measurement_holds_what_its_parts_measure():
    counts: Any = {"replicates": 30, "pool": 3, "seed": 5}
    measured = measurement.measure(Neighbours(), DOCUMENTS[:2], DOCUMENTS, **counts)
    expected = perplexity.measure(Neighbours(), DOCUMENTS)
    assert measured["test"] == expected.to_json()
    assert measured["valid"] == perplexity.measure(Neighbours(), DOCUMENTS[:2]).to_json()
    assert measured["arrangements"] == {
        name: pytest.approx(context.rearranged(Neighbours(), DOCUMENTS, name, 5))
        for name in context.ARRANGEMENTS
    }
    assert sum(measured["by_document"]) == pytest.approx(expected.nll, abs=0.01)
    bootstrap = coherence.bootstrap(Neighbours(), DOCUMENTS, **counts)
    first = coherence.first_sentence(Neighbours(), DOCUMENTS, seed=5)
    assert measured["coherence"] == bootstrap.to_json() | {"first_sentence": first}
    kept = measurement.measure(Neighbours(), DOCUMENTS, DOCUMENTS, keep_first=1, **counts)
    bootstrap = coherence.bootstrap(Neighbours(), DOCUMENTS, keep_first=1, **counts)
    assert kept["coherence"] == bootstrap.to_json()
    without = measurement.measure(Neighbours(), DOCUMENTS, DOCUMENTS, replicates=0)
    assert without["coherence"] is None


@pytest.mark.parametrize("kind", ["all", "coherence alone", "adapted", *also(["first kept"])])
def test_what_was_kept_of_a_measurement_is_whole_or_refused(tmp_path, kind):
    counts: Any = {"replicates": 4, "pool": 2, "keep_first": 0, "seed": 0}
    counts |= {"keep_first": 1} if kind == "first kept" else {}
    identity: dict[str, Any] = {"options": counts, "model": "x"}
    measured = measurement.measure(Neighbours(), DOCUMENTS, DOCUMENTS, **counts)
    if kind == "coherence alone":
        identity["coherence_alone"] = True
        measured = measured["coherence"]
    if kind == "adapted":
        identity["adapt"] = {"kind": "cache", "theta": 0.5}
        found = measurement.measure_adapted(Neighbours(), DOCUMENTS, **counts)
        assert found == {name: measured[name] for name in ("test", "coherence")}
        measured = {"setting": {"theta": 0.5, "weight": 0.1}, **found}
    path = tmp_path / "kept.json"
    measurement.keep(path, identity, measured)
    assert measurement.read(path, identity, len(DOCUMENTS)) == measured
    for other, documents in (({**identity, "model": "y"}, 3), (identity, 4)):
        if kind not in ("coherence alone", "adapted") or documents == 3:
            with pytest.raises(InputError, match="kept.json: is not the measurement that is want"):
                measurement.read(path, other, documents)

    def check(content: bytes) -> None:
        path.write_bytes(content)
        read = value_or_input_error(path, lambda: measurement.read(path, identity, len(DOCUMENTS)))
        if read is not None and kind == "adapted":
            report.tables(grouping.rows([{**result(), "adapted": {"cache": read}}]))
        elif read is not None and kind != "coherence alone":
            rows = grouping.rows([result() | read | {"config": result()["config"]}])
            report.markdown(report.tables(rows), {}, []).encode()
            report.first_decides(rows[0].results)
        elif read is not None:
            report.tables(grouping.rows([{**result(), "first_kept": read}]))

    for content in single_faults(json.loads(path.read_text())):
        check(content)


def test_documents_have_fingerprints():
    assert measurement.fingerprint(DOCUMENTS) == measurement.fingerprint(
        [list(d) for d in DOCUMENTS]
    )
    assert measurement.fingerprint(DOCUMENTS) != measurement.fingerprint(DOCUMENTS[::-1])
    joined = [[np.concatenate(document) for document in DOCUMENTS[:1]]]
    assert measurement.fingerprint(joined) != measurement.fingerprint(DOCUMENTS[:1])


def test_runs_of_bags_and_of_words_are_not_in_one_report():
    of_words, of_bags = result("rnn_lin"), result("rnnslm")
    of_bags["objective"] = "bags"
    message = "runs/rnn_lin-0 predicts words and runs/rnnslm-0 predicts bags; expected one kind"
    with pytest.raises(InputError, match=f"^{message}"):
        grouping.rows([of_words, of_bags])
    (_, about, _), *_ = report.tables(grouping.rows([of_bags]))
    assert "bags of words: the words are predicted without their order" in about
