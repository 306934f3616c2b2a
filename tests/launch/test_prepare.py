"""launch.prepare: the three splits, one input divided, bad input."""

import json

import pytest

from dclm_jax.data.readers import read_documents
from tests.data.support import write
from tests.launch.support import BAD_TEXT, fingerprint, launch, refuse


def test_prepare_writes_the_three_splits_and_leaves_them_when_run_again(space):
    manifest = json.loads((space.corpus / "manifest.json").read_text())
    for split, path in space.text.items():
        documents = list(read_documents(str(path)))
        entry = manifest["splits"][split]
        sentences = [words for document in documents for words in document.sentences]
        assert entry["documents"] == len(documents)
        assert entry["sentences"] == len(sentences)
        assert entry["tokens"] == sum(map(len, sentences))
    assert manifest["vocabulary"]["size"] == 98
    assert "98 entries" in space.prepared.stdout
    before = fingerprint(space.corpus)
    launch("prepare", *space.sources(), f"--output={space.corpus}", "--vocab_size=95")
    assert fingerprint(space.corpus) == before
    error = refuse("prepare", *space.sources(), f"--output={space.corpus}", "--vocab_size=9")
    assert str(space.corpus) in error
    assert fingerprint(space.corpus) == before


@pytest.fixture
def bbc(tmp_path):
    for topic in ("business", "entertainment", "politics", "sport", "tech"):
        for number in range(1, 5):
            article = f"Title of {topic}\n\nThe Story costs £{number}m. It ends.\n"
            write(tmp_path / "bbc" / topic / f"{number:03}.txt", article.encode("latin-1"))
    write(tmp_path / "bbc" / "README.TXT", "no article")
    return tmp_path / "bbc"


def test_a_corpus_that_has_a_name_by_default_and_with_all_its_flags(bbc, tmp_path):
    arguments = ("--corpus=bbc", f"--input={bbc}", "--vocab_size=9")
    more = ("--split=0.5,0.25,0.25", "--seed=7", "--lowercase")
    for name, flags, sizes in (("first", (), [18, 1, 1]), ("second", more, [10, 5, 5])):
        out = tmp_path / name
        lines = launch("prepare", *arguments, *flags, f"--output={out}").stdout.splitlines()
        assert lines[0].startswith("reading the BBC articles; business: ")
        assert lines[-1] == f"prepared corpus: {out}"
        splits = json.loads((out / "manifest.json").read_text("utf-8"))["splits"]
        assert [entry["documents"] for entry in splits.values()] == sizes
        # A title of 3 words, sentences of 6 (£ is one of them) and 3.
        assert splits["train"]["sentences"] == sizes[0] * 3
        assert splits["train"]["tokens"] == sizes[0] * 12
    vocabulary = (tmp_path / "second" / "vocabulary.tsv").read_text("utf-8")
    assert "\nstory\t10\n" in vocabulary and "Story" not in vocabulary


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--train=IN/absent.txt"], ["IN/absent.txt"]),
        (["--train=IN/blank.txt"], ["IN/blank.txt", "no document"]),
        (["--train=GOOD", "--valid=IN/latin1.txt"], ["IN/latin1.txt:3", "UTF-8"]),
        (["--train=GOOD", "--vocabulary=IN/words.txt"], ["IN/words.txt", "lacks <UNKNOWN>"]),
        (["--train=GOOD", "--vocab_size=0"], ["vocab_size is 0"]),
        (["--test=GOOD"], ["train", "vocabulary"]),
        (["--train=GOOD", "--split=1,0,0"], ["inputs of given splits take no split"]),
        (["--input=GOOD", "--split=0.5,x"], ["--split is 0.5,x; expected shares with commas"]),
        ([], ["--train", "--input", "--corpus", "got none"]),
        (["--input=GOOD", "--train=GOOD"], ["got --train/--valid/--test and --input"]),
        (["--corpus=bbc", "--input=GOOD", "--train=GOOD"], ["--test and --corpus=bbc"]),
        (["--corpus=bbc", "--input=GOOD", "--format=prose"], ["--corpus=bbc takes no --format"]),
        (["--corpus=imdb"], ["imdb needs an input: the folder of the IMDB reviews"]),
        (["--corpus=sotu", "--input=GOOD"], ["sotu is embedded and takes no input"]),
        (["--corpus=sotu", "--encoding=ascii"], ["sotu takes no encoding"]),
        (["--corpus=wsj"], ["--corpus=wsj"]),
        (["--train=GOOD", "stray"], ["'stray'"]),
        (["--trian=GOOD"], ["trian", "train"]),
        (["--train=GOOD", "--vocab_size=many"], ["--vocab_size=many"]),
    ],
)
def test_prepare_refuses_bad_input_and_writes_nothing(space, tmp_path, arguments, expected):
    for name, content in BAD_TEXT.items():
        write(tmp_path / name, content)
    before = fingerprint(tmp_path)

    def fill(text):
        return text.replace("IN/", f"{tmp_path}/").replace("GOOD", str(space.text["test"]))

    error = refuse("prepare", *map(fill, arguments), f"--output={tmp_path / 'corpus'}")
    for part in expected:
        assert fill(part) in error
    assert fingerprint(tmp_path) == before
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_prepare_needs_an_output(space):
    assert "--output" in refuse("prepare", *space.sources(), process=True)
