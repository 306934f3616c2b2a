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
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.readers import read_documents
from dclm_jax.score_types import DocumentScore
from dclm_jax.tables import cell_text
from tests.launch.support import REPOSITORY, TOLERANCE, copy_run, launch, scored

TEXT = "w1 w2 w3\nw4 <script> &amp; w5\nw4 w5\n\nw6 w7 w8 w9 w1 w2 w3\n"
DOCUMENTS = [["w1 w2 w3", "w4 <script> &amp; w5", "w4 w5"], ["w6 w7 w8 w9 w1 w2 w3"]]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("inside") / "text.txt"
    path.write_text(TEXT)
    return path


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=1e-5)


def table_of(*flags, **options) -> list[dict[str, str]]:
    """The rows of the TSV that `launch.score` prints."""
    printed = launch("score", *flags, "--output_format=tsv", quiet=False, **options).stdout
    return list(csv.DictReader(io.StringIO(printed), delimiter="\t"))


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

    table = table_of(run, f"--input={text}", "--output=-")
    assert [cells["word"] for cells in table] == [row.word for row in rows]
    surprisals = [row.measures["surprisal"] for row in rows]
    close([float(cells["surprisal"]) for cells in table], surprisals)
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
        surprisals = columns[f"surprisal:{label}"] = [row.measures["surprisal"] for row in rows]
        if compared:
            alone = [row.measures["surprisal_no_context"] for row in rows]
            columns[f"surprisal_no_context:{label}"] = alone
            assert (label == "rnnlm") == np.array_equal(alone, surprisals, equal_nan=True)
    table = table_of(*flags)
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
        score, surprisals = whole.sentences[-1], alone.sentences[0].measures["surprisal"]
        if flags:
            measures = {**score.measures, "surprisal_no_context": surprisals}
            score = dataclasses.replace(score, measures=measures)
        expected.append(DocumentScore.of(str(number), [score]))
    arguments = [f"--workdir={space.run}", f"--context={context}", f"--input={endings}", *flags]
    assert_scores(scored(*arguments, quiet=False), expected)


def test_tsv_of_quotes_tabs_and_missing_values_is_read_back_whole(space, tmp_path):
    words = ['"', "w1", "NA", '""', "nan", "\\NA", 'a"b', "null", "'", "#", "\\"]
    path = tmp_path / "text.jsonl"
    names = ["NA", 'a\t"b', "2"]
    path.write_text("".join(json.dumps({"id": id, "sentences": [words]}) + "\n" for id in names))
    rows = table_of(f"--workdir={space.run}", f"--input={path}")
    read_back = [(cell_text(row["document"]), cell_text(row["word"])) for row in rows]
    assert read_back == [(name, word) for name in names for word in [*words, "<END>"]]
    assert not {cell for row in rows for cell in row.values()} & {"NA", "nan", "null"}


def test_attention_stands_beside_the_scores(space, text, tmp_path):
    flags = (f"--workdir={space.adclm}", f"--input={text}", "--attention")
    first, second = scored(*flags)
    lm = dclm_jax.restore(space.adclm)
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
    assert "; surprisal reduction " in content

    single, figure = tmp_path / "single.txt", tmp_path / "attention.png"
    single.write_text(TEXT.split("\n\n")[0])
    launch(
        "score", f"--workdir={space.adclm}", f"--input={single}", f"--plot={figure}", quiet=False
    )
    assert figure.read_bytes().startswith(b"\x89PNG")


REGIONS = """item,condition,region,text
1,a,subject,w1 w2
1,a,verb,unheard w4
1,b,subject,w5
1,b,verb,w6 w7 w8
2,a,subject,w9
2,a,verb,w3 w1
"""


@pytest.fixture
def raw(space, tmp_path):
    """A copy of the run that reads raw text, and a table of regions."""
    run = copy_run(space.run, tmp_path / "raw", text_format="prose")
    table = tmp_path / "regions.csv"
    table.write_text(REGIONS)
    return run, table


JOIN = "--join_rows=item,condition"
MEASURES = ["entropy", "entropy_reduction", "rank", "divergence"]


@pytest.mark.parametrize("bits", [False, True])
def test_measures_and_columns_stand_beside_the_words(raw, tmp_path, bits):
    run, table = raw
    flags = [f"--workdir={run}", f"--measures={','.join(MEASURES)}", "--no_context_too", JOIN]
    flags += ["--bits"] if bits else []
    rows = table_of(*flags, f"--input={table}")
    documents = list(read_documents(table, TextOptions("prose"), joined_by=["item", "condition"]))
    expected = dclm_jax.restore(run).surprisals(
        documents, no_context_too=True, measures=MEASURES, bits=bits
    )
    named = [name for name in MEASURES for name in (name, f"{name}_no_context")]
    names = ["surprisal", "surprisal_no_context", *named]
    names.remove("divergence_no_context")
    for name in names:
        close(nats(float(row[name] or "nan") for row in rows), expected[name])
    for name in ("item", "condition", "region"):
        assert [row[name] or None for row in rows] == expected[name].tolist()
    assert {row["rank"] for row in rows} <= set(map(str, range(1, 99)))
    assert [row["region"] for row in rows if row["word"] == "<END>"] == ["", "", ""]
    assert [row["document"] for row in rows[:5]] == ["1/a"] * 5
    stdin = table_of(*flags, "--input=-", "--format=csv", stdin=REGIONS)
    assert stdin == rows

    records = scored(*flags, f"--input={table}", quiet=False)
    assert [record["columns"] for record in records] == [
        {"item": item, "condition": condition} for item, condition in ("1a", "1b", "2a")
    ]
    assert {record["unit"] for record in records} == {"bits" if bits else "nats"}
    (sentence,) = records[0]["sentences"]
    assert sentence["columns"] == {"region": ["subject"] * 2 + ["verb"] * 2 + [None]}
    for name in names[2:]:
        values = [value for record in records for value in record["sentences"][0][name]]
        close(nats(values), expected[name])
    page = tmp_path / "page.html"
    launch("score", *flags, f"--input={table}", f"--output={page}", quiet=False)
    content = page.read_text()
    assert "<h2>1/a, item 1, condition a</h2>" in content
    unit = "bits" if bits else "nats"
    pattern = rf"; rank no context \d+; divergence [\d.e-]+ {unit}; region verb"
    assert re.search(pattern, content)
    assert f"in {unit}" in content and ("nats" in content) == (not bits)


def test_only_surprisals_are_computed_as_before(space, text, monkeypatch):
    """Without other measures nothing else is computed, and no bit of a surprisal differs."""
    monkeypatch.setattr("dclm_jax.language_model.distributions.measure", None)
    flags = [f"--workdir={space.run}", f"--input={text}", "--no_context_too"]
    assert scored(*flags) == scored(*flags, "--measures=surprisal")


def test_columns_are_chosen_and_missing_cells_stay_missing(raw, tmp_path):
    run, _ = raw
    table = tmp_path / "table.csv"
    table.write_text("id,x,y,text\na,NA,1,w1 w2\nb,,2,w3\n")
    flags = [f"--workdir={run}", f"--input={table}"]
    rows = table_of(*flags)
    assert {(row["document"], row["x"], row["y"]) for row in rows} == {
        ("a", "", "1"),
        ("b", "", "2"),
    }
    assert "y" not in table_of(*flags, "--columns=x")[0]
    # Means also have these cells, and count only documents and words with a surprisal.
    table.write_text("id,x,text\na,NA,w1 w2\nb,NA,unheard\n")
    (row,) = table_of(*flags, "--by=x", "--oov=blank")
    assert (row["x"], row["documents"], row["words"]) == ("", "1", "2")
    # A column with the name of a column of results does no harm where none is chosen.
    table.write_text("id,word,text\na,w1,w1 w2\n")
    assert list(table_of(*flags, "--columns=")[0])[-1] == "document_log_prob"
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "w1", "x": 1}\n{"text": "w2", "y": 2}\n')
    done = launch("score", *flags[:1], f"--input={lines}", "--output_format=tsv", quiet=False)
    assert "lines.jsonl:2 has columns that the first document lacks, which are omitted: 'y'" in (
        done.stderr
    )
    rows = list(csv.DictReader(io.StringIO(done.stdout), delimiter="\t"))
    assert [row["x"] for row in rows] == ["1", "1", "", ""]


@pytest.mark.parametrize("blank", [False, True])
def test_means_over_regions_are_means_of_words_and_documents(raw, tmp_path, blank):
    run, table = raw
    figure = tmp_path / "means.svg"
    flags = [f"--workdir={run}", f"--input={table}", JOIN, "--measures=entropy,rank"]
    flags += ["--oov=blank"] if blank else []
    words = table_of(*flags)
    means = table_of(*flags, "--by=region,condition", f"--plot={figure}")
    groups = [("subject", "a"), ("verb", "a"), ("subject", "b"), ("verb", "b")]
    assert [(row["region"], row["condition"]) for row in means] == groups
    for row in means:
        for name in ("surprisal", "entropy", "rank"):
            by_document: dict[str, list[float]] = {}
            for word in words:
                is_member = [word[column] == row[column] for column in ("region", "condition")]
                if all(is_member) and word[name]:
                    by_document.setdefault(word["document"], []).append(float(word[name]))
            means_of_documents = list(map(np.mean, by_document.values()))
            close(float(row[name]), np.mean(means_of_documents))
            assert int(row["documents"]) == len(by_document)
            if len(by_document) == 1:
                assert row[f"{name}_low"] == row[f"{name}_high"] == ""
            else:
                # Resamples of two documents are one of them or both.
                ends = [float(row[f"{name}_{end}"]) for end in ("low", "high")]
                close(ends, sorted(means_of_documents))
        expected_words = 1 if row["region"] == "subject" and row["condition"] == "b" else 3
        expected_words += (row["region"] == "verb" and row["condition"] == "a") * (1 - blank)
        assert int(row["words"]) == expected_words
    content = figure.read_text()
    assert content.startswith("<?xml") and "Mean entropy by" in content
    records = scored(*flags, "--by=region", quiet=False)
    assert [record["by"] for record in records] == [{"region": "subject"}, {"region": "verb"}]
    assert records[0]["documents"] == 3 and records[0]["unit"] == "nats"


def test_means_of_several_runs_have_columns_of_runs(space, raw, tmp_path):
    run, table = raw
    flags = [f"--workdirs={run},{space.rnnlm}", f"--input={table}", JOIN, "--format=csv"]
    flags += ["--nolowercase", "--by=region", f"--plot={tmp_path / 'a.png'}"]
    first, second = table_of(*flags)
    for row in (first, second):
        for label in ("ccdclm", "rnnlm"):
            low, mean, high = (
                float(row[f"surprisal:{label}{end}"]) for end in ("_low", "", "_high")
            )
            assert low < mean < high
    assert first["surprisal:ccdclm"] != first["surprisal:rnnlm"]


def test_the_recipe_names_the_columns_of_tsv(raw):
    run, table = raw
    recipes = (REPOSITORY / "launch/recipes.md").read_text()
    (columns,) = re.findall(r"`<END>`\s+of a sentence, (.*?)\. Words", recipes, re.DOTALL)
    names = re.findall(r"`(\w+)`", columns.replace("`prepare`", ""))
    flags = [f"--workdir={run}", f"--input={table}", "--no_context_too", JOIN]
    flags += ["--measures=entropy,divergence"]
    assert names == list(table_of(*flags)[0])
