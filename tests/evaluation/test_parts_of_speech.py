"""Sums by part of speech by hand, and tags of splits and of text."""

import math

import numpy as np
import pytest

from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.datasets import open_split, open_text
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.encoding import Encoder
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.data.readers import TextReader
from dclm_jax.evaluation import parts_of_speech
from dclm_jax.evaluation.parts_of_speech import TagClasses, classes
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


def by_hand() -> list[parts_of_speech.DocumentTags]:
    """NN 3, IN 2, NNS 1, VBD 1, UH 1, a comma and three ENDs, one of them of a sentence without
    words."""
    return [
        parts_of_speech.by_tag(
            tags,
            [np.array(of_sentence, np.float32) for of_sentence in nll],
            [np.ones(len(of_sentence), bool) for of_sentence in nll],
        )
        for tags, nll in (
            ([["NN", "IN", "NN", ",", "NNS", "VBD", "UH"]], [[1, 2, 3, 0.5, 4, 7, 5, 0.25]]),
            ([], []),
            ([["NN", "IN"], []], [[6, 2.5, 0.75], [0.125]]),
        )
    ]


def made(*groups: tuple[str, list[str], int, float]) -> TagClasses:
    """Classes of one document, by name, tags, number of targets and nats."""
    names, tags, tokens, nll = map(list, zip(*groups, strict=True))
    return TagClasses(names, tags, Sums(np.array([nll]), np.array([tokens])))


def test_classes_by_hand(monkeypatch):
    monkeypatch.setattr(parts_of_speech, "NUM_TAGS", 2)
    names, tags, sums = classes(by_hand())
    assert list(zip(names, tags, sums.nll.sum(axis=0), strict=True)) == [
        ("Noun", ["NN", "NNS"], 14.0),
        ("IN", ["IN"], 4.5),
        ("other", ["UH", "VBD"], 12.0),
        ("punctuation", [","], 0.5),
        ("END", ["END"], 1.125),
    ]
    # A document without sentences adds nothing.
    np.testing.assert_array_equal(sums.count, [[3, 1, 2, 1, 1], [0, 0, 0, 0, 0], [1, 1, 0, 0, 2]])
    np.testing.assert_array_equal(
        sums.nll, [[8, 2, 12, 0.5, 0.25], [0, 0, 0, 0, 0], [6, 2.5, 0, 0, 0.875]]
    )
    # NNS is not among the two most frequent tags, but its class is listed; ties by name.
    for num_tags, expected in (
        (4, ["Noun", "IN", "UH", "other", "punctuation", "END"]),
        (1, ["Noun", "other", "punctuation", "END"]),
        (10, ["Noun", "IN", "UH", "VBD", "punctuation", "END"]),
    ):
        monkeypatch.setattr(parts_of_speech, "NUM_TAGS", num_tags)
        assert classes(by_hand()).names == expected


def test_names_that_are_no_tags_are_explained():
    noun, preposition, verb = (
        ("Noun", ["NN", "NNS"], 4, 14.0),
        ("IN", ["IN"], 2, 4.5),
        ("Verb", ["VB"], 2, 4.5),
    )
    assert made(noun, preposition, verb).explained == "Noun = NN + NNS"
    assert made(preposition, verb).explained == ""


def test_perplexity_is_not_a_mean_of_perplexities_and_never_clipped():
    assert classes(by_hand()).sums.perplexities[0] == pytest.approx(math.exp(14 / 4))
    assert made(("UH", ["UH"], 2, 1500.0)).sums.perplexities.tolist() == [math.inf]


def test_a_tag_of_any_length_takes_no_more_than_itself():
    """As an array of strings of one length these would take 4 GB."""
    tags = ["NN", "X" * 50_000, "NN\0"] + ["NN"] * 20_000
    targets = len(tags) + 1
    document = parts_of_speech.by_tag(
        [tags], [np.ones(targets, np.float32)], [np.ones(targets, bool)]
    )
    assert sum(classes([document]).tokens) == len(tags) + 1


def test_the_table_and_json_by_value():
    models = {
        label: made(("Noun", ["NN", "NNS"], 3, 3 * math.log(noun)), ("END", ["END"], 1, end))
        for label, noun, end in (("rnnlm", 200, math.log(2)), ("b", 1500, math.log(4)))
    }
    assert parts_of_speech.class_table(models).splitlines() == [
        "class  targets   share   rnnlm         b",
        "-----  -------  ------  ------  --------",
        "Noun         3   75.0%  200.00  1,500.00",
        "END          1   25.0%    2.00      4.00",
        "-----  -------  ------  ------  --------",
        "all          4  100.0%   63.25    340.87",
        "Noun = NN + NNS",
    ]
    value = models["b"].to_json()
    assert list(value) == ["Noun", "END"]
    assert value["END"] == {
        "perplexity": pytest.approx(4),
        "nll": math.log(4),
        "tokens": 1,
        "tags": ["END"],
    }


def test_a_split_and_text_have_the_tags_of_their_words(tmp_path, caplog):
    text = tmp_path / "text.txt"
    text.write_text("the/at cat/nn sat/vbd\nthe/at rare/jj cat/nn\n\nthe/at cat/nn sat/vbd\n")
    corpus, options = tmp_path / "corpus", TextOptions("tagged")
    prepare({"test": text, "train": text}, corpus, options, PrepareOptions(vocab_size=3))
    vocabulary = open_corpus(corpus, "test").vocabulary
    assert vocabulary.decode([3, 4, 5]) == ["cat", "the", "sat"]
    for dataset in (
        open_split(vocabulary, corpus, "test"),
        open_text(Encoder(vocabulary), str(text), TextReader(options)),
    ):
        assert dataset.num_documents in (2, None)
        encoded = list(dataset.documents)
        ids = [[words.tolist() for words in document.sentences] for document in encoded]
        assert ids == [[[4, 3, 5], [4, 2, 3]], [[4, 3, 5]]]
        assert [document.tags for document in encoded] == [
            [["at", "nn", "vbd"], ["at", "jj", "nn"]],
            [["at", "nn", "vbd"]],
        ]


def test_text_without_tags_has_none(tmp_path, caplog):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat\n")
    prepare({"test": text, "train": text}, tmp_path / "corpus")
    vocabulary = open_corpus(tmp_path / "corpus", "test").vocabulary
    for dataset in (
        open_split(vocabulary, tmp_path / "corpus", "test"),
        open_text(Encoder(vocabulary), str(text), TextReader()),
    ):
        assert [document.tags for document in dataset.documents] == [None]
