"""Caches against loops over targets in numpy, and what must hold of any of them."""

import itertools
import math
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from dclm_jax.coherence.compare import Fixed, compare_orders
from dclm_jax.scoring import caches
from dclm_jax.scoring.caches import (
    CachedScorer,
    CacheSetting,
    neural_cache,
    unigram_cache,
)
from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.scoring.perplexity import perplexity_of
from dclm_jax.scoring.scorer import Continuation, SummedScorer
from tests import oracles
from tests.exhaustive import also
from tests.models.support import LANGUAGE_MODELS, VOCAB, random_params, simple_model
from tests.scoring.support import FakeScorer

MODELS = ("adclm",)
OTHERS = also(name for name in LANGUAGE_MODELS if name not in (*MODELS, "rnnslm"))
# Windows of a part of a sentence, of a part of a document, of all of it.
NEURAL = (
    CacheSetting(0.7, 3),
    CacheSetting(0.2, 12),
    CacheSetting(0.2, 12, 4.0),
    CacheSetting(0.0, 1000, 20.0),
)
UNIGRAM = (CacheSetting(strength=0.5), CacheSetting(strength=20.0))


def documents(seed: int = 0) -> list[list[np.ndarray]]:
    """Of more sentences than a block has, of sentences longer than a window, of none."""
    rng = np.random.default_rng(seed)
    lengths = [[3, 0, 5], [], [2] * 9 + [6], [1]]
    return [
        [rng.integers(2, VOCAB, length) for length in sentence_lengths]
        for sentence_lengths in lengths
    ]


class Recorder(oracles.Reader):
    """Keeps the features, the probability of the target, and the target of each prediction."""

    def predict(self, features, W, b, target, t, n, copies=()):
        super().predict(features, W, b, target, t, n, copies)
        prediction = features, math.exp(-self.nll[-1][-1]), target
        self.predicted = [*getattr(self, "predicted", []), prediction]


def predictions(model: Any, params: Any, document: Any) -> list[tuple]:
    reader: Any = Recorder(model, jax.tree.map(np.asarray, params), None, document)
    oracles.READERS[model.name](reader, document)
    return reader.predicted


def plain_neural(predicted: list[tuple], setting: CacheSetting) -> list[float]:
    """p_cache of every target."""
    probabilities = []
    for t, (h, p, w) in enumerate(predicted):
        past = predicted[max(0, t - setting.window) : t]
        exps = [math.exp(setting.theta * float(h @ h_i)) for h_i, _, _ in past]
        of_word = sum(e for e, (_, _, w_i) in zip(exps, past, strict=True) if w_i == w)
        n, s = len(past), setting.strength
        probabilities.append((s * p + n * of_word / sum(exps)) / (s + n) if past else p)
    return probabilities


def plain_unigram(predicted: list[tuple], setting: CacheSetting) -> list[float]:
    probabilities, past = [], []
    for _, p, w in predicted:
        probabilities.append(
            (setting.strength * p + past.count(w)) / (setting.strength + len(past))
        )
        past.append(w)
    return probabilities


def candidates(cache: Any, settings: Any, asked: Any = None) -> list[np.ndarray]:
    """Of each document the nats [T, 1 + G] of all its targets."""
    asked = documents() if asked is None else asked
    pairs = list(cache(iter(asked), settings))
    assert [id(document) for document, _ in pairs] == list(map(id, asked))
    none = np.zeros((0, 1 + len(settings)))
    return [np.concatenate([none, *nll]) for _, nll in pairs]


@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_both_caches_equal_loops_over_targets(name, x64, monkeypatch):
    # Of two pieces in a sentence.
    monkeypatch.setattr(caches, "_PIECE", 4)
    model = simple_model(name)
    params = random_params(model)
    neural = partial(neural_cache, NeuralScorer(model, params, batch_size=2))
    unigram = partial(unigram_cache, NeuralScorer(model, params, batch_size=2))
    nll_of_caches = zip(candidates(neural, NEURAL), candidates(unigram, UNIGRAM), strict=True)
    for document, (of_neural, of_unigram) in zip(documents(), nll_of_caches, strict=True):
        if not document:
            assert not len(of_neural) and not len(of_unigram)
            continue
        predicted = predictions(model, params, document)
        of_model = [p for _, p, _ in predicted]
        expected = [of_model, *(plain_neural(predicted, setting) for setting in NEURAL)]
        np.testing.assert_allclose(np.exp(-of_neural).T, expected, rtol=1e-6, atol=1e-9)
        expected = [of_model, *(plain_unigram(predicted, setting) for setting in UNIGRAM)]
        np.testing.assert_allclose(np.exp(-of_unigram).T, expected, rtol=1e-6)
        # At theta = 0 and with the same strength they are the same cache.
        np.testing.assert_allclose(of_neural[:, -1], of_unigram[:, -1], rtol=1e-6)


class Small:
    """Both caches over one model, mixed with it."""

    def __init__(self):
        self.model = simple_model("ccdclm")
        self.params = random_params(self.model)
        self.scorer = NeuralScorer(self.model, self.params)

    def scorers(self, batch_size: int = 4) -> list[CachedScorer]:
        scorer = NeuralScorer(self.model, self.params, batch_size=batch_size)
        return [
            CachedScorer(neural_cache, scorer, CacheSetting(0.5, 12, 2.0), 0.3),
            CachedScorer(unigram_cache, scorer, CacheSetting(strength=3.0), 0.3),
        ]


@pytest.fixture(scope="module")
def small() -> Small:
    return Small()


def scores(scorer: Any, asked: Any = None) -> list[list[np.ndarray]]:
    return [nll for _, nll in scorer.score(documents() if asked is None else asked)]


@pytest.mark.parametrize("kind", [0, 1])
def test_a_mixture_of_model_and_cache_is_one_more_scorer(small, kind):
    scorer = small.scorers()[kind]
    cache, settings = (
        (partial(neural_cache, small.scorer), [CacheSetting(0.5, 12, 2.0)]),
        (partial(unigram_cache, small.scorer), [CacheSetting(strength=3.0)]),
    )[kind]
    expected = [
        -np.log(0.7 * np.exp(-nll[:, 0]) + 0.3 * np.exp(-nll[:, 1]))
        for nll in candidates(cache, settings)
    ]
    nll_of_documents = scores(scorer)
    for nll, flat in zip(nll_of_documents, expected, strict=True):
        np.testing.assert_allclose(np.concatenate([np.zeros(0), *nll]), flat, rtol=1e-5)
    measured = perplexity_of(SummedScorer(scorer), documents())
    targets = sum(len(words) + 1 for document in documents() for words in document)
    assert measured.tokens == targets and measured.vocabulary_size == VOCAB
    assert measured.perplexity == pytest.approx(
        math.exp(sum(nll.sum() for nll in expected) / targets), rel=1e-5
    )
    # Of a continuation the last sentence, with all before it in the cache.
    continued = scores(scorer, map(Continuation, documents()))
    for last, nll in zip(continued, nll_of_documents, strict=True):
        assert len(last) == min(1, len(nll))
        for a, b in zip(last, nll[-1:], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("kind", [0, 1])
def test_neither_other_documents_nor_their_number_nor_what_comes_later_changes_a_score(small, kind):
    together = scores(small.scorers(4)[kind])
    alone = [scores(small.scorers(1)[kind], [document])[0] for document in documents()]
    for a, b in zip(together, alone, strict=True):
        for of_batch, of_document in zip(a, b, strict=True):
            np.testing.assert_allclose(of_batch, of_document, rtol=1e-5)
    long = documents()[2]
    changed = [*long[:-1], (long[-1] - 1) % (VOCAB - 2) + 2]
    before, after = (scores(small.scorers()[kind], [document])[0] for document in (long, changed))
    for of_long, of_changed in zip(before[:-1], after[:-1], strict=True):
        np.testing.assert_array_equal(of_long, of_changed)
    assert before[-1][0] != after[-1][0]


@pytest.mark.parametrize("kind", [0, 1])
def test_probabilities_sum_to_one(small, kind):
    """Of all words that may follow a document's first words, and END."""
    before = [np.array([3, 4, 3]), np.array([4, 7])]
    words = [w for w in range(VOCAB) if w != 1]
    asked = [[*before, np.array([3, w])] for w in words]
    continued = scores(small.scorers()[kind], asked)
    (ended,) = scores(small.scorers()[kind], [[*before, np.array([3])]])
    total = sum(np.exp(-nll[-1][1]) for nll in continued) + np.exp(-ended[-1][1])
    assert total == pytest.approx(1, abs=1e-5)


def many_documents() -> list[list[np.ndarray]]:
    rng = np.random.default_rng(3)
    return [
        [rng.integers(2, VOCAB, rng.integers(1, 9)) for _ in range(rng.integers(2, 9))]
        for _ in range(12)
    ]


def test_the_unigram_cache_alone_scores_exactly_half(small):
    """It is exchangeable: Polya's urn, whose probability has a closed form without any order."""
    base = FakeScorer(-np.log(np.random.default_rng(0).dirichlet(np.ones(VOCAB))))
    strength = 7.3
    setting = CacheSetting(strength=strength)
    alone = CachedScorer(unigram_cache, base, setting, 1.0)
    for document, nll in alone.score(many_documents()):
        targets = np.concatenate([np.append(ids, 1) for ids in document])
        log_prob = math.lgamma(strength) - math.lgamma(strength + len(targets))
        for word, count in zip(*np.unique(targets, return_counts=True), strict=True):
            of_word = strength * math.exp(-float(base.table[word]))
            log_prob += math.lgamma(of_word + count) - math.lgamma(of_word)
        assert -math.fsum(itertools.chain(*nll)) == pytest.approx(log_prob, abs=1e-6)
    measured = compare_orders(alone, many_documents(), Fixed()).result
    assert (measured.mean, measured.sd) == (0.5, 0.0)
    # Mixed with the model, or over one that reads the words before, order makes a difference.
    for scorer in (
        CachedScorer(unigram_cache, base, setting, 0.5),
        CachedScorer(unigram_cache, small.scorer, setting, 1.0),
    ):
        assert compare_orders(scorer, many_documents(), Fixed(permutations=2)).result.mean != 0.5
