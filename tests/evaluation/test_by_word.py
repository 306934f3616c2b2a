"""Every sentence with its context and by itself, against scoring it as a document of its own."""

import itertools

import numpy as np
import pytest

from dclm_jax.evaluation import by_word
from dclm_jax.evaluation.scoring import Scorer
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
def test_alone_is_scored_as_a_document_of_one_sentence(name, monkeypatch):
    monkeypatch.setattr(by_word, "_WINDOW_TOKENS", 12)
    model = simple_model(name)
    scorer = Scorer(model, random_params(model))
    differ = []
    for (document, nll, alone), (_, expected) in zip(
        by_word.with_no_context(scorer, iter(DOCUMENTS)), scorer.score(DOCUMENTS), strict=True
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


class Counting:
    """Scores 1 nat a target, and keeps what it was asked for and how much it had been given."""

    context_order = None

    def __init__(self):
        self.asked, self.given = [], 0

    def score(self, documents):
        for document in documents:
            self.asked.append([tuple(words.tolist()) for words in document])
            yield document, [np.ones(len(words) + 1, np.float32) for words in document]


def test_a_sentence_of_a_window_is_read_once_and_windows_are_bounded(monkeypatch):
    scorer = Counting()
    assert len(list(by_word.with_no_context(scorer, DOCUMENTS))) == len(DOCUMENTS)
    whole, alone = scorer.asked[: len(DOCUMENTS)], scorer.asked[len(DOCUMENTS) :]
    assert [len(document) for document in whole] == [4, 1, 0, 4]
    # The first sentences of documents are not among them.
    assert alone == [[(6,)], [(8, 2, 3)], [(5, 3, 7, 4)], [()]]

    monkeypatch.setattr(by_word, "_WINDOW_TOKENS", 20)
    scorer = Counting()
    endless = itertools.cycle([DOCUMENTS[0]])
    next(by_word.with_no_context(scorer, endless))
    # 13 targets a document.
    assert len(scorer.asked) == 2 + 2
