"""A run remembers how its text became words, and reads other text alike."""

import json
import shutil
from pathlib import Path

import pytest

import dclm_jax
from dclm_jax.data.documents import TextOptions
from dclm_jax.errors import InputError
from tests.launch.support import Workspace, launch, refuse

ARTICLE = "Dr. Smith Slept. The Cat didn't.\n\nIt Rained!\n= Next\nA Dog Ran."
WORDS = [
    [["dr.", "smith", "slept", "."], ["the", "cat", "didn", "'t", "."], ["it", "rained", "!"]],
    [["a", "dog", "ran", "."]],
]


@pytest.fixture(scope="module")
def raw_run(space: Workspace, tmp_path_factory) -> Path:
    """A run on raw text in lower case."""
    pytest.importorskip("sentencex")
    pytest.importorskip("sacremoses")
    root = tmp_path_factory.mktemp("raw")
    story = "The cat slept. A dog ran.\nIt rained and Dr. Smith slept.\n= Next\n"
    (root / "story.txt").write_text(story * 20)
    options = ["--format=prose", "--lowercase"]
    launch("prepare", f"--input={root / 'story.txt'}", *options, f"--output={root / 'corpus'}")
    arguments = [f"--config={space.config}", f"--workdir={root / 'run'}"]
    directory = f"--config.data.directory={root / 'corpus'}"
    launch("train", *arguments, directory, "--config.training.max_steps=1")
    return root / "run"


def evaluate(run: Path, path: Path, *flags: str) -> tuple[float, str]:
    done = launch(
        "evaluate", f"--workdir={run}", f"--input={path}", "--output=-", *flags, quiet=False
    )
    # Others may follow, of unknown words.
    first, _, _ = done.stderr.partition("\n")
    result = json.loads(done.stdout)
    # The result says how it was read, as well.
    assert not first or f"read as {result['read_as']}" in first
    return result["nll"], first


def test_text_is_read_as_in_training_and_flags_that_say_otherwise_warn(raw_run, tmp_path):
    article, words = tmp_path / "article.txt", tmp_path / "words.jsonl"
    article.write_text(ARTICLE)
    words.write_text("".join(json.dumps({"sentences": one}) + "\n" for one in WORDS))
    right, told = evaluate(raw_run, article)
    assert told == "note: text is read as prose, in lower case, like the training text"
    assert evaluate(raw_run, article, "--format=prose", "--lowercase") == (right, told)
    # Files of words are that by their names.
    assert evaluate(raw_run, words)[0] == right
    for flags, read in (
        (["--format=lines"], "lines, in lower case"),
        (["--nolowercase"], "prose"),
        (["--format=paragraphs"], "paragraphs, in lower case"),
    ):
        other, told = evaluate(raw_run, article, *flags)
        assert other != right
        training = "the training text was prose, in lower case"
        assert told == f"warning: text is read as {read}; {training}"


def test_candidates_are_read_as_text_is(raw_run, tmp_path):
    context, lines = tmp_path / "context.txt", tmp_path / "lines.txt"
    context.write_text("The Cat slept.")
    lines.write_text("It Rained!\nDr. Smith slept.\n")
    flags = [f"--workdir={raw_run}", f"--context={context}", f"--input={lines}"]
    records = [
        json.loads(line) for line in launch("score", *flags, quiet=False).stdout.splitlines()
    ]
    assert [one["sentences"][0]["tokens"][:-1] for one in records] == [
        ["it", "rained", "!"],
        ["dr.", "smith", "slept", "."],
    ]
    place = dclm_jax.restore(raw_run).read_text("The Cat slept.")
    scores = place.score(["it rained !", "dr. smith slept ."])
    for record, score in zip(records, scores, strict=True):
        assert record["log_prob"] == pytest.approx(score.log_prob, rel=1e-5)


def test_raw_text_in_python_is_read_as_files_are(raw_run):
    lm = dclm_jax.restore(raw_run)
    with pytest.warns(UserWarning, match="end a document: 1; title words omitted: 1,"):
        documents = lm.documents(ARTICLE)
    assert [one.sentences for one in documents] == WORDS
    assert [one.id for one in documents] == ["text:1", "text:5"]
    with pytest.warns(UserWarning, match="title words omitted: 1,"):
        scores = lm.score_text(ARTICLE)
    assert scores == [*lm.score(documents)]
    as_it_stands = lm.documents("The Cat slept .\n\nA dog ran .", TextOptions())
    assert [one.sentences for one in as_it_stands] == [
        [["The", "Cat", "slept", "."]],
        [["A", "dog", "ran", "."]],
    ]
    with pytest.raises(InputError, match="text: is empty"):
        lm.documents("")
    with pytest.raises(InputError, match=r"text is \[.*\]; expected a string"):
        lm.documents(["a"])  # pyright: ignore[reportArgumentType]


def test_runs_whose_texts_were_read_differently_need_to_be_told_how(space, tmp_path):
    """One vocabulary, one of two runs with text in lower case: their order decides nothing."""
    cased, lower = space.run, tmp_path / "lower"
    shutil.copytree(space.run, lower)
    kept = json.loads((lower / "text.json").read_text())
    kept["options"]["lowercase"] = True
    kept["unknown_rates"]["test"] = 0.5
    (lower / "text.json").write_text(json.dumps(kept))
    text = tmp_path / "text.txt"
    text.write_text("W1 w2 .\n")
    for command in (["evaluate"], ["score"], ["score", f"--context={text}"]):
        for pair in (f"{cased},{lower}", f"{lower},{cased}"):
            error = refuse(*command, f"--workdirs={pair}", f"--input={text}")
            assert "the training texts of the runs were read differently (" in error
    flags = ["--format=lines", "--lowercase", f"--input={text}", "--output=-"]
    both = launch("evaluate", f"--workdirs={cased},{lower}", *flags, quiet=False)
    results = json.loads(both.stdout)["runs"]
    # Each beside the unknown words of its own text.
    assert [one["own_oov_rate"] for one in results] == [
        json.loads((run / "text.json").read_text())["unknown_rates"]["test"]
        for run in (cased, lower)
    ]
    assert results[0]["oov_words"] == 1
