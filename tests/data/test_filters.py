"""Documents that `prepare` leaves out or cuts, against loops over lists of words."""

import collections
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dclm_jax.data import numbering
from dclm_jax.data.corpus import SPLITS, statistics_table
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.errors import InputError
from tests.data.support import contents, make_corpus, write, write_lines


def random_documents(seed, count):
    rng = np.random.default_rng(seed)
    return [
        [
            [f"w{int(word)}" for word in rng.geometric(0.15, rng.integers(1, 9))]
            for _ in range(rng.integers(1, 6))
        ]
        for _ in range(count)
    ]


def num_words(document):
    return sum(map(len, document))


def lengths_of(documents):
    return {name: list(map(len, document)) for name, document in documents.items()}


def flat(document):
    return [word for sentence in document for word in sentence]


def expected_splits(texts, min_words, max_words, max_unknown, size):
    """What is left of each split, unknown words spelt so, and why the rest is not there."""
    reasons = {split: collections.Counter() for split in texts}
    kept = {}
    for split, documents in texts.items():
        kept[split] = []
        for document in documents:
            if num_words(document) < min_words:
                reasons[split]["min_words"] += 1
            elif num_words(document) > max_words:
                reasons[split]["max_words"] += 1
            else:
                kept[split].append(document)
    counts = collections.Counter(word for document in kept["train"] for word in flat(document))
    known = set(sorted(counts, key=lambda word: (-counts[word], word))[:size])
    left = {}
    for split, documents in kept.items():
        left[split] = []
        for document in documents:
            unknown = [word for word in flat(document) if word not in known]
            if len(unknown) / num_words(document) > max_unknown:
                reasons[split]["max_unknown"] += 1
            else:
                spelt = [[w if w in known else "<UNKNOWN>" for w in s] for s in document]
                left[split].append(spelt)
    return left, reasons


@pytest.mark.parametrize("chunk", [1 << 20, 7])
def test_filters_against_a_loop(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(numbering, "_CHUNK", chunk)
    texts = {split: random_documents(seed, 80) for seed, split in enumerate(SPLITS)}
    paths = {split: write_lines(tmp_path / split, texts[split]) for split in SPLITS}
    options: dict[str, Any] = dict(min_words=6, max_words=20, max_unknown=0.1)
    manifest = make_corpus(paths, tmp_path / "out", vocab_size=12, **options)
    left, reasons = expected_splits(texts, **options, size=12)
    for split, entry in manifest.splits.items():
        assert list(contents(tmp_path / "out", split).values()) == left[split]
        dropped = entry.dropped_documents
        assert dropped == {reason: reasons[split][reason] for reason in dropped}
        assert min(dropped[reason] for reason in options) > 0
        assert entry.documents + sum(dropped.values()) == 80
    assert {name: manifest.options[name] for name in options} == options
    first = reasons["train"]
    assert (
        f"documents dropped from train: {first['min_words']} by min_words, "
        f"{first['max_words']} by max_words, {first['max_unknown']} by max_unknown"
    ) in statistics_table(manifest).splitlines()


def repeated_documents(directory: Path, copies: dict[str, int]) -> Path:
    """A text with documents of two words, as often as `copies` says; the copies differ in case and
    in where a sentence ends."""
    documents = [
        [[word.upper(), "x"]] if number % 2 else [[word], ["x"]]
        for word, times in copies.items()
        for number in range(times)
    ]
    return write_lines(directory / "text", documents)


@pytest.mark.parametrize("seed", range(4))
def test_equal_documents_are_in_one_split_of_its_size(tmp_path, seed, caplog):
    copies = {f"w{number}": 1 + number % 3 for number in range(40)} | {"many": 20}
    text = repeated_documents(tmp_path, copies)
    total, out = sum(copies.values()), tmp_path / "out"
    entries = "".join(f"{word}\t1\n" for word in ("<START>", "<END>", "<UNKNOWN>", "x", *copies))
    options: dict[str, Any] = dict(seed=seed, fractions=[0.5, 0.25, 0.25], lowercase=True)
    options["vocabulary"] = write(tmp_path / "vocabulary.tsv", entries)
    manifest = make_corpus(text, out, **options)
    words = {split: [flat(d)[0] for d in contents(out, split).values()] for split in SPLITS}
    sizes = [manifest.splits[split].documents for split in SPLITS]
    assert sum(sizes) == total and [round(4 * size / total) for size in sizes] == [2, 1, 1]
    assert {word: sum(of.count(word) for of in words.values()) for word in copies} == copies
    sets = [set(of) for of in words.values()]
    assert sum(map(len, sets)) == len(copies)
    within = [f"{name} {len(of) - len(set(of))}" for name, of in words.items()]
    assert (
        f"documents with the words of an earlier document of their split: {', '.join(within)}; "
        "--deduplicate keeps one of each"
    ) in caplog.messages
    assert "word for word" not in caplog.text

    caplog.clear()
    manifest = make_corpus(text, tmp_path / "one", deduplicate=True, **options)
    kept = [flat(d)[0] for split in SPLITS for d in contents(tmp_path / "one", split).values()]
    assert sorted(kept) == sorted(copies)
    assert "words of an earlier document" not in caplog.text
    dropped = [entry.dropped_documents["deduplicate"] for entry in manifest.splits.values()]
    assert sum(dropped) == total - len(copies)
    assert f"documents dropped from train: {dropped[0]} by deduplicate" in (
        statistics_table(manifest).splitlines()
    )


def test_equal_documents_of_two_given_splits_are_counted(tmp_path, caplog):
    paths = {
        "train": write_lines(tmp_path / "a", [[["a"]], [["b"]], [["b"]], [["c", "d"]] * 3]),
        "valid": write_lines(tmp_path / "b", [[["e"]]]),
        "test": write_lines(tmp_path / "c", [[["b"]], [["e"]], [["f"]], [["c", "d"]] * 3]),
    }
    # Each piece of a document is a document: three of `c d`.
    make_corpus(paths, tmp_path / "out", split_documents_at=2)
    assert (
        "documents word for word in two splits: 4 of 6 of test are also in train, "
        "1 of 6 of test are also in valid; add --deduplicate to keep one of each"
    ) in caplog.messages
    assert "of an earlier document of their split: train 3, test 2; " in caplog.text
    for name, options in {"whole": {}, "cut": {"split_documents_at": 2}}.items():
        make_corpus(paths, tmp_path / name, deduplicate=True, **options)
        left = {split: len(contents(tmp_path / name, split)) for split in SPLITS}
        assert left == {"train": 3, "valid": 1, "test": 1}


def test_a_text_of_one_document_many_times_cannot_be_divided(tmp_path):
    text = repeated_documents(tmp_path, {"a": 20})
    with pytest.raises(InputError, match="text: 1 document is too few to split as 0.8,0.1,0.1"):
        make_corpus(text, tmp_path / "out", lowercase=True)


def test_limits_are_within_what_is_kept(tmp_path):
    # 29 words of 100 are outside; 0.29 * 100 in floating point is below 29.
    text = write_lines(tmp_path / "t", [[["a"] * 71 + ["b"] * 29], [["a"] * 200]])
    options: dict[str, Any] = dict(min_words=100, max_words=200, max_unknown=0.29, vocab_size=1)
    manifest = make_corpus({"train": text}, tmp_path / "out", **options)
    assert manifest.splits["train"].documents == 2
    assert manifest.splits["train"].oov_tokens == 29
    limits: dict[str, Any] = dict(min_words=101, max_words=199, max_unknown=0.28)
    for name, value in limits.items():
        other = make_corpus({"train": text}, tmp_path / name, **(options | {name: value}))
        assert other.splits["train"].dropped_documents[name] == 1
        assert other.splits["train"].documents == 1


def test_own_unknown_token_counts_as_unknown_and_given_vocabularies_are_used(tmp_path):
    text = write_lines(tmp_path / "t", [[["a", "<unk>"]], [["a", "b"]], [["a", "a"]]])
    vocabulary = write(tmp_path / "v.tsv", "<START>\t1\n<END>\t1\n<UNKNOWN>\t0\na\t1\nc\t1\n")
    options: dict[str, Any] = dict(vocabulary=vocabulary, unknown_token="<unk>", max_unknown=0.4)
    manifest = make_corpus({"test": text}, tmp_path / "out", **options)
    assert manifest.splits["test"].dropped_documents["max_unknown"] == 2
    assert list(contents(tmp_path / "out", "test").values()) == [[["a", "a"]]]


def test_which_split_a_document_is_in_does_not_depend_on_filters(tmp_path):
    text = write_lines(tmp_path / "t", random_documents(5, 60))
    make_corpus(text, tmp_path / "all", seed=3)
    make_corpus(text, tmp_path / "some", seed=3, min_words=10)
    for split in SPLITS:
        before, after = (contents(tmp_path / name, split) for name in ("all", "some"))
        assert list(after) == [name for name in before if num_words(before[name]) >= 10]
    assert sum(len(contents(tmp_path / "some", split)) for split in SPLITS) < 60


def test_long_documents_are_cut_between_sentences(tmp_path):
    lengths = [[3, 3, 4, 1, 9, 2], [10], [4, 5], [12, 1]]
    documents = [[["x"] * length for length in document] for document in lengths]
    text = write_lines(tmp_path / "t", documents)
    make_corpus({"train": text}, tmp_path / "out", split_documents_at=10)
    # A sentence of 12 words is a document of its own.
    assert lengths_of(contents(tmp_path / "out", "train")) == {
        "t:1#1": [3, 3, 4],
        "t:1#2": [1, 9],
        "t:1#3": [2],
        "t:8": [10],
        "t:10": [4, 5],
        "t:13#1": [12],
        "t:13#2": [1],
    }
    options: dict[str, Any] = dict(split_documents_at=10, max_words=10)
    manifest = make_corpus({"train": text}, tmp_path / "filtered", **options)
    assert manifest.splits["train"].documents == 6
    assert manifest.options["split_documents_at"] == 10


def test_pieces_of_a_document_are_in_one_split_and_keep_its_words(tmp_path):
    text = write_lines(tmp_path / "t", random_documents(7, 60))
    make_corpus(text, tmp_path / "whole", seed=1, vocab_size=1000)
    make_corpus(text, tmp_path / "cut", seed=1, vocab_size=1000, split_documents_at=8)
    for split in SPLITS:
        whole, cut = (contents(tmp_path / name, split) for name in ("whole", "cut"))
        joined = collections.defaultdict(list)
        for name, sentences in cut.items():
            assert num_words(sentences) <= 8
            joined[name.split("#")[0]] += sentences
        assert lengths_of(joined) == lengths_of(whole)
        assert len(cut) > len(whole)


def test_empty_sentences_are_counted(tmp_path, caplog):
    lines = '{"sentences": ["a b", "", "c d", "e f"]}\n{"sentences": [[], "", "c"]}\n'
    text = write(tmp_path / "t.jsonl", lines)
    options = PrepareOptions(split_documents_at=2)
    manifest = prepare({"train": text}, tmp_path / "out", options=options)
    entry = manifest.splits["train"]
    assert (entry.documents, entry.sentences) == (4, 4)
    assert "sentences without words omitted: 3" in caplog.messages


@pytest.mark.parametrize(
    ("max_words", "message"),
    [
        (8, r"all 3 .* test \(1 by --min_words, 1 by --max_words, 1 by --max_unknown\); relax"),
        (4, r"all 2 documents of train \(2 by --max_words\); relax"),
    ],
)
def test_when_nothing_is_left_the_line_names_the_flags(tmp_path, max_words, message):
    train = write_lines(tmp_path / "train", [[["a"] * 5], [["b"] * 5]])
    test = write_lines(tmp_path / "test", [[["a"]], [["a"] * 9], [["c"] * 5]])
    options: dict[str, Any] = dict(min_words=2, max_words=max_words, max_unknown=0.5)
    with pytest.raises(InputError, match=message):
        make_corpus({"train": train, "test": test}, tmp_path / "out", **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test", "train"]
