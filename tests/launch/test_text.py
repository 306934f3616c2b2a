"""Text in commands: raw text is read as in training, and a text of unknown words is warned of."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

import dclm_jax
from dclm_jax.data.corpus import read_manifest
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.readers import read_documents
from tests.launch.support import Workspace, launch, refuse, scored

REVIEW = "“It’s Fine.” She slept."
SENTENCES = ['" it \'s fine . "', "she slept ."]
ARTICLE = "Dr. Smith Slept. She Didn’t.\n\nIt Rained!\n= Next\nA Dog Ran."
OPTIONS = TextOptions("prose", normalize=True, lowercase=True, text_key="review")


@pytest.fixture(scope="module")
def raw_run(space: Workspace, tmp_path_factory) -> Path:
    """A run on a compressed table of reviews in cp1252; its corpus is beside it."""
    pytest.importorskip("sentencex")
    pytest.importorskip("sacremoses")
    root = tmp_path_factory.mktemp("reviews")
    table = "stars,review\n" + "".join(f"{stars},{REVIEW}\n" for stars in range(5)) + "6,\n"
    path = root / "reviews.csv.gz"
    path.write_bytes(gzip.compress(table.encode("cp1252")))
    command = ["prepare", f"--train={path}", f"--valid={path}", f"--output={root / 'corpus'}"]
    command += ["--text_key=review", "--encoding=cp1252", "--lowercase"]
    prepared = launch(*command, "--normalize", quiet=False)
    assert "5 of 5 of valid are also in train;" in prepared.stderr
    lines = prepared.stdout.splitlines()
    assert "documents without words omitted: 2" in lines
    assert "a different corpus (normalize differ)" in refuse(*command)
    directory = f"--config.data.directory={root / 'corpus'}"
    training = [f"--config={space.config}", f"--workdir={root / 'run'}", directory]
    launch("train", *training, "--config.training.max_steps=1")
    return root / "run"


def test_a_table_is_prepared_and_a_run_remembers_how(raw_run):
    manifest = read_manifest(raw_run.parent / "corpus")
    assert manifest.text == dclm_jax.restore(raw_run).facts.text.options == OPTIONS
    entry = manifest.splits["train"]
    assert (entry.documents, entry.tokens, entry.oov_tokens) == (5, 5 * 9, 0)


@pytest.mark.parametrize(
    ("name", "content", "flags"),
    [
        ("table.csv", f"review,id\n{REVIEW},a\n", []),
        ("table.tsv", f"id\tbody\na\t{REVIEW}\n", ["--text_key=body"]),
        ("raw.jsonl", json.dumps({"id": "a", "review": REVIEW}), ["--format=jsonl"]),
        ("words.jsonl", json.dumps({"id": "a", "sentences": SENTENCES}), []),
        ("raw.txt", REVIEW, []),
    ],
)
def test_tables_and_raw_text_are_read_like_those_of_training(
    raw_run, tmp_path, name, content, flags
):
    lm = dclm_jax.restore(raw_run)
    [document] = lm.documents(REVIEW)
    assert list(map(" ".join, document.sentences)) == SENTENCES
    (expected,) = lm.score([document])
    (tmp_path / name).write_text(content, "utf-16")
    flags = [f"--input={tmp_path / name}", "--encoding=utf-16", *flags]
    [record] = scored(f"--workdir={raw_run}", *flags, quiet=False)
    assert record["log_prob"] == pytest.approx(expected.log_prob)
    assert record["id"] == ("raw.txt:1" if name == "raw.txt" else "a")


def test_flags_that_read_text_unlike_in_training_warn(raw_run, tmp_path):
    article, words = tmp_path / "article.txt", tmp_path / "words.jsonl"
    article.write_text(ARTICLE)
    options = dclm_jax.restore(raw_run).string_options()
    documents = list(read_documents(article, options))
    records = [json.dumps({"sentences": document.sentences}) for document in documents]
    words.write_text("".join(f"{record}\n" for record in records))

    def evaluate(path: Path, *flags: str) -> tuple[float, str]:
        arguments = [f"--workdir={raw_run}", f"--input={path}", "--metrics=-", *flags]
        done = launch("evaluate", *arguments, quiet=False)
        # A warning of unknown words follows the note.
        result, note = json.loads(done.stdout), done.stderr.split("\n")[0]
        assert f"text is read as {result['read_as']}" in note
        return result["nll"], note

    trained = "prose, its punctuation normalized, in lower case"
    nll, note = evaluate(article)
    assert note == f"note: text is read as {trained}, like the training text"
    assert evaluate(article, "--format=prose", "--lowercase") == (nll, note)
    # The name of a file of words says that it is one.
    assert evaluate(words)[0] == nll
    for flag, read_as in (
        ("--format=lines", "lines of words, its punctuation normalized, in lower case"),
        ("--nolowercase", "prose, its punctuation normalized"),
        ("--nonormalize", "prose, in lower case"),
    ):
        other, note = evaluate(article, flag)
        assert other != nll
        assert note == f"warning: text is read as {read_as}; the training text was {trained}"


def test_runs_whose_texts_were_read_differently_are_refused(space, tmp_path):
    """Of one vocabulary; one of two runs has text in lower case."""
    lower, text = tmp_path / "lower", tmp_path / "text.txt"
    shutil.copytree(space.run, lower)
    text_of_run = json.loads((lower / "text.json").read_text())
    text_of_run["options"]["lowercase"] = True
    (lower / "text.json").write_text(json.dumps(text_of_run))
    text.write_text("W1 w2 .\n")
    error = refuse("evaluate", f"--workdirs={space.run},{lower}", f"--input={text}")
    assert "the training texts of the runs were read differently (" in error


@pytest.mark.parametrize("end", [[], ['{"sentences": []}']])
def test_scores_join_with_the_text_line_by_line(space, tmp_path, end):
    lines = ['{"sentences": ["w1 w2"]}', '{"id": "b", "sentences": [""]}', '{"sentences": ["w3"]}']
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join([*lines, *end]))
    records = scored(f"--workdir={space.run}", f"--input={path}")
    ids = ["t.jsonl:1", "b", "t.jsonl:3", "t.jsonl:4"]
    assert [record["id"] for record in records] == ids[: 3 + len(end)]
    assert records[1] == {
        **{"id": "b", "unit": "nats", "matmul_precision": "highest"},
        **{"log_prob": 0.0, "sentences": []},
    }
    assert space.evaluate(f"--input={path}")["tokens"] == 5
    path.write_text("\n".join([lines[0], lines[2]]))
    others = scored(f"--workdir={space.run}", f"--input={path}")
    close = pytest.approx([record["log_prob"] for record in others])
    assert [records[0]["log_prob"], records[2]["log_prob"]] == close


ALL_OOV = "most frequent of 5 OOV words: of 2, it 1, more 1, unheard 1, words 1"


@pytest.fixture(scope="module")
def unheard(space, tmp_path_factory) -> Path:
    """A folder of texts; two of three words in each are OOV for the run."""
    folder = tmp_path_factory.mktemp("unheard")
    (folder / "text.txt").write_text("w1 w2 unheard of words\nw3 more of it")
    (folder / "list.txt").write_text("0 ||| w1 unheard of ||| ||| -1\n0 ||| of it w1 ||| ||| -2\n")
    vocabulary = f"--vocabulary={space.corpus / 'vocabulary.tsv'}"
    flags = [f"--test={folder / 'text.txt'}", vocabulary, f"--output={folder / 'corpus'}"]
    error = launch("prepare", *flags, quiet=False).stderr
    assert error.startswith("warning: test: 66.67% of the words are out of vocabulary (0.")
    assert "check that the text is read like the training text" not in error
    return folder


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        ("evaluate --input=text.txt", ALL_OOV),
        ("evaluate --data=corpus --metrics=-", ""),
        ("score --input=text.txt", ALL_OOV),
        ("score --data=corpus", ""),
        ("order --input=text.txt --noshuffle", ALL_OOV),
        ("generate --context=text.txt --num_sentences=1", ALL_OOV),
        (
            "rescore --nbest=list.txt --output=-",
            "most frequent of 3 OOV words: of 2, it 1, unheard 1",
        ),
        ("coherence --input=text.txt", ALL_OOV),
        ("coherence --data=corpus", ""),
        ("reconstruct --input=text.txt --output=-", ALL_OOV),
    ],
)
def test_a_text_of_many_unknown_words_is_warned_of(space, unheard, command, listed):
    name, *flags = command.split()
    flags.append(f"--workdir={space.autoencoder if name == 'reconstruct' else space.run}")
    rate = read_manifest(space.corpus).splits["test"].oov_rate
    warning = (
        f"66.67% of the words are out of vocabulary ({100 * rate:.2f}% in the run's own test "
        "split); results on both texts are not comparable"
    )
    error = launch(name, *flags, cwd=unheard, quiet=False).stderr
    (line,) = [line for line in error.splitlines() if line.startswith("warning: ")]
    assert warning in line and listed in line and ("OOV words" in line) == bool(listed)
