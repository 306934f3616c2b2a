"""Tables of measurements that are made up, and the other forms of their numbers."""

import dataclasses
import json
import math

import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.evaluation.target_sums import GROUPINGS
from dclm_jax.report import figures
from dclm_jax.report.report import Report
from dclm_jax.report.results import ModelResults, RunResults, first_decides
from dclm_jax.report.rows import BASELINES, rows_of
from dclm_jax.report.tables import tables
from tests.report.made_up import by_column, by_range, coherence, result, sums, table


def brief(rows, baselines=BASELINES):
    """The tables of rows by name."""
    return tables(rows, baselines)


def test_runs_that_differ_in_the_seed_are_one_row_in_the_papers_order():
    rows = rows_of(
        [result("ccdclm", 0, 80.0), result("rnnlm", 0, 100.0), result("ccdclm", 1, 84.0)]
    )
    assert [(row.label, len(row.runs)) for row in rows] == [("rnnlm", 1), ("ccdclm", 2)]
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
        assert brief(rows_of(runs))["perplexity"].about.startswith(message)


def test_rows_of_one_model_are_told_apart_by_what_differs():
    rows = rows_of(
        [result("ccdclm", **{"data.segment_length": length}) for length in (1, 10)]
        + [result("rnnlm")]
    )
    assert [row.label for row in rows] == ["rnnlm", "ccdclm, L = 1", "ccdclm, L = 10"]
    lines = figures.of_rows(rows, BASELINES)["learning_curves"].lines
    assert [line.label for line in lines] == [row.label for row in rows]
    assert list(lines[0].x) == [10, 20]
    np.testing.assert_allclose(lines[0].y, [-math.log(200), -math.log(150)])


def test_rows_that_adapt_themselves_are_compared_with_a_baseline_that_does():
    def adapted(model: str, seed: int, test: float, perplexity: float) -> RunResults:
        cached = ModelResults(sums(perplexity, by_range([1.0])))
        return dataclasses.replace(
            result(model, seed, test), adapted={"cache": cached}, settings={"cache": {}}
        )

    made = [
        adapted("rnnlm", 0, 100.0, 80.0),
        adapted("ccdclm", 0, 90.0, 76.0),
        adapted("ccdclm", 1, 96.0, 79.0),
        result("ngram", test=120.0),
        result("drnnlm", test=110.0),
    ]
    rows = rows_of([dataclasses.replace(run, coherence=None) for run in made])
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
    without = rows_of([result("rnnlm"), result("ccdclm")])
    assert "adaptation" not in brief(without)


def test_rows_that_adapt_themselves_have_a_coherence_beside_their_own():
    def adapted(seed: int, accuracy: float, accuracy_adapted: float) -> RunResults:
        results = ModelResults(sums(80.0, by_range([1.0])), coherence(accuracy_adapted))
        return dataclasses.replace(
            result("ccdclm", seed, accuracy=accuracy),
            adapted={"unigram": results},
            settings={"unigram": {"weight": 0.1}},
        )

    # drnnlm is measured only without adaptation.
    rows = rows_of([adapted(0, 0.8, 0.7), adapted(1, 0.9, 0.6), result("drnnlm", accuracy=0.5)])
    cells = brief(rows)["adaptation"].cells
    assert [line[-2:] for line in cells] == [
        ["coherence accuracy, without adaptation, %", "coherence accuracy, unigram cache, %"],
        ["50.00", ""],
        ["85.00", "65.00"],
    ]


def test_a_row_is_no_better_than_itself_at_chance():
    rows = rows_of([result("rnnlm"), result("rlm"), result("ccdclm", accuracy=0.8)])
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
    rows = rows_of([result()])
    header, cells = table(rows, "Perplexity by position in the sentence")
    assert header == ["model", "1", "2", "3-5", "6-10", "11-20", "21+"]
    expected = [f"{math.exp(value):.1f}" for value in (2.0, (3.0 + 7.0) / 2, 6.0)]
    assert cells == ["rnnlm", *expected, "", "", ""]


def test_any_row_or_model_is_a_baseline():
    rows = rows_of(
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
    rows = rows_of([result("adclm"), result("ccdclm")])
    _, about, (header, *cells) = brief(rows)["perplexity"]
    for column in ("vs rnnlm", "vs rnnlm, 95% interval", "p"):
        assert [line[header.index(column)] for line in cells] == ["", ""]
    assert "These rows have no baseline: adclm; ccdclm. Add a run of rnnlm with" in about
    assert "or choose one of the runs or models as --baseline" in about
    rows = rows_of([result("rnnlm"), result("ccdclm")])
    assert "no baseline" not in brief(rows)["perplexity"].about


def test_hyper_parameters_that_differ_are_columns():
    rates = [{"optimizer.learning_rate": rate} for rate in (0.1, 0.5)]
    rows = rows_of([result("rnnlm", **rates[0]), result("ccdclm", **rates[1]), result("ngram")])
    lines = by_column(rows, "Perplexity (Ji et al. 2015, Table 2)")
    assert list(lines[0])[:5] == ["model", "K", "H", "learning_rate", "parameters"]
    assert [line["learning_rate"] for line in lines] == ["", "0.1", "0.5"]


def test_both_accuracies_where_the_first_sentence_decides():
    given_away, plain = result("adclm", accuracy=0.95, first=0.9), result("rnnlm")
    assert first_decides([plain, given_away])
    assert not first_decides([plain, dataclasses.replace(plain, coherence=None)])
    header, *_ = table(rows_of([plain, given_away]), "Coherence")
    assert header[-1] == "first sentence moved, %"
    rows = rows_of(
        [
            dataclasses.replace(plain, first_fixed=coherence(0.5, sd=0.0).result),
            dataclasses.replace(
                given_away, first_fixed=coherence(0.64, sd=0.1, pool_error=0.0).result
            ),
        ]
    )
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


@pytest.mark.parametrize(
    ("fixed", "omitted", "note"),
    [
        (
            2,
            7,
            "The first 2 sentences of each document are fixed; 7 documents with fewer than two "
            "other sentences are omitted.",
        ),
        (
            1,
            1,
            "The first sentence of each document is fixed; 1 document with fewer than two other "
            "sentences is omitted.",
        ),
    ],
)
def test_fixed_sentences_and_omitted_documents_are_counted(fixed, omitted, note):
    runs = [
        dataclasses.replace(
            result(model), coherence=coherence(accuracy, fix_first=fixed, omitted=omitted)
        )
        for model, accuracy in (("rnnlm", 0.5), ("adclm", 0.6))
    ]
    assert not first_decides(runs)
    _, about, (header, *_) = brief(rows_of(runs))["coherence"]
    assert "first sentence moved, %" not in header and note in about


def test_known_targets_stand_beside_all_and_many_unknown_words_are_told():
    first = result("rnnlm")
    rows = rows_of([first])
    table = brief(rows)["perplexity"]
    assert table.cells[1][table.cells[0].index("test, in-vocabulary")] == "100.50"
    assert "warning" not in table.about
    known = dataclasses.replace(first, facts=dataclasses.replace(first.facts, usual_oov_rate=0.001))
    about = brief(rows_of([known]))["perplexity"].about
    assert about.startswith("warning: 5.00% of the words are out of vocabulary (0.10% in the run")


def test_markdown_latex_and_json(tmp_path):
    rows = rows_of([result("rnnlm"), result("ccdclm", test=90.0, accuracy=0.8)])
    report = Report(rows, BASELINES, ["A note."])
    report.write(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| rnnlm | 100.00 | 101.00 | 102.00 | 103.00 |" in text
    for grouping in GROUPINGS:
        assert f"![{grouping.title}]({grouping.name}.png)\n\n" in text
        assert (tmp_path / f"{grouping.name}.png").exists()
    assert text.endswith(f"{GROUPINGS[-1].name}.png)\n\nA note.\n")
    assert (
        "There are 27 validation and 25 test targets. The vocabulary has 12 entries, and 5.00% of "
        "the test words are OOV." in text
    )
    latex = (tmp_path / "report.tex").read_text()
    assert latex.startswith("% \\usepackage{booktabs}\n\n\\begin{table}\n")
    assert latex.count("\\toprule") == latex.count("\\bottomrule") == len(report.tables)
    saved = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [row["label"] for row in saved] == ["rnnlm", "ccdclm"]
    assert saved[1]["runs"][0]["test"]["perplexity"] == pytest.approx(90.0)
    assert saved[1]["runs"][0]["by_token"] == {
        "1": pytest.approx(math.exp(2)),
        "2": pytest.approx(math.exp((3 + 7) / 2)),
        "3-5": pytest.approx(math.exp(6)),
        **dict.fromkeys(["6-10", "11-20", "21+"]),
    }


def test_runs_of_bags_and_of_words_are_not_in_one_report():
    of_words, of_bags = result("rnn_lin"), result("rnnslm")
    of_bags = dataclasses.replace(
        of_bags, facts=dataclasses.replace(of_bags.facts, objective="bags")
    )
    message = "runs/rnn_lin-0 predicts words and runs/rnnslm-0 predicts bags, so their perpl"
    with pytest.raises(InputError, match=f"^{message}"):
        rows_of([of_words, of_bags])
    about = brief(rows_of([of_bags]))["perplexity"].about
    assert "bags of words: the words are predicted without their order, END is not" in about
