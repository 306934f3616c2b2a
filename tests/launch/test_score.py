"""launch.score: documents, splits, unknown words, no context, measures, columns, HTML."""

import csv
import functools
import io
import json
import re
from collections.abc import Iterable

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data import datasets
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.readers import read_documents
from dclm_jax.scoring.other_contexts import OtherContexts
from dclm_jax.scoring.score_types import DocumentScore
from dclm_jax.tables import unescaped_cell
from tests.launch.support import REPOSITORY, TOLERANCE, copy_run, launch, refuse, scored

TEXT = "w1 w2 w3\nw4 <script> &amp; w5\nw4 w5\n\nw6 w7 w8 w9 w1 w2 w3\n"


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


def nats(numbers: Iterable[float | None]) -> list[float]:
    return [np.nan if number is None else number for number in numbers]


def assert_scores(records, scores: Iterable[DocumentScore]) -> None:
    """That records are these scores."""
    for record, score in zip(records, scores, strict=True):
        assert (record["id"], record["unit"]) == (score.id, "nats")
        assert record["matmul_precision"] == "highest"
        close(record["log_prob"], score.log_prob)
        for sentence, expected in zip(record["sentences"], score.sentences, strict=True):
            assert (sentence["tokens"], sentence["known"]) == (expected.tokens, expected.known)
            close(sentence["log_prob"], expected.log_prob)
            close(sentence["surprisals"], np.negative(expected.log_probs))
            for kind in ("no_context", "other_context"):
                other = sentence.get(f"surprisals_{kind}")
                log_probs = getattr(expected, f"log_probs_{kind}")
                assert (other is None) == (log_probs is None)
                close(other or [], np.negative(log_probs or []))


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


@pytest.mark.parametrize("model", ["ccdclm", "rnnlm"])
def test_words_are_scored_without_context_too(space, text, model):
    run = {"ccdclm": space.run, "rnnlm": space.rnnlm}[model]
    flags = [f"--workdir={run}", f"--input={text}", "--no_context_too"]
    scores = list(dclm_jax.restore(run).score(read_documents(text), no_context_too=True))
    assert_scores(scored(*flags), scores)
    rows = [row for score in scores for row in score.rows()]
    names = ["surprisal", "surprisal_no_context"]
    surprisals, alone = ([row.measures[name] for row in rows] for name in names)
    assert (model == "rnnlm") == np.array_equal(alone, surprisals)
    table = table_of(*flags)
    header = ["document", "sentence", "position", "word", *names, "known"]
    assert list(table[0]) == [*header, "sentence_log_prob", "document_log_prob"]
    for name, values in zip(names, (surprisals, alone), strict=True):
        close([float(cells[name]) for cells in table], values)


def test_words_are_scored_with_the_contexts_of_other_documents_too(space, tmp_path):
    """Of the input, of a file and of a split; the page is coloured by the effect."""
    path = tmp_path / "input.txt"
    path.write_text("w1 w2\nw3 w1\nw5\n\nw4 w4 w2\nw1 w6\n\nw9\n\nw7 w1\nw2\n")
    lm, documents = dclm_jax.restore(space.run), list(read_documents(path))
    flags = [f"--workdir={space.run}", f"--input={path}", "--other_contexts=2"]
    names = ["surprisal", "surprisal_other_context", "surprisal_other_context_sd"]
    values = {}
    for source, pool in {
        "": None,
        space.text["valid"]: list(read_documents(space.text["valid"])),
        "valid": datasets.open_split(lm.vocabulary, space.corpus, "valid"),
    }.items():
        contexts = [f"--contexts_from={source}", "--seed=3"] if source else []
        options = OtherContexts(2, pool, seed=3 if source else 0)
        scores = list(lm.score(documents, other_contexts=options))
        assert_scores(scored(*flags, *contexts, quiet=False), scores)
        table = table_of(*flags, *contexts)
        assert list(table[0])[4:8] == [*names, "known"]
        rows = [row for score in scores for row in score.rows()]
        for name in names:
            values[source, name] = [float(cells[name]) for cells in table]
            close(values[source, name], [row.measures[name] for row in rows])
        first = [index for index, row in enumerate(rows) if row.sentence == 1]
        close(*([values[source, name][index] for index in first] for name in names[:2]))
    assert values[space.text["valid"], names[1]] == values["valid", names[1]]
    assert values["", names[1]] != values["valid", names[1]] != values["valid", names[0]]
    page = tmp_path / "page.html"
    launch("score", *flags, f"--output={page}", quiet=False)
    assert "; effect of this context " in page.read_text()
    assert "no effect without --other_contexts" in refuse("score", *flags[:2], "--seed=1")
    single = ["--input=-", "--other_contexts=1"]
    message = refuse("score", flags[0], *single, stdin="w1\nw2\n")
    assert "document '-:1' has no other document, with another first sentence" in message
    assert "--contexts_from=- is not supported" in refuse("score", *flags, "--contexts_from=-")
    same = refuse("score", *flags, f"--contexts_from={page}", f"--output={page}")
    assert f"--contexts_from and --output are both {page}" in same


def test_rows_are_joined_in_the_text_of_other_contexts_too(space, tmp_path, caplog):
    """Two items in two conditions of two rows; contexts of other items, here and in a file. The
    points are OOV."""
    header = "item,condition,text\n"
    rows = "{0},a,w1 w2 .\n{0},a,w3 .\n{0},b,w4 .\n{0},b,w3 w5 .\n"
    for name, text in {
        "input": rows.format(1) + rows.format(2).replace("w1", "w6").replace("w4", "w7"),
        "pool": rows.format(3).replace("w1", "w8").replace("w4", "w9"),
    }.items():
        (tmp_path / f"{name}.csv").write_text(header + text)
    lm = dclm_jax.restore(space.run)
    join, format_of_text = ["item", "condition"], TextOptions(format="prose")
    read = functools.partial(read_documents, options=format_of_text, joined_by=join)
    documents, pool = (list(read(tmp_path / f"{name}.csv")) for name in ("input", "pool"))
    assert len(documents) == 4 and len(pool) == 2
    flags = [f"--workdir={space.run}", f"--input={tmp_path / 'input.csv'}", "--format=prose"]
    flags += ["--join_rows=item,condition", "--other_contexts=2"]
    for options, added in (
        (OtherContexts(2, item="item"), ["--item=item"]),
        (OtherContexts(2, pool), [f"--contexts_from={tmp_path / 'pool.csv'}"]),
    ):
        scores = list(lm.score(documents, other_contexts=options))
        assert_scores(scored(*flags, *added, quiet=False), scores)
        nats = [list(score.sentences[1].log_probs_other_context or ()) for score in scores]
        # Conditions of one item have equal targets and equal contexts.
        close(nats[0], nats[2] if added[0] != "--item=item" else nats[0])
        assert "fewer than" not in launch("score", *flags, *added, quiet=False).stderr


def test_tsv_of_quotes_tabs_and_missing_values_is_read_back_whole(space, tmp_path):
    words = ['"', "w1", "NA", '""', "nan", "\\NA", 'a"b', "null", "'", "#", "\\"]
    path = tmp_path / "text.jsonl"
    names = ["NA", 'a\t"b', "2"]
    path.write_text("".join(json.dumps({"id": id, "sentences": [words]}) + "\n" for id in names))
    rows = table_of(f"--workdir={space.run}", f"--input={path}")
    read_back = [(unescaped_cell(row["document"]), unescaped_cell(row["word"])) for row in rows]
    assert read_back == [(name, word) for name in names for word in [*words, "<END>"]]
    assert not {cell for row in rows for cell in row.values()} & {"NA", "nan", "null"}


def test_a_page_shows_words_as_text(space, text, tmp_path):
    page = tmp_path / "page.html"
    launch(
        "score", f"--workdir={space.run}", f"--input={text}", "--no_context_too", f"--output={page}"
    )
    content = page.read_text()
    assert content.startswith("<!DOCTYPE html>") and content.endswith("</html>\n")
    assert "<script" not in content
    assert ">&lt;script&gt;<rt>" in content and ">&amp;amp;<rt>" in content
    assert re.search(r"<title>ccdclm: .*text.txt \(matmul precision: highest\)</title>", content)
    assert "; surprisal reduction " in content


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


def test_measures_and_columns_stand_beside_the_words(raw, tmp_path):
    run, table = raw
    flags = [f"--workdir={run}", f"--measures={','.join(MEASURES)}", "--no_context_too", JOIN]
    rows = table_of(*flags, f"--input={table}")
    documents = list(read_documents(table, TextOptions("prose"), joined_by=["item", "condition"]))
    lm = dclm_jax.restore(run)
    expected = lm.surprisals(documents, no_context_too=True, measures=MEASURES)
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
    (sentence,) = records[0]["sentences"]
    assert sentence["columns"] == {"region": ["subject"] * 2 + ["verb"] * 2 + [None]}
    for name in names[2:]:
        values = [value for record in records for value in record["sentences"][0][name]]
        close(nats(values), expected[name])
    page = tmp_path / "page.html"
    launch("score", *flags, f"--input={table}", f"--output={page}", quiet=False)
    content = page.read_text()
    assert "<h2>1/a, item 1, condition a</h2>" in content
    assert re.search(r"; rank no context \d+; divergence [\d.e-]+; region verb", content)


def test_a_condition_missing_from_the_columns_of_a_document_is_named(raw):
    """The second text of item 1 would follow the first one in one document."""
    run, table = raw
    flags = ["score", f"--workdir={run}", f"--input={table}"]
    error = launch(*flags, "--join_rows=item", quiet=False).stderr
    assert "note: 6 rows joined into 2 documents\n" in error
    assert "warning: values of the column 'region' come back within documents, such as " in error
    assert "add condition to --join_rows" in error
    error = launch(*flags, JOIN, quiet=False).stderr
    assert "note: 6 rows joined into 3 documents\n" in error and "warning: values" not in error
    # Of item 1 under condition a.
    assert "note: OOV words: 1 of 11 words, in 1 of 3 documents; " in error
    error = launch(*flags, quiet=False).stderr
    assert "note: each of 6 rows is a document; " in error


def test_only_surprisals_are_computed_as_before(space, text, monkeypatch):
    """Without other measures nothing else is computed, and no bit of a surprisal differs."""
    monkeypatch.setattr("dclm_jax.language_model.measure_documents", None)
    flags = [f"--workdir={space.run}", f"--input={text}", "--no_context_too"]
    assert scored(*flags) == scored(*flags, "--measures=surprisal")


def test_missing_cells_stay_missing(raw, tmp_path):
    run, _ = raw
    table = tmp_path / "table.csv"
    table.write_text("id,x,y,text\na,NA,1,w1 w2\nb,,2,w3\n")
    flags = [f"--workdir={run}", f"--input={table}"]
    rows = table_of(*flags)
    assert {(row["document"], row["x"], row["y"]) for row in rows} == {
        ("a", "", "1"),
        ("b", "", "2"),
    }
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "w1", "x": 1}\n{"text": "w2", "y": 2}\n')
    done = launch("score", *flags[:1], f"--input={lines}", "--output_format=tsv", quiet=False)
    assert "lines.jsonl:2 has columns that the first document lacks, which are omitted: 'y'" in (
        done.stderr
    )
    rows = list(csv.DictReader(io.StringIO(done.stdout), delimiter="\t"))
    assert [row["x"] for row in rows] == ["1", "1", "", ""]


def test_the_manual_names_the_columns_of_tsv(raw):
    run, table = raw
    manual = (REPOSITORY / "launch/score.py").read_text()
    (columns,) = re.findall(r"Columns: (.*?), then columns of the input", manual, re.DOTALL)
    names = re.split(r",\s+| and ", re.sub(r" \(.*?\)", "", columns))
    (row, *_) = table_of(f"--workdir={run}", f"--input={table}", JOIN)
    assert [*names, "item", "condition", "region"] == list(row)
