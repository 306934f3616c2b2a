"""Parts of speech of a text are kept in its prepared corpus, each at its word."""

import json

import numpy as np
import pytest

from dclm_jax.data import open_corpus, prepare, read_documents
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.prepare import PrepareOptions
from dclm_jax.evaluation.datasets import open_split
from dclm_jax.evaluation.parts_of_speech import Tagger

TAGGED = (
    "The/at 1/2/cd ran/vbd-hl\nIt/pps\n\n= b =\nA/at dog/nn\nran/vbd\nit/pps saw/vbd\n\nThe/at\n"
)
TREES = "( (S (NP (DT The) (NN cat)) (VP (VBD sat)) (-NONE- *)))\n( (X (. .)))\n"


def tags_of(directory, split):
    corpus = open_corpus(directory, split)
    return [corpus.document_tags(index) for index in range(corpus.num_documents)]


@pytest.fixture
def tagged(tmp_path):
    path = tmp_path / "tagged.txt"
    path.write_text(TAGGED)
    return path


def test_values(tmp_path, tagged):
    prepare(
        {"train": tagged},
        tmp_path / "out",
        TextOptions(format="tagged", lowercase=True),
        PrepareOptions(vocab_size=2),
    )
    corpus = open_corpus(tmp_path / "out", "train")
    names = (tmp_path / "out" / "tags.tsv").read_text()
    assert names == "at\t3\ncd\t1\nvbd-hl\t1\npps\t2\nnn\t1\nvbd\t2\n"
    assert corpus.tags is not None
    np.testing.assert_array_equal(corpus.tags, [0, 1, 2, 3, 0, 4, 5, 3, 5, 0])
    assert corpus.tags.dtype == np.int32 and isinstance(corpus.tags, np.memmap)
    expected = [one.tags for one in read_documents(tagged, TextOptions("tagged"))]
    assert tags_of(tmp_path / "out", "train") == expected
    assert expected[1] == [["at", "nn"], ["vbd"], ["pps", "vbd"]]
    with pytest.raises(IndexError):
        corpus.document_tags(3)
    # What training compares: the same words are the same corpus, tags or not.
    assert not [name for name in corpus.checksums if "tags" in name]


def test_tags_of_all_formats(tmp_path, tagged):
    (tmp_path / "t.mrg").write_text(TREES)
    records = [
        {"sentences": ["", "A b"], "tags": ["", "X Y"]},
        {"sentences": ["c"], "tags": [["Z"]]},
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, records)))
    sources = {"train": tmp_path / "t.mrg"}
    prepare(sources, tmp_path / "trees", TextOptions(format="treebank"))
    assert tags_of(tmp_path / "trees", "train") == [[["DT", "NN", "VBD"], ["."]]]
    sources = {"train": tmp_path / "t.jsonl", "test": tagged}
    prepare(sources, tmp_path / "both", TextOptions(format="tagged"))
    assert tags_of(tmp_path / "both", "train") == [[["X", "Y"]], [["Z"]]]
    assert tags_of(tmp_path / "both", "test") == [
        one.tags for one in read_documents(tagged, TextOptions("tagged"))
    ]


def test_documents_are_divided_cut_and_left_out_with_their_tags(tmp_path):
    rng = np.random.default_rng(0)
    documents = [
        [[f"w{n}" for n in rng.integers(9, size=size)] for size in rng.integers(1, 6, size=length)]
        for length in rng.integers(1, 9, size=40)
    ]
    # A tag says which document and which word of it this is.
    text, tags = "", {}
    for number, document in enumerate(documents):
        text += f"= {number} =\n"
        own = iter(range(10**6))
        for sentence in document:
            text += " ".join(f"{word}/T{number}-{next(own)}" for word in sentence) + "\n"
    (tmp_path / "text").write_text(text)
    for document in read_documents(tmp_path / "text", TextOptions("tagged")):
        assert document.tags is not None
        for words, of_words in zip(document.sentences, document.tags, strict=True):
            tags.update(zip(of_words, words, strict=True))
    manifest = prepare(
        tmp_path / "text",
        tmp_path / "out",
        TextOptions(format="tagged"),
        PrepareOptions(split_documents_at=7, min_words=3, max_words=7, fractions=(0.6, 0.2, 0.2)),
    )
    assert sum(entry.dropped_documents["min_words"] for entry in manifest.splits.values())
    for split in ("train", "valid", "test"):
        corpus = open_corpus(tmp_path / "out", split)
        for index in range(corpus.num_documents):
            found = corpus.document_tags(index)
            assert found is not None
            for sentence, own in zip(corpus.document(index), found, strict=True):
                assert corpus.vocabulary.decode(sentence) == [tags[tag] for tag in own]


def test_splits_with_other_text_have_none(tmp_path, tagged):
    (tmp_path / "mixed.jsonl").write_text(
        '{"sentences": ["a"], "tags": ["X"]}\n{"sentences": ["b"]}\n'
    )
    (tmp_path / "plain").write_text("a b\n")
    (tmp_path / "tagged.txt").write_text(TAGGED.upper())
    sources = {"train": tagged, "valid": tmp_path / "mixed.jsonl", "test": tmp_path / "plain"}
    manifest = prepare(sources, tmp_path / "out")
    assert set(manifest.tags) == {"tags.tsv", "train.tags.bin"}
    assert open_corpus(tmp_path / "out", "valid").tags is None
    assert tags_of(tmp_path / "out", "test") == [None]
    without = prepare({"train": tmp_path / "plain"}, tmp_path / "without")
    assert without.tags == {}
    assert not [path.name for path in (tmp_path / "without").iterdir() if "tags" in path.name]


def test_a_split_is_tagged_as_its_text_was(tmp_path, tagged):
    prepare(
        {"train": tagged},
        tmp_path / "out",
        TextOptions(format="tagged"),
        PrepareOptions(vocab_size=1),
    )
    vocabulary = open_corpus(tmp_path / "out", "train").vocabulary
    tagger = Tagger()
    found = [
        one.tags
        for one in open_split(vocabulary, tmp_path / "out", "train", tagger=tagger).documents
    ]
    assert found == [
        [["AT", "CD", "VBD"], ["PPS"]],
        [["AT", "NN"], ["VBD"], ["PPS", "VBD"]],
        [["AT"]],
    ]
    assert tagger.source == "input"


def test_damaged_tags_are_not_reused(tmp_path, tagged):
    prepare({"train": tagged}, tmp_path / "out", TextOptions(format="tagged"))
    (tmp_path / "out" / "tags.tsv").write_text("x\n")
    with pytest.raises(ValueError, match="tags.tsv: has 2 bytes; the manifest says"):
        prepare({"train": tagged}, tmp_path / "out", TextOptions(format="tagged"))


def test_characters(tmp_path, tagged):
    manifest = prepare(
        {"train": tagged},
        tmp_path / "out",
        TextOptions(format="tagged"),
        PrepareOptions(vocab_size=1),
    )
    words = [
        w
        for one in read_documents(tagged, TextOptions("tagged"))
        for sentence in one.sentences
        for w in sentence
    ]
    assert manifest.splits["train"].characters == len(" ".join(words)) + 1 == 36
