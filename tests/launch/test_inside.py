"""`launch.score` that looks inside: words without their context, coloured pages, attention."""

import json
import re

import numpy as np
import pytest

import dclm_jax
from tests.launch.support import TOLERANCE, launch, refuse

TEXT = "w1 w2 w3\nw4 <script> &amp; w5\nw4 w5\n\nw6 w7 w8 w9 w1 w2 w3\n"
DOCUMENTS = [["w1 w2 w3", "w4 <script> &amp; w5", "w4 w5"], ["w6 w7 w8 w9 w1 w2 w3"]]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("inside") / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def attending(space):
    """A run of adclm, and the words of its documents by itself."""
    return space.train("adclm", "adclm", "--config.training.max_steps=1")


def records_of(*flags):
    return [json.loads(line) for line in launch("score", *flags).stdout.splitlines()]


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=1e-5)


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
