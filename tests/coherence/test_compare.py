"""Coherence with a scorer whose scores are known, and the z-test by hand."""

import dataclasses
import itertools
import math
from typing import Any

import jax
import numpy as np
import pytest

from dclm_jax import models
from dclm_jax.coherence import compare as comparing
from dclm_jax.coherence import scoring
from dclm_jax.coherence.compare import Bootstrap, FirstSentence, Fixed, compare
from dclm_jax.errors import InputError
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.scoring import Scorer, sentences_to_score


class FakeScorer:
    """-log P of a word is a function of the previous sentence's first word and its own."""

    vocab_size = 50

    def __init__(self, nll, context_order=None):
        self.nll = nll
        self.context_order = context_order
        self.objective = "words"
        self.num_scored = 0
        self.num_sentences_scored = 0

    def score(self, documents):
        for request in documents:
            document, first_scored = sentences_to_score(request)
            before = [None, *(int(ids[0]) for ids in document[:-1])]
            scores = [
                np.array([self.nll(b, int(ids[0])), 0.0])
                for b, ids in zip(before, document, strict=True)
            ][first_scored:]
            self.num_scored += 1
            self.num_sentences_scored += len(scores)
            yield request, scores


class WholeOrders:
    """Scores like `scorer` without saying what a score depends on: every order is scored whole."""

    context_order = None
    objective = "words"

    def __init__(self, scorer):
        self.score = scorer.score
        self.vocab_size = scorer.vocab_size


def sentences(*words):
    return [np.array([word], np.int32) for word in words]


def ascending(before, word):
    """Rewards ascending neighbours: the sorted document is the likeliest."""
    return 0.0 if before is None or before < word else 1.0


def order_blind(before, word):
    return 0.1 * word


SORTED = [sentences(*range(3, 3 + n)) for n in (2, 3, 5, 8)]


def test_the_likelier_text_always_wins():
    seen, documents = [], [[], sentences(3), *SORTED]
    test = Fixed(permutations=7)
    result = compare(
        FakeScorer(ascending), documents, test, on_document=lambda *counts: seen.append(counts)
    ).result
    assert (result.mean, result.sd) == (1.0, 0.0)
    assert (result.replicates, result.permutations) == (7, 7)
    # Short documents are left out.
    assert (result.documents, result.pairs, result.left_out) == (4, 28, 2)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    descending = [document[::-1] for document in SORTED]
    assert compare(FakeScorer(ascending), descending, Fixed()).result.mean == 0.0
    for test in (Fixed(permutations=1), Bootstrap(replicates=1)):
        assert compare(FakeScorer(ascending), SORTED, test).result.sd is None


def test_accuracy_by_hand():
    # Two sentences have one permutation: the first document wins, the second loses, the third ties.
    documents = [sentences(3, 4), sentences(4, 3), sentences(5, 5)]
    result = compare(FakeScorer(ascending), documents, Fixed(permutations=3)).result
    assert result.mean == 0.5
    assert result.documents == 3
    # One win and one loss, drawn with replacement: the number of wins is binomial (2, 1/2).
    result = compare(FakeScorer(ascending), documents[:2], Bootstrap(replicates=4000)).result
    assert result.mean == pytest.approx(0.5, abs=0.03)
    assert result.sd == pytest.approx(math.sqrt(1 / 8), abs=0.02)
    assert (result.replicates, result.documents, result.pairs) == (4000, 2, 8000)


def test_bootstrap_equals_the_same_test_sets_scored_one_by_one():
    documents = [sentences(5, 3, 4), sentences(3, 5, 4, 6), sentences(4, 3)]
    result = compare(FakeScorer(ascending), documents, Bootstrap(replicates=6, seed=9)).result

    draws = np.random.default_rng([comparing._TEST_SETS, 9]).integers(3, size=(6, 3))
    shuffles = []
    for index, document in enumerate(documents):
        rng = np.random.default_rng([comparing._ORDERS, 9, index])
        shuffles.append(iter(Shuffle().draw(document, int((draws == index).sum()), rng)))

    accuracies = [
        np.mean([outcome(documents[index], next(shuffles[index])) for index in test_set])
        for test_set in draws
    ]
    assert result.mean == pytest.approx(np.mean(accuracies))
    assert result.sd == pytest.approx(np.std(accuracies, ddof=1))


def outcome(document, order):
    """1 if the document is likelier than the order, under `ascending`; 0.5 for a tie."""

    def total(sentences):
        words = [None, *(int(ids[0]) for ids in sentences)]
        return -sum(ascending(a, b) for a, b in zip(words, words[1:], strict=False))

    difference = total(document) - total([document[index] for index in order])
    return {1: 1.0, 0: 0.5, -1: 0.0}[int(np.sign(difference))]


def test_test_sets_draw_from_a_pool_of_permutations():
    documents = [sentences(5, 3, 4), sentences(3, 5, 4, 6), sentences(4, 3)]
    scorer = FakeScorer(ascending)
    result = compare(scorer, documents, Bootstrap(replicates=50, permutation_pool=4, seed=9)).result
    assert scorer.num_scored <= 3 * (1 + 4)

    rng = np.random.default_rng([comparing._TEST_SETS, 9])
    draws, picks = rng.integers(3, size=(50, 3)), rng.integers(4, size=(50, 3))
    pools = [
        Shuffle().draw(document, 4, np.random.default_rng([comparing._ORDERS, 9, index]))
        for index, document in enumerate(documents)
    ]
    accuracies = [
        np.mean([outcome(documents[i], pools[i][j]) for i, j in zip(*pair, strict=True)])
        for pair in zip(draws, picks, strict=True)
    ]
    assert 0 < np.std(accuracies)
    assert result.mean == pytest.approx(np.mean(accuracies))
    assert result.sd == pytest.approx(np.std(accuracies, ddof=1))
    assert (result.pairs, result.permutations, result.pool) == (150, 1, 4)
    outcomes = [
        [outcome(document, order) for order in pool]
        for document, pool in zip(documents, pools, strict=True)
    ]
    variances = [np.var(one, ddof=1) / 4 for one in outcomes]
    assert result.pool_error == pytest.approx(math.sqrt(sum(variances)) / 3) and sum(variances) > 0


@pytest.mark.parametrize("context_order", [0, 1, None])
def test_ties_count_half_whatever_the_order_of_summation(context_order):
    # 0.1 * word has no exact sum: plain left-to-right addition would break ties at random.
    documents = [sentences(*range(3, 3 + n)) for n in (4, 9, 23)]
    scorer = FakeScorer(order_blind, context_order)
    assert compare(scorer, documents, Fixed()).result.mean == 0.5
    assert compare(scorer, documents, Bootstrap(replicates=10)).result.mean == 0.5


def test_without_context_every_sentence_is_scored_once():
    scorer = FakeScorer(order_blind, context_order=0)
    compare(scorer, SORTED, Fixed(permutations=50))
    assert scorer.num_scored == scorer.num_sentences_scored == sum(map(len, SORTED))


# Two sentences have two orders, which are fewer than their pairs. The others are scored once at the
# start of a document and once after every other sentence; 4 follows itself as well. After two fixed
# sentences two others have two orders of six pairs; each of four is scored after the second
# sentence and after each of the three others.
@pytest.mark.parametrize(
    ("fix_first", "num_scored"),
    [(0, 2 + (4 + 12) + (6 + 30) + (3 + 7)), (2, 6 + (2 + 4 * 4) + 6)],
)
def test_pairs_of_sentences_give_what_whole_permutations_give(fix_first, num_scored):
    nll, rng = of_neighbours(), np.random.default_rng(0)
    documents = [sentences(*rng.permutation(17)[:n] + 3) for n in (2, 4, 6)]
    documents.append(sentences(4, 5, 4, 6))
    whole, pairs = FakeScorer(nll), FakeScorer(nll, context_order=1)
    test = Bootstrap(Shuffle(fix_first=fix_first), replicates=200)
    expected = compare(whole, documents, test).result
    assert compare(pairs, documents, test).result == expected
    assert pairs.num_scored == num_scored
    assert pairs.num_sentences_scored < whole.num_sentences_scored
    assert 0 < expected.mean < 1


@pytest.mark.parametrize("context_order", [2, 3, 20])
def test_longer_contexts_give_what_whole_permutations_give(context_order, monkeypatch):
    """A score depends on the words of `context_order` sentences before. Runs of 21 sentences have
    numbers above 2^63."""
    monkeypatch.setattr(scoring, "_READING", 0)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(context_order + 1, 20, 20))

    class Remembers(FakeScorer):
        def score(self, documents):
            for request in documents:
                document, first_scored = sentences_to_score(request)
                words = [int(ids[0]) for ids in document]
                nll = [
                    [table[k, words[n - k], word] for k in range(min(n, context_order) + 1)]
                    for n, word in enumerate(words)
                ]
                self.num_scored += 1
                yield request, [np.array(one) for one in nll[first_scored:]]

    documents = [sentences(*rng.permutation(17)[:n] + 3) for n in (2, 3, 4, 8)]
    documents.append(sentences(4, 5, 4, 6))
    whole, pieces = Remembers(None), Remembers(None, context_order)
    expected = compare(whole, documents, Bootstrap(replicates=200)).result
    assert compare(pieces, documents, Bootstrap(replicates=200)).result == expected
    assert 0 < expected.mean < 1
    assert pieces.num_scored != whole.num_scored


def codclm_scorer():
    model = models.create(
        "codclm", vocab_size=12, embedding_dim=3, hidden_dim=4, num_layers=1, cell="rnn"
    )
    # Larger than initial parameters, so that context decides.
    return Scorer(model, jax.tree.map(lambda array: 3 * array, model.init(jax.random.key(1))))


def documents_of_random_words(*num_sentences):
    rng = np.random.default_rng(3)
    documents = [
        [rng.integers(2, 12, rng.integers(0, 20)) for _ in range(number)]
        for number in num_sentences
    ]
    # Equal sentences are one sentence to all orders.
    documents[-1][-1] = documents[-1][0].copy()
    return documents


def test_pairs_of_a_real_model_give_what_whole_permutations_give():
    scorer = codclm_scorer()
    documents = documents_of_random_words(2, 3, 6, 5)
    pairs = compare(scorer, documents, Bootstrap(replicates=40)).result
    assert pairs == compare(WholeOrders(scorer), documents, Bootstrap(replicates=40)).result
    assert 0 < pairs.mean < 1


@pytest.mark.parametrize(("permutations", "by_pairs"), [(5, False), (41, True)])
def test_pairs_are_taken_where_they_are_less_work(permutations, by_pairs):
    # All drawn orders of 40 sentences differ, and the document itself is one more.
    scorer = FakeScorer(ascending, context_order=1)
    document = sentences(*range(3, 43))
    result = compare(scorer, [document], Fixed(permutations=permutations)).result
    assert result.mean == 1.0
    rng = np.random.default_rng([comparing._ORDERS, 0, 0])
    orders = [list(range(40)), *Shuffle().draw(document, permutations, rng).tolist()]
    pairs = {pair for order in orders for pair in itertools.pairwise(order)}
    firsts = {order[0] for order in orders}
    assert scorer.num_scored == (len(firsts) + len(pairs) if by_pairs else 1 + permutations)
    assert scorer.num_sentences_scored < 42 * 40


def test_a_document_of_equal_sentences_ties():
    document = sentences(4, 4, 4)
    scorer = FakeScorer(lambda before, word: float(np.random.default_rng().random()))
    assert compare(scorer, [document], Fixed()).result.mean == 0.5


@pytest.mark.parametrize("test", [Fixed, Bootstrap])
def test_a_seed_gives_the_same_result_and_another_one_another(test):
    documents = [sentences(*np.random.default_rng(n).permutation(9) + 3) for n in range(12)]
    scorer = FakeScorer(ascending)
    results = [compare(scorer, documents, test(seed=seed)).result for seed in (1, 1, 2)]
    assert results[0] == results[1]
    assert results[0].mean != results[2].mean


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Fixed, {}, [sentences(3)]), "no document has two sentences; coherence needs"),
        (
            (Bootstrap, {"shuffle": Shuffle(fix_first=7)}),
            "has two sentences after the first 7 that",
        ),
        ((Shuffle, {"fix_first": -1}), "fix_first is -1; expected at least 0"),
        ((FirstSentence, {"positions": 0}), "positions is 0; expected at least 1"),
        ((Fixed, {"permutations": 0}), "permutations is 0; expected at least 1"),
        ((Bootstrap, {"replicates": 0}), "replicates is 0; expected at least 1"),
        ((Bootstrap, {"seed": -1}), "seed is -1; expected at least 0"),
        ((Bootstrap, {"permutation_pool": -1}), "pool is -1; expected 0, or at least 2"),
        ((Bootstrap, {"permutation_pool": 1}), "pool is 1; expected 0, or at least 2"),
        ((Bootstrap, {"replicates": 2**50}), "1,125,899,906,842,624 test sets would take"),
        ((Fixed, {"permutations": 2**50}), "1,125,899,906,842,624 permutations of a document"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], message: str):
    kind, options, *documents = arguments
    with pytest.raises(InputError, match=message):
        compare(FakeScorer(ascending), documents[0] if documents else SORTED, kind(**options))


def log_prob(nll, words):
    return -math.fsum(nll(a, b) for a, b in itertools.pairwise([None, *words]))


def preference(nll, words, other):
    """1 if a text is likelier than another one, 0.5 for a tie."""
    return float(np.sign(log_prob(nll, words) - log_prob(nll, other))) / 2 + 0.5


def of_neighbours(seed=0):
    table = np.random.default_rng(seed).normal(size=(31, 31))
    return lambda before, word: table[30 if before is None else before, word]


@pytest.mark.parametrize("context_order", [None, 1])
@pytest.mark.parametrize("keep_first", [0, 1, 2])
def test_accuracy_with_first_sentences_kept_against_all_permutations(context_order, keep_first):
    """Each of many permutations is as likely as any other: accuracy is their plain mean."""
    nll = of_neighbours()
    words = [(5, 9, 3, 7), (8, 4, 11, 6, 10), (12, 3, 3, 12), (13, 14, 15)]
    movable = [text for text in words if len(text) - keep_first >= 2]
    expected = []
    for text in movable:
        head, tail = text[:keep_first], text[keep_first:]
        others = [head + rest for rest in itertools.permutations(tail) if rest != tail]
        expected.append(np.mean([preference(nll, text, other) for other in others] or [0.5]))
    scorer = FakeScorer(nll, context_order)
    documents = [sentences(*text) for text in words]
    options = {"shuffle": Shuffle(fix_first=keep_first), "seed": 3}
    fixed = compare(scorer, documents, Fixed(permutations=3000, **options)).result
    assert fixed.mean == pytest.approx(np.mean(expected), abs=0.01)
    assert (fixed.documents, fixed.left_out) == (len(movable), len(words) - len(movable))
    assert fixed.keep_first == keep_first
    for pool in (0, 400):
        bootstrap = compare(
            scorer, documents, Bootstrap(replicates=2000, permutation_pool=pool, **options)
        ).result
        assert bootstrap.mean == pytest.approx(np.mean(expected), abs=0.04)
        assert (bootstrap.documents, bootstrap.left_out) == (fixed.documents, fixed.left_out)


@pytest.mark.parametrize("context_order", [None, 1])
def test_the_first_sentence_in_all_other_places_by_brute_force(context_order):
    nll = of_neighbours(1)
    words = [(5, 9, 3, 7, 4, 6), (8, 4), (3, 3, 4, 3), (13, 14, 15), (6, 6)]
    expected = []
    for text in words:
        others = [(*text[1 : j + 1], text[0], *text[j + 1 :]) for j in range(1, len(text))]
        others = [other for other in others if other != text]
        expected.append(np.mean([preference(nll, text, other) for other in others] or [0.5]))
    documents = [sentences(*text) for text in words]
    scorer = FakeScorer(nll, context_order)
    result = compare(scorer, [*documents, sentences(9)], FirstSentence(positions=5)).result
    assert result == pytest.approx(np.mean(expected)) and 0 < result < 1
    # Fewer places are some of them.
    some = [
        compare(scorer, documents[:1], FirstSentence(positions=2, seed=seed)).result
        for seed in range(30)
    ]
    assert np.mean(some) == pytest.approx(expected[0], abs=0.15)
    assert {2 * value for value in some} <= {0.0, 1.0, 2.0}


def test_a_headline_gives_documents_away():
    """Text without any order but that 3 is always first: nothing is left where it is kept."""

    def headline(before, word):
        return float((word == 3) != (before is None))

    rng = np.random.default_rng(0)
    documents = [sentences(3, *rng.permutation(20)[:6] + 4) for _ in range(8)]
    scorer = FakeScorer(headline)
    free, kept = (
        compare(scorer, documents, Fixed(Shuffle(fix_first=n), permutations=400)).result
        for n in (0, 1)
    )
    first = compare(scorer, documents, FirstSentence()).result
    assert first == 1.0
    # Of seven places one is the first again, but for which accuracy is 1.
    assert free.mean == pytest.approx(1 - 0.5 / 7, abs=0.02) and kept.mean == 0.5
    assert free.warning == ""
    told = dataclasses.replace(free, first_sentence=first).warning
    assert told.startswith("warning: the first sentence gives documents away") and (
        "accuracy is 100.00%; --fix_first=1 measures the order of the others" in told
    )
    assert dataclasses.replace(free, first_sentence=0.7499).warning == ""
    assert dataclasses.replace(kept, first_sentence=1.0).warning == ""


def test_without_context_the_place_of_the_first_sentence_is_a_tie():
    documents = [sentences(*range(3, 3 + n)) for n in (4, 9, 23)]
    for scorer in (FakeScorer(order_blind, 0), FakeScorer(order_blind)):
        assert compare(scorer, documents, FirstSentence()).result == 0.5


def test_results_as_text_and_json():
    result = compare(FakeScorer(ascending), SORTED, Bootstrap(replicates=3, seed=5)).result
    assert result.to_json() == {
        "kind": "bootstrap",
        "mean": 1.0,
        "sd": 0.0,
        "replicates": 3,
        "permutations": 1,
        "documents": 4,
        "words": sum(len(sentence) for document in SORTED for sentence in document),
        "pairs": 12,
        "seed": 5,
        "pool": 0,
        "pool_error": 0.0,
        "keep_first": 0,
        "left_out": 0,
        "first_sentence": None,
        "block": 1,
        "window": 0,
        "unchanged": 0,
    }
    assert str(result) == (
        "order-discrimination accuracy (bootstrap): 100.00%, standard deviation 0.00% over 3 test "
        "sets of 4 documents; 50% is chance, ties count half"
    )
