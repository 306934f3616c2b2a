"""Parts of speech of a text are kept in its prepared corpus, each at its word."""

import numpy as np
import pytest

from dclm_jax.data.corpus import SPLITS, open_corpus
from tests.data.support import make_corpus, read, write

TAGGED = (
    "The/at 1/2/cd ran/vbd-hl\nIt/pps\n\n= b =\nA/at dog/nn\nran/vbd\nit/pps saw/vbd\n\nThe/at\n"
)


def tags_of(directory, split):
    corpus = open_corpus(directory, split)
    return [corpus.document_tags(index) for index in range(corpus.num_documents)]


@pytest.fixture
def tagged(tmp_path):
    return write(tmp_path / "tagged.txt", TAGGED)


def test_values(tmp_path, tagged):
    sources, out = {"train": tagged}, tmp_path / "out"
    manifest = make_corpus(sources, out, "tagged", lowercase=True, vocab_size=2)
    corpus = open_corpus(out, "train")
    names = (out / "tags.tsv").read_text()
    assert names == "at\t3\ncd\t1\nvbd-hl\t1\npps\t2\nnn\t1\nvbd\t2\n"
    assert corpus.tags is not None
    np.testing.assert_array_equal(corpus.tags, [0, 1, 2, 3, 0, 4, 5, 3, 5, 0])
    assert corpus.tags.dtype == np.int32 and isinstance(corpus.tags, np.memmap)
    documents = read(tagged, "tagged")
    assert tags_of(out, "train") == [document.tags for document in documents]
    assert documents[1].tags == [["at", "nn"], ["vbd"], ["pps", "vbd"]]
    # Training compares checksums: the same words are the same corpus, tags or not.
    assert not [name for name in corpus.checksums if "tags" in name]
    # The characters are those of the words, unknown ones too, and a space after each.
    words = [word for document in documents for words in document.sentences for word in words]
    assert manifest.splits["train"].characters == len(" ".join(words)) + 1 == 36


def test_documents_are_divided_cut_and_left_out_with_their_tags(tmp_path):
    """A tag is the number of a word of the text."""
    rng = np.random.default_rng(0)
    text, words = "", []
    for number, num_sentences in enumerate(rng.integers(1, 9, size=40)):
        text += f"= {number} =\n"
        for num_words in rng.integers(1, 6, size=num_sentences):
            first = len(words)
            words += [f"w{n}" for n in rng.integers(9, size=num_words)]
            text += " ".join(f"{words[at]}/{at}" for at in range(first, len(words))) + "\n"
    manifest = make_corpus(
        write(tmp_path / "text", text),
        tmp_path / "out",
        "tagged",
        split_documents_at=7,
        min_words=3,
        max_words=7,
        fractions=(0.6, 0.2, 0.2),
    )
    assert sum(entry.dropped_documents["min_words"] for entry in manifest.splits.values())
    for split in SPLITS:
        corpus = open_corpus(tmp_path / "out", split)
        for index in range(corpus.num_documents):
            tags = corpus.document_tags(index)
            assert tags is not None
            for sentence, numbers in zip(corpus.document(index), tags, strict=True):
                assert corpus.vocabulary.decode(sentence) == [words[int(n)] for n in numbers]


def test_splits_with_other_text_have_none(tmp_path):
    plain = write(tmp_path / "plain.jsonl", '{"sentences": ["a b"]}\n')
    write(tmp_path / "mixed" / "a", "a/X\n")
    write(tmp_path / "mixed" / "b.jsonl", '{"sentences": ["b"]}\n')
    sources = {"train": write(tmp_path / "tags", "a/X c/X\n"), "valid": tmp_path / "mixed"}
    manifest = make_corpus(sources | {"test": plain}, tmp_path / "out", "tagged")
    assert {name for name in manifest.files if "tags" in name} == {"tags.tsv", "train.tags.bin"}
    assert open_corpus(tmp_path / "out", "valid").tags is None
    assert tags_of(tmp_path / "out", "test") == [None]
    make_corpus({"train": plain}, tmp_path / "without")
    assert not [path.name for path in (tmp_path / "without").iterdir() if "tags" in path.name]
