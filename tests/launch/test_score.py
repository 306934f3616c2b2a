"""launch.score: documents, splits, several runs, unknown words, sentences after a context."""

import csv
import io
import json
import math

import pytest

import dclm_jax
from dclm_jax.data.readers import read_documents
from dclm_jax.tables import cell_text
from tests.launch.support import TOLERANCE, launch, refuse


def test_score_agrees_in_every_form_with_evaluate_and_python(space, tmp_path):
    text, run = space.text["test"], f"--workdir={space.run}"
    launch("score", run, f"--input={text}", f"--output={tmp_path / 'scores.jsonl'}")
    lines = (tmp_path / "scores.jsonl").read_text().splitlines()
    documents = [json.loads(line) for line in lines]
    source = list(read_documents(str(text)))
    assert [document["id"] for document in documents] == [one.id for one in source]
    for document, original in zip(documents, source, strict=True):
        tokens = [sentence["tokens"] for sentence in document["sentences"]]
        assert tokens == [[*words, "<END>"] for words in original.sentences]
        for sentence in document["sentences"]:
            assert -math.fsum(sentence["surprisals"]) == pytest.approx(sentence["log_prob"])
        total = math.fsum(sentence["log_prob"] for sentence in document["sentences"])
        assert total == pytest.approx(document["log_prob"])
    evaluated = space.evaluate("--split=test")
    nll = -math.fsum(document["log_prob"] for document in documents)
    assert nll == pytest.approx(evaluated["nll"], rel=TOLERANCE)
    known = [flag for one in documents for each in one["sentences"] for flag in each["known"]]
    assert known.count(False) == evaluated["oov_words"]

    tsv = launch("score", run, f"--input={text}", "--output=-", "--output_format=tsv")
    header, *rows = (line.split("\t") for line in tsv.stdout.splitlines())
    tokens = [token for one in documents for each in one["sentences"] for token in each["tokens"]]
    assert [row[header.index("word")] for row in rows] == tokens
    surprisal = math.fsum(float(row[header.index("surprisal")]) for row in rows)
    assert surprisal == pytest.approx(nll, rel=TOLERANCE)
    named = tmp_path / "scores.tsv"
    launch("score", run, "--input=-", f"--output={named}", stdin=text.read_text())
    assert len(named.read_text().splitlines()) == 1 + len(rows)

    scores = dclm_jax.restore(space.run).score(source)
    for score, document in zip(scores, documents, strict=True):
        assert score.log_prob == pytest.approx(document["log_prob"], rel=TOLERANCE)


def test_a_split_is_scored_as_its_text(space):
    records, of_text = (
        [json.loads(line) for line in launch("score", *flags).stdout.splitlines()]
        for flags in (
            [f"--workdir={space.run}", "--split=valid"],
            [f"--workdir={space.run}", f"--input={space.text['valid']}"],
        )
    )
    for record, expected in zip(records, of_text, strict=True):
        assert record["id"] == expected["id"]
        assert record["log_prob"] == pytest.approx(expected["log_prob"], rel=TOLERANCE)
        for sentence, other in zip(record["sentences"], expected["sentences"], strict=True):
            assert sentence["known"] == other["known"]
            # What a word was is not kept where the model does not know it.
            assert sentence["tokens"] == [
                token if known else "<UNKNOWN>"
                for token, known in zip(other["tokens"], other["known"], strict=True)
            ]


def test_runs_are_scored_side_by_side(space):
    several, text = f"--workdirs={space.run},{space.rnnlm}", f"--input={space.text['test']}"
    alone = {
        name: [
            json.loads(line)
            for line in launch("score", f"--workdir={run}", text).stdout.splitlines()
        ]
        for name, run in (("ccdclm", space.run), ("rnnlm", space.rnnlm))
    }
    together = launch("score", several, text).stdout.splitlines()
    for number, record in enumerate(map(json.loads, together)):
        for name, records in alone.items():
            expected = records[number]
            assert record["id"] == expected["id"]
            assert record["log_prob"][name] == expected["log_prob"]
            for one, other in zip(record["sentences"], expected["sentences"], strict=True):
                assert (one["tokens"], one["known"]) == (other["tokens"], other["known"])
                assert one["surprisals"][name] == other["surprisals"]
                assert one["log_prob"][name] == other["log_prob"]
    printed = launch("score", several, text, "--output_format=tsv").stdout
    header, *rows = (line.split("\t") for line in printed.splitlines())
    for name, records in alone.items():
        surprisals = [
            f"{one:.6f}" for each in records for of in each["sentences"] for one in of["surprisals"]
        ]
        assert [row[header.index(f"surprisal:{name}")] for row in rows] == surprisals


def test_unknown_words_may_be_left_blank(space, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("w1 unheard w2\nunheard\n")
    flags = [f"--workdir={space.run}", f"--input={path}"]
    (whole,) = map(json.loads, launch("score", *flags, quiet=False).stdout.splitlines())
    flags.append("--oov=blank")
    (blank,) = map(json.loads, launch("score", *flags, quiet=False).stdout.splitlines())
    assert [one["known"] for one in blank["sentences"]] == [
        [True, False, True, True],
        [False, True],
    ]
    for one, other in zip(blank["sentences"], whole["sentences"], strict=True):
        expected = [
            surprisal if known else None
            for surprisal, known in zip(other["surprisals"], other["known"], strict=True)
        ]
        assert one["surprisals"] == expected
        assert -one["log_prob"] == pytest.approx(sum(filter(None, expected)))
    assert blank["log_prob"] == pytest.approx(sum(one["log_prob"] for one in blank["sentences"]))
    printed = launch("score", *flags, "--output_format=tsv", quiet=False).stdout
    rows = [line.split("\t") for line in printed.splitlines()[1:]]
    assert [row[4] == "" for row in rows] == [row[5] == "0" for row in rows]


def test_sentences_are_scored_after_a_context(space, tmp_path):
    context, endings = tmp_path / "context.txt", tmp_path / "endings.txt"
    context.write_text("w1 w2 w5\nw3 w5\n")
    endings.write_text("w2 w1 .\n= w4 .\n")
    run = f"--workdir={space.run}"
    done = launch("score", run, f"--context={context}", f"--input={endings}", quiet=False)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["id"] for record in records] == ["1", "2"]
    lm = dclm_jax.restore(space.run)
    for record, ending in zip(records, ("w2 w1 .", "= w4 ."), strict=True):
        (whole,) = lm.score([["w1 w2 w5", "w3 w5", ending]])
        assert record["log_prob"] == pytest.approx(whole.sentences[-1].log_prob, rel=TOLERANCE)
        assert record["sentences"][0]["tokens"] == [*ending.split(), "<END>"]
    flags = (run, f"--context={context}", f"--input={endings}")
    told = "scores.csv, and CSV is not written; expected jsonl, tsv, html"
    assert told in refuse("score", *flags, "--output=scores.csv", cwd=tmp_path)
    endings.write_text("w2 w1 .\n\nw4\n")
    error = refuse("score", *flags)
    assert error == f"error: {endings}:2: holds no words; expected a sentence a line"
    for text, found in (
        ("a b\n\nc d\n", "several documents; expected one"),
        ("\n", "no documents"),
    ):
        context.write_text(text)
        assert refuse("score", *flags) == f"error: {context}: holds {found}"


def test_tsv_of_quotes_tabs_and_missing_values_is_read_back_whole(space, tmp_path):
    sentences = [['"', "w1", "NA", '""', "nan"], ["\\NA", 'a"b', '"', "null"], ["'", "#", "\\"]]
    documents = [{"id": name, "sentences": sentences} for name in ("NA", 'a\t"b', "2")]
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps(one) + "\n" for one in documents))
    flags = [f"--workdir={space.run}", f"--input={text}"]
    records = list(map(json.loads, launch("score", *flags, quiet=False).stdout.splitlines()))
    printed = launch("score", *flags, "--output=-", "--output_format=tsv", quiet=False).stdout
    rows = list(csv.DictReader(io.StringIO(printed, newline=""), delimiter="\t"))
    expected = [
        (record["id"], token, surprisal)
        for record in records
        for sentence in record["sentences"]
        for token, surprisal in zip(sentence["tokens"], sentence["surprisals"], strict=True)
    ]
    assert len(rows) == len(expected) == 45
    for row, (name, token, surprisal) in zip(rows, expected, strict=True):
        assert (cell_text(row["document"]), cell_text(row["word"])) == (name, token)
        assert float(row["surprisal"]) == pytest.approx(surprisal, abs=1e-6)
        assert not {row["document"], row["word"]} & {"NA", "nan", "null"}
