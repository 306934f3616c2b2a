"""launch.minimal_pairs: BLiMP's lines, tables, contexts, several runs."""

import csv
import io
import json
import re

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.readers import TextReader
from dclm_jax.errors import InputError
from dclm_jax.evaluation.minimal_pairs import (
    Choice,
    accuracies,
    minimal_pairs,
    read_alternatives,
    require_free_columns,
)
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
    return [*minimal_pairs(dclm_jax.restore(run), choices, **options)]


def test_pairs_in_every_form_agree_with_python(space, blimp, tmp_path):
    runs = f"--workdirs={space.run},{space.rnnlm}"
    metrics, output = tmp_path / "metrics.json", tmp_path / "pairs.tsv"
    flags = [runs, f"--input={blimp}", "--by=UID", f"--metrics={metrics}", f"--output={output}"]
    printed = launch("minimal_pairs", *flags, quiet=False).stdout
    by_hand = [outcomes_of(run) for run in (space.run, space.rnnlm)]
    *_, total, per_target = accuracies(by_hand)
    saved = json.loads(metrics.read_text())
    assert [run["model"] for run in saved["runs"]] == ["ccdclm", "rnnlm"]
    groups = [(g["by"], g["without_oov"], g["criterion"]) for g in saved["groups"]]
    criteria = "log P", "log P per target"
    by_oov = [({"UID": "b"}, False), ({"UID": "b"}, True), ({"UID": "a"}, False)]
    by_oov += [({}, True), ({}, False)]
    assert groups == [(*group, criterion) for group in by_oov for criterion in criteria]
    assert [group["pairs"] for group in saved["groups"][-4:]] == [11] * 4
    assert re.search(r"\npairs without OOV words +log P +11 +0 ", printed)
    for group, expected in zip(saved["groups"][-2:], (total, per_target), strict=True):
        assert (group["pairs"], group["excluded"]) == (11, 1)
        for index, label in enumerate(("ccdclm", "rnnlm")):
            values = [group["accuracy"][label][name] for name in ("mean", "low", "high")]
            np.testing.assert_allclose(values, expected.values_3xX[:, index])
    assert {(d["a"], d["b"]) for d in saved["differences"]} == {("ccdclm", "rnnlm")}
    assert f"{100 * total.values_3xX[0, 0]:.2f} [" in printed
    assert "50% is chance" in printed and "ccdclm - rnnlm" in printed
    assert "excluded: pairs in which OOV words leave no choice" in printed

    table = table_of(output.read_text())
    assert [row["UID"] for row in table] == [row["UID"] for row in [*ROWS, UNKNOWN]]
    assert [row["pair"] for row in table] == [str(n + 1) for n in range(12)]
    for name in ("good", "bad"):
        texts = [row[f"sentence_{name}"] for row in [*ROWS, UNKNOWN]]
        assert [row[f"sentence_{name}"] for row in table] == texts
    oov = [(row["oov_sentence_good"], row["oov_sentence_bad"]) for row in table]
    expected_oov = [("0", "0")] * 11 + [("1", "1")]
    assert oov == expected_oov
    assert [row["excluded"] for row in table] == ["0"] * 11 + ["1"]
    for label, outcomes in zip(("ccdclm", "rnnlm"), by_hand, strict=True):
        for row, outcome in zip(table, outcomes, strict=True):
            names = f"log_prob_sentence_good:{label}", f"log_prob_sentence_bad:{label}"
            log_probs = [float(row[name]) for name in names]
            np.testing.assert_allclose(log_probs, outcome.log_probs, rtol=1e-5)
            correct = float(row[f"correct_log_p:{label}"] or "nan")
            np.testing.assert_equal(correct, outcome.correct["log P"])


def test_standard_input_has_a_format(space, blimp):
    run, flags = f"--workdir={space.run}", ["--input=-", "--output=-"]
    content = blimp.read_text()
    done = launch("minimal_pairs", run, *flags, "--format=jsonl", stdin=content, quiet=False)
    for row, outcome in zip(table_of(done.stdout), outcomes_of(space.run), strict=True):
        log_probs = [float(row[f"log_prob_sentence_{name}"]) for name in ("good", "bad")]
        np.testing.assert_allclose(log_probs, outcome.log_probs, rtol=1e-5)
    assert "accuracy in %" in done.stderr


PAIR = '{"good": "a b", "bad": "a c", "context": "x y"}\n'


@pytest.mark.parametrize("format", ["prose", "lines"])
def test_cells_are_raw_text(tmp_path, format):
    """Of runs trained on raw text and on tokenized lines, as launch.score reads these formats."""
    pytest.importorskip("sentencex")
    pytest.importorskip("sacremoses")
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"good": "Mr. Lee isn't here.", "bad": "Mr. Lee aren't here.", "context": "It rained. So?"},
        {"good": "He left. He came back.", "bad": "No."},
    ]
    path.write_text(lines(rows))
    options = TextOptions(format, lowercase=True)
    first, second = read_alternatives(str(path), ["good", "bad"], TextReader(options))
    assert first.alternatives[0] == [["mr.", "lee", "isn", "'t", "here", "."]]
    assert first.texts["good"] == rows[0]["good"]
    assert first.context == [["it", "rained", "."], ["so", "?"]]
    sentences = [["he", "left", "."], ["he", "came", "back", "."]]
    assert (second.alternatives, second.context) == ([sentences, [["no", "."]]], [])


def test_a_later_record_may_be_the_first_with_a_context(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(lines([{"good": "a", "bad": "b"}, {"good": "a", "bad": "b", "context": "c"}]))
    records = [*read_alternatives(str(path), ["good", "bad"], TextReader())]
    assert [record.context for record in records] == [[], [["c"]]]
    assert [record.columns for record in records] == [{}, {}]


def test_equal_pairs_are_left_out_and_an_empty_context_is_none(tmp_path, caplog):
    """Equal as written, and equal in lower case."""
    path = tmp_path / "pairs.csv"
    rows = ["a b.,a b.,x", "A b.,a b.,x", "a c.,a b.,", "a d.,a b.,NA", "a e.,a b.,x y"]
    path.write_text("good,bad,context\n" + "".join(f"{row}\n" for row in rows))
    columns = ["good", "bad"]
    for lowercase, count in ((False, 1), (True, 2)):
        caplog.clear()
        reader = TextReader(TextOptions(lowercase=lowercase))
        records = list(read_alternatives(str(path), columns, reader))
        assert len(records) == 5 - count
        assert [record.context for record in records[-3:]] == [[], [], [["x", "y"]]]
        (note,) = caplog.messages
        assert note == (
            f"records whose alternatives are equal: {count} of 5, such as {path}:2; they are left "
            "out"
        )


def test_unusual_text_is_reported(tmp_path, caplog):
    path = tmp_path / "pairs.tsv"
    path.write_text("good\tbad\nwe\u200b go\tgo we\u200b\u200b\n")
    columns = ["good", "bad"]
    (record,) = read_alternatives(str(path), columns, TextReader())
    assert record.alternatives == [[["we\u200b", "go"]], [["go", "we\u200b\u200b"]]]
    (note,) = caplog.messages
    assert note.startswith(f"{path}: words with invisible characters")
    reader = TextReader(TextOptions(unicode="nfc"))
    (record,) = read_alternatives(str(path), columns, reader)
    assert record.alternatives == [[["we", "go"]], [["go", "we"]]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"x y"', "3", "pairs.jsonl:1: 'context' is 3; write text"),
        ("a c", " ", "pairs.jsonl:1: 'bad' has no words; add its text"),
        (PAIR, "", "pairs.jsonl: is empty"),
    ],
)
def test_records_of_another_kind_are_refused(tmp_path, old, new, message):
    path = tmp_path / "pairs.jsonl"
    path.write_text(PAIR.replace(old, new))
    with pytest.raises(InputError, match=re.escape(message)):
        list(read_alternatives(str(path), ["good", "bad"], TextReader()))


@pytest.mark.parametrize(
    "name",
    ["pair", "excluded", "log_prob_good", "targets_bad:rnnlm", "correct_log_p"],
)
def test_columns_that_the_table_of_results_has_are_refused(name):
    choice = Choice(["w1", "w2"], columns={name: "1"}, where="pairs.jsonl:1")
    with pytest.raises(InputError, match=f"^pairs.jsonl:1: the column '{name}' of the input has"):
        require_free_columns([choice], ["good", "bad"])
