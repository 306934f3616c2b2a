"""Coherence with a scorer whose scores are known."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest

from dclm_jax.coherence import compare as comparing
from dclm_jax.coherence import scoring
from dclm_jax.coherence.compare import Bootstrap, FirstSentence, Fixed, compare_orders
from dclm_jax.errors import InputError
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.scoring.scorer import Scorer, sentences_to_score


class FakeScorer(Scorer):
    """-log P of a word is a function of the previous sentence's first word and its own."""

    vocab_size = 50

    def __init__(self, nll, context_order=None):
        self.nll = nll
        self.context_order = context_order
        self.objective = "words"
        self.first_word_end = 3
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
    result = compare_orders(FakeScorer(ascending), documents, test, on_document=seen.append).result
    assert (result.mean, result.sd) == (1.0, 0.0)
    assert (result.replicates, result.permutations) == (7, 7)
    # Short documents are left out.
    assert (result.documents, result.pairs, result.omitted) == (4, 28, 2)
    assert seen == [1, 2, 3, 4]
    descending = [document[::-1] for document in SORTED]
    assert compare_orders(FakeScorer(ascending), descending, Fixed()).result.mean == 0.0
    for test in (Fixed(permutations=1), Bootstrap(replicates=1)):
        assert compare_orders(FakeScorer(ascending), SORTED, test).result.sd is None


def test_accuracy_by_hand():
    # Two sentences have one permutation: the first document wins, the second loses, the third ties.
    documents = [sentences(3, 4), sentences(4, 3), sentences(5, 5)]
    result = compare_orders(FakeScorer(ascending), documents, Fixed(permutations=3)).result
    assert result.mean == 0.5
    assert result.documents == 3


def outcome(document, order):
    """1 if the document is likelier than the order, under `ascending`; 0.5 for a tie."""

    def total(sentences):
        words = [None, *(int(ids[0]) for ids in sentences)]
        return -sum(ascending(a, b) for a, b in zip(words, words[1:], strict=False))

    difference = total(document) - total([document[index] for index in order])
    return {1: 1.0, 0: 0.5, -1: 0.0}[int(np.sign(difference))]


@pytest.mark.parametrize("pool", [0, 4])
def test_test_sets_are_scored_as_if_each_were_by_itself(pool):
    """Every draw of a document has a permutation of its own, or one of a pool."""
    documents = [sentences(5, 3, 4), sentences(3, 5, 4, 6), sentences(4, 3)]
    scorer = FakeScorer(ascending)
    test = Bootstrap(replicates=50, permutation_pool=pool, seed=9)
    result = compare_orders(scorer, documents, test).result

    rng = np.random.default_rng([comparing._TEST_SETS, 9])
    draws = rng.integers(3, size=(50, 3))
    outcomes = []
    for index, document in enumerate(documents):
        count = pool or int((draws == index).sum())
        orders_rng = np.random.default_rng([comparing._ORDERS, 9, index])
        orders = Shuffle().draw(document, count, orders_rng)
        outcomes.append([outcome(document, order) for order in orders])
    if pool:
        picks = rng.integers(pool, size=(50, 3))
        accuracies = [
            np.mean([outcomes[index][pick] for index, pick in zip(*test_set, strict=True)])
            for test_set in zip(draws, picks, strict=True)
        ]
        variances = [np.var(of_document, ddof=1) / pool for of_document in outcomes]
        assert result.pool_error == pytest.approx(math.sqrt(sum(variances)) / 3)
        assert sum(variances) > 0 and scorer.num_scored <= 3 * (1 + pool)
    else:
        unused = list(map(iter, outcomes))
        accuracies = [np.mean([next(unused[index]) for index in test_set]) for test_set in draws]
    assert 0 < np.std(accuracies)
    assert result.mean == pytest.approx(np.mean(accuracies))
    assert result.sd == pytest.approx(np.std(accuracies, ddof=1))
    assert (result.replicates, result.documents, result.pairs) == (50, 3, 150)
    assert (result.permutations, result.pool) == (1, pool)


@pytest.mark.parametrize("context_order", [0, 1, None])
def test_ties_count_half_whatever_the_order_of_summation(context_order):
    # 0.1 * word has no exact sum: plain left-to-right addition would break ties at random.
    documents = [sentences(*range(3, 3 + n)) for n in (4, 9, 23)]
    scorer = FakeScorer(order_blind, context_order)
    assert compare_orders(scorer, documents, Fixed()).result.mean == 0.5
    assert compare_orders(scorer, documents, Bootstrap(replicates=10)).result.mean == 0.5
    assert compare_orders(scorer, documents, FirstSentence()).result == 0.5


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
    expected = compare_orders(whole, documents, test).result
    assert compare_orders(pairs, documents, test).result == expected
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
                yield request, [np.array(of_sentence) for of_sentence in nll[first_scored:]]

    documents = [sentences(*rng.permutation(17)[:n] + 3) for n in (2, 3, 4, 8)]
    documents.append(sentences(4, 5, 4, 6))
    whole, pieces = Remembers(None), Remembers(None, context_order)
    expected = compare_orders(whole, documents, Bootstrap(replicates=200)).result
    assert compare_orders(pieces, documents, Bootstrap(replicates=200)).result == expected
    assert 0 < expected.mean < 1
    assert pieces.num_scored != whole.num_scored


def test_a_document_of_equal_sentences_ties():
    document = sentences(4, 4, 4)
    scorer = FakeScorer(lambda before, word: float(np.random.default_rng().random()))
    assert compare_orders(scorer, [document], Fixed()).result.mean == 0.5


@pytest.mark.parametrize("test", [Fixed(), Bootstrap(replicates=50)], ids=["fixed", "bootstrap"])
def test_a_seed_gives_the_same_result_and_another_seed_another_result(test):
    documents = [sentences(*np.random.default_rng(n).permutation(9) + 3) for n in range(12)]
    first, again, different = (
        compare_orders(
            FakeScorer(ascending), documents, dataclasses.replace(test, seed=seed)
        ).result
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first.mean != different.mean


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Fixed, {}, [sentences(3)]), "no document has two sentences; choose longer"),
        (
            (Bootstrap, {"shuffle": Shuffle(fix_first=7)}),
            "has two sentences after the first 7, which are fixed; ch",
        ),
        ((Shuffle, {"fix_first": -1}), "fix_first is -1; expected at least 0"),
        ((FirstSentence, {"positions": 0}), "positions is 0; expected at least 1"),
        ((Fixed, {"permutations": 0}), "permutations is 0; expected at least 1"),
        ((Bootstrap, {"replicates": 0}), "replicates is 0; expected at least 1"),
        ((Bootstrap, {"seed": -1}), "seed is -1; expected at least 0"),
        ((Bootstrap, {"permutation_pool": -1}), "pool is -1; expected 0, or at least 2"),
        ((Bootstrap, {"permutation_pool": 1}), "pool is 1; expected 0, or at least 2"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], message: str):
    kind, options, *documents = arguments
    with pytest.raises(InputError, match=message):
        compare_orders(
            FakeScorer(ascending), documents[0] if documents else SORTED, kind(**options)
        )


def log_prob(nll, words):
    return -math.fsum(nll(a, b) for a, b in itertools.pairwise([None, *words]))


def preference(nll, words, reordered):
    """1 if a text is likelier than its words in another order, 0.5 for a tie."""
    return float(np.sign(log_prob(nll, words) - log_prob(nll, reordered))) / 2 + 0.5


def of_neighbours(seed=0):
    table = np.random.default_rng(seed).normal(size=(31, 31))
    return lambda before, word: table[30 if before is None else before, word]


@pytest.mark.parametrize("context_order", [None, 1])
@pytest.mark.parametrize("fix_first", [0, 1, 2])
def test_accuracy_with_first_sentences_kept_against_all_permutations(context_order, fix_first):
    """Each of many permutations is as likely as any other: accuracy is their plain mean."""
    nll = of_neighbours()
    words = [(5, 9, 3, 7), (8, 4, 11, 6, 10), (12, 3, 3, 12), (13, 14, 15)]
    movable = [text for text in words if len(text) - fix_first >= 2]
    expected = []
    for text in movable:
        head, tail = text[:fix_first], text[fix_first:]
        orders = [head + rest for rest in itertools.permutations(tail) if rest != tail]
        expected.append(np.mean([preference(nll, text, order) for order in orders] or [0.5]))
    scorer = FakeScorer(nll, context_order)
    documents = [sentences(*text) for text in words]
    test = Fixed(Shuffle(fix_first=fix_first), seed=3, permutations=3000)
    result = compare_orders(scorer, documents, test).result
    assert result.mean == pytest.approx(np.mean(expected), abs=0.01)
    assert (result.documents, result.omitted) == (len(movable), len(words) - len(movable))
    assert result.fix_first == fix_first


@pytest.mark.parametrize("context_order", [None, 1])
def test_the_first_sentence_in_all_other_places_by_brute_force(context_order):
    nll = of_neighbours(1)
    words = [(5, 9, 3, 7, 4, 6), (8, 4), (3, 3, 4, 3), (13, 14, 15), (6, 6)]
    expected = []
    for text in words:
        orders = [(*text[1 : j + 1], text[0], *text[j + 1 :]) for j in range(1, len(text))]
        orders = [order for order in orders if order != text]
        expected.append(np.mean([preference(nll, text, order) for order in orders] or [0.5]))
    documents = [sentences(*text) for text in words]
    scorer = FakeScorer(nll, context_order)
    result = compare_orders(scorer, [*documents, sentences(9)], FirstSentence(positions=5)).result
    assert result == pytest.approx(np.mean(expected)) and 0 < result < 1
    # Fewer places are some of them.
    few = [
        compare_orders(scorer, documents[:1], FirstSentence(positions=2, seed=seed)).result
        for seed in range(30)
    ]
    assert np.mean(few) == pytest.approx(expected[0], abs=0.15)
    assert {2 * value for value in few} <= {0.0, 1.0, 2.0}


def test_a_first_sentence_that_identifies_documents_is_warned_of():
    free, kept = (
        compare_orders(
            FakeScorer(ascending), SORTED, Fixed(Shuffle(fix_first=n), permutations=2)
        ).result
        for n in (0, 1)
    )
    assert free.warning == ""
    warning = dataclasses.replace(free, first_sentence=1.0).warning
    assert warning.startswith("warning: the first sentence identifies documents") and (
        "accuracy is 100.00%; add --fix_first=1 to measure the order of all" in warning
    )
    assert dataclasses.replace(free, first_sentence=0.7499).warning == ""
    assert dataclasses.replace(kept, first_sentence=1.0).warning == ""


def test_results_as_text_and_json():
    result = compare_orders(FakeScorer(ascending), SORTED, Bootstrap(replicates=3, seed=5)).result
    value = dataclasses.asdict(result)
    expected = {"kind": "bootstrap", "mean": 1.0, "sd": 0.0, "documents": 4, "pairs": 12, "seed": 5}
    assert expected.items() <= value.items()
    assert value["words"] == sum(len(sentence) for document in SORTED for sentence in document)
    assert str(result) == (
        "order-discrimination accuracy (bootstrap): 100.00%, standard deviation 0.00% over 3 test "
        "sets of 4 documents; 50% is chance, ties count half"
    )
