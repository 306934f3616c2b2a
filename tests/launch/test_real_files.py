"""Tables and JSON lines of raw text, through the commands."""

import gzip
import json

import pytest

import dclm_jax
from dclm_jax.data.corpus import read_manifest
from dclm_jax.data.documents import TextOptions
from tests.launch.support import Workspace, launch, refuse

pytest.importorskip("sentencex")
pytest.importorskip("sacremoses")
REVIEW = "“It’s Fine.” She slept."
WORDS = ['"', "it", "'s", "fine", ".", '"', "she", "slept", "."]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A compressed table of reviews in an encoding of its own, prepared."""
    root = tmp_path_factory.mktemp("reviews")
    table = "stars,review\n" + "".join(f"{star},{REVIEW}\n" for star in range(5)) + "6,\n"
    (root / "reviews.csv.gz").write_bytes(gzip.compress(table.encode("cp1252")))
    flags = ["--text_key=review", "--encoding=cp1252", "--normalize", "--lowercase"]
    source = f"--train={root / 'reviews.csv.gz'}"
    done = launch("prepare", source, *flags, f"--output={root / 'corpus'}")
    assert f"note: {root / 'reviews.csv.gz'}: read as CSV, the raw text of its 'review'\n" in (
        done.stdout
    )
    assert "documents without words that were left out: 1\n" in done.stdout
    assert "note: train has no unknown word" in done.stdout
    again = launch("prepare", source, *flags, f"--output={root / 'corpus'}")
    assert again.stdout.startswith("reusing")
    differ = refuse("prepare", source, *flags[:-2], "--lowercase", f"--output={root / 'corpus'}")
    assert "made otherwise (normalize differ)" in differ
    return root / "corpus"


def test_a_table_is_prepared_and_what_is_remembered_is_its_text(corpus):
    manifest = read_manifest(corpus)
    assert manifest.text == TextOptions("prose", True, True, "review")
    entry = manifest.splits["train"]
    assert (entry.documents, entry.tokens, entry.oov_tokens) == (5, 5 * len(WORDS), 0)
    words = {line.split("\t")[0] for line in (corpus / "vocabulary.tsv").read_text().splitlines()}
    assert words == {*WORDS, "<START>", "<END>", "<UNKNOWN>"}


def test_signs_for_unknown_words_are_named(tmp_path):
    (tmp_path / "words").write_text("it ’s <unk> .\n<unk> no\n")
    out = f"--output={tmp_path / 'out'}"
    arguments = [f"--train={tmp_path / 'words'}", out, "--overwrite", "--vocab_size=2"]
    told = launch("prepare", *arguments).stdout
    assert "note: <unk> is a word like others, 2 times; --unknown_token='<unk>' makes" in told
    assert "no unknown word" not in told
    assert "like others" not in launch("prepare", *arguments, "--unknown_token=<unk>").stdout


def test_a_run_reads_tables_and_raw_text_like_its_own(space: Workspace, corpus, tmp_path):
    run = tmp_path / "run"
    launch(
        *("prepare", f"--train={corpus.parent / 'reviews.csv.gz'}"),
        *(f"--valid={corpus.parent / 'reviews.csv.gz'}", "--text_key=review"),
        *("--encoding=cp1252", "--normalize", "--lowercase", f"--output={tmp_path / 'both'}"),
    )
    directory = f"--config.data.directory={tmp_path / 'both'}"
    arguments = [f"--config={space.config}", f"--workdir={run}", directory]
    launch("train", *arguments, "--config.training.max_steps=1")
    lm = dclm_jax.restore(run)
    assert lm.text.options == TextOptions("prose", True, True, "review")
    [document] = lm.documents(REVIEW)
    assert [word for words in document.sentences for word in words] == WORDS
    expected = list(lm.score([document]))[0].log_prob
    texts = {
        "table.csv": (f"review,id\n{REVIEW},a\n", []),
        "table.tsv": (f"id\tbody\na\t{REVIEW}\n", ["--text_key=body"]),
        "raw.jsonl": (json.dumps({"id": "a", "review": REVIEW}), ["--format=jsonl"]),
        "words.jsonl": (json.dumps({"id": "a", "sentences": document.sentences}), []),
        "raw.txt": (REVIEW, []),
    }
    for name, (content, flags) in texts.items():
        path = tmp_path / f"{name}"
        path.write_text(content, "utf-16")
        flags = [f"--input={path}", "--encoding=utf-16", *flags]
        done = launch("score", f"--workdir={run}", *flags, quiet=False)
        [record] = map(json.loads, done.stdout.splitlines())
        assert record["log_prob"] == pytest.approx(expected)
        assert record["id"] == ("raw.txt:1" if name == "raw.txt" else "a")
        assert "warning" not in done.stderr
    flags = [f"--workdir={run}", f"--input={tmp_path / 'raw.txt'}", "--encoding=utf-16"]
    told = launch("score", *flags, "--nonormalize", quiet=False).stderr
    assert told == (
        "warning: text is read as prose, in lower case; the training text was prose, its "
        "punctuation normalised, in lower case\n"
    )
    flags = [f"--workdir={run}", f"--input={tmp_path / 'raw.txt'}"]
    assert launch("evaluate", *flags, code=2).stderr.endswith("latin-1 or utf-16\n")


@pytest.mark.parametrize("end", [[], ['{"sentences": []}']])
def test_scores_join_with_the_text_line_by_line(space: Workspace, tmp_path, end):
    lines = ['{"sentences": ["w1 w2"]}', '{"id": "b", "sentences": [""]}', '{"sentences": ["w3"]}']
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join([*lines, *end]))
    done = launch("score", f"--workdir={space.run}", f"--input={path}")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    ids = ["t.jsonl:1", "b", "t.jsonl:3", "t.jsonl:4"]
    assert [one["id"] for one in records] == ids[: len(records)]
    assert len(records) == 3 + len(end)
    assert records[1] == {"id": "b", "unit": "nats", "log_prob": 0.0, "sentences": []}
    path.write_text("\n".join([lines[0], lines[2]]))
    others = launch("score", f"--workdir={space.run}", f"--input={path}").stdout.splitlines()
    assert [json.loads(one)["log_prob"] for one in others] == [
        pytest.approx(records[index]["log_prob"]) for index in (0, 2)
    ]
    path.write_text("\n".join([*lines, *end]))
    evaluated = space.evaluate(f"--input={path}")
    assert evaluated["tokens"] == 5


@pytest.mark.parametrize(
    ("flags", "content", "message"),
    [
        (
            ["--normalize"],
            "a b\n",
            "normalize has no effect on text that is read as lines; remove --normalize",
        ),
        (
            ["--text_key=a"],
            "a b\n",
            "text_key has no effect on text that is read as lines; rem",
        ),
        (["--encoding=utf-9"], "a b\n", "there is no encoding 'utf-9'"),
        (["--encoding=ascii"], "é b\n", ":1: not valid ascii: the byte 0xc3 at 1; --encoding"),
        (["--format=csv"], "a,b\n1,2\n", "t.txt:1: has no column 'text'; --text_key names that"),
    ],
)
def test_flags_without_effect_and_wrong_text_are_refused(tmp_path, flags, content, message):
    (tmp_path / "t.txt").write_text(content)
    output = f"--output={tmp_path / 'out'}"
    assert message in refuse("prepare", f"--train={tmp_path / 't.txt'}", output, *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["t.txt"]


def test_wrong_characters_of_any_split_are_found_before_the_first_is_split(tmp_path, monkeypatch):
    monkeypatch.setattr("dclm_jax.data.prose.Tokenizer", None)
    (tmp_path / "a").write_text("Good.\n")
    (tmp_path / "b").write_bytes(b"\x93Bad.\x94\n")
    texts = [f"--train={tmp_path / 'a'}", f"--test={tmp_path / 'b'}", "--format=prose"]
    error = refuse("prepare", *texts, f"--output={tmp_path / 'out'}")
    assert f"{tmp_path / 'b'}:1: not valid UTF-8: the byte 0x93" in error
