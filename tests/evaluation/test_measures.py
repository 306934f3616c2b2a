"""Measures of every target, against plain loops with a scorer that can be worked out by hand."""

import collections

import numpy as np
import pytest

from dclm_jax.evaluation import measures
from dclm_jax.evaluation.measures import ByDocument, BySentence, ByToken
from dclm_jax.evaluation.perplexity import corpus_perplexities
from tests.evaluation.test_context_ablation import DOCUMENTS, Neighbours


@pytest.mark.parametrize("bounds", [range(6), (0, 1, 3), (0, 2, 40)])
def test_sums_by_position_and_document_against_a_loop(bounds, monkeypatch):
    monkeypatch.setattr(measures.ByPosition, "BOUNDS", bounds)
    new = ByToken(), BySentence(), ByDocument()
    (sums,) = corpus_perplexities([Neighbours()], DOCUMENTS, measures=[new])
    by_token, by_sentence, by_document = new[0].value(), new[1].value(), new[2].value()
    for d, (_, nll) in enumerate(Neighbours().score(DOCUMENTS)):
        tokens, sentences = collections.defaultdict(list), collections.defaultdict(list)
        for t, nats in enumerate(nll):
            for n, value in enumerate(nats):
                tokens[max(bound for bound in bounds if bound <= n)].append(float(value))
                sentences[max(bound for bound in bounds if bound <= t)].append(float(value))
        for value, expected in ((by_token, tokens), (by_sentence, sentences)):
            assert value["count"][d] == [len(expected[place]) for place in bounds]
            np.testing.assert_allclose(
                value["nll"][d], [sum(expected[place]) for place in bounds], atol=5e-4
            )
        assert by_document[d] == pytest.approx(sum(map(float, np.concatenate(nll))), abs=5e-4)
    assert sums.tokens == sum(map(sum, by_token["count"])) == 17
    assert sums.nll == pytest.approx(sum(by_document), abs=2e-3)


def test_bags_have_no_end():
    class Bags(Neighbours):
        objective = "bags"

    by_token = ByToken()
    corpus_perplexities([Bags()], DOCUMENTS, measures=[[by_token]])
    # Of each document a word at the first position of every sentence, then those at the second.
    assert [counts[:3] for counts in by_token.value()["count"]] == [[3, 2, 1], [1, 0, 0], [2, 2, 0]]


def test_ranges_of_positions():
    assert ByToken.ranges() == ["1", "2", "3-5", "6-10", "11-20", "21+"]
