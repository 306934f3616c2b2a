"""Sums by part of speech by hand, and tags of splits and of text."""

import math

import numpy as np
import pytest

from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.data.readers import TextReader
from dclm_jax.evaluation import parts_of_speech
from dclm_jax.evaluation.datasets import open_split, open_text
from dclm_jax.evaluation.parts_of_speech import TagClass, TagSums, sums_of
from dclm_jax.evaluation.significance import Sums


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("NNS", "Noun"),
        ("VBZ", "Verb"),
        ("VBD", "VBD"),
        ("NNP", "NNP"),
        (",", "punctuation"),
        ("``", "punctuation"),
        ("-LRB-", "punctuation"),
        ("PUN", "punctuation"),
        ("-NONE-", "-NONE-"),
    ],
)
def test_classes_of_tags(tag, expected):
    assert parts_of_speech.tag_class(tag) == expected


def by_hand() -> TagSums:
    """NN 3, IN 2, NNS 1, VBD 1, UH 1, a comma and three ENDs, one of them of a sentence without
    words; a second model gives 1 nat to every target."""
    sums = TagSums(2)
    for tags, nll in (
        ([["NN", "IN", "NN", ",", "NNS", "VBD", "UH"]], [[1, 2, 3, 0.5, 4, 7, 5, 0.25]]),
        ([], []),
        ([["NN", "IN"], []], [[6, 2.5, 0.75], [0.125]]),
    ):
        scores = [np.array(of_sentence, np.float32) for of_sentence in nll]
        sums.add(tags, [scores, [np.ones_like(of_sentence) for of_sentence in scores]])
    return sums


def made(name: str, tags: tuple[str, ...], tokens: int, *nll: float) -> TagClass:
    return TagClass(name, tags, Sums(np.array([nll]), np.array([[tokens]])))


def test_classes_by_hand(monkeypatch):
    monkeypatch.setattr(parts_of_speech, "NUM_TAGS", 2)
    classes = by_hand().classes()
    rows = [(*group[:2], group.tokens, *group.sums.nll.sum(axis=0)) for group in classes]
    assert rows == [
        ("Noun", ("NN", "NNS"), 4, 14.0, 4.0),
        ("IN", ("IN",), 2, 4.5, 2.0),
        ("other", ("UH", "VBD"), 2, 12.0, 2.0),
        ("punctuation", (",",), 1, 0.5, 1.0),
        ("END", ("END",), 3, 1.125, 3.0),
    ]
    # A document without sentences adds nothing.
    sums = sums_of(classes, 0)
    np.testing.assert_array_equal(sums.count, [[3, 1, 2, 1, 1], [1, 1, 0, 0, 2]])
    np.testing.assert_array_equal(sums.nll, [[8, 2, 12, 0.5, 0.25], [6, 2.5, 0, 0, 0.875]])
    np.testing.assert_array_equal(sums_of(classes, 1).nll, sums.count)
    # NNS is not among the two most frequent tags, but its class is listed; ties by name.
    for num_tags, names in (
        (4, ["Noun", "IN", "UH", "other", "punctuation", "END"]),
        (1, ["Noun", "other", "punctuation", "END"]),
        (10, ["Noun", "IN", "UH", "VBD", "punctuation", "END"]),
    ):
        monkeypatch.setattr(parts_of_speech, "NUM_TAGS", num_tags)
        assert [group.name for group in by_hand().classes()] == names


def test_names_that_are_no_tags_are_explained():
    classes = [
        made("Noun", ("NN", "NNS"), 4, 14.0),
        made("IN", ("IN",), 2, 4.5),
        made("Verb", ("VB",), 2, 4.5),
    ]
    assert parts_of_speech.explained(classes) == "Noun = NN + NNS"
    assert parts_of_speech.explained(classes[1:]) == ""


def test_perplexity_is_not_a_mean_of_perplexities_and_never_clipped():
    noun = by_hand().classes()[0]
    assert noun.sums.perplexities == pytest.approx([math.exp(14 / 4), math.e])
    interjection = made("UH", ("UH",), 2, 1500.0, 2.0)
    assert interjection.sums.perplexities.tolist() == [math.inf, math.e]


def test_a_tag_of_any_length_takes_no_more_than_itself():
    """As an array of strings of one length these would take 4 GB."""
    sums = TagSums(1)
    tags = ["NN", "X" * 50_000, "NN\0"] + ["NN"] * 20_000
    sums.add([tags], [[np.ones(len(tags) + 1, np.float32)]])
    assert sum(group.tokens for group in sums.classes()) == len(tags) + 1


def test_the_table_and_json_by_value():
    classes = [
        made("Noun", ("NN", "NNS"), 3, 3 * math.log(200), 3 * math.log(1500)),
        made("END", ("END",), 1, math.log(2), math.log(4)),
    ]
    assert parts_of_speech.table(classes, ["rnnlm", "b"]).splitlines() == [
        "class  targets   share   rnnlm         b",
        "-----  -------  ------  ------  --------",
        "Noun         3   75.0%  200.00  1,500.00",
        "END          1   25.0%    2.00      4.00",
        "-----  -------  ------  ------  --------",
        "all          4  100.0%   63.25    340.87",
        "Noun = NN + NNS",
    ]
    value = parts_of_speech.to_json(classes, 1)
    assert list(value) == ["Noun", "END"]
    assert value["END"] == {
        "perplexity": pytest.approx(4),
        "nll": math.log(4),
        "tokens": 1,
        "tags": ["END"],
    }


def test_a_split_and_text_have_the_tags_of_their_words(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the/at cat/nn sat/vbd\nthe/at rare/jj cat/nn\n\nthe/at cat/nn sat/vbd\n")
    corpus, options = tmp_path / "corpus", TextOptions("tagged")
    prepare({"test": text, "train": text}, corpus, options, PrepareOptions(vocab_size=3))
    vocabulary = open_corpus(corpus, "test").vocabulary
    assert vocabulary.decode([3, 4, 5]) == ["cat", "the", "sat"]
    for dataset in (
        open_split(vocabulary, corpus, "test"),
        open_text(vocabulary, str(text), TextReader(options)),
    ):
        assert dataset.num_documents in (2, None)
        encoded = list(dataset.documents)
        ids = [[words.tolist() for words in document.sentences] for document in encoded]
        assert ids == [[[4, 3, 5], [4, 2, 3]], [[4, 3, 5]]]
        assert [document.tags for document in encoded] == [
            [["at", "nn", "vbd"], ["at", "jj", "nn"]],
            [["at", "nn", "vbd"]],
        ]


def test_text_without_tags_has_none(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat\n")
    prepare({"test": text, "train": text}, tmp_path / "corpus")
    vocabulary = open_corpus(tmp_path / "corpus", "test").vocabulary
    for dataset in (
        open_split(vocabulary, tmp_path / "corpus", "test"),
        open_text(vocabulary, str(text), TextReader()),
    ):
        assert [document.tags for document in dataset.documents] == [None]
