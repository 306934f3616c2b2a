"""launch.minimal_pairs: BLiMP's lines, tables, contexts, endings, last words, several runs."""

import csv
import io
import json
import re

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.alternatives import Choice, PairColumns, read_alternatives
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.readers import TextReader
from dclm_jax.errors import InputError
from dclm_jax.evaluation.minimal_pairs import accuracies
from dclm_jax.experiments.pair_files import require_free_names
from tests.launch.support import launch

ROWS = [
    {"sentence_good": f"w{n} w{n + 1}", "sentence_bad": f"w{n} w{2 * n + 30}", "UID": "ab"[n % 2]}
    for n in range(1, 12)
]
UNKNOWN = {"sentence_good": "w1 unheard", "sentence_bad": "w1 unseen", "UID": "b"}


def lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def blimp(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(lines([*ROWS, UNKNOWN]))
    return path


def table_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def outcomes_of(run, **options):
    choices = [Choice([row["sentence_good"], row["sentence_bad"]]) for row in [*ROWS, UNKNOWN]]
    return [*dclm_jax.restore(run).minimal_pairs(choices, **options)]


def test_pairs_in_every_form_agree_with_python(space, blimp, tmp_path):
    runs = f"--workdirs={space.run},{space.rnnlm}"
    metrics, output = tmp_path / "metrics.json", tmp_path / "pairs.tsv"
    flags = [runs, f"--input={blimp}", "--by=UID", f"--metrics={metrics}", f"--output={output}"]
    printed = launch("minimal_pairs", *flags, quiet=False).stdout
    by_hand = [outcomes_of(run) for run in (space.run, space.rnnlm)]
    *_, total, per_target = accuracies(by_hand)
    saved = json.loads(metrics.read_text())
    assert [run["model"] for run in saved["runs"]] == ["ccdclm", "rnnlm"]
    groups = [(group["by"], group["criterion"]) for group in saved["groups"]]
    criteria = "log P", "log P per target"
    assert groups == [
        (by, criterion) for by in ({"UID": "b"}, {"UID": "a"}, {}) for criterion in criteria
    ]
    for group, expected in zip(saved["groups"][-2:], (total, per_target), strict=True):
        assert (group["pairs"], group["set_apart"]) == (11, 1)
        for index, label in enumerate(("ccdclm", "rnnlm")):
            values = [group["accuracy"][label][name] for name in ("mean", "low", "high")]
            np.testing.assert_allclose(values, expected.values_3xX[:, index])
    assert {(d["a"], d["b"]) for d in saved["differences"]} == {("ccdclm", "rnnlm")}
    assert f"{100 * total.values_3xX[0, 0]:.2f} [" in printed
    assert "50% is chance" in printed and "ccdclm - rnnlm" in printed
    assert "excluded: pairs in which OOV words leave no choice" in printed

    table = table_of(output.read_text())
    assert [row["UID"] for row in table] == [row["UID"] for row in [*ROWS, UNKNOWN]]
    for criterion in ("log_p", "log_p_per_target"):
        assert [row[f"set_apart_{criterion}"] for row in table] == ["0"] * 11 + ["1"]
    for label, outcomes in zip(("ccdclm", "rnnlm"), by_hand, strict=True):
        for row, outcome in zip(table, outcomes, strict=True):
            names = f"log_prob_sentence_good:{label}", f"log_prob_sentence_bad:{label}"
            log_probs = [float(row[name]) for name in names]
            np.testing.assert_allclose(log_probs, outcome.log_probs, rtol=1e-5)
            correct = row[f"correct_log_p:{label}"]
            assert (float(correct) if correct else None) == (
                None if outcome.is_equal else outcome.correct["log P"]
            )


def test_standard_input_has_a_format(space, blimp):
    run, flags = f"--workdir={space.run}", ["--input=-", "--output=-"]
    content = blimp.read_text()
    done = launch("minimal_pairs", run, *flags, "--format=jsonl", stdin=content, quiet=False)
    for row, outcome in zip(table_of(done.stdout), outcomes_of(space.run), strict=True):
        log_probs = [float(row[f"log_prob_sentence_{name}"]) for name in ("good", "bad")]
        np.testing.assert_allclose(log_probs, outcome.log_probs, rtol=1e-5)
    assert "accuracy in %" in done.stderr


def test_endings_after_contexts_have_numbers_of_answers(space, tmp_path):
    path = tmp_path / "stories.csv"
    path.write_text("s1,s2,e1,e2,right\nw1 w2,w3,w4 w5,w60 w5,1\nw7,w8 w9,w61,w62 w3 w4,2\n")
    flags = ["--context_columns=s1,s2", "--alternatives=e1,e2", "--answer=right"]
    flags += [f"--workdir={space.run}", f"--input={path}"]
    printed = launch("minimal_pairs", *flags, "--output=-", quiet=False).stdout
    lm = dclm_jax.restore(space.run)
    stories = [(["w1 w2", "w3"], ["w4 w5", "w60 w5"]), (["w7", "w8 w9"], ["w61", "w62 w3 w4"])]
    rows = table_of(printed)
    for row, (context, endings) in zip(rows, stories, strict=True):
        expected = [score.log_prob for score in lm.read(context).score(endings)]
        log_probs = [float(row[f"log_prob_{name}"]) for name in ("e1", "e2")]
        np.testing.assert_allclose(log_probs, expected, rtol=1e-5)
        targets = [1 + len(ending.split()) for ending in endings]
        assert [int(row[f"targets_{name}"]) for name in ("e1", "e2")] == targets
        right = int(row["right"]) - 1
        assert float(row["correct_log_p"]) == float(expected[right] == max(expected))
    assert [row["right"] for row in rows] == ["1", "2"]


def test_the_last_word_of_a_passage_has_a_rank(space, tmp_path):
    path = tmp_path / "lambada.jsonl"
    path.write_text(lines([{"text": "w1 w2\n\nw3 w4 w5"}, {"text": "w7 unheard"}]))
    flags = [f"--workdir={space.run}", f"--input={path}", "--alternatives=text", "--last_word"]
    done = launch("minimal_pairs", *flags, "--output=-", quiet=False)
    first, second = table_of(done.stdout)
    words = dclm_jax.restore(space.run).read(["w1 w2"]).next_words("w3 w4", k=98)
    rank = [word for word, _ in words].index("w5") + 1
    assert (first["rank"], first["correct_last_word"]) == (str(rank), str(int(rank == 1)))
    assert second["rank"] == second["correct_last_word"] == ""
    assert re.search(rf"median +{rank}\b", done.stderr)


def test_the_rank_is_the_rank_of_the_right_alternative(space, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("a,b,right\nw1 w2,w1 w40,1\nw1 w2,w1 w40,2\nw1 w2,w1 unheard,2\n")
    flags = [f"--workdir={space.run}", f"--input={path}", "--alternatives=a,b", "--answer=right"]
    done = launch("minimal_pairs", *flags, "--last_word", "--output=-", quiet=False)
    rows = table_of(done.stdout)
    words = [word for word, _ in dclm_jax.restore(space.run).read([]).next_words("w1", k=98)]
    ranks = [str(words.index(word) + 1) for word in ("w2", "w40")]
    assert [row["rank"] for row in rows] == [*ranks, ""]
    # An OOV last word sets a pair apart by one criterion, and not by log P.
    for row, last in ((rows[2], "1"), (rows[0], "0")):
        names = ("log_p", "log_p_per_target", "last_word")
        assert [row[f"set_apart_{name}"] for name in names] == ["0", "0", last]


PAIR = '{"good": "a b", "bad": "a c", "context": "x y", "n": 1}\n'


@pytest.mark.parametrize("format", ["prose", "lines"])
def test_raw_text_is_divided_and_lists_have_words(tmp_path, format):
    """Of runs trained on raw text and on tokenized lines, as launch.score reads these formats."""
    pytest.importorskip("sentencex")
    pytest.importorskip("sacremoses")
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"good": "Mr. Lee isn't here.", "bad": "Mr. Lee aren't here.", "context": "It rained. So?"},
        {
            "good": ["Yes", "is", "n't"],
            "bad": "No.",
            "context": ["Is it? Is it not ?", ["It", "rai-ned."]],
        },
        {"good": "Yes.", "bad": "No."},
    ]
    path.write_text(lines(rows))
    options = TextOptions(format, lowercase=True)
    columns = PairColumns(["good", "bad"])
    first, second, third = read_alternatives(str(path), columns, TextReader(options))
    assert first.alternatives[0] == ["mr.", "lee", "isn", "'t", "here", "."]
    assert first.context == [["it", "rained", "."], ["so", "?"]]
    assert second.context == [["is", "it?", "is", "it", "not", "?"], ["it", "rai-ned."]]
    assert second.alternatives == [["yes", "is", "n't"], ["no", "."]]
    assert (third.alternatives, third.context) == ([["yes", "."], ["no", "."]], [])
    without_context = PairColumns(["good", "bad"], context=())
    alone = read_alternatives(str(path), without_context, TextReader(options))
    assert [record.context for record in alone] == [[], [], []]
    path.write_text(lines([{"text": "It rained. We left."}]))
    columns = PairColumns(["text"], is_passage=True)
    (passage,) = read_alternatives(str(path), columns, TextReader(options))
    assert (passage.alternatives, passage.context) == (
        [["we", "left", "."]],
        [["it", "rained", "."]],
    )


def test_a_later_record_may_be_the_first_with_a_context(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(lines([{"good": "a", "bad": "b"}, {"good": "a", "bad": "b", "context": "c"}]))
    records = [*read_alternatives(str(path), PairColumns(["good", "bad"]), TextReader())]
    assert [record.context for record in records] == [[], [["c"]]]
    assert [record.columns for record in records] == [{}, {}]


def test_unusual_text_is_reported(tmp_path):
    path, notes = tmp_path / "pairs.tsv", []
    path.write_text("good\tbad\nwe\u200b go\tgo we\u200b\u200b\n")
    columns = PairColumns(["good", "bad"])
    (record,) = read_alternatives(str(path), columns, TextReader(report=notes.append))
    assert record.alternatives == [["we", "\u200b", "go"], ["go", "we", "\u200b", "\u200b"]]
    (note,) = notes
    assert note.startswith(f"note: {path}: words with invisible format characters: 3")
    notes.clear()
    reader = TextReader(TextOptions(unicode="nfc"), report=notes.append)
    (record,) = read_alternatives(str(path), columns, reader)
    assert record.alternatives == [["we", "go"], ["go", "we"]]
    (note,) = notes
    assert "format characters removed: 3" in note


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x y", " ", "the context 'context' has no words; add its text"),
        ('"x y"', "3", "'context' is 3; write text, or a list of sentences"),
        ('"x y"', '[["x y"]]', "pairs.jsonl:1: 'context': a word is 'x y'; write characters"),
        ("a c", " ", "'bad' is ' '; write one sentence"),
        ('"a c"', '["a c"]', "'bad': a word is 'a c'; write characters without"),
        (PAIR, "", "pairs.jsonl: is empty"),
    ],
)
def test_records_of_another_kind_are_refused(tmp_path, old, new, message):
    path = tmp_path / "pairs.jsonl"
    path.write_text(PAIR.replace(old, new))
    with pytest.raises(InputError, match=re.escape(message)):
        list(read_alternatives(str(path), PairColumns(["good", "bad"]), TextReader()))


@pytest.mark.parametrize(
    "name",
    ["pair", "log_prob_good", "targets_bad:rnnlm", "correct_log_p", "set_apart_log_p"],
)
def test_columns_that_the_table_of_results_has_are_refused(name):
    choice = Choice(["w1", "w2"], columns={name: "1"}, where="pairs.jsonl:1")
    with pytest.raises(InputError, match=f"^pairs.jsonl:1: the column '{name}' of the input has"):
        require_free_names([choice], ["good", "bad"])
