"""Insertion of sentences, against every order scored whole."""

import numpy as np
import pytest

from dclm_jax.coherence import scoring
from dclm_jax.coherence.compare import Insert, compare_orders
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.scoring.neural import NeuralScorer
from tests.coherence.test_compare import FakeScorer, of_neighbours, order_blind, sentences
from tests.exhaustive import pairs
from tests.models.support import LANGUAGE_MODELS, VOCAB, random_params
from tests.rescoring.test_search import log_probs, reader


def scorer(name):
    model = reader(name).model
    return NeuralScorer(model, random_params(model))


def random_document(seed, count):
    rng = np.random.default_rng(seed)
    return [rng.integers(2, VOCAB, rng.integers(0, 7)) for _ in range(count)]


def put_back(document, sentence, place):
    rest = [*document[:sentence], *document[sentence + 1 :]]
    return [*rest[:place], document[sentence], *rest[place:]]


def by_loops(gains):
    """Accuracy and mean reciprocal rank of ties broken in each way, one after the other."""
    accuracies, ranks = [], []
    for sentence, row in enumerate(gains):
        ahead = sum(gain > row[sentence] for gain in row)
        tied = sum(gain == row[sentence] for gain in row)
        places = range(ahead + 1, ahead + tied + 1)
        accuracies.append(np.mean([rank == 1 for rank in places]))
        ranks.append(np.mean([1 / rank for rank in places]))
    return accuracies, ranks


USUAL = [("rnnlm", 0), ("codclm", 1), ("rlm_seqbow_lf", 0), ("ccdclm", 1)]


@pytest.mark.parametrize(("name", "fix_first"), pairs(LANGUAGE_MODELS, (0, 1), USUAL))
def test_every_sentence_at_every_place_is_scored_as_a_whole_document(name, fix_first):
    documents = [random_document(seed, count) for seed, count in enumerate((4, 1, 3, 4))]
    documents[3][2] = documents[3][1].copy()
    test = Insert(Shuffle(fix_first=fix_first))
    inserted = compare_orders(scorer(name), documents, test)
    assert [outcome.index for outcome in inserted.documents] == [0, 2, 3]
    tested = [documents[i] for i in (0, 2, 3)]
    moves = scoring.log_probs(scorer(name), tested, test.orders(tested))
    accuracies, ranks, chance, chance_ranks = [], [], [], []
    for document, of_moves in zip(tested, moves, strict=True):
        moved = range(fix_first, len(document))
        orders = [put_back(document, s, place) for s in moved for place in moved]
        totals = log_probs(name, [document, *orders])[:, : len(document)].sum(axis=1)
        expected = (totals[1:] - totals[0]).reshape(len(moved), len(moved))
        gains = (of_moves[1:] - of_moves[0]).reshape(expected.shape)
        np.testing.assert_allclose(gains, expected, atol=2e-5)
        np.testing.assert_array_equal(gains[expected == 0], 0)
        # Rounding apart, and what moves nothing is no rounding.
        of_document = by_loops(np.where(np.abs(expected) < 2e-5, 0, expected))
        accuracies += of_document[0]
        ranks += of_document[1]
        chance += [1 / len(moved)] * len(moved)
        chance_ranks += [np.mean(1 / np.arange(1, len(moved) + 1))] * len(moved)
    result = inserted.result
    assert result.accuracy == pytest.approx(np.mean(accuracies))
    assert result.reciprocal_rank == pytest.approx(np.mean(ranks))
    assert result.chance_accuracy == pytest.approx(np.mean(chance))
    assert result.chance_reciprocal_rank == pytest.approx(np.mean(chance_ranks))
    assert (result.documents, result.sentences, result.omitted) == (3, len(chance), 1)
    if name == "rnnlm":
        assert result.accuracy == result.chance_accuracy
    else:
        assert len(set(ranks)) > 1


def test_a_scorer_that_judges_documents_as_a_whole_scores_every_order():
    """As a baseline does whose windows hold later sentences."""
    nll = of_neighbours(2)
    documents = [sentences(5, 9, 3, 7, 4), sentences(8, 4), sentences(6, 6, 3)]
    scorers = FakeScorer(nll, 1), FakeScorer(nll)
    by_pairs, whole = (
        scoring.log_probs(each, documents, Insert().orders(documents)) for each in scorers
    )
    for of_pairs, of_whole in zip(by_pairs, whole, strict=True):
        np.testing.assert_allclose(of_pairs, of_whole, atol=1e-12)
    by_pairs, whole = (compare_orders(each, documents, Insert()).result for each in scorers)
    assert whole == by_pairs
    blind = compare_orders(FakeScorer(order_blind, 0), documents, Insert()).result
    assert blind.accuracy == blind.chance_accuracy
    assert blind.reciprocal_rank == pytest.approx(blind.chance_reciprocal_rank)


@pytest.mark.parametrize("context_order", [1, 9])
def test_moves_of_a_long_document_are_made_some_at_a_time(context_order, monkeypatch):
    nll = of_neighbours(3)
    documents = [sentences(*np.random.default_rng(0).permutation(20)[:9] + 3)]

    def scores():
        orders = Insert().orders(documents)
        return list(scoring.log_probs(FakeScorer(nll, context_order), documents, orders))

    whole = scores()
    monkeypatch.setattr(scoring, "_INDICES_AT_ONCE", 50)
    np.testing.assert_array_equal(scores(), whole)
    # Each sentence first and after every other one.
    pairs = FakeScorer(nll, 1)
    compare_orders(pairs, documents, Insert())
    assert pairs.num_scored == 9 * 9


def test_ties_are_shared():
    # "b" twice: what is moved beside the other one makes the same text.
    documents = [sentences(3, 4, 4)]
    equal = compare_orders(FakeScorer(lambda before, word: 0.0, 1), documents, Insert()).result
    assert equal.accuracy == pytest.approx(1 / 3)
    assert equal.reciprocal_rank == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    ascending = FakeScorer(lambda before, word: float(before is not None and before > word), 1)
    result = compare_orders(ascending, documents, Insert()).result
    # 3 is likeliest at its own place; each 4 at its own and that of the other.
    assert result.accuracy == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)
    assert result.reciprocal_rank == pytest.approx((1 + 3 / 4 + 3 / 4) / 3)
