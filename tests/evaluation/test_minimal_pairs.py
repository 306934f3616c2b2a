"""Minimal pairs against brute force: every sentence of every pair scored alone."""

import re
import types
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.evaluation.minimal_pairs import (
    PER_TARGET,
    TOTAL,
    Choice,
    _outcomes,
    accuracies,
    accuracy_differences,
    minimal_pairs,
)
from dclm_jax.mixture import mix
from dclm_jax.scoring.scorer import Continuation
from tests import oracles
from tests.test_read_document import language_model

KINDS = ["rnnlm", "adclm", "rlm_bow_lf", "rnnslm"]
PAIRS = [
    Choice(["the cat sat .", "the cat slept . it"], columns={"kind": "a"}),
    Choice(["dogs bark .", "dogs sat ."], ["the cat sat .", "it slept ."], {"kind": "b"}),
    Choice(["it sat", "it bark", "it dogs"], ["dogs bark ."], {"kind": "a"}),
    Choice(["the unheard sat .", "the unseen sat ."], columns={"kind": "c"}),
    Choice(["it slept .", "it sat ."], ["unheard ."], {"kind": "a"}),
    Choice(["dogs bark unheard", "dogs bark ."], columns={"kind": "b"}),
    # Equal wrong alternatives leave a choice.
    Choice(["dogs bark .", "dogs unheard .", "dogs unseen ."], columns={"kind": "a"}),
]


def log_prob(lm, context, sentence) -> float:
    """log P of a sentence after its context, by an independent implementation in float64."""
    ids = [lm.vocabulary.encode(words.split()).tolist() for words in [*context, sentence]]
    plain = oracles.jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), lm.params)
    return -oracles.read(lm.model, plain, ids).nll[-1].sum()


def fake_scorer(nll) -> Any:
    def score(requests):
        yield from zip(requests, nll, strict=True)

    return types.SimpleNamespace(score=score, objective="words", first_word_end=3)


def test_nats_of_alternatives_are_summed_in_float64():
    """In float32 both sums are 2^24."""
    nats = [np.array([2**24, 1, 1], np.float32), np.array([2**24, 0, 0], np.float32)]
    request = Continuation([np.array([5, 6])], 1, Choice(["a b", "a c"]))
    (outcome,) = _outcomes(fake_scorer([[nll] for nll in nats]), [request] * 2)
    assert outcome.log_probs == [-(2**24) - 2, -(2**24)]


@pytest.mark.parametrize("name", KINDS)
def test_outcomes_equal_every_sentence_scored_by_itself(name):
    lm = language_model(name)
    for outcome, (alternatives, context, *_) in zip(minimal_pairs(lm, PAIRS), PAIRS, strict=True):
        expected = [log_prob(lm, context, sentence) for sentence in alternatives]
        np.testing.assert_allclose(outcome.log_probs, expected, rtol=1e-4)
        targets = [len(sentence.split()) + (name != "rnnslm") for sentence in alternatives]
        assert outcome.targets == targets
        oov = [len({"unheard", "unseen"}.intersection(words.split())) for words in alternatives]
        assert outcome.oov == oov
        is_equal = alternatives[0] == "the unheard sat ."
        values = expected, [a / n for a, n in zip(expected, targets, strict=True)]
        for criterion, scores in zip((TOTAL, PER_TARGET), values, strict=True):
            correct = outcome.correct[criterion]
            assert np.isnan(correct) if is_equal else correct == float(np.argmax(scores) == 0)


@pytest.mark.parametrize("name", KINDS)
def test_alternatives_of_several_sentences(name):
    lm, context = language_model(name), ["the cat sat .", "it slept ."]
    several = [["dogs", "bark", "."], ["it", "sat"]], [["dogs"], ["unheard", "unseen"], ["it"]]
    (outcome,) = minimal_pairs(lm, [Choice([*several, "it sat"], context)])
    for index, sentences in enumerate(several):
        texts = [*context, *map(" ".join, sentences)]
        expected = [log_prob(lm, texts[:at], texts[at]) for at in range(2, len(texts))]
        np.testing.assert_allclose(outcome.log_probs[index], sum(expected), rtol=1e-4)
        targets = sum(len(words) + (name != "rnnslm") for words in sentences)
        assert outcome.targets[index] == targets
    np.testing.assert_allclose(outcome.log_probs[2], log_prob(lm, context, "it sat"), rtol=1e-4)
    assert outcome.oov == [0, 2, 0]
    # A boundary between sentences is a difference.
    (outcome,) = minimal_pairs(lm, [[[["it"], ["sat"]], [["it", "sat"]]]])
    assert not np.isnan(outcome.correct[TOTAL])


def test_plain_lists_are_choices():
    lm = language_model("ccdclm")
    choices = [pair for pair in PAIRS if not pair.context]
    plain = minimal_pairs(lm, [choice.alternatives for choice in choices])
    for outcome, expected in zip(plain, minimal_pairs(lm, choices), strict=True):
        assert outcome.log_probs == expected.log_probs


@pytest.mark.parametrize(
    ("log_probs", "total", "per_target"),
    [
        ((-3.0, -3.0), 0.5, 1),
        ((-3.0, -3.0, -3.0), Fraction(1, 3), 1),
        ((-3.0, -2.0, -2.0), 0, 1),
        ((-5.0, -2.0, -2.0), 0, 0),
        ((-2.0, -2.0, -3.0), 0.5, 1),
        ((-4.0, -2.0), 0, 0.5),
    ],
)
def test_ties_count_a_share(log_probs, total, per_target):
    """Of right alternatives of three words and END, and wrong ones of one word and END."""
    ids = [np.array([3, 4, 5]), *(np.array([6 + wrong]) for wrong in range(len(log_probs) - 1))]
    choice = Choice(["right", *"abc"][: len(ids)])
    requests = [Continuation([words], owner=choice) for words in ids]
    nll = [[np.array([0.0] * len(words) + [-x])] for words, x in zip(ids, log_probs, strict=True)]
    (outcome,) = _outcomes(fake_scorer(nll), requests)
    assert outcome.log_probs == list(log_probs)
    assert outcome.correct == {TOTAL: float(total), PER_TARGET: float(per_target)}


def test_accuracies_of_groups_and_of_all_pairs():
    lm, other = language_model("adclm"), language_model("rnnlm")
    runs = [[*minimal_pairs(model, PAIRS)] for model in (lm, other)]
    measured = accuracies(runs, ["kind"])
    keys = [(accuracy.cells, accuracy.without_oov, accuracy.criterion) for accuracy in measured]
    groups = [(cells, without) for cells in (("a",), ("b",), ("c",)) for without in (False, True)]
    groups += [((), True), ((), False)]
    assert keys == [(*group, criterion) for group in groups for criterion in (TOTAL, PER_TARGET)]
    for accuracy in measured:
        correct = np.array(
            [
                [of_run[index].correct[accuracy.criterion] for of_run in runs]
                for index, pair in enumerate(PAIRS)
                if accuracy.cells in ((), (pair.columns["kind"],))
                and not (accuracy.without_oov and "unheard" in str(pair.alternatives))
            ]
        ).reshape(-1, 2)
        is_apart = np.isnan(correct[:, 0])
        assert (accuracy.pairs, accuracy.excluded) == ((~is_apart).sum(), is_apart.sum())
        mean, low, high = accuracy.values_3xX
        if accuracy.cells == ("c",):
            assert np.isnan(mean).all()
            continue
        np.testing.assert_allclose(mean, correct[~is_apart].mean(axis=0))
        # The interval of one pair is unknown.
        assert accuracy.pairs == 1 or ((low <= mean).all() and (mean <= high).all())
    (pair,) = accuracy_differences(runs, TOTAL)
    a, b = measured[-2].values_3xX[0]
    assert pair.difference == pytest.approx(a - b)
    assert accuracy_differences(runs[:1], TOTAL) == []


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([["it sat", "it sat"]], "a pair: alternatives 1 and 2 are equal; expected different"),
        ([["it sat", "dogs", "it sat"]], "a pair: alternatives 1 and 3 are equal"),
        ([["it sat"]], "a pair: the number of alternatives is 1; expected two or more"),
        ([["it sat", " "]], "a pair: alternative 2 has no words; add its text"),
        (["it sat"], "a pair: the alternatives are 'it sat'; expected a list of sentences"),
        ([], "there are no pairs; choose another --input"),
        (
            [["unheard .", "unseen ."], ["it unheard", "it never"]],
            "the alternatives differ only in OOV words in all 2 pairs, so that accuracy",
        ),
    ],
)
def test_pairs_that_leave_no_choice_are_refused(pairs, message):
    with pytest.raises(InputError, match=re.escape(message)):
        accuracies([[*minimal_pairs(language_model("rnnlm"), pairs)]])


def test_accuracies_need_pairs():
    for runs in ([], [[]]):
        with pytest.raises(InputError, match="there are no pairs; choose another --input"):
            accuracies(runs)


def test_columns_and_models():
    lm = language_model("rnnlm")
    with pytest.raises(
        InputError, match="^a pair: --by names 'field', which is no column .* 'kind'$"
    ):
        accuracies([[*minimal_pairs(lm, PAIRS)]], ["field"])
    mixture = mix(lm, language_model("adclm"), 0.0)
    mixed, of_adclm = minimal_pairs(mixture, PAIRS), minimal_pairs(language_model("adclm"), PAIRS)
    for outcome, expected in zip(mixed, of_adclm, strict=True):
        np.testing.assert_allclose(outcome.log_probs, expected.log_probs, rtol=1e-5)
