"""launch.score: documents, splits, several runs, unknown words, sentences after a context, words
without context, coloured pages, attention."""

import csv
import dataclasses
import io
import json
import re
from collections.abc import Iterable

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data import Document, open_corpus
from dclm_jax.data.readers import read_documents
from dclm_jax.score_types import DocumentScore
from dclm_jax.tables import cell_text
from tests.launch.support import REPOSITORY, TOLERANCE, launch, refuse, scored

TEXT = "w1 w2 w3\nw4 <script> &amp; w5\nw4 w5\n\nw6 w7 w8 w9 w1 w2 w3\n"
DOCUMENTS = [["w1 w2 w3", "w4 <script> &amp; w5", "w4 w5"], ["w6 w7 w8 w9 w1 w2 w3"]]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("inside") / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def attending(space):
    """A run of adclm."""
    return space.train("adclm", "adclm", "--config.training.max_steps=1")


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=1e-5)


def of_run(value, label: str):
    """A record of several runs as that of one of them."""
    if isinstance(value, list):
        return [of_run(inner, label) for inner in value]
    if not isinstance(value, dict):
        return value
    return value[label] if label in value else {k: of_run(v, label) for k, v in value.items()}


def nats(numbers: Iterable[float | None]) -> list[float]:
    return [np.nan if number is None else number for number in numbers]


def assert_scores(records, scores: Iterable[DocumentScore]) -> None:
    """That records of one run are these scores."""
    for record, score in zip(records, scores, strict=True):
        assert (record["id"], record["unit"]) == (score.id, "nats")
        assert record["matmul_precision"] == "highest"
        close(record["log_prob"], score.log_prob)
        for sentence, expected in zip(record["sentences"], score.sentences, strict=True):
            assert (sentence["tokens"], sentence["known"]) == (expected.tokens, expected.known)
            close(sentence["log_prob"], expected.log_prob)
            close(nats(sentence["surprisals"]), np.negative(expected.log_probs))
            alone = sentence.get("surprisals_no_context")
            assert (alone is None) == (expected.log_probs_no_context is None)
            close(nats(alone or []), np.negative(expected.log_probs_no_context or []))


def test_score_agrees_in_every_form_with_evaluate_and_python(space, tmp_path):
    text, run = space.text["test"], f"--workdir={space.run}"
    launch("score", run, f"--input={text}", f"--output={tmp_path / 'scores.jsonl'}")
    records = list(map(json.loads, (tmp_path / "scores.jsonl").read_text().splitlines()))
    scores = list(dclm_jax.restore(space.run).score(read_documents(text)))
    assert_scores(records, scores)
    evaluated = space.evaluate("--split=test")
    close(-sum(record["log_prob"] for record in records), evaluated["nll"])
    rows = [row for score in scores for row in score.rows()]
    assert sum(not row.known for row in rows) == evaluated["oov_words"]

    printed = launch("score", run, f"--input={text}", "--output=-", "--output_format=tsv").stdout
    table = list(csv.DictReader(io.StringIO(printed), delimiter="\t"))
    assert [cells["word"] for cells in table] == [row.word for row in rows]
    close([float(cells["surprisal"]) for cells in table], [row.surprisal for row in rows])
    named = tmp_path / "scores.tsv"
    launch("score", run, "--input=-", f"--output={named}", stdin=text.read_text())
    assert len(named.read_text().splitlines()) == 1 + len(rows)


def test_a_split_is_scored_as_its_text_with_unknown_words(space):
    corpus = open_corpus(space.corpus, "valid")
    # What a word was is not kept where the model does not know it.
    documents = [
        Document(name, list(map(corpus.vocabulary.decode, corpus.document(index))))
        for index, name in enumerate(corpus.document_ids)
    ]
    scores = dclm_jax.restore(space.run).score(documents)
    assert_scores(scored(f"--workdir={space.run}", "--split=valid"), scores)


@pytest.mark.parametrize("flags", [[], ["--no_context_too"], ["--no_context_too", "--oov=blank"]])
def test_runs_are_scored_side_by_side(space, text, flags):
    """Also without context, and with unknown words left blank."""
    runs = {"ccdclm": space.run, "rnnlm": space.rnnlm}
    flags = [f"--workdirs={','.join(map(str, runs.values()))}", f"--input={text}", *flags]
    records = scored(*flags)
    compared = "--no_context_too" in flags
    columns = {}
    for label, run in runs.items():
        documents = read_documents(text)
        scores = dclm_jax.restore(run).score(documents, no_context_too=compared)
        if "--oov=blank" in flags:
            scores = [score.without_oov() for score in scores]
        scores = list(scores)
        assert_scores(of_run(records, label), scores)
        rows = [row for score in scores for row in score.rows()]
        surprisals = columns[f"surprisal:{label}"] = [row.surprisal for row in rows]
        if compared:
            alone = nats(row.surprisal_no_context for row in rows)
            columns[f"surprisal_no_context:{label}"] = alone
            assert (label == "rnnlm") == np.array_equal(alone, surprisals, equal_nan=True)
    printed = launch("score", *flags, "--output_format=tsv").stdout
    table = list(csv.DictReader(io.StringIO(printed), delimiter="\t"))
    of_words = ["surprisal", *(["surprisal_no_context"] if compared else [])]
    by_run = [
        [f"{name}:{label}" for name in names for label in runs]
        for names in (of_words, ["sentence_log_prob", "document_log_prob"])
    ]
    header = ["document", "sentence", "position", "word", *by_run[0], "known", *by_run[1]]
    assert list(table[0]) == header
    for name, numbers in columns.items():
        close([float(cells[name] or "nan") for cells in table], numbers)


@pytest.mark.parametrize("flags", [[], ["--no_context_too"]])
def test_sentences_are_scored_after_a_context(space, tmp_path, flags):
    context, endings = tmp_path / "context.txt", tmp_path / "endings.txt"
    before, candidates = ["w1 w2 w5", "w3 w5"], ["w2 w1 .", "= w4 ."]
    context.write_text("\n".join(before))
    endings.write_text("\n".join(candidates))
    lm = dclm_jax.restore(space.run)
    expected = []
    for number, candidate in enumerate(candidates, start=1):
        (whole,), (alone,) = lm.score([[*before, candidate]]), lm.score([[candidate]])
        score, log_probs = whole.sentences[-1], alone.sentences[0].log_probs
        if flags:
            score = dataclasses.replace(score, log_probs_no_context=log_probs)
        expected.append(DocumentScore.of(str(number), [score]))
    arguments = [f"--workdir={space.run}", f"--context={context}", f"--input={endings}", *flags]
    assert_scores(scored(*arguments, quiet=False), expected)


def test_what_cannot_be_scored_after_a_context_is_refused(space, tmp_path):
    context, endings = tmp_path / "context.txt", tmp_path / "endings.txt"
    endings.write_text("w2 w1 .\n\nw4\n")
    flags = (f"--workdir={space.run}", f"--context={context}", f"--input={endings}")
    for content, message in (
        ("w1 w2\n", f"{endings}:2: has no words; expected one sentence per line"),
        ("a b\n\nc d\n", f"--context={context} has several documents; choose one"),
        ("\n", f"{context}: has no documents"),
    ):
        context.write_text(content)
        assert message in refuse("score", *flags)


def test_tsv_of_quotes_tabs_and_missing_values_is_read_back_whole(space, tmp_path):
    words = ['"', "w1", "NA", '""', "nan", "\\NA", 'a"b', "null", "'", "#", "\\"]
    path = tmp_path / "text.jsonl"
    names = ["NA", 'a\t"b', "2"]
    path.write_text("".join(json.dumps({"id": id, "sentences": [words]}) + "\n" for id in names))
    flags = [f"--workdir={space.run}", f"--input={path}", "--output_format=tsv"]
    printed = launch("score", *flags, quiet=False).stdout
    rows = list(csv.DictReader(io.StringIO(printed, newline=""), delimiter="\t"))
    read_back = [(cell_text(row["document"]), cell_text(row["word"])) for row in rows]
    assert read_back == [(name, word) for name in names for word in [*words, "<END>"]]
    assert not {cell for row in rows for cell in row.values()} & {"NA", "nan", "null"}


def test_attention_stands_beside_the_scores(attending, text, tmp_path):
    flags = (f"--workdir={attending}", f"--input={text}", "--attention")
    first, second = scored(*flags)
    lm = dclm_jax.restore(attending)
    for record, document in zip((first, second), DOCUMENTS, strict=True):
        for sentence, expected in zip(record["sentences"], lm.attention(document), strict=True):
            assert sentence["attention"]["positions"] == expected.positions
            assert sentence["tokens"] == expected.targets
            close(sentence["attention"]["weights"], expected.weights)
    assert first["sentences"][1]["attention"]["positions"] == ["<START>", "w1", "w2", "w3"]

    page = tmp_path / "page.html"
    launch("score", *flags, "--no_context_too", "--output_format=html", f"--output={page}")
    content = page.read_text()
    assert content.startswith("<!DOCTYPE html>") and content.endswith("</html>\n")
    assert (content.count("<details>"), content.count("<script>")) == (2, 1)
    assert ">&lt;script&gt;<rt>" in content and ">&amp;amp;<rt>" in content
    assert re.search(r"<title>adclm: .*text.txt \(matmul precision: highest\)</title>", content)
    assert "the context saves" in content

    single, figure = tmp_path / "single.txt", tmp_path / "attention.png"
    single.write_text(TEXT.split("\n\n")[0])
    launch("score", f"--workdir={attending}", f"--input={single}", f"--plot={figure}", quiet=False)
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--plot=a.png"], "--plot draws one document, but the text has several"),
        (["--plot=a.xyz"], "a.xyz: cannot write the figure"),
        (["--attention", "--output_format=tsv"], "--attention cannot be written as tsv; use"),
        (["--attention", "--context=TEXT"], "--attention cannot be used with --context; remove"),
        (["--output=scores.csv"], "--output=scores.csv: CSV output is not supported"),
    ],
)
def test_bad_flags_are_refused_and_nothing_is_written(attending, text, tmp_path, flags, message):
    flags = [flag.replace("TEXT", str(text)) for flag in flags]
    arguments = [f"--workdir={attending}", f"--input={text}", *flags]
    assert message in refuse("score", *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_recipe_names_the_columns_of_tsv(space, text):
    recipes = (REPOSITORY / "launch/recipes.md").read_text()
    (columns,) = re.findall(r"`<END>`\nof a sentence: (.*?)\. Words", recipes, re.DOTALL)
    names = re.findall(r"`(\w+)`", columns.replace("(the `id`)", ""))
    flags = [f"--workdir={space.run}", f"--input={text}", "--no_context_too"]
    header, *_ = launch("score", *flags, "--output_format=tsv").stdout.splitlines()
    assert names == header.split("\t")
