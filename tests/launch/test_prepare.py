"""launch.prepare: splits, a corpus that has a name, what is reported and shown."""

import json

from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.readers import read_documents
from tests.data.support import write
from tests.launch.support import launch


def test_the_three_splits_are_prepared(space):
    splits = json.loads((space.corpus / "manifest.json").read_text())["splits"]
    for split, path in space.text.items():
        assert splits[split]["documents"] == len(list(read_documents(path)))
    assert "98 entries" in space.prepared.stdout


def test_a_corpus_that_has_a_name_with_all_its_flags(tmp_path):
    folder, out = tmp_path / "bbc", tmp_path / "out"
    for topic in ("business", "entertainment", "politics", "sport", "tech"):
        for number in range(1, 5):
            article = f"Title of {topic}\n\nThe Story costs £{number}m. It ends.\n"
            write(folder / topic / f"{number:03}.txt", article.encode("latin-1"))
    flags = [f"--input={folder}", "--vocab_size=9", "--lowercase"]
    lines = launch("prepare", "--corpus=bbc", *flags, f"--output={out}").stdout.splitlines()
    assert lines[0].startswith("reading the BBC articles; business: ")
    assert lines[-1] == f"prepared corpus: {out}"
    splits = json.loads((out / "manifest.json").read_text("utf-8"))["splits"]
    assert [entry["documents"] for entry in splits.values()] == [18, 1, 1]
    # A title of 3 words, sentences of 6 (£ is one of them) and 3.
    assert (splits["train"]["sentences"], splits["train"]["tokens"]) == (18 * 3, 18 * 12)
    vocabulary = (out / "vocabulary.tsv").read_text("utf-8")
    assert "\nstory\t18\n" in vocabulary and "Story" not in vocabulary


def test_parts_of_speech_are_measured_by_the_tags_of_the_text(space, tmp_path):
    text = tmp_path / "text"
    sentences = [words for doc in read_documents(space.text["test"]) for words in doc.sentences]
    tagged = [[f"{w}/{'VBD' if w[-1] in '13' else 'NN'}" for w in words] for words in sentences]
    text.write_text("\n".join(map(" ".join, tagged)))
    out = tmp_path / "out"
    vocabulary = f"--vocabulary={space.corpus / 'vocabulary.tsv'}"
    launch("prepare", f"--test={text}", "--format=tagged", vocabulary, f"--output={out}")
    by_pos = space.evaluate("--by_pos", f"--data={out}")["by_pos"]
    assert by_pos == space.evaluate("--by_pos", f"--input={text}", "--format=tagged")["by_pos"]
    assert set(by_pos) == {"Noun", "VBD", "END"}
    verbs = sum(word[-1] in "13" for words in sentences for word in words)
    assert by_pos["VBD"]["tokens"] == verbs


TEXT = "the cat sat .\n= the cat\nthe dog\n\na b =\n\n = = the\nthe <unk> cat\n"
TEXT += "".join(
    f"{word} " for word in 3 * ["rare"] + 2 * ["odd", "Odd"] + ["x\x1b[2Jy", *"abcdefg"]
)


def test_documents_come_back_as_the_text_that_they_were(tmp_path):
    text, out, again = tmp_path / "text", tmp_path / "out", tmp_path / "again"
    text.write_text(TEXT)
    sources = [f"--test={text}", f"--train={text}"]
    launch("prepare", *sources, f"--output={out}", "--vocab_size=3", quiet=False)
    shown_text = launch("prepare", f"--show={out}", "--split=test").stdout
    # "the" 4, "=" 3 and "rare" 3; "= the cat" is a heading.
    assert shown_text.startswith(
        "= text:1\nthe <UNKNOWN> <UNKNOWN> <UNKNOWN>\n\n= text:3\nthe <UNKNOWN>\n\n= text:5\n"
        "<UNKNOWN> <UNKNOWN> =\n\n= text:7\n = = the\nthe <UNKNOWN> <UNKNOWN>\nrare "
    )
    (tmp_path / "back").write_text(shown_text)
    vocabulary = f"--vocabulary={out / 'vocabulary.tsv'}"
    launch("prepare", f"--test={tmp_path / 'back'}", vocabulary, f"--output={again}")
    for kind in ("tokens", "sentence_offsets", "document_offsets"):
        assert (again / f"test.{kind}.bin").read_bytes() == (out / f"test.{kind}.bin").read_bytes()
    # The default is the test split.
    assert launch("prepare", f"--show={out}").stdout == shown_text


def test_sentences_and_unknown_words_are_reported(tmp_path):
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_text(TEXT)

    def report(*flags: str) -> list[str]:
        command = ["prepare", f"--train={text}", f"--output={out}", "--overwrite", *flags]
        return launch(*command).stdout.splitlines()

    lines = report("--min_count=3", "--unknown_token=<unk>")
    assert not any(line.startswith("note: ") for line in lines[6:])
    assert lines[:6] == [
        f"note: {text}: titles in lines that begin with =: 1; title words "
        "omitted: 2, such as '= the cat'",
        "first sentences of train, OOV words in [brackets]:",
        "  the [cat] [sat] [.]",
        "  the [dog]",
        "  [a] [b] =",
        "most frequent of 14 OOV words: Odd 2, a 2, b 2, cat 2, odd 2, . 1, c 1, d 1, dog 1, e 1",
    ]
    for flags, words in (
        # Both limits at once: a maximum number of words and a minimum count.
        (["--min_count=3"], ("the", "=", "rare")),
        (["--min_count=3", "--vocab_size=2"], ("the", "=")),
        (["--vocab_size=5"], ("the", "=", "rare", "Odd", "a")),
    ):
        report(*flags, "--unknown_token=<unk>")
        assert open_corpus(out, "train").vocabulary.entries[3:] == words
    lines = report()
    assert any(line.startswith("note: <unk> is an ordinary word, 1 times; if it") for line in lines)
    assert any(line.startswith("note: train has no OOV words, so that") for line in lines)
    assert open_corpus(out, "train").manifest.options["vocab_size"] == 10_000
    # Long sentences are cut, and signs for a terminal are not sent to it.
    text.write_text("v " * 39 + "x\x1b[2Jy w w\n")
    lines = report("--vocab_size=1")
    assert lines[1] == "  " + "v " * 39 + "[x\\x1b[2Jy] ..."
    assert lines[2] == "most frequent of 2 OOV words: w 2, x\\x1b[2Jy 1"
