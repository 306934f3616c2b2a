"""Dynamic evaluation against numpy, whose gradients are complex steps, parameter by parameter."""

import re
from typing import Any

import jax
import numpy as np
import pytest

from dclm_jax.coherence.compare import Fixed, compare_orders
from dclm_jax.errors import DivergenceError, InputError
from dclm_jax.scoring import dynamic
from dclm_jax.scoring.dynamic import DynamicScorer, root_mean_square
from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.scoring.scorer import Continuation
from tests import oracles
from tests.exhaustive import also
from tests.models.support import random_params, simple_model

VOCAB = 6
RATE, DECAY = 0.05, 0.3
# Beyond the reals, so that analytic functions have their slopes there without any difference.
STEP = 1e-30


def documents() -> list[list[np.ndarray]]:
    rng = np.random.default_rng(1)
    lengths = [[3, 1, 2, 4, 1], [], [2]]
    return [
        [rng.integers(2, VOCAB, length) for length in sentence_lengths]
        for sentence_lengths in lengths
    ]


def tiny(name: str) -> tuple[Any, Any]:
    model = simple_model(name, vocab_size=VOCAB, embedding_dim=2, hidden_dim=3)
    return model, random_params(model)


def plain(tree: Any, dtype: Any = float) -> Any:
    return jax.tree.map(lambda leaf: np.array(leaf, dtype), tree)


class PlainDocument:
    """A document read with other parameters in every sentence, which the context before keeps."""

    def __init__(self, model: Any, initial: Any, document: list):
        self.model, self.document = model, document
        self.params = [plain(initial)]

    def nll(self, step: int, last: Any) -> np.ndarray:
        """Of a sentence that is read with the parameters `last`."""
        params, document = [*self.params[:step], last], self.document[: step + 1]
        return oracles.read_with_moving_params(self.model, params, document).nll[step]

    def gradient(self, step: int, at: Any) -> Any:
        leaves, structure = jax.tree.flatten(plain(at, complex))
        slopes_of_leaves = [np.zeros(leaf.shape) for leaf in leaves]
        for leaf, slopes in zip(leaves, slopes_of_leaves, strict=True):
            for place in np.ndindex(leaf.shape):
                leaf[place] += 1j * STEP
                nll = self.nll(step, jax.tree.unflatten(structure, leaves))
                slopes[place] = nll.sum().imag / STEP
                leaf[place] -= 1j * STEP
        return jax.tree.unflatten(structure, slopes_of_leaves)


def plain_dynamic(model: Any, params: Any, rms: Any, document: list) -> list[np.ndarray]:
    reading = PlainDocument(model, params, document)
    rms, nll = plain(rms), []
    numbers = np.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(rms)])
    mean = sum(numbers) / len(numbers)

    def moved(th, th_0, root, g):
        kept = np.minimum(DECAY * root / mean, 1.0)
        return th + kept * (th_0 - th) - RATE * g / (root + dynamic.EPSILON * mean)

    for step in range(len(document)):
        now = reading.params[-1]
        nll.append(np.real(reading.nll(step, now)))
        g = reading.gradient(step, now)
        reading.params.append(jax.tree.map(moved, now, reading.params[0], rms, g))
    return nll


def scores(scorer: Any, asked: Any) -> list[list[np.ndarray]]:
    return [nll for _, nll in scorer.score(asked)]


@pytest.mark.parametrize(
    "name",
    ["ccdclm", "adclm_3", "pointer_drnnlm", *also(["rnnlm", "drnnlm", "codclm", "adclm"])],
)
def test_scores_and_statistics_equal_numpy(name, x64):
    model, params = tiny(name)
    # Of all sizes, so that the decay of some is cut off at 1.
    rms = jax.tree.map(lambda leaf: np.abs(np.sin(np.arange(leaf.size) + 1.0)), params)
    rms = jax.tree.map(lambda a, b: (3 * a**4).reshape(b.shape), rms, params)
    scorer = DynamicScorer(model, params, lambda: rms, RATE, DECAY)
    for document, nll in scorer.score(documents()):
        expected = plain_dynamic(model, params, rms, document)
        assert len(nll) == len(expected)
        for a, b in zip(nll, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)

    training = [documents()[0][:3], documents()[2]]
    squares = []
    for document in training:
        reading = PlainDocument(model, params, document)
        reading.params *= len(document)
        for step in range(len(document)):
            squares.append(jax.tree.map(np.square, reading.gradient(step, reading.params[0])))
    expected = jax.tree.map(lambda *each: np.sqrt(sum(each) / len(each)), *squares)
    measured = dict(root_mean_square(model, params, training))
    if "initial_context" in measured:
        # The context is held fixed, that of the first sentence too.
        assert not np.any(measured.pop("initial_context")) and expected.pop("initial_context").any()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), measured, expected)


class Small:
    def __init__(self):
        self.model, self.params = tiny("rnnlm")
        self.rms = root_mean_square(self.model, self.params, documents())

    def scorer(self, rate: float = RATE) -> DynamicScorer:
        return DynamicScorer(self.model, self.params, lambda: self.rms, rate, DECAY)


@pytest.fixture(scope="module")
def small() -> Small:
    return Small()


def assert_equal(actual: list, expected: list) -> None:
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_document_begins_with_the_parameters_of_training(small):
    before = jax.tree.map(np.array, small.params)
    first, _, last = documents()
    together = scores(small.scorer(), documents())
    assert_equal(together[0], scores(small.scorer(), [first])[0])
    assert_equal(together[2], scores(small.scorer(), [last])[0])
    (continued,) = scores(small.scorer(), [Continuation(first)])
    assert_equal(continued, together[0][-1:])
    # What comes later changes nothing before; what was said before does.
    (changed,) = scores(small.scorer(), [[*first[:-1], first[-1][::-1] % 4 + 2]])
    assert_equal(changed[:-1], together[0][:-1])
    (plain_scores,) = scores(NeuralScorer(small.model, small.params), [first])
    np.testing.assert_allclose(together[0][0], plain_scores[0], rtol=1e-6)
    assert not np.allclose(together[0][1], plain_scores[1], rtol=1e-4)
    (unchanged,) = scores(small.scorer(rate=0.0), [first])
    for a, b in zip(unchanged, plain_scores, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, small.params, before)
    assert 0 <= compare_orders(small.scorer(), [first], Fixed(permutations=2)).result.mean <= 1


def test_hashed_features_say_nothing_of_the_size_of_other_gradients():
    model, params = tiny("rnn_lin")
    rms = root_mean_square(model, params, documents())
    rms["bigrams"] = np.full_like(rms["bigrams"], 1e9)
    adapted, unadapted = (
        scores(DynamicScorer(model, params, lambda: rms, rate, 0.0), documents())[0][1:]
        for rate in (RATE, 0.0)
    )
    assert not np.allclose(np.concatenate(adapted), np.concatenate(unadapted), rtol=1e-4)


@pytest.mark.parametrize("rate", ["1e+38", "10000"])
def test_a_rate_that_diverges_is_told_and_changes_no_parameters(small, rate):
    before = jax.tree.map(np.array, small.params)
    message = (
        r"dynamic evaluation diverged: sentence \d of document 1 has \S+ nats per target at "
        rf"rate {re.escape(rate)} and decay 0.3; choose a lower rate"
    )
    with pytest.raises(DivergenceError, match=f"^{message}$"):
        scores(small.scorer(rate=float(rate)), documents())
    jax.tree.map(np.testing.assert_array_equal, small.params, before)


def test_statistics_need_training_text(small):
    with pytest.raises(InputError, match="no training text for dynamic evaluation; choose"):
        root_mean_square(small.model, small.params, [[]])
