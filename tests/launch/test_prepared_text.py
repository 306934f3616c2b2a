"""What is prepared can be seen: its documents as text, its parts of speech, its unknown words."""

import pytest

from dclm_jax.data import open_corpus, read_documents
from tests.launch.support import Workspace, launch, refuse


def test_a_split_of_tagged_text_is_measured_by_its_own_tags(space: Workspace, tmp_path):
    text = tmp_path / "text"
    documents = list(read_documents(space.text["test"]))
    lines = []
    for document in documents:
        for words in document.sentences:
            lines.append(
                " ".join(f"{word}/{'VBD' if word[-1] in '13' else 'NN'}" for word in words)
            )
        lines.append("")
    text.write_text("\n".join(lines))
    vocabulary = f"--vocabulary={space.corpus / 'vocabulary.tsv'}"
    told = launch("prepare", f"--test={text}", vocabulary, f"--output={tmp_path / 'out'}").stdout
    assert f"note: {text}: read as tagged text: its words are WORD/TAG\n" in told
    # HanTa would be asked for tags otherwise, and know others.
    found = space.evaluate("--by_pos", f"--data={tmp_path / 'out'}")
    expected = space.evaluate("--by_pos", f"--input={text}", "--format=tagged")
    assert found["by_pos"] == expected["by_pos"]
    assert found["by_pos"]["tagger"] == "input"
    classes = found["by_pos"]["classes"]
    assert set(classes) == {"Noun", "VBD", "END"}
    words = [word for one in documents for sentence in one.sentences for word in sentence]
    assert classes["VBD"]["tokens"] == sum(word[-1] in "13" for word in words)


TEXT = "the cat sat .\n= the cat\nthe dog\n\na b =\n\n = = the\nthe <unk> cat\n"
TEXT += "".join(
    f"{word} " for word in 3 * ["rare"] + 2 * ["odd", "Odd"] + ["x\x1b[2Jy", *"abcdefg"]
)


def test_documents_come_back_as_the_text_that_they_were(tmp_path):
    (tmp_path / "text").write_text(TEXT)
    out, again = tmp_path / "out", tmp_path / "again"
    launch(
        "prepare",
        f"--test={tmp_path / 'text'}",
        f"--train={tmp_path / 'text'}",
        f"--output={out}",
        "--vocab_size=3",
    )
    shown = launch("prepare", f"--show={out}", "--split=test").stdout
    # "the" 4, "=" 3 and "rare" 3; "= the cat" is a heading.
    assert shown.startswith(
        "= text:1\nthe <UNKNOWN> <UNKNOWN> <UNKNOWN>\n\n= text:3\nthe <UNKNOWN>\n\n= text:5\n"
        "<UNKNOWN> <UNKNOWN> =\n\n= text:7\n = = the\nthe <UNKNOWN> <UNKNOWN>\nrare "
    )
    (tmp_path / "shown").write_text(shown)
    vocabulary = f"--vocabulary={out / 'vocabulary.tsv'}"
    launch("prepare", f"--test={tmp_path / 'shown'}", vocabulary, f"--output={again}")
    for kind in ("tokens", "sentence_offsets", "document_offsets"):
        assert (again / f"test.{kind}.bin").read_bytes() == (out / f"test.{kind}.bin").read_bytes()
    two = launch("prepare", f"--show={out}", "--split=train", "--documents=2").stdout
    assert two == "\n\n".join(shown.split("\n\n")[:2]) + "\n"
    assert launch("prepare", f"--show={out}", "--documents=99").stdout == shown


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--show=OUT", "--documents=0"], "--documents is 0; expected at least 1"),
        (["--show=OUT", "--split=valid"], "split 'valid' has no data in"),
        (["--show=OUT", "--split=0.5,0.5"], "split '0.5,0.5' has no data in"),
        (
            ["--show=OUT", "--input=OUT"],
            "--show prints a prepared corpus, and takes only",
        ),
        (["--show="], "holds no manifest.json"),
        (["--documents=2"], "--documents belongs to --show, which is missing"),
    ],
)
def test_flags_that_show_nothing(space: Workspace, flags, message):
    flags = [flag.replace("OUT", str(space.test_only)) for flag in flags]
    assert message in refuse("prepare", *flags)


def test_what_was_written_is_shown(tmp_path):
    (tmp_path / "text").write_text(TEXT)
    out = f"--output={tmp_path / 'out'}"
    arguments = [f"--train={tmp_path / 'text'}", out, "--min_count=3", "--unknown_token=<unk>"]
    lines = launch("prepare", *arguments).stdout.splitlines()
    assert lines[:7] == [
        f"note: {tmp_path / 'text'}: lines that begin with = and end a document: 1; title words "
        "omitted: 2, such as '= the cat' (--divider names another first word, or none)",
        "--format=auto: read as lines",
        "sentences of train as they are encoded, [unknown] words in brackets:",
        "  the [cat] [sat] [.]",
        "  the [dog]",
        "  [a] [b] =",
        "most frequent of 14 unknown words: Odd 2, a 2, b 2, cat 2, odd 2, . 1, c 1, d 1, dog 1, "
        "e 1",
    ]
    corpus = open_corpus(tmp_path / "out", "train")
    # Both limits at once: at most so many words, each at least so often.
    assert corpus.vocabulary.words[3:] == ("the", "=", "rare")
    assert corpus.manifest.options["vocab_size"] is None
    launch("prepare", *arguments, "--vocab_size=2", "--overwrite")
    assert open_corpus(tmp_path / "out", "train").vocabulary.words[3:] == ("the", "=")
    launch("prepare", *arguments[:-2], "--vocab_size=5", "--overwrite")
    words = open_corpus(tmp_path / "out", "train").vocabulary.words[3:]
    assert words == ("the", "=", "rare", "Odd", "a")
    launch("prepare", *arguments[:-2], "--overwrite")
    corpus = open_corpus(tmp_path / "out", "train")
    assert corpus.manifest.options["vocab_size"] == 10_000 and len(corpus.vocabulary) == 3 + 17 + 1
    # Long sentences are cut, and signs for a terminal are not sent to it.
    long = "v " * 39 + "x\x1b[2Jy w w\n"
    (tmp_path / "text").write_text(long)
    lines = launch("prepare", *arguments[:2], "--overwrite", "--vocab_size=1").stdout.splitlines()
    assert lines[2] == "  " + "v " * 39 + "[x\\x1b[2Jy] ..."
    assert lines[3] == "most frequent of 2 unknown words: w 2, x\\x1b[2Jy 1"
