"""What the context is worth, against plain loops with a scorer that can be worked out by hand."""

import types

import numpy as np
import pytest

from dclm_jax.data.encoding import Encoded
from dclm_jax.evaluation import context_ablation
from dclm_jax.evaluation.context_ablation import ContextAblation
from dclm_jax.evaluation.datasets import Dataset
from dclm_jax.evaluation.perplexity import perplexity_of
from dclm_jax.evaluation.scoring import sentences_to_score


class Neighbours:
    """-log P of the word at place n is its id / 10, and 1 more for each that the last sentence of
    the document before it began with the same word as this one; END has 0.5."""

    vocab_size = 30
    context_order = None
    objective = "words"
    first_word_end = 3

    def score(self, documents):
        for document in documents:
            nll, before = [], None
            sentences, first_scored = sentences_to_score(document)
            for ids in sentences:
                repeats = float(before == ids[0])
                nll.append(np.array([*(word / 10 + repeats for word in ids), 0.5], np.float32))
                before = ids[0]
            yield document, nll[first_scored:]


def ids(*words):
    return np.array(words, np.int32)


DOCUMENTS = [
    [ids(3, 4), ids(3), ids(5, 6, 7)],
    [ids(8)],
    [ids(9, 3), ids(9, 4)],
]


@pytest.mark.parametrize("name", context_ablation.ARRANGEMENTS)
def test_an_arrangement_holds_the_same_sentences(name):
    arranged = context_ablation.ARRANGEMENTS[name](DOCUMENTS, np.random.default_rng(0))
    key = lambda sentence: tuple(sentence.tolist())  # noqa: E731
    flat = [key(sentence) for document in arranged for sentence in document]
    assert sorted(flat) == sorted(key(sentence) for document in DOCUMENTS for sentence in document)
    lengths = [len(document) for document in arranged]
    assert lengths == ([1] * 6 if name == "none" else [3, 1, 2])
    if name == "shuffled":
        for document, shuffled in zip(DOCUMENTS, arranged, strict=True):
            assert sorted(map(key, document)) == sorted(map(key, shuffled))


def test_arrangements_move_sentences():
    """Sentences that are alike in each document meet others where all are mixed, and only there."""
    documents = [[ids(3 + d, 20 + t) for t in range(6)] for d in range(6)]
    firsts = {
        name: [
            [int(sentence[0]) for sentence in document]
            for document in context_ablation.ARRANGEMENTS[name](documents, np.random.default_rng(1))
        ]
        for name in ("shuffled", "mixed")
    }
    assert firsts["shuffled"] == [[3 + d] * 6 for d in range(6)]
    assert firsts["mixed"] != firsts["shuffled"]
    shuffled = context_ablation.ARRANGEMENTS["shuffled"](documents, np.random.default_rng(1))
    assert all(
        [int(sentence[1]) for sentence in document] != list(range(20, 26)) for document in shuffled
    )


def test_perplexity_of_arrangements():
    """One repetition (3 3) of two targets, and one (9 9) of three; none where contexts are gone."""
    original = perplexity_of(Neighbours(), DOCUMENTS)
    lm = types.SimpleNamespace(scorer=Neighbours())
    dataset = Dataset(lambda: map(Encoded, DOCUMENTS), len(DOCUMENTS), {"split": "test"})
    measured = [ContextAblation(seed).measure(lm, dataset, lambda done: None) for seed in range(20)]
    assert original.perplexity == pytest.approx(measured[0].none * np.exp(3 / 17), rel=1e-6)
    single = Dataset(lambda: map(Encoded, DOCUMENTS[:1]), 1, {"split": "test"})
    without_context = types.SimpleNamespace(scorer=Neighbours())
    without_context.scorer.context_order = 0
    for model in (lm, without_context):
        assert ContextAblation().measure(model, single, lambda done: None).mixed is None
    assert all(perplexities.mixed for perplexities in measured)
    orders = {perplexities.shuffled for perplexities in measured}
    assert min(orders) < original.perplexity, "3 5 3 has no repetition"
