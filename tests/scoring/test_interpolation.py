"""Models side by side and mixed, against loops over probabilities and a fine grid of weights."""

import math
from typing import Any

import numpy as np
import pytest

from dclm_jax.data.datasets import Dataset
from dclm_jax.data.encoding import Encoded
from dclm_jax.data.vocabulary import END
from dclm_jax.errors import InputError
from dclm_jax.scoring import interpolation
from dclm_jax.scoring.interpolation import MixedScorer
from dclm_jax.scoring.perplexity import perplexity_of
from tests.scoring.support import FakeScorer


def fake_scorers(*windows: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [FakeScorer(rng.exponential(2, 10), window) for window in windows]


def random_documents(count, seed=1):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        sentences = [rng.integers(2, 9, rng.integers(0, 7)) for _ in range(rng.integers(1, 5))]
        yield Encoded(sentences, [["NN" if word > 5 else "IN" for word in s] for s in sentences])


def plain_mixture(weight, scorers, documents):
    """Sum of nats of a mixture, token by token."""
    total = 0.0
    for document in documents:
        for ids in document.sentences:
            for word in [*ids, END]:
                p, q = (math.exp(-float(scorer.table[word])) for scorer in scorers)
                total -= math.log(weight * p + (1 - weight) * q)
    return total


@pytest.mark.parametrize("windows", [(1, 7), (7, 1), (4, 4)])
def test_documents_are_read_once_and_in_a_bounded_window(windows):
    read, done, ahead = [], [], []

    def stream():
        for document in random_documents(60):
            read.append(document)
            ahead.append(len(read) - len(done))
            yield document

    first, second = fake_scorers(*windows)
    mixed = MixedScorer(first, second, 0.3)
    measured = perplexity_of(mixed, stream(), on_document=done.append)
    assert len(read) == len(done) == measured.documents == 60
    assert max(ahead) <= max(windows)
    assert done == list(range(1, 61))


def test_the_perplexity_of_a_mixture():
    first, second = fake_scorers(1, 3)
    mixed = perplexity_of(MixedScorer(first, second, 0.3), random_documents(20))
    assert mixed.nll == pytest.approx(plain_mixture(0.3, [first, second], random_documents(20)))
    assert mixed.tokens == perplexity_of(first, random_documents(20)).tokens


def test_mixing_by_hand():
    a, b = np.array([0.5, 2.0, 0.0], np.float32), np.array([1.5, 0.25, 3.0], np.float32)
    expected = [
        -math.log(0.2 * math.exp(-p) + 0.8 * math.exp(-q)) for p, q in zip(a, b, strict=True)
    ]
    mixed = interpolation.mixed_nll(0.2, a, b)
    assert mixed.dtype == np.float64
    np.testing.assert_allclose(mixed, expected, rtol=1e-14)
    np.testing.assert_array_equal(interpolation.mixed_nll(1.0, a, b), a)
    np.testing.assert_array_equal(interpolation.mixed_nll(0.0, a, b), b)


def test_mixing_does_not_underflow():
    a = np.array([2000, 1e5, math.inf, math.inf], np.float32)
    b = np.array([2000, 3000, 4.0, math.inf], np.float32)
    expected = [2000, 3000 + math.log(2), 4 + math.log(2), math.inf]
    np.testing.assert_allclose(interpolation.mixed_nll(0.5, a, b), expected, rtol=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_weight_of_a_fine_grid(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.gamma(2, 2 + seed, (2, 400)).astype(np.float32)
    weights = np.linspace(0, 1, 10_001)[:, None]
    p, q = np.exp(-a.astype(np.float64)), np.exp(-b.astype(np.float64))
    likelihoods = np.log(weights * p + (1 - weights) * q).sum(axis=1)
    weight = interpolation.best_weight(a, b)
    assert weight == pytest.approx(weights[likelihoods.argmax(), 0], abs=1e-4)
    assert 0.05 < weight < 0.95
    assert -interpolation.mixed_nll(weight, a, b).sum() >= likelihoods.max()


def test_the_best_weight_at_the_ends_and_where_probabilities_underflow():
    low, high = np.full(5, 1.0, np.float32), np.full(5, 2.0, np.float32)
    assert interpolation.best_weight(low, high) == 1
    assert interpolation.best_weight(high, low) == 0
    assert interpolation.best_weight(low, low) == 0.5
    # Certain of four of five tokens and wrong on one, beside a model that is hopeless everywhere.
    a, b = np.array([0, 0, 0, 0, math.inf], np.float32), np.full(5, 50, np.float32)
    assert interpolation.best_weight(a, b) == pytest.approx(0.8, abs=1e-9)
    assert interpolation.best_weight(b, a) == pytest.approx(0.2, abs=1e-9)
    # Each is certain where the other is hopeless: the weight is the share of its tokens.
    a = np.array([3000, 2000, 1.0, math.inf, math.inf], np.float32)
    b = np.array([2000, 3000, math.inf, 1.0, math.inf], np.float32)
    assert interpolation.best_weight(a, b) == pytest.approx(0.5, abs=1e-9)
    assert interpolation.best_weight(a[:3], b[:3]) == pytest.approx(2 / 3, abs=1e-9)
    with pytest.raises(InputError, match="a score of the text to tune on is NaN; check"):
        interpolation.best_weight(a, np.array([0, 0, 0, 0, math.nan], np.float32))


def test_tuning_reports_what_it_was_tuned_on():
    scorers = fake_scorers(2, 5)
    seen = []
    dataset = Dataset(lambda: random_documents(30), 30, {"split": "valid"})
    weight, perplexities, source = interpolation.tune(scorers, dataset, on_document=seen.append)
    assert source == {"split": "valid"}
    assert seen == list(range(1, 31))
    documents = list(random_documents(30))
    assert perplexities[:2] == [perplexity_of(scorer, documents) for scorer in scorers]
    assert perplexities[2].nll == pytest.approx(plain_mixture(weight, scorers, documents))
    assert perplexities[2].tokens == perplexities[0].tokens
    grid = [plain_mixture(candidate, scorers, documents) for candidate in np.linspace(0, 1, 101)]
    assert weight == pytest.approx(np.argmin(grid) / 100, abs=0.01)
    assert 0 < perplexities[2].nll <= min(grid)


def test_nothing_to_score():
    scorers = fake_scorers(1, 1)
    for documents in ([], [Encoded([])]):
        with pytest.raises(InputError, match="there are no words to score"):
            perplexity_of(scorers[0], documents)
        with pytest.raises(InputError, match="there are no words to tune the weight on"):
            interpolation.tune(scorers, Dataset(lambda none=documents: none, None, {}))


def test_models_of_words_and_of_bags_do_not_compare():
    words, bags = fake_scorers(1, 1)
    bags.objective = "bags"
    message = "some models predict bags of words and others words, so their perplexities are not"
    with pytest.raises(InputError, match=f"^{message}"):
        MixedScorer(words, bags, 0.5)
    alone = perplexity_of(bags, random_documents(2))
    assert alone.objective == "bags" and alone.tokens == alone.words
