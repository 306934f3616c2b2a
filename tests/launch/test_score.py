"""launch.score: documents, splits, several runs, unknown words, sentences after a context, words
without context, coloured pages, attention."""

import csv
import io
import json
import math
import re

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.readers import read_documents
from dclm_jax.tables import cell_text
from tests.launch.support import TOLERANCE, launch, refuse

TEXT = "w1 w2 w3\nw4 <script> &amp; w5\nw4 w5\n\nw6 w7 w8 w9 w1 w2 w3\n"
DOCUMENTS = [["w1 w2 w3", "w4 <script> &amp; w5", "w4 w5"], ["w6 w7 w8 w9 w1 w2 w3"]]


def records_of(*flags, **options):
    done = launch("score", *flags, **options)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("inside") / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def attending(space):
    """A run of adclm, and the words of its documents by itself."""
    return space.train("adclm", "adclm", "--config.training.max_steps=1")


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=1e-5)


def test_score_agrees_in_every_form_with_evaluate_and_python(space, tmp_path):
    text, run = space.text["test"], f"--workdir={space.run}"
    launch("score", run, f"--input={text}", f"--output={tmp_path / 'scores.jsonl'}")
    documents = list(map(json.loads, (tmp_path / "scores.jsonl").read_text().splitlines()))
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
    run = f"--workdir={space.run}"
    records = records_of(run, "--split=valid")
    of_text = records_of(run, f"--input={space.text['valid']}")
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
        name: records_of(f"--workdir={run}", text)
        for name, run in (("ccdclm", space.run), ("rnnlm", space.rnnlm))
    }
    for number, record in enumerate(records_of(several, text)):
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
    (whole,) = records_of(*flags, quiet=False)
    flags.append("--oov=blank")
    (blank,) = records_of(*flags, quiet=False)
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
    records = records_of(run, f"--context={context}", f"--input={endings}", quiet=False)
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
    records = records_of(*flags, quiet=False)
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


def test_words_stand_beside_themselves_without_context(space, text):
    several = [f"--workdirs={space.run},{space.rnnlm}", f"--input={text}", "--no_context_too"]
    records = records_of(*several)
    sentences = [sentence for record in records for sentence in record["sentences"]]
    by_themselves = [[words] for document in DOCUMENTS for words in document]
    expected = dclm_jax.restore(space.run).surprisals(by_themselves)["surprisal"]
    close([p for one in sentences for p in one["surprisals_no_context"]["ccdclm"]], expected)
    second = sentences[1]
    assert second["surprisals"]["rnnlm"] == second["surprisals_no_context"]["rnnlm"]
    assert second["surprisals"]["ccdclm"] != second["surprisals_no_context"]["ccdclm"]
    assert list(second) == ["log_prob", "tokens", "surprisals", "surprisals_no_context", "known"]

    printed = launch("score", *several, "--output_format=tsv", "--oov=blank").stdout
    header, *rows = (line.split("\t") for line in printed.splitlines())
    assert header[:9] == [
        *("document", "sentence", "position", "word", "surprisal:ccdclm"),
        *("surprisal:rnnlm", "surprisal_no_context:ccdclm", "surprisal_no_context:rnnlm"),
        "known",
    ]
    columns = [
        [
            f"{number:.6f}" if known else ""
            for one in sentences
            for number, known in zip(one[kind][name], one["known"], strict=True)
        ]
        for kind in ("surprisals", "surprisals_no_context")
        for name in ("ccdclm", "rnnlm")
    ]
    assert [[row[at] for row in rows] for at in range(4, 8)] == columns
    assert "" in columns[0]


def test_a_continuation_without_its_context(space, text, tmp_path):
    endings = tmp_path / "endings.txt"
    endings.write_text("w7 w8\nw9\n")
    lm = dclm_jax.restore(space.run)
    before = tmp_path / "before.txt"
    before.write_text("w1 w2 w3\nw4 w5\n")
    flags = (f"--workdir={space.run}", f"--context={before}", f"--input={endings}")
    for record, ending in zip(records_of(*flags, "--no_context_too"), ("w7 w8", "w9"), strict=True):
        (sentence,) = record["sentences"]
        close(sentence["surprisals_no_context"], lm.surprisals([[ending]])["surprisal"])
        whole = lm.surprisals([["w1 w2 w3", "w4 w5", ending]])["surprisal"]
        close(sentence["surprisals"], whole[-len(sentence["tokens"]) :])


def test_attention_stands_beside_the_scores(attending, text, tmp_path):
    flags = (f"--workdir={attending}", f"--input={text}", "--attention")
    first, second = records_of(*flags)
    lm = dclm_jax.restore(attending)
    for record, document in zip((first, second), DOCUMENTS, strict=True):
        for sentence, expected in zip(record["sentences"], lm.attention(document), strict=True):
            assert sentence["attention"]["positions"] == expected.positions
            assert sentence["tokens"] == expected.targets
            np.testing.assert_allclose(
                sentence["attention"]["weights"], expected.weights, rtol=0, atol=1e-6
            )
    assert first["sentences"][0]["attention"]["positions"] == ["c_0"]
    assert first["sentences"][1]["attention"]["positions"] == ["<START>", "w1", "w2", "w3"]

    page = tmp_path / "page.html"
    launch("score", *flags, "--no_context_too", "--output_format=html", f"--output={page}")
    content = page.read_text()
    assert content.startswith("<!DOCTYPE html>") and content.endswith("</html>\n")
    assert content.count("<details>") == 2
    assert content.count("<script>") == 1
    assert ">&lt;script&gt;<rt>" in content and ">&amp;amp;<rt>" in content
    assert re.search(r"<title>adclm: .*text.txt</title>", content)
    assert "the context saves" in content

    one = tmp_path / "one.txt"
    one.write_text(TEXT.split("\n\n")[0])
    picture = tmp_path / "attention.png"
    launch("score", f"--workdir={attending}", f"--input={one}", f"--plot={picture}", quiet=False)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_looked_into_is_told(attending, text, tmp_path):
    of_text, plot = f"--input={text}", f"--plot={tmp_path / 'a.png'}"
    own = f"--workdir={attending}"
    for flags, expected in (
        ([own, of_text, plot], "--plot draws one document, and the text holds several"),
        ([own, of_text, "--plot=a.xyz"], "a.xyz: cannot write the plot"),
        (
            [own, of_text, "--attention", "--output_format=tsv"],
            "--attention has no place in tsv; expected --output_format=jsonl or html",
        ),
        (
            [own, of_text, f"--context={text}", "--attention"],
            "--attention is of documents; expected --input without --context",
        ),
    ):
        assert expected in refuse("score", *flags, cwd=tmp_path)
    assert not list(tmp_path.iterdir())
