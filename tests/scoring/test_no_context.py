"""Every sentence with its context and by itself, against scoring it as a document of its own."""

import numpy as np
import pytest

from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.scoring.scorer import with_no_context
from tests.exhaustive import some
from tests.models.support import LANGUAGE_MODELS, random_params, simple_model

# Of each family, and of every context order.
USUAL = ("rnnlm", "ccdclm", "codclm", "rlm_seqbow_att_ef", "rnnslm")


def ids(*sentences):
    return [np.array(words, np.int32) for words in sentences]


DOCUMENTS = [
    ids((5, 3, 7, 4), (6,), (8, 2, 3), (6,)),
    ids((4,)),
    [],
    ids((10, 4), (5, 3, 7, 4), (), (6,)),
]


@pytest.mark.parametrize("name", some(USUAL, all=LANGUAGE_MODELS))
def test_alone_is_scored_as_a_document_of_one_sentence(name):
    model = simple_model(name)
    scorer = NeuralScorer(model, random_params(model))
    differ = []
    for (document, nll, alone), (_, expected) in zip(
        with_no_context(scorer, iter(DOCUMENTS)), scorer.score(DOCUMENTS), strict=True
    ):
        assert len(nll) == len(alone) == len(document)
        for nll_M, expected_M in zip(nll, expected, strict=True):
            np.testing.assert_array_equal(nll_M, expected_M)
        for t, (sentence, alone_M) in enumerate(zip(document, alone, strict=True)):
            ((_, (by_itself,)),) = scorer.score([[sentence]])
            np.testing.assert_allclose(alone_M, by_itself, rtol=1e-5, atol=1e-6)
            if t == 0 or scorer.context_order == 0:
                np.testing.assert_array_equal(alone_M, nll[t])
            else:
                differ.append(not np.allclose(alone_M, nll[t], atol=1e-4))
    assert scorer.context_order == 0 or any(differ)


def test_windows_of_documents_are_bounded():
    """A document of two sentences is followed by many of one, which have nothing to score alone."""
    read = 0

    def documents():
        nonlocal read
        yield ids((5, 3), (4,))
        for _ in range(1000):
            read += 1
            yield ids((6,))

    model = simple_model("ccdclm")
    next(with_no_context(NeuralScorer(model, random_params(model), batch_size=2), documents()))
    # A window of the scorer has 16 documents.
    assert read == 15
