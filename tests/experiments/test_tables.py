"""Tables of measurements that are made up, and the other forms of their numbers."""

import json
import math

import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.experiments import comparison, figures
from dclm_jax.experiments.comparison import BASELINES
from dclm_jax.experiments.report import Report
from dclm_jax.experiments.tables import first_decides, tables
from tests.experiments.made_up import by_column, result, table


def brief(rows, baselines=BASELINES):
    """The tables of rows by name."""
    return tables(rows, baselines)


def test_runs_that_differ_in_the_seed_are_one_row_in_the_papers_order():
    rows = comparison.rows(
        [result("ccdclm", 0, 80.0), result("rnnlm", 0, 100.0), result("ccdclm", 1, 84.0)]
    )
    assert [(row.label, len(row.results)) for row in rows] == [("rnnlm", 1), ("ccdclm", 2)]
    first, second = by_column(rows, "Perplexity (Ji et al. 2015, Table 2)")
    columns = ["model", "K", "H", "parameters", "seeds", "validation", "test"]
    assert list(first)[:7] == columns
    assert [first[name] for name in columns] == "rnnlm 8 4 1,234 1 105.00 100.00".split()
    assert [first[name] for name in ("vs rnnlm", "vs rnnlm, 95% interval", "p")] == ["", "", ""]
    assert [second[name] for name in columns[:5]] == ["ccdclm", "8", "4", "1,234", "2"]
    assert [second[name] for name in columns[5:]] == ["87.00 ± 2.83", "82.00 ± 2.83"]
    assert second["vs rnnlm"] == "-20.0%"  # of the one seed that both have


def test_rows_of_one_seed_are_told():
    first, second = result("rnnlm", 0, 100.0), result("ccdclm", 0, 80.0)
    for runs, message in (
        ([first, second], "All rows have one seed. Another seed may change a perplexity"),
        ([first, second, result("ccdclm", 1, 84.0)], "These rows have one seed: rnnlm. Another"),
        (
            [first],
            "Perplexity is exp(sum of -log P / targets). Counting: END is predicted and",
        ),
    ):
        assert brief(comparison.rows(runs))["perplexity"].about.startswith(message)


def test_rows_of_one_model_are_told_apart_by_what_differs():
    rows = comparison.rows(
        [result("ccdclm", **{"data.segment_length": length}) for length in (1, 10)]
        + [result("rnnlm")]
    )
    assert [row.label for row in rows] == ["rnnlm", "ccdclm, L = 1", "ccdclm, L = 10"]
    lines = figures.of_rows(rows, BASELINES)["learning_curves"].lines
    assert [line.label for line in lines] == [row.label for row in rows]
    assert list(lines[0].x) == [10, 20]
    np.testing.assert_allclose(lines[0].y, [-math.log(200), -math.log(150)])


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
    rows = comparison.rows([run | {"coherence": None} for run in made])
    _, about, cells = brief(rows)["adaptation"]
    assert cells == [
        [
            "model",
            *("test perplexity, without adaptation", "without adaptation vs rnnlm"),
            *("test perplexity, neural cache", "neural cache vs rnnlm"),
        ],
        ["ngram", "120.00", "+20.0%", "", ""],
        ["rnnlm", "100.00", "", "80.00", ""],
        ["drnnlm", "110.00", "+10.0%", "", ""],
        # The ratio is that of the seed that both have.
        ["ccdclm", "93.00 ± 4.24", "-10.0%", "77.50 ± 2.12", "-5.0%"],
    ]
    assert "tuned on the validation set" in about
    without = comparison.rows([result("rnnlm"), result("ccdclm")])
    assert "adaptation" not in brief(without)


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
    rows = comparison.rows(made)
    cells = brief(rows)["adaptation"].cells
    assert [line[-2:] for line in cells] == [
        ["coherence accuracy, without adaptation, %", "coherence accuracy, unigram cache, %"],
        ["50.00", ""],
        ["85.00", "65.00"],
    ]


def test_a_row_is_no_better_than_itself_at_chance():
    rows = comparison.rows([result("rnnlm"), result("rlm"), result("ccdclm", accuracy=0.8)])
    header, *cells = table(rows, "Coherence accuracy (Ji et al. 2015, Table 3)")
    compared = ["p, rnnlm", "p, drnnlm", "p, hrnnlm"]
    assert header[:4] == ["model", "accuracy, %", "standard deviation, %", "95% interval"]
    assert header[4:] == [*compared, "first sentence moved, %"]
    # 1.96 times the root of 0.04^2 + 0.003^2 is 0.0786.
    assert cells == [
        ["rnnlm", "50.00", "0.00", "[50.0%, 50.0%]", "", "", "", "50.00"],
        ["ccdclm", "80.00", "4.00", "[72.1%, 87.9%]", "< 0.0001", "", "", "50.00"],
        ["rlm", "50.00", "0.00", "[50.0%, 50.0%]", "", "", "", "50.00"],
    ]


def test_positions_are_shown_in_ranges():
    rows = comparison.rows([result()])
    header, cells = table(rows, "Perplexity by position in the sentence")
    assert header == ["model", "1", "2", "3-5", "6-10", "11-20", "21+"]
    expected = [f"{math.exp(value):.1f}" for value in (2.0, 3.0, 1.0)]
    assert cells == ["rnnlm", *expected, "", "", ""]


def test_any_row_or_model_is_a_baseline():
    rows = comparison.rows(
        [
            result("rnnlm", test=100.0),
            result("ccdclm", test=80.0),
            result("ccdclm", test=90.0, accuracy=0.7, **{"data.segment_length": 10}),
            result("adclm", test=60.0, accuracy=0.8, **{"model.hidden_dim": 64}),
        ]
    )
    assert [row.label for row in rows] == ["rnnlm", "adclm", "ccdclm, L = 5", "ccdclm, L = 10"]
    made = brief(rows, ["ccdclm, L = 10"])
    header, *cells = made["perplexity"].cells
    at = header.index("vs ccdclm, L = 10")
    # 100, 60 and 80 to 90; what has another H has another recipe.
    assert [line[at] for line in cells] == ["+11.1%", "-33.3%*", "-11.1%", ""]
    header, *cells = made["coherence"].cells
    assert header[4:-1] == ["p, ccdclm, L = 10"]
    assert [bool(line[4]) for line in cells] == [True, True, True, False]
    # Of a model the row of the same L.
    cells = brief(rows, ["ccdclm"])["perplexity"].cells
    at = cells[0].index("vs ccdclm")
    assert [line[at] for line in cells[1:]] == ["+25.0%", "", "", ""]


def test_what_cannot_be_compared_is_blank_and_told():
    rows = comparison.rows([result("adclm"), result("ccdclm")])
    _, about, (header, *cells) = brief(rows)["perplexity"]
    for column in ("vs rnnlm", "vs rnnlm, 95% interval", "p"):
        assert [line[header.index(column)] for line in cells] == ["", ""]
    assert "These rows have no baseline: adclm; ccdclm. Add a run of rnnlm with" in about
    assert "or choose one of the runs or models as --baseline" in about
    rows = comparison.rows([result("rnnlm"), result("ccdclm")])
    assert "no baseline" not in brief(rows)["perplexity"].about


def test_hyper_parameters_that_differ_are_columns():
    rates = [{"optimizer.learning_rate": rate} for rate in (0.1, 0.5)]
    rows = comparison.rows(
        [result("rnnlm", **rates[0]), result("ccdclm", **rates[1]), result("ngram")]
    )
    lines = by_column(rows, "Perplexity (Ji et al. 2015, Table 2)")
    assert list(lines[0])[:5] == ["model", "K", "H", "learning_rate", "parameters"]
    assert [line["learning_rate"] for line in lines] == ["", "0.1", "0.5"]


def test_both_accuracies_where_the_first_sentence_decides():
    given_away, plain = result("adclm", accuracy=0.95, first=0.9), result("rnnlm")
    assert first_decides([plain, given_away])
    assert not first_decides([plain, {**plain, "coherence": None}])
    header, *_ = table(comparison.rows([plain, given_away]), "Coherence")
    assert header[-1] == "first sentence moved, %"
    for run, mean in ((given_away, 0.64), (plain, 0.5)):
        run["first_kept"] = {"mean": mean, "sd": 0.1 if mean > 0.5 else 0.0, "pool_error": 0.0}
    rows = comparison.rows([plain, given_away])
    first, second = by_column(rows, "Coherence")
    assert [first["first sentence fixed, %"], first["first sentence moved, %"]] == [
        "50.00",
        "50.00",
    ]
    assert [second["first sentence fixed, %"], second["first sentence fixed, 95% interval"]] == [
        "64.00",
        "[44.4%, 83.6%]",
    ]
    assert (second["accuracy, %"], second["first sentence moved, %"]) == ("95.00", "90.00")
    assert "WARNING" in brief(rows)["coherence"].about
    kept = [result("rnnlm"), result("adclm", accuracy=0.6)]
    for run in kept:
        run["coherence"] |= {"keep_first": 2, "left_out": 7, "first_sentence": None}
    assert not first_decides(kept)
    _, about, (header, *_) = brief(comparison.rows(kept))["coherence"]
    assert "first sentence moved, %" not in header
    note = "The first 2 sentences of each document are fixed; 7 documents with fewer than two other"
    assert note in about
    kept[0]["coherence"] |= {"keep_first": 1, "left_out": 1}
    about = brief(comparison.rows(kept))["coherence"].about
    note = "The first sentence of each document is fixed; 1 document with fewer than two other sent"
    assert note in about and "sentences is omitted." in about


def test_known_targets_stand_beside_all_and_many_unknown_words_are_told():
    first = result("rnnlm")
    rows = comparison.rows([first])
    table = brief(rows)["perplexity"]
    assert table.cells[1][table.cells[0].index("test, in-vocabulary")] == "100.50"
    assert "warning" not in table.about
    about = brief(comparison.rows([first | {"own_oov_rate": 0.001}]))["perplexity"].about
    assert about.startswith("warning: 5.00% of the words are out of vocabulary (0.10% in the run")


def test_markdown_latex_and_json(tmp_path):
    rows = comparison.rows([result("rnnlm"), result("ccdclm", test=90.0, accuracy=0.8)])
    Report(rows, BASELINES, ["A note."]).write(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| rnnlm | 100.00 | 101.00 | 102.00 | 103.00 |" in text
    assert "![Perplexity by position in the sentence](by_token.png)\n\n" in text
    assert text.endswith("by_sentence.png)\n\nA note.\n")
    assert (tmp_path / "by_token.png").exists() and (tmp_path / "by_sentence.png").exists()
    assert (
        "There are 10 validation and 10 test targets. The vocabulary has 12 entries, and 5.00% of "
        "the test words are OOV." in text
    )
    latex = (tmp_path / "report.tex").read_text()
    assert latex.startswith("% \\usepackage{booktabs}\n\n\\begin{table}\n")
    assert latex.count("\\toprule") == latex.count("\\bottomrule") == 5
    saved = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [row["label"] for row in saved] == ["rnnlm", "ccdclm"]
    assert saved[1]["runs"][0]["test"]["perplexity"] == 90.0
    assert "by_document" not in saved[1]["runs"][0]
    assert saved[1]["runs"][0]["by_token"] == {
        "1": pytest.approx(math.exp(2)),
        "2": pytest.approx(math.exp(3)),
        "3-5": pytest.approx(math.exp(1)),
        **dict.fromkeys(["6-10", "11-20", "21+"]),
    }


def test_runs_of_bags_and_of_words_are_not_in_one_report():
    of_words, of_bags = result("rnn_lin"), result("rnnslm")
    of_bags["objective"] = "bags"
    message = "runs/rnn_lin-0 predicts words and runs/rnnslm-0 predicts bags, so their perpl"
    with pytest.raises(InputError, match=f"^{message}"):
        comparison.rows([of_words, of_bags])
    about = brief(comparison.rows([of_bags]))["perplexity"].about
    assert "bags of words: the words are predicted without their order, END is not" in about
