"""Paired documents: what a document is made of lies beside it, in the same order."""

import pytest

from dclm_jax.data.corpus import SPLITS, open_corpus, source_split
from dclm_jax.errors import InputError
from tests.data.support import contents, ids_of, make_corpus, read, write, write_lines
from tests.launch.support import launch

SOURCES = tuple(map(source_split, SPLITS))


def write_pairs(folder, count, targets="T", sources="S"):
    """Documents of a few words and their sources, which name each other."""
    numbers = range(count)
    pairs = [([[f"t{n}", "x"]], [[f"s{n}", "y"] * (1 + n % 3), ["z"]]) for n in numbers]
    for name, documents in zip((targets, sources), zip(*pairs, strict=True), strict=True):
        write_lines(folder / name, documents)
    return folder / targets, folder / sources


def numbers_of(path, directory, split):
    """The numbers of the documents of a split, whose words may be unknown."""
    texts = {document.id: document.sentences for document in read(path)}
    return [int(texts[name][0][0][1:]) for name in ids_of(directory)[split]]


def test_both_are_divided_alike_over_one_vocabulary(tmp_path):
    targets, sources = write_pairs(tmp_path, 40)
    pair, out = {"input": targets, "input_source": sources}, tmp_path / "out"
    manifest = make_corpus(pair, out, seed=2, vocab_size=1000)
    assert list(manifest.splits) == [*SPLITS, *SOURCES]
    corpus = open_corpus(out, "train_source")
    assert len(corpus.vocabulary) == 3 + 3 + 2 * 32
    words = dict(zip(corpus.vocabulary.words, corpus.vocabulary.counts, strict=True))
    assert words["x"] == 32 and words["z"] == 32 and words["<START>"] == 3 * 32
    for split, size in zip(SPLITS, (32, 4, 4), strict=True):
        numbers = numbers_of(targets, out, split)
        assert numbers_of(sources, out, source_split(split)) == numbers
        assert len(numbers) == size
    texts = {document.id: document.sentences for document in read(sources)}
    assert all(texts[name] == text for name, text in contents(out, "train_source").items())
    # As without sources, and in the order of the text.
    make_corpus(targets, tmp_path / "alone", seed=2, vocab_size=1000)
    assert ids_of(tmp_path / "alone")["valid"] == ids_of(out)["valid"]
    assert make_corpus(pair, out, seed=2, vocab_size=1000) == manifest


def test_a_pair_is_dropped_for_either_side(tmp_path):
    targets = write_lines(tmp_path / "t", [[["a"] * n] for n in (1, 5, 5, 5, 5, 20)])
    sources = write_lines(tmp_path / "s", [[["b"] * n] for n in (5, 5, 30, 1, 4, 1)])
    pair, out = {"train": targets, "train_source": sources}, tmp_path / "out"
    manifest = make_corpus(pair, out, min_words=2, max_words=10)
    for entry in manifest.splits.values():
        assert entry.documents == 2
        # Of the last pair the document is too long, which comes before its source.
        assert entry.dropped_documents == {"min_words": 2, "max_words": 2, "max_unknown": 0}
    assert ids_of(out)["train"] == ["t:3", "t:9"]
    assert [*contents(out, "train_source").values()] == [[["b"] * 5], [["b"] * 4]]
    assert open_corpus(out, "train").vocabulary.counts[3:] == (10, 9)


def test_unknown_words_of_a_source_drop_the_pair(tmp_path):
    targets = write_lines(tmp_path / "t", [[["a", "a"]], [["a", "a"]]])
    sources = write_lines(tmp_path / "s", [[["a", "b"]], [["a", "a"]]])
    pair = {"train": targets, "train_source": sources}
    manifest = make_corpus(pair, tmp_path / "o", vocab_size=1, max_unknown=0.1)
    assert manifest.splits["train"].dropped_documents["max_unknown"] == 1
    assert ids_of(tmp_path / "o")["train"] == ["t:3"]


def test_the_command_takes_both_ways(tmp_path):
    targets, sources = write_pairs(tmp_path, 20)
    printed = launch(
        "prepare", "--input=T", "--input_source=S", "--output=out", cwd=tmp_path
    ).stdout
    table = printed[printed.index("split ") :].splitlines()
    assert [line.split()[0] for line in table[1:7]] == [*SPLITS, *SOURCES]
    for split in SPLITS:
        numbers = numbers_of(targets, tmp_path / "out", split)
        assert numbers == numbers_of(sources, tmp_path / "out", source_split(split))
    launch("prepare", "--train=T", "--train_source=S", "--output=given", cwd=tmp_path)
    assert len(contents(tmp_path / "given", "train_source")) == 20


def test_an_empty_document_is_named_since_it_would_shift_the_pairs(tmp_path):
    empty = '{"sentences": ["a"]}\n{"id": "none", "sentences": ["", []]}\n'
    targets = write(tmp_path / "t.jsonl", empty)
    sources = write_lines(tmp_path / "s", [[["a"]], [["b"]]])
    with pytest.raises(InputError, match="t.jsonl: none has no words; remove the pair"):
        make_corpus({"train": targets, "train_source": sources}, tmp_path / "o")
    assert not (tmp_path / "o").exists()
