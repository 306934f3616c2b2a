"""Documents that `prepare` leaves out or cuts, against loops over lists of words."""

import collections
from typing import Any

import numpy as np
import pytest

from dclm_jax.data import numbering, prepare, statistics_table
from dclm_jax.data.prepare import PrepareOptions
from tests.data.support import contents
from tests.launch.support import launch, refuse

SPLITS = ("train", "valid", "test")


def random_documents(seed, count):
    rng = np.random.default_rng(seed)
    return [
        [
            [f"w{int(word)}" for word in rng.geometric(0.15, rng.integers(1, 9))]
            for _ in range(rng.integers(1, 6))
        ]
        for _ in range(count)
    ]


def write(path, documents):
    lines = ["\n".join(" ".join(words) for words in document) for document in documents]
    path.write_text("\n\n".join(lines) + "\n")
    return path


def num_words(document):
    return sum(map(len, document))


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
    paths = {split: write(tmp_path / split, documents) for split, documents in texts.items()}
    options: dict[str, Any] = dict(min_words=6, max_words=20, max_unknown=0.1)
    manifest = prepare(paths, tmp_path / "out", options=PrepareOptions(vocab_size=12, **options))
    left, reasons = expected_splits(texts, **options, size=12)
    for split, entry in manifest.splits.items():
        assert list(contents(tmp_path / "out", split).values()) == left[split]
        dropped = entry.dropped_documents
        assert dropped == {reason: reasons[split][reason] for reason in dropped}
        assert min(dropped.values()) > 0
        assert entry.documents + sum(dropped.values()) == 80
    assert {name: manifest.options[name] for name in options} == options
    first = reasons["train"]
    assert (
        f"documents dropped from train: {first['min_words']} by min_words, "
        f"{first['max_words']} by max_words, {first['max_unknown']} by max_unknown"
    ) in statistics_table(manifest).splitlines()


def test_limits_are_within_what_is_kept(tmp_path):
    # 29 words of 100 are outside; 0.29 * 100 in floating point is below 29.
    text = write(tmp_path / "t", [[["a"] * 71 + ["b"] * 29], [["a"] * 200]])
    options: dict[str, Any] = dict(min_words=100, max_words=200, max_unknown=0.29, vocab_size=1)
    manifest = prepare({"train": text}, tmp_path / "out", options=PrepareOptions(**options))
    assert manifest.splits["train"].documents == 2
    assert manifest.splits["train"].oov_tokens == 29
    limits: dict[str, Any] = dict(min_words=101, max_words=199, max_unknown=0.28)
    for name, value in limits.items():
        narrower = PrepareOptions(**(options | {name: value}))
        other = prepare({"train": text}, tmp_path / name, options=narrower)
        assert other.splits["train"].dropped_documents[name] == 1
        assert other.splits["train"].documents == 1


def test_own_unknown_token_counts_as_unknown_and_given_vocabularies_are_used(tmp_path):
    text = write(tmp_path / "t", [[["a", "<unk>"]], [["a", "b"]], [["a", "a"]]])
    (tmp_path / "v.tsv").write_text("<START>\n<END>\n<UNKNOWN>\na\nc\n")
    manifest = prepare(
        {"test": text},
        tmp_path / "out",
        options=PrepareOptions(
            vocabulary=tmp_path / "v.tsv", unknown_token="<unk>", max_unknown=0.4
        ),
    )
    assert manifest.splits["test"].dropped_documents["max_unknown"] == 2
    assert list(contents(tmp_path / "out", "test").values()) == [[["a", "a"]]]


def test_which_split_a_document_is_in_does_not_depend_on_filters(tmp_path):
    text = write(tmp_path / "t", random_documents(5, 60))
    prepare(text, tmp_path / "all", options=PrepareOptions(seed=3))
    prepare(text, tmp_path / "some", options=PrepareOptions(seed=3, min_words=10))
    for split in SPLITS:
        before, after = (contents(tmp_path / name, split) for name in ("all", "some"))
        assert list(after) == [name for name, one in before.items() if num_words(one) >= 10]
    assert sum(len(contents(tmp_path / "some", split)) for split in SPLITS) < 60


def test_long_documents_are_cut_between_sentences(tmp_path):
    lengths = [[3, 3, 4, 1, 9, 2], [10], [4, 5], [12, 1]]
    documents = [[["x"] * length for length in own] for own in lengths]
    text = write(tmp_path / "t", documents)
    prepare({"train": text}, tmp_path / "out", options=PrepareOptions(split_documents_at=10))
    found = {name: [*map(len, one)] for name, one in contents(tmp_path / "out", "train").items()}
    # A sentence of 12 words is a document by itself.
    assert found == {
        "t:1#1": [3, 3, 4],
        "t:1#2": [1, 9],
        "t:1#3": [2],
        "t:8": [10],
        "t:10": [4, 5],
        "t:13#1": [12],
        "t:13#2": [1],
    }
    manifest = prepare(
        {"train": text},
        tmp_path / "filtered",
        options=PrepareOptions(split_documents_at=10, max_words=10),
    )
    assert manifest.splits["train"].documents == 6
    assert manifest.options["split_documents_at"] == 10


def test_pieces_of_a_document_are_in_one_split_and_keep_its_words(tmp_path):
    documents = random_documents(7, 60)
    text = write(tmp_path / "t", documents)
    prepare(text, tmp_path / "whole", options=PrepareOptions(seed=1, vocab_size=1000))
    prepare(
        text,
        tmp_path / "cut",
        options=PrepareOptions(seed=1, vocab_size=1000, split_documents_at=8),
    )
    for split in SPLITS:
        whole, cut = (contents(tmp_path / name, split) for name in ("whole", "cut"))
        joined = collections.defaultdict(list)
        for name, sentences in cut.items():
            assert num_words(sentences) <= 8
            joined[name.split("#")[0]] += sentences
        assert {name: [*map(len, one)] for name, one in joined.items()} == {
            name: [*map(len, one)] for name, one in whole.items()
        }
        assert len(cut) > len(whole)


def test_empty_sentences_of_cut_documents_are_counted_once(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"sentences": ["a b", "", "c d", "e f"]}\n')
    manifest = prepare(
        {"train": tmp_path / "t.jsonl"},
        tmp_path / "out",
        options=PrepareOptions(split_documents_at=2),
    )
    entry = manifest.splits["train"]
    assert (entry.documents, entry.empty_sentences) == (3, 1)


def test_when_nothing_is_left_the_line_names_the_flags(tmp_path):
    train = write(tmp_path / "train", [[["a"] * 5], [["b"] * 5]])
    test = write(tmp_path / "test", [[["a"]], [["a"] * 9], [["c"] * 5]])
    out = tmp_path / "out"
    flags = (f"--train={train}", f"--test={test}", f"--output={out}", "--min_words=2")
    error = refuse("prepare", *flags, "--max_words=8", "--max_unknown=0.5")
    assert error == (
        "error: the filters drop all 3 documents of test: "
        "--min_words 1, --max_words 1, --max_unknown 1"
    )
    error = refuse("prepare", *flags, "--max_words=4")
    assert error == "error: the filters drop all 2 documents of train: --max_words 2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test", "train"]


def test_the_command_filters_reviews_that_are_a_line_each(tmp_path):
    pytest.importorskip("sentencex")
    text = tmp_path / "reviews.txt"
    text.write_text("Nice room. We liked it!\nBad.\n\nThe bed (No. 2) broke. It was old.\n")
    out = tmp_path / "out"
    flags = (f"--input={text}", "--format=paragraphs", "--lowercase", "--split=1,0,0")
    done = launch("prepare", *flags, "--min_words=5", f"--output={out}")
    assert "documents dropped from train: 1 by min_words" in done.stdout.splitlines()
    assert contents(out, "train") == {
        "reviews.txt:1": [["nice", "room", "."], ["we", "liked", "it", "!"]],
        "reviews.txt:4": [
            ["the", "bed", "(", "no.", "2", ")", "broke", "."],
            ["it", "was", "old", "."],
        ],
    }
    again = launch("prepare", *flags, "--min_words=5", f"--output={out}")
    assert again.stdout.startswith("reusing")
