"""Orders of sentences, against all orders of documents scored whole."""

import itertools
import math
import re

import numpy as np
import pytest

from dclm_jax.coherence import kendall
from dclm_jax.decoding import ordering
from dclm_jax.decoding.ordering import order_sentences
from dclm_jax.errors import InputError
from tests.exhaustive import also
from tests.models.support import VOCAB
from tests.rescoring.test_search import log_probs, reader
from tests.test_read_document import language_model

MODELS = ["codclm", "ccdclm", "rlm_bow_lf"]
MODELS += also(["adclm", "hrnnlm", "rlm_seqbow_att_ef", "drnnlm"])


def context_order(name):
    return reader(name).model.context_order


def random_sentences(seed, count):
    rng = np.random.default_rng(seed)
    return [rng.integers(2, VOCAB, rng.integers(1, 7)) for _ in range(count)]


def of_all_orders(name, sentences):
    """Every order of up to four sentences with its log P, each scored as a document."""
    orders = list(itertools.permutations(range(len(sentences))))
    documents = [[sentences[i] for i in order] for order in orders]
    return dict(zip(orders, log_probs(name, documents).sum(axis=1).tolist(), strict=True))


def all_sentences_differ(sentences):
    return len({tuple(one) for one in sentences}) == len(sentences)


@pytest.mark.parametrize("name", MODELS)
def test_the_likeliest_of_all_orders_is_found(name):
    """By a beam that holds every beginning, or exactly."""
    for seed in range(3):
        sentences = random_sentences(seed, 4)
        assert all_sentences_differ(sentences)
        expected = of_all_orders(name, sentences)
        found = order_sentences(reader(name), sentences, context_order(name), beam=24)
        best = max(expected, key=expected.__getitem__)
        assert found.order == list(best)
        assert found.log_prob == pytest.approx(expected[best], rel=1e-5)
        assert found.is_optimal == (context_order(name) == 1)


def test_what_reads_one_sentence_before_is_ordered_alike_by_either_way(monkeypatch):
    """Eight sentences: beyond what scoring all orders takes."""
    sentences = random_sentences(7, 8)
    exact = order_sentences(reader("codclm"), sentences, 1)
    monkeypatch.setattr(ordering, "MAX_OPTIMAL", 7)
    found = order_sentences(reader("codclm"), sentences, 1, beam=2**8 * 8)
    assert exact.is_optimal and not found.is_optimal
    assert found.order == exact.order
    assert found.log_prob == pytest.approx(exact.log_prob, rel=1e-5)
    narrow = order_sentences(reader("codclm"), sentences, 1, beam=1)
    assert narrow.log_prob <= exact.log_prob + 1e-4


def test_a_beam_follows_the_likeliest_beginnings():
    """Of width one it is greedy; each step by documents scored whole."""
    sentences = random_sentences(3, 4)
    chosen: list[int] = []
    for length in range(1, 5):
        left = [i for i in range(4) if i not in chosen]
        documents = [[sentences[one] for one in (*chosen, i)] for i in left]
        scores = log_probs("ccdclm", documents)[:, :length].sum(axis=1)
        chosen.append(left[int(scores.argmax())])
    found = order_sentences(reader("ccdclm"), sentences, None, beam=1)
    assert found.order == chosen


@pytest.mark.parametrize("name", ["codclm", "ccdclm"])
def test_equal_sentences_and_single_ones(name):
    one, two = random_sentences(5, 2)
    sentences = [one, two, one, one]
    found, single = (
        order_sentences(reader(name), one, context_order(name), beam=24)
        for one in (sentences, [two])
    )
    expected = of_all_orders(name, sentences)
    assert found.log_prob == pytest.approx(max(expected.values()), rel=1e-5)
    assert sorted(found.order) == [0, 1, 2, 3]
    assert single.order == [0]
    assert single.log_prob == pytest.approx(of_all_orders(name, [two])[(0,)], rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((random_sentences(0, 2), 0), "the model uses no context: all orders have the same"),
        ((random_sentences(0, 2), None, 0), "beam is 0; expected at least 1"),
        (([], None), "there is no sentence to put in order"),
    ],
)
def test_what_cannot_be_ordered_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        order_sentences(reader("ccdclm"), *arguments)


def test_order_in_python():
    lm = language_model("ccdclm")
    sentences = ["the cat sat .", "it slept .", "dogs bark ."]
    found = lm.order(sentences)
    expected = {
        order: next(lm.score([[sentences[i] for i in order]])).log_prob
        for order in itertools.permutations(range(3))
    }
    best = max(expected, key=expected.__getitem__)
    assert found.order == list(best)
    assert found.log_prob == pytest.approx(expected[best], rel=1e-5)
    with pytest.raises(InputError, match=re.escape("an order needs a language model")):
        language_model("standard_autoencoder").order(sentences)


def test_measures_by_hand():
    texts = [list("abcd"), list("ab"), list("x"), list("aba")]
    # Inverted: (2, 1) and none; of the last one the two "a" are exchanged, which is no error.
    found = kendall.order_measures([[0, 2, 1, 3], [0, 1], [0], [2, 1, 0]], texts)
    assert found.tau == pytest.approx(((1 - 2 / 6) + 1 + 1) / 3)
    assert found.position_accuracy == pytest.approx((0.5 + 1 + 1) / 3)
    assert found.perfect_match == pytest.approx(2 / 3)
    assert found.documents == 3
    reverse = kendall.order_measures([[3, 2, 1, 0]], texts[:1])
    assert (reverse.tau, reverse.position_accuracy, reverse.perfect_match) == (
        pytest.approx(-1),
        0,
        0,
    )
    assert math.isnan(kendall.order_measures([[0]], [["x"]]).tau)


def test_chance_is_a_mean_over_all_orders():
    texts = [list("abc")] * 40
    chance = kendall.by_chance(texts, seed=0)
    # Of 4,000 orders: within four standard deviations.
    assert chance.tau == pytest.approx(0, abs=0.035)
    assert chance.position_accuracy == pytest.approx(1 / 3, abs=0.03)
    assert chance.perfect_match == pytest.approx(1 / 6, abs=0.025)
    assert chance.documents == 40
