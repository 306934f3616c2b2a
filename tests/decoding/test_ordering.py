"""Orders of sentences, against all orders of documents scored whole."""

import itertools
import math

import numpy as np
import pytest

from dclm_jax.decoding import ordering
from dclm_jax.decoding.ordering import order_sentences
from dclm_jax.errors import InputError
from dclm_jax.evaluation import reordering
from tests.exhaustive import also
from tests.models.support import VOCAB
from tests.rescoring.test_search import log_probs, reader

MODELS = ["codclm", "ccdclm", "adclm_3", "rlm_bow_lf"]
MODELS += also(["adclm", "hrnnlm", "rlm_seqbow_att_ef", "drnnlm"])


def random_sentences(seed, count):
    rng = np.random.default_rng(seed)
    return [rng.integers(2, VOCAB, rng.integers(1, 7)) for _ in range(count)]


def of_all_orders(name, sentences):
    """Every order of up to four sentences with its log P, each scored as a document."""
    orders = list(itertools.permutations(range(len(sentences))))
    documents = [[sentences[i] for i in order] for order in orders]
    return dict(zip(orders, log_probs(name, documents).sum(axis=1).tolist(), strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_the_likeliest_of_all_orders_is_found(name):
    """By a beam that holds every beginning, or exactly."""
    for seed in range(3):
        sentences = random_sentences(seed, 4)
        expected = of_all_orders(name, sentences)
        ordered = order_sentences(reader(name), sentences, beam=24)
        best = max(expected, key=expected.__getitem__)
        assert ordered.order == list(best)
        assert ordered.log_prob == pytest.approx(expected[best], rel=1e-5)
        assert ordered.is_optimal == (reader(name).context_order == 1)


def test_what_reads_one_sentence_before_is_ordered_alike_by_either_way(monkeypatch):
    """Eight sentences: beyond what scoring all orders takes."""
    sentences = random_sentences(7, 8)
    exact = order_sentences(reader("codclm"), sentences)
    monkeypatch.setattr(ordering, "MAX_OPTIMAL", 7)
    wide = order_sentences(reader("codclm"), sentences, beam=2**8 * 8)
    assert exact.is_optimal and not wide.is_optimal
    assert wide.order == exact.order
    assert wide.log_prob == pytest.approx(exact.log_prob, rel=1e-5)
    narrow = order_sentences(reader("codclm"), sentences, beam=1)
    assert narrow.log_prob <= exact.log_prob + 1e-4


def test_a_beam_follows_the_likeliest_beginnings():
    """Of width one it is greedy; each step by documents scored whole."""
    sentences = random_sentences(3, 4)
    expected: list[int] = []
    for length in range(1, 5):
        left = [i for i in range(4) if i not in expected]
        documents = [[sentences[j] for j in (*expected, i)] for i in left]
        scores = log_probs("ccdclm", documents)[:, :length].sum(axis=1)
        expected.append(left[int(scores.argmax())])
    assert order_sentences(reader("ccdclm"), sentences, beam=1).order == expected


@pytest.mark.parametrize("name", ["codclm", "ccdclm"])
def test_equal_sentences_and_single_ones(name):
    first, second = random_sentences(5, 2)
    for sentences in ([first, second, first, first], [second]):
        ordered = order_sentences(reader(name), sentences, beam=24)
        best = max(of_all_orders(name, sentences).values())
        assert ordered.log_prob == pytest.approx(best, rel=1e-5)
        assert sorted(ordered.order) == list(range(len(sentences)))


@pytest.mark.parametrize(
    ("name", "beam", "message"),
    [
        ("rnnlm", 16, "the model uses no context, so that all orders have"),
        ("ccdclm", 0, "beam is 0; expected at least 1"),
    ],
)
def test_what_cannot_be_ordered_is_named(name, beam, message):
    with pytest.raises(InputError, match=message):
        order_sentences(reader(name), random_sentences(0, 2), beam)


def test_measures_by_hand():
    texts = [list("abcd"), list("ab"), list("x"), list("aba")]
    # Inverted: (2, 1) and none; of the last one the two "a" are exchanged, which is no error.
    measures = reordering.order_measures([[0, 2, 1, 3], [0, 1], [0], [2, 1, 0]], texts)
    assert measures.tau == pytest.approx(((1 - 2 / 6) + 1 + 1) / 3)
    assert measures.position_accuracy == pytest.approx((0.5 + 1 + 1) / 3)
    assert measures.perfect_match == pytest.approx(2 / 3)
    assert measures.documents == 3
    reverse = reordering.order_measures([[3, 2, 1, 0]], texts[:1])
    assert reverse.tau == pytest.approx(-1)
    assert (reverse.position_accuracy, reverse.perfect_match) == (0, 0)
    assert math.isnan(reordering.order_measures([[0]], [["x"]]).tau)


def test_chance_is_a_mean_over_all_orders():
    texts = [list("abc")] * 40
    chance = reordering.chance_measures(texts, seed=0)
    # Of 4,000 orders: within four standard deviations.
    assert chance.tau == pytest.approx(0, abs=0.035)
    assert chance.position_accuracy == pytest.approx(1 / 3, abs=0.03)
    assert chance.perfect_match == pytest.approx(1 / 6, abs=0.025)
    assert chance.documents == 40
