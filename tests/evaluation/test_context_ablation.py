"""What the context is worth, against plain loops with a scorer that can be worked out by hand."""

import types
from typing import Any

import numpy as np
import pytest

from dclm_jax.data.datasets import Dataset
from dclm_jax.data.encoding import Encoded
from dclm_jax.evaluation.context_ablation import ContextAblation
from dclm_jax.scoring.perplexity import perplexity_of
from dclm_jax.scoring.scorer import Scorer, sentences_to_score


class Neighbours(Scorer):
    """-log P of a word is its id / 10, and 1 more if its sentence and the sentence before begin
    with the same word; END has 0.5."""

    vocab_size = 30
    context_order = None
    objective = "words"
    first_word_end = 3

    def score(self, documents):
        for document in documents:
            nll, before = [], None
            sentences, first_scored = sentences_to_score(document)
            contexts = getattr(document, "contexts", None) or sentences
            for t, ids in enumerate(sentences):
                repeats = float(before == ids[0])
                nll.append(np.array([*(word / 10 + repeats for word in ids), 0.5], np.float32))
                before = contexts[t][0] if t < len(contexts) else None
            yield document, nll[first_scored:]


def ids(*words):
    return np.array(words, np.int32)


DOCUMENTS = [
    [ids(3, 4), ids(3), ids(5, 6, 7)],
    [ids(8)],
    [ids(9, 3), ids(9, 4)],
]


def measured(documents, seed=0, context_order=None):
    scorer = Neighbours()
    scorer.context_order = context_order
    dataset = Dataset(lambda: map(Encoded, documents), len(documents), {"split": "test"})
    lm: Any = types.SimpleNamespace(scorer=scorer)
    return ContextAblation(seed).measure(lm, dataset, lambda done: None)


def test_perplexities_with_the_context_exchanged_or_removed():
    """One repetition (3 3) of two targets, and one (9 9) of three; none without context."""
    original = perplexity_of(Neighbours(), DOCUMENTS).perplexity
    of_seeds = [measured(DOCUMENTS, seed) for seed in range(20)]
    assert original == pytest.approx(of_seeds[0].none * np.exp(3 / 17), rel=1e-6)
    orders = {perplexities.shuffled for perplexities in of_seeds}
    assert min(orders) < original, "3 5 3 has no repetition"
    # No document begins like another document.
    for perplexities in of_seeds:
        assert perplexities.other == pytest.approx(perplexities.none, rel=1e-6)


def test_other_contexts_are_of_another_document():
    """The second sentence begins with the word of the other document's first sentence, and follows
    its own: it repeats in the other context alone."""
    documents = [[ids(3, 7), ids(4, 5, 6)], [ids(4, 8), ids(3, 5)]]
    perplexities = measured(documents)
    assert perplexities.none == pytest.approx(perplexity_of(Neighbours(), documents).perplexity)
    assert perplexities.other == pytest.approx(perplexities.none * np.exp((3 + 2) / 13), rel=1e-6)


def test_models_and_documents_without_context():
    single = measured(DOCUMENTS[:1])
    assert single.other is None and single.shuffled
    assert measured([*DOCUMENTS[:1], *DOCUMENTS[:1]]).other is None
    plain = measured(DOCUMENTS, context_order=0)
    assert plain.shuffled == plain.other == plain.none
    assert plain.none == perplexity_of(Neighbours(), DOCUMENTS).perplexity
    assert measured(DOCUMENTS[:1], context_order=0).other is None
