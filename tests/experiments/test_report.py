"""Rows and tables of measurements that are made up, and one real measurement."""

import math
from typing import Any

import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.evaluation import coherence, context, perplexity
from dclm_jax.experiments import grouping, measurement, report
from dclm_jax.experiments.plots import Picture
from tests.evaluation.test_context import DOCUMENTS, Neighbours


def result(
    model: Any = "rnnlm",
    seed: Any = 0,
    test: Any = 100.0,
    accuracy: Any = 0.5,
    documents: Any = (5.0, 7.0, 6.0),
    text: Any = "a",
    **config: Any,
) -> dict[str, Any]:
    """A measurement as `measurement.measure` and launch.report make it."""
    counted = {"tokens": 10, "vocabulary_size": 12, "oov_rate": 0.05}
    return {
        "workdir": f"runs/{model}-{seed}",
        "parameters": 1234,
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
        "test": {"perplexity": test, **counted},
        "arrangements": {"own": test, "shuffled": test + 1, "mixed": test + 2, "none": test + 3},
        "by_token": {"nll": [2.0, 6.0, 1.0], "count": [1, 2, 1]},
        "by_sentence": {"nll": [9.0], "count": [4]},
        "by_document": list(documents),
        "coherence": {
            "mean": accuracy,
            "sd": 0.04 if accuracy != 0.5 else 0.0,
            "replicates": 100,
            "documents": 3,
            "pool": 50,
            "pool_error": 0.003 if accuracy != 0.5 else 0.0,
        },
    }


def table(rows, title):
    (cells,) = [cells for name, _, cells in report.tables(rows) if name.startswith(title)]
    return cells


def test_runs_that_differ_in_the_seed_are_one_row_in_the_papers_order():
    rows = grouping.rows(
        [result("ccdclm", 0, 80.0), result("rnnlm", 0, 100.0), result("ccdclm", 1, 84.0)]
    )
    assert [(row.label, len(row.results)) for row in rows] == [("rnnlm", 1), ("ccdclm", 2)]
    header, first, second = table(rows, "Perplexity (Table 2)")
    assert header[:7] == ["model", "K", "H", "parameters", "seeds", "development", "test"]
    assert first == ["rnnlm", "8", "4", "1,234", "1", "105.00", "100.00", "", ""]
    assert second[:8] == [
        "ccdclm",
        "8",
        "4",
        "1,234",
        "2",
        "87.00 ± 2.83",
        "82.00 ± 2.83",
        "-20.0%",  # of the one seed that both have
    ]


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
    assert table(other, "Perplexity (Table 2)")[2][7] == "+0.0%*"
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
    cells = table(rows, "Coherence (Table 3)")
    assert cells[1:] == [
        ["rnnlm", "50.00", "0.00", "", "", ""],
        ["ccdclm", "80.00", "4.00", "< 0.0001", "", ""],
        ["rlm", "50.00", "0.00", "", "", ""],
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


def test_markdown_and_json():
    rows = grouping.rows([result("rnnlm"), result("ccdclm", test=90.0, accuracy=0.8)])
    text = report.markdown(rows, {"a.png": Picture("A picture", "x", "y", [])})
    assert "| rnnlm | 100.00 | 101.00 | 102.00 | 103.00 |" in text
    assert text.endswith("![A picture](a.png)\n")
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
    assert measured["coherence"] == bootstrap.to_json()
    without = measurement.measure(Neighbours(), DOCUMENTS, DOCUMENTS, replicates=0)
    assert without["coherence"] is None


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
