"""A trained model as people use it in Python: tables, mixtures, raw text, what it prints."""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.corpus import TrainingText
from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.errors import InputError
from tests.test_read_document import TEXT, language_model

DOCUMENTS = [TEXT, ["dogs bark .", "the unheard dogs ."]]
GAPS = [["", *TEXT[:1], " ", *TEXT[1:]], [], DOCUMENTS[1], [[]]]
"""The same with sentences and documents without words."""
LEFT_OUT = "sentences without words were left out: 3"


def test_it_shows_itself_in_a_line():
    lm = language_model("ccdclm")
    for one in (lm, lm.read(TEXT), lm.vocabulary):
        assert len(repr(one)) < 200, repr(one)
    assert f"{lm.num_parameters:,} parameters" in repr(lm)
    assert f"{len(lm.vocabulary):,} entries" in repr(lm)


def test_surprisals_are_a_table_of_the_scores():
    lm = language_model("ccdclm")
    columns = lm.surprisals([Document("first", [s.split() for s in TEXT]), DOCUMENTS[1]])
    expected = [
        (name, number, position, token, -log_prob, known)
        for name, document in zip(("first", "1"), lm.score(DOCUMENTS), strict=True)
        for number, sentence in enumerate(document.sentences, start=1)
        for position, (token, log_prob, known) in enumerate(
            zip(sentence.tokens, sentence.log_probs, sentence.known, strict=True), start=1
        )
    ]
    assert [*zip(*(column.tolist() for column in columns.values()), strict=True)] == expected
    assert list(columns) == ["document", "sentence", "position", "word", "surprisal", "known"]
    kinds = [column.dtype.kind for column in columns.values()]
    assert kinds == ["O", "i", "i", "O", "f", "b"]
    assert not columns["known"].all()
    assert {len(column) for column in lm.surprisals([]).values()} == {0}


def test_surprisals_alone_stand_beside():
    lm = language_model("codclm")
    (plain, both) = (lm.surprisals(DOCUMENTS, no_context_too=one) for one in (False, True))
    *_, known = names = [*plain]
    assert [*both] == [*names[:-1], "surprisal_no_context", known]
    assert all(both[name].tolist() == column.tolist() for name, column in plain.items())
    sentences = [[sentence] for document in DOCUMENTS for sentence in document]
    by_itself = lm.surprisals(sentences)["surprisal"]
    np.testing.assert_allclose(both["surprisal_no_context"], by_itself, rtol=1e-5, atol=1e-6)
    assert not np.allclose(both["surprisal"], by_itself)
    assert len(lm.surprisals([], no_context_too=True)["surprisal_no_context"]) == 0
    # A mixture has no reader.
    mixture = dclm_jax.mix(lm, language_model("rnnlm"), 0.0)
    (document,) = mixture.score([DOCUMENTS[0]], no_context_too=True)
    (of_rnnlm,) = language_model("rnnlm").score([DOCUMENTS[0]])
    for one, other in zip(document.sentences, of_rnnlm.sentences, strict=True):
        np.testing.assert_allclose(one.log_probs_no_context or [], other.log_probs, rtol=1e-5)


def test_attention_has_the_words_of_targets_and_positions():
    document = ["the cat sat .", "it unheard .", "it"]
    first, second, third = language_model("adclm").attention(document)
    assert (first.targets, first.positions) == (["the", "cat", "sat", ".", "<END>"], ["c_0"])
    assert second.targets == ["it", "unheard", ".", "<END>"]
    assert second.positions == ["<START>", "the", "cat", "sat", "."]
    before = ["<START>", "it", "unheard", "."]
    assert (third.targets, third.positions) == (["it", "<END>"], before)
    assert second.weights.shape == (4, 5) and second.weights.dtype == np.float32
    # n is 2.
    sentences = language_model("rlm_seqbow_att_ef").attention([*document[:2], "dogs .", "it ."])
    assert [one.positions for one in sentences] == [
        [],
        ["the cat sat ."],
        ["the cat sat .", "it unheard ."],
        ["it unheard .", "dogs ."],
    ]
    assert [one.weights.shape for one in sentences] == [(5, 0), (4, 1), (3, 2), (3, 2)]


def warns(message):
    """One warning, and it names the line of the caller."""
    return pytest.warns(UserWarning, match=f"^{re.escape(message)}$")


def is_told_once_here(told):
    return [one.filename for one in told] == [__file__]


def test_sentences_without_words_are_neither_scored_nor_read():
    lm = language_model("ccdclm")
    expected = [*lm.score(DOCUMENTS)]
    with warns(LEFT_OUT) as told:
        scores = list(lm.score(GAPS))
    assert is_told_once_here(told)
    assert [one.id for one in scores] == ["0", "1", "2", "3"]
    lengths = [[len(one.tokens) for one in document.sentences] for document in scores]
    assert lengths == [[0, 5, 0, 4], [], [4, 5], [0]]
    with_words = [[one for one in document.sentences if one.tokens] for document in scores]
    assert [one for one in with_words if one] == [one.sentences for one in expected]
    assert [one.log_prob for one in scores] == [expected[0].log_prob, 0, expected[1].log_prob, 0]


def test_numbers_of_sentences_are_those_of_the_caller():
    lm = language_model("ccdclm")
    expected = lm.surprisals(DOCUMENTS, no_context_too=True)
    with warns(LEFT_OUT) as told:
        columns = lm.surprisals(GAPS, no_context_too=True)
    assert is_told_once_here(told)
    for name in ("position", "word", "surprisal", "surprisal_no_context", "known"):
        assert columns[name].tolist() == expected[name].tolist()
    places = [("0", 2), ("0", 4), ("2", 1), ("2", 2)]
    assert [*dict.fromkeys(zip(columns["document"], columns["sentence"], strict=True))] == places


def test_perplexities_and_weights_are_those_of_the_words():
    lm, other = language_model("ccdclm"), language_model("rnnlm")
    for measure in (
        lm.perplexity,
        lambda documents: dclm_jax.mix(lm, other, tune_on=documents).config["weight"],
    ):
        expected = measure(DOCUMENTS)
        with warns(f"{LEFT_OUT}; documents without words: 2") as told:
            assert measure(GAPS) == expected
        assert is_told_once_here(told)
    measured = lm.perplexity(DOCUMENTS)
    assert (measured.documents, measured.sentences) == (2, 4)


def test_sentences_are_ordered_by_their_numbers_of_the_caller():
    lm = language_model("ccdclm")
    expected = lm.order(["the cat sat .", "it slept .", "dogs bark ."])
    with warns("sentences without words were left out: 2") as told:
        found = lm.order(["", "the cat sat .", "it slept .", [], "dogs bark ."])
    assert is_told_once_here(told)
    assert found == expected._replace(order=[[1, 2, 4][i] for i in expected.order])


def test_contexts_and_ids_are_those_of_the_words():
    lm = language_model("ccdclm")
    with_gaps = ["", *TEXT[:1], [], *TEXT[1:]]
    for call in (
        lambda sentences: lm.read(sentences).vector.tolist(),
        lambda sentences: lm.read().read(*sentences).vector.tolist(),
        lambda sentences: [ids.tolist() for ids in lm.encode(sentences)],
        lambda sentences: [texts for _, texts in lm.generate([sentences], 1, max_sentence_words=3)],
    ):
        expected = call(TEXT)
        with warns("sentences without words were left out: 2") as told:
            assert call(with_gaps) == expected
        assert is_told_once_here(told)
    with warns(LEFT_OUT):
        texts = list(lm.generate(GAPS, 1, max_sentence_words=3))
    assert [document for document, _ in texts] == GAPS
    autoencoder = language_model("standard_autoencoder")
    expected = autoencoder.read(TEXT, source=TEXT).vector.tolist()
    with warns("sentences without words were left out: 4") as told:
        assert autoencoder.read(with_gaps, source=with_gaps).vector.tolist() == expected
    assert is_told_once_here(told)


def test_attention_of_a_sentence_without_words_is_none():
    lm = language_model("adclm")
    expected = lm.attention(TEXT)
    with warns("sentences without words were left out: 1"):
        first, nothing, second = lm.attention([TEXT[0], "", TEXT[1]])
    assert (nothing.targets, nothing.positions, nothing.weights.shape) == ([], [], (0, 0))
    for got, one in zip((first, second), expected, strict=True):
        assert (got.targets, got.positions) == (one.targets, one.positions)
        assert got.weights.tolist() == one.weights.tolist()


@pytest.mark.parametrize("documents", [[], [[]], [["", " "], [[]]]])
def test_a_measure_of_no_words_is_refused(documents):
    lm = language_model("ccdclm")
    for measure, purpose in (
        (lm.perplexity, "score"),
        (lambda documents: dclm_jax.mix(lm, lm, tune_on=documents), "tune the weight on"),
        (lambda documents: lm.order(documents[0] if documents else []), "put in order"),
    ):
        with pytest.raises(InputError, match=f"there are no words to {purpose}; "):
            measure(documents)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_a_mixture_has_the_weighted_probabilities(weight):
    first, second = language_model("ccdclm"), language_model("rnnlm")
    mixture = dclm_jax.mix(first, second, weight)
    tables = [lm.surprisals(DOCUMENTS)["surprisal"] for lm in (first, second, mixture)]
    p, q, mixed = (np.exp(-table) for table in tables)
    np.testing.assert_allclose(mixed, weight * p + (1 - weight) * q, rtol=1e-6)
    measured = mixture.perplexity(DOCUMENTS)
    assert measured.nll == pytest.approx(tables[-1].sum())
    assert mixture.scorer.context_order is None
    assert dclm_jax.mix(second, second, 0.5).scorer.context_order == 0
    with pytest.raises(InputError, match="a mixture scores documents"):
        mixture.read(TEXT)


def test_the_weight_of_a_mixture_is_found_on_documents():
    first, second = language_model("ccdclm"), language_model("rnnlm")
    mixture = dclm_jax.mix(first, second, tune_on=DOCUMENTS)
    p, q = (np.exp(-lm.surprisals(DOCUMENTS)["surprisal"]) for lm in (first, second))
    weights = np.linspace(0, 1, 1001)[:, None]
    best = np.log(weights * p + (1 - weights) * q).sum(axis=1).argmax()
    assert mixture.config["weight"] == pytest.approx(weights[best, 0], abs=2e-3)


def test_raw_text_is_scored_and_read_on_from():
    pytest.importorskip("sentencex")
    pytest.importorskip("sacremoses")
    raw = TrainingText(TextOptions("prose", lowercase=True))
    lm = dataclasses.replace(language_model("ccdclm"), text=raw)
    (score,) = lm.score_text("The cat sat. It slept.")
    assert [one.text for one in score.sentences] == ["the cat sat .", "it slept ."]
    place = lm.read_text("The cat sat. It slept.")
    assert place.vector.tolist() == lm.read(["the cat sat .", "it slept ."]).vector.tolist()
    (candidate,) = place.score(lm.documents("Dogs bark.")[0].sentences)
    assert candidate.log_prob == place.score(["dogs bark ."])[0].log_prob
    with pytest.raises(InputError, match="the text holds 2 documents; expected one"):
        lm.read_text("The cat sat.\n=\nIt slept.")


def test_a_string_has_no_tags_though_the_training_text_had():
    tagged = TrainingText(TextOptions("tagged", lowercase=True))
    lm = dataclasses.replace(language_model("ccdclm"), text=tagged)
    assert [one.sentences for one in lm.documents("The cat\nsat .")] == [
        [["the", "cat"], ["sat", "."]]
    ]
    assert [one.id for one in lm.documents("The cat\n\nsat .", name="a")] == ["a:1", "a:3"]
    (document,) = lm.documents("The/AT cat/NN", TextOptions("tagged"))
    assert document.sentences == [["The", "cat"]]
    # A short string is not taken for tagged text.
    (document,) = language_model("rnnlm").documents("TCP/IP HTTP/TLS A/B C/D")
    assert document.sentences == [["TCP/IP", "HTTP/TLS", "A/B", "C/D"]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda lm: lm.read([]).generate("2"), "num_sentences is '2'; expected a whole"),
        (lambda lm: lm.read([]).generate(2, "beam"), "decoding is 'beam'; expected one such as"),
        (lambda lm: [*lm.score("The cat.")], "(for raw text: score_text)"),
        (
            lambda lm: [*lm.score(["the cat .", "it ."])],
            'such as ["a sentence .", "another one',
        ),
        (lambda lm: lm.perplexity("The cat."), "documents are 'The cat.'; expected a list of"),
        (lambda lm: lm.read("the cat ."), "a document is 'the cat .'; expected a list of sent"),
        (lambda lm: [*lm.score([[[3, 4]]])], "a word is 3; expected a string without white space"),
        (lambda lm: [*lm.score([3])], "a document is 3; expected a list of sentences"),
        (lambda lm: dclm_jax.mix(lm, lm), "expected a weight, or tune_on=documents"),
        (lambda lm: dclm_jax.mix(lm, lm, 0.5, tune_on=[]), "expected a weight, or tune_on"),
        (lambda lm: dclm_jax.mix(lm, lm, 1.5), "the weight is 1.5; expected a number from 0 to 1"),
        (lambda lm: dclm_jax.mix(lm, lm, float("nan")), "the weight is nan"),
        (lambda lm: lm.read_text(" \n"), "text: holds no documents"),
        (lambda lm: lm.score_text("\ud800"), "text holds half of a surrogate pair"),
        (lambda lm: lm.documents("a", TextOptions("sotu")), "unknown format 'sotu'; expected one"),
        (
            lambda lm: lm.attention(["the cat ."]),
            "rnnlm has no attention to earlier sentences; expected one of adclm",
        ),
        (
            lambda lm: dclm_jax.mix(lm, lm, 0.5).attention([]),
            "mixture has no attention to sentences before",
        ),
        (
            lambda lm: [*language_model("standard_autoencoder").score([], no_context_too=True)],
            "a score without context needs a language model, and standard_autoencoder is an auto",
        ),
        (lambda lm: [*lm.score(5)], "documents are 5; expected a list of them"),
        (lambda lm: lm.surprisals(None), "documents are None; expected a list of them"),
        (
            lambda lm: [*dclm_jax.mix(lm, lm, 0.5).vectors([TEXT])],
            "a mixture scores documents; it does not score inc",
        ),
    ],
)
def test_what_is_of_another_kind_is_told_the_right_call(wrong: Any, message):
    with pytest.raises(InputError, match=re.escape(message)):
        wrong(language_model("rnnlm"))
