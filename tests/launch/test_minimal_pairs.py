"""launch.minimal_pairs: BLiMP's lines, tables, contexts, endings, last words, several runs."""

import csv
import io
import json
import re

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.alternatives import PairColumns, read_alternatives
from dclm_jax.data.documents import TextOptions
from dclm_jax.evaluation.minimal_pairs import Choice, accuracies
from tests.launch.support import launch, refuse

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
    assert "set apart: pairs in which OOV words leave no choice" in printed

    table = list(csv.DictReader(io.StringIO(output.read_text()), delimiter="\t"))
    assert [row["UID"] for row in table] == [row["UID"] for row in [*ROWS, UNKNOWN]]
    assert [row["set_apart"] for row in table] == ["0"] * 11 + ["1"]
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
    records = list(map(json.loads, done.stdout.splitlines()))
    expected = outcomes_of(space.run)
    for record, outcome in zip(records, expected, strict=True):
        np.testing.assert_allclose(record["log_probs"], outcome.log_probs, rtol=1e-5)
    assert records[0]["alternatives"] == ["w1 w2", "w1 w32"]
    assert "accuracy in %" in done.stderr
    error = refuse("minimal_pairs", run, *flags, stdin=content)
    assert "neither a table nor JSON lines by its name; add --format=jsonl, csv or tsv" in error


def test_endings_after_contexts_have_numbers_of_answers(space, tmp_path):
    path = tmp_path / "stories.csv"
    path.write_text("s1,s2,e1,e2,right\nw1 w2,w3,w4 w5,w60 w5,1\nw7,w8 w9,w61,w62 w3 w4,2\n")
    flags = ["--context_columns=s1,s2", "--alternatives=e1,e2", "--answer=right", "--output=-"]
    printed = launch(
        "minimal_pairs", f"--workdir={space.run}", f"--input={path}", *flags, quiet=False
    ).stdout
    records = list(map(json.loads, printed.splitlines()))
    lm = dclm_jax.restore(space.run)
    stories = [(["w1 w2", "w3"], ["w4 w5", "w60 w5"]), (["w7", "w8 w9"], ["w62 w3 w4", "w61"])]
    for record, (context, endings) in zip(records, stories, strict=True):
        assert record["alternatives"] == endings
        expected = [score.log_prob for score in lm.read(context).score(endings)]
        np.testing.assert_allclose(record["log_probs"], expected, rtol=1e-5)
    assert [record["columns"] for record in records] == [{"right": "1"}, {"right": "2"}]


def test_the_last_word_of_a_passage_has_a_rank(space, tmp_path):
    path = tmp_path / "lambada.jsonl"
    path.write_text(lines([{"text": "w1 w2\nw3 w4 w5"}, {"text": "w7 unheard"}]))
    flags = [f"--workdir={space.run}", f"--input={path}", "--alternatives=text", "--last_word"]
    done = launch("minimal_pairs", *flags, "--output=-", quiet=False)
    first, second = map(json.loads, done.stdout.splitlines())
    words = dclm_jax.restore(space.run).read(["w1 w2"]).next_words("w3 w4", k=98)
    rank = [word for word, _ in words].index("w5") + 1
    assert (first["rank"], first["correct"]) == (rank, {"last_word": float(rank == 1)})
    assert second["rank"] is second["correct"]["last_word"] is None
    assert re.search(rf"median +{rank}\b", done.stderr)


PAIR = '{"good": "a b", "bad": "a c", "context": "x y", "n": 1}\n'


def test_raw_text_is_divided_and_contexts_are_lists_or_text(tmp_path):
    pytest.importorskip("sentencex")
    pytest.importorskip("sacremoses")
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"good": "Mr. Lee isn't here.", "bad": "Mr. Lee aren't here.", "context": "It rained. So?"},
        {"good": "Yes.", "bad": "No.", "context": ["Is it? Is it not?", "It rained."]},
    ]
    path.write_text(lines(rows))
    options = TextOptions("prose", lowercase=True)
    first, second = read_alternatives(str(path), PairColumns(["good", "bad"]), options)
    assert first.alternatives[0] == ["mr.", "lee", "isn", "'t", "here", "."]
    assert first.context == [["it", "rained", "."], ["so", "?"]]
    assert second.context == [["is", "it", "?", "is", "it", "not", "?"], ["it", "rained", "."]]
    assert second.alternatives == [["yes", "."], ["no", "."]]
    alone = read_alternatives(str(path), PairColumns(["good", "bad"], context=()), options)
    assert [record.context for record in alone] == [[], []]
    path.write_text(lines([{"text": "It rained. We left."}]))
    (passage,) = read_alternatives(str(path), PairColumns(["text"], is_passage=True), options)
    assert (passage.alternatives, passage.context) == (
        [["we", "left", "."]],
        [["it", "rained", "."]],
    )


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        (
            PAIR,
            [],
            "pairs.jsonl:1: has no column 'sentence_good'; choose from: 'good', 'bad', 'con",
        ),
        (PAIR, ["--context_columns=c"], "has no column 'c'; choose from: 'good', 'bad'"),
        (PAIR, ["--by=field"], "pairs.jsonl:1: has no column 'field'; choose from: 'n'"),
        (PAIR, ["--answer=n", "--alternatives=good"], "has 1 alternative; expected two or more"),
        (
            PAIR.replace("1", "3"),
            ["--answer=n"],
            "'n' is '3'; expected the number of the right alt",
        ),
        (PAIR.replace("a c", "a b"), [], "pairs.jsonl:1: alternatives 1 and 2 are equal"),
        (PAIR.replace("x y", " "), [], "the context 'context' has no words; add its text"),
        (PAIR.replace('"x y"', "3"), [], "'context' is 3; expected text, or a list of sentences"),
        (PAIR.replace("a c", " "), [], "'bad' is ' '; expected a sentence"),
        (PAIR, [], "the alternatives differ only in OOV words in all 1 pairs, so that accuracy wo"),
        ("", [], "pairs.jsonl: is empty"),
        (PAIR, ["--output=a.html"], "--output=a.html: choose the extension .jsonl or .tsv"),
        (PAIR, ["--output=-", "--metrics=-"], "--metrics and --output are both standard output"),
    ],
)
def test_bad_pairs_are_refused_and_nothing_is_written(space, tmp_path, content, flags, message):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "pairs.jsonl").write_text(content)
    if "sentence_good" not in message:
        flags = ["--alternatives=good,bad", *flags]
    arguments = [
        f"--workdir={space.run}",
        f"--input={folder / 'pairs.jsonl'}",
        "--output=pairs.tsv",
    ]
    error = launch("minimal_pairs", *arguments, *flags, code=2, cwd=tmp_path).stderr
    *notes, last = error.splitlines()
    assert last.startswith("error: ") and message in last
    assert all(note.startswith(("note:", "warning:")) for note in notes)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
