"""Hashed features: where they lie, and their logits."""

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.nn.hashing import hashed_logits, history_starts
from dclm_jax.nn.logits import OutputInputs
from dclm_jax.nn.plan import CPU, GPU, TPU
from dclm_jax.nn.softmax import summed_nll, token_nll
from tests.nn.test_softmax import plan_of
from tests.oracles import assert_gradient, hashed_row


def test_starts_are_the_same_everywhere():
    """Of SplitMix64 with seed 0, whose first outputs are published, modulo 10,000,000 - V + 1."""
    published = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)
    starts = history_starts(10_003, 10_000_000)
    assert starts.dtype == np.int32 and starts.shape == (10_003,)
    assert starts[:3].tolist() == [number % 9_989_998 for number in published]
    assert 0 <= starts.min() and starts.max() <= 10_000_000 - 10_003
    assert history_starts(7, 7).tolist() == [0] * 7


def test_logits_and_gradient_are_those_of_whole_rows(x64):
    """Several histories a position, some of them none, repeated ones, overlapping slices."""
    V, size, positions, most = 9, 14, 11, 3
    rng = np.random.default_rng(0)
    histories = rng.integers(-1, V, (positions, most))
    histories[0], histories[1] = -1, 4
    features, kernel, bias = (rng.normal(size=shape) for shape in ((positions, 4), (4, V), V))
    array = rng.normal(size=size)
    targets = rng.integers(0, V, (positions, 2))
    weights = rng.random((positions, 2)) * (rng.random((positions, 2)) < 0.7)

    def of_numpy(arrays):
        """The nats of the targets of every position, complex."""
        features, kernel, bias, array = arrays
        logits = (features @ kernel + bias).astype(complex)
        for logits_V, words in zip(logits, histories, strict=True):
            for word in words[words >= 0]:
                logits_V += hashed_row(array, word, V)
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return -np.take_along_axis(log_probs, targets, axis=1)

    arrays = (features, kernel, bias, array)
    expected = np.real(of_numpy(arrays))

    def loss(arrays, plan):
        features, kernel, bias, array = arrays
        hashed = hashed_logits(array, jnp.asarray(histories), V)
        inputs = OutputInputs(features, kernel, bias, hashed)
        nll = token_nll(inputs, jnp.asarray(targets), jnp.asarray(weights > 0), plan)
        return summed_nll(inputs, jnp.asarray(targets), jnp.asarray(weights), plan), nll

    loss_and_gradient = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    for plan in (plan_of(1), plan_of(4), CPU, GPU, TPU):
        (value, nll), gradient = loss_and_gradient(arrays, plan)
        np.testing.assert_allclose(nll, np.where(weights > 0, expected, 0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(value, np.sum(weights * expected), rtol=1e-12)
        assert_gradient(gradient, lambda moved: np.sum(weights * of_numpy(moved)), arrays, 1e-10)


def test_no_array_of_all_positions_and_words_exists():
    V, size, positions = 1000, 3000, 4096

    def loss(features, kernel, bias, array, targets, histories):
        rows = hashed_logits(array, histories, V)
        mask = jnp.ones(positions, bool)
        arrays = OutputInputs(features, kernel, bias, rows)
        return summed_nll(arrays, targets, mask, plan_of(128))

    shapes = [(positions, 4), (4, V), (V,), (size,)]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    ids = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in [(positions,), (positions, 2)]]
    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))
    memory = gradient.lower(*arrays, *ids).compile().memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < positions * V
