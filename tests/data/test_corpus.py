import dataclasses
import json

import numpy as np
import pytest

from dclm_jax.data.corpus import open_corpus, statistics_table
from dclm_jax.errors import InputError
from tests.data.support import make_corpus, write

TRAIN = "a b\na\n\nb a c\n"
VALID = "c x\n"


@pytest.fixture
def directory(tmp_path):
    texts = {"valid": VALID, "train": TRAIN}
    sources = {split: write(tmp_path / f"{split}.txt", text) for split, text in texts.items()}
    make_corpus(sources, tmp_path / "out", vocab_size=2)
    return tmp_path / "out"


def test_values(directory):
    corpus = open_corpus(directory, "train")
    # Counts: a 3, b 2, c 1; the vocabulary keeps a (id 3) and b (id 4).
    np.testing.assert_array_equal(corpus.tokens, [3, 4, 3, 4, 3, 2])
    np.testing.assert_array_equal(corpus.sentence_offsets, [0, 2, 3, 6])
    np.testing.assert_array_equal(corpus.document_offsets, [0, 2, 3])
    assert corpus.tokens.dtype == np.int32
    assert corpus.sentence_offsets.dtype == corpus.document_offsets.dtype == np.int64
    assert isinstance(corpus.tokens, np.memmap)
    assert corpus.document_ids == ["train.txt:1", "train.txt:4"]
    assert (corpus.num_documents, corpus.num_sentences, corpus.num_tokens) == (2, 3, 6)
    assert [s.tolist() for s in corpus.document(0)] == [[3, 4], [3]]
    assert [s.tolist() for s in corpus.document(1)] == [[4, 3, 2]]
    assert corpus.vocabulary.entries == ("<START>", "<END>", "<UNKNOWN>", "a", "b")
    assert corpus.vocabulary.counts == (3, 3, 1, 3, 2)


def test_statistics(directory):
    manifest = open_corpus(directory, "valid").manifest
    assert list(manifest.splits) == ["train", "valid"]
    train, valid = manifest.splits["train"], manifest.splits["valid"]
    assert (train.documents, train.sentences, train.tokens) == (2, 3, 6)
    assert (train.oov_tokens, train.oov_rate) == (1, 1 / 6)
    assert valid.oov_rate == 1.0
    assert manifest.vocabulary_size == 5
    assert statistics_table(manifest).splitlines() == [
        "split  documents  sentences  words  words/doc  sentences/doc      OOV",
        "train          2          3      6        3.0            1.5   16.67%",
        "valid          1          1      2        2.0            1.0  100.00%",
        "vocabulary: 5 entries with START, END and UNKNOWN",
    ]
    # Options that a manifest lacks were not applied.
    without_options = dataclasses.replace(manifest, options={})
    assert statistics_table(without_options) == statistics_table(manifest)


def test_split_without_data(directory):
    with pytest.raises(InputError, match=r"out: has no split 'test'; expected one of: train, va"):
        open_corpus(directory, "test")


def test_absent_directory_or_manifest(tmp_path):
    with pytest.raises(InputError, match="no such directory"):
        open_corpus(tmp_path / "none", "train")
    with pytest.raises(InputError, match="has no manifest.json"):
        open_corpus(tmp_path, "train")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ('{"format_version": 2}', "vocabulary_size is missing; expected"),
        ('{"format_version": 99}', "expected 2; prepare the corpus again with --overwrite$"),
    ],
)
def test_broken_manifest(directory, content, message):
    (directory / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=message):
        open_corpus(directory, "train")


def test_manifest_lists_every_file(directory):
    manifest = json.loads((directory / "manifest.json").read_text())
    names = {path.name for path in directory.iterdir()}
    assert {*manifest["files"], "manifest.json"} == names


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.tokens.bin", b"\2\0\0\0" * 6),
        ("train.tokens.bin", b"\2\0\0\0" * 5),
        ("vocabulary.tsv", b"<START>\t3\n<END>\t3\n<UNKNOWN>\t1\nz\t3\nb\t2\n"),
        ("vocabulary.tsv", None),
    ],
)
def test_changed_or_missing_file_is_found(directory, name, content):
    (directory / name).unlink()
    if content is not None:
        (directory / name).write_bytes(content)
    problem = "missing" if content is None else "its checksum differs from the manifest"
    with pytest.raises(InputError, match=f"{name}: {problem}; prepare the corpus again"):
        open_corpus(directory, "train")
