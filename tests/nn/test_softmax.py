"""The chunked output layer against the plain softmax."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.nn.plan import ACCELERATOR, CPU, Plan
from dclm_jax.nn.softmax import RowLogits, summed_nll, token_nll

pytestmark = pytest.mark.usefixtures("x64")

SIZE, FEATURES, VOCAB = 23, 4, 9
RNG = np.random.default_rng(0)
FEATURES_FxD = RNG.normal(size=(SIZE, FEATURES))
KERNEL_DxV = RNG.normal(size=(FEATURES, VOCAB))
BIAS_V = RNG.normal(size=VOCAB)
TARGETS_F = RNG.integers(0, VOCAB, SIZE)
SHARED_RxV = RNG.normal(size=(3, VOCAB))
ROW_F = RNG.integers(0, 3, SIZE)
MASKS = {
    "all": np.ones(SIZE, bool),
    "none": np.zeros(SIZE, bool),
    "some": RNG.random(SIZE) < 0.5,
    "first": np.arange(SIZE) == 0,
    "last": np.arange(SIZE) == SIZE - 1,
}
close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
token_nlls = jax.jit(token_nll, static_argnums=6)
summed_nlls = jax.jit(summed_nll, static_argnums=6)


def plan_of(chunk: int, platform: Plan = CPU) -> Plan:
    """Chunks of so many tokens; what is left over has all sizes at these few positions, too."""
    short = {"min_short_chunk": 1, "min_short_logits": 1}
    return dataclasses.replace(platform, min_chunk=chunk, max_chunk=chunk, **short)


TUNINGS = pytest.mark.parametrize(
    "tuned",
    [plan_of(1), plan_of(5), plan_of(SIZE), plan_of(5, ACCELERATOR), CPU, ACCELERATOR],
    ids=["1", "5", "all", "5 on accelerators", "CPU", "accelerators"],
)
EACH_MASK = pytest.mark.parametrize("mask_F", MASKS.values(), ids=MASKS.keys())


def shared(logits_RxV: Any) -> RowLogits:
    return RowLogits(jnp.asarray(logits_RxV), jnp.asarray(ROW_F))


@pytest.mark.parametrize(("V", "sizes"), [(2048, 8), (512, 5), (40, 1)])
def test_a_size_is_compiled_where_it_saves_time(V, sizes):
    """256 positions are one chunk: of 32, 64, .. 256 tokens those with 65,536 logits and more."""
    arrays = (np.zeros((256, 4)), np.zeros((4, V)), np.zeros(V), np.zeros(256, int))
    jaxpr = jax.make_jaxpr(token_nll, static_argnums=6)(*arrays, np.zeros(256, bool), None, CPU)
    branches = [b for equation in jaxpr.eqns for b in equation.params.get("branches", ())]
    softmaxes = [
        part
        for part in (jaxpr, *branches)
        if any(equation.primitive.name == "exp" for equation in part.eqns)
    ]
    assert len(softmaxes) == sizes


def numpy_nll(features_FxD, kernel_DxV, bias_V, shared_FxV: Any = 0) -> np.ndarray:
    """-log softmax at every position, in numpy."""
    logits = features_FxD @ kernel_DxV + bias_V + shared_FxV
    logits = logits - logits.max(axis=1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -log_probs[np.arange(SIZE), TARGETS_F]


def plain_sum(features_FxD, kernel_DxV, bias_V, mask_F, shared_FxV: Any = 0):
    log_probs = jax.nn.log_softmax(features_FxD @ kernel_DxV + bias_V + shared_FxV)
    return -jnp.sum(jnp.where(mask_F, log_probs[jnp.arange(SIZE), TARGETS_F], 0))


@TUNINGS
@EACH_MASK
def test_values(mask_F, tuned):
    arrays = (FEATURES_FxD, KERNEL_DxV, BIAS_V)
    expected_F = np.where(mask_F, numpy_nll(*arrays), 0)
    arrays = [jnp.asarray(array) for array in (*arrays, TARGETS_F, mask_F)]
    close(token_nlls(*arrays, None, tuned), expected_F)
    close(summed_nlls(*arrays, None, tuned), expected_F.sum())


@TUNINGS
@EACH_MASK
def test_values_with_logits_that_rows_share(mask_F, tuned):
    arrays = (FEATURES_FxD, KERNEL_DxV, BIAS_V)
    expected_F = np.where(mask_F, numpy_nll(*arrays, SHARED_RxV[ROW_F]), 0)
    arrays = [jnp.asarray(array) for array in (*arrays, TARGETS_F, mask_F)]
    close(token_nlls(*arrays, shared(SHARED_RxV), tuned), expected_F)
    close(summed_nlls(*arrays, shared(SHARED_RxV), tuned), expected_F.sum())


@partial(jax.jit, static_argnums=4)
def chunked_gradient(features_FxD, kernel_DxV, bias_V, mask_F, tuned):
    targets_F = jnp.asarray(TARGETS_F)

    def loss(features, kernel, bias):
        # A factor other than 1 shows a cotangent that is dropped.
        return jnp.multiply(3, summed_nll(features, kernel, bias, targets_F, mask_F, None, tuned))

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(features_FxD, kernel_DxV, bias_V)


@jax.jit
def plain_gradient(features_FxD, kernel_DxV, bias_V, mask_F):
    def loss(features, kernel, bias):
        return 3 * plain_sum(features, kernel, bias, mask_F)

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(features_FxD, kernel_DxV, bias_V)


@TUNINGS
@EACH_MASK
def test_value_and_gradient(mask_F, tuned):
    arrays = (FEATURES_FxD, KERNEL_DxV, BIAS_V, mask_F)
    jax.tree.map(close, chunked_gradient(*arrays, tuned), plain_gradient(*arrays))


@partial(jax.jit, static_argnums=5)
def shared_gradients(features_FxD, kernel_DxV, bias_V, logits_RxV, mask_F, tuned):
    """The chunked ones and the plain ones."""

    def chunked(features, kernel, bias, logits):
        arrays = (features, kernel, bias, jnp.asarray(TARGETS_F), mask_F)
        return jnp.multiply(3, summed_nll(*arrays, shared(logits), tuned))

    def plain(features, kernel, bias, logits):
        return 3 * plain_sum(features, kernel, bias, mask_F, logits[ROW_F])

    arrays = (features_FxD, kernel_DxV, bias_V, logits_RxV)
    return [jax.grad(loss, argnums=(0, 1, 2, 3))(*arrays) for loss in (chunked, plain)]


@TUNINGS
@EACH_MASK
def test_gradient_with_logits_that_rows_share(mask_F, tuned):
    arrays = (FEATURES_FxD, KERNEL_DxV, BIAS_V, SHARED_RxV, mask_F)
    jax.tree.map(close, *shared_gradients(*arrays, tuned))


def test_values_outside_the_mask_do_not_matter():
    mask_F = MASKS["some"]
    spoiled_FxD = np.where(mask_F[:, None], FEATURES_FxD, np.nan)
    rest = [jnp.asarray(array) for array in (KERNEL_DxV, BIAS_V, TARGETS_F, mask_F)]
    clean = jax.value_and_grad(summed_nll)(jnp.asarray(FEATURES_FxD), *rest, None, plan_of(5))
    spoiled = jax.value_and_grad(summed_nll)(jnp.asarray(spoiled_FxD), *rest, None, plan_of(5))
    jax.tree.map(np.testing.assert_array_equal, spoiled, clean)


@pytest.mark.parametrize("scale", [1e3, 1e30])
def test_large_logits_stay_finite_in_float32(scale):
    features, kernel, bias = (
        jnp.asarray(array, jnp.float32) for array in (scale * FEATURES_FxD, KERNEL_DxV, BIAS_V)
    )
    rest = (jnp.asarray(TARGETS_F), jnp.asarray(MASKS["all"]), None, plan_of(5))
    nll_F = token_nll(features, kernel, bias, *rest)
    expected_F = numpy_nll(*(np.asarray(a, np.float64) for a in (features, kernel, bias)))
    assert nll_F.dtype == jnp.float32
    np.testing.assert_allclose(nll_F, expected_F, rtol=1e-4, atol=1e-3)
    gradients = jax.grad(summed_nll, argnums=(0, 1, 2))(features, kernel, bias, *rest)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


@pytest.mark.parametrize(
    ("vocab_size", "on_cpu", "on_accelerators"),
    [(9, 4096, 4096), (10_003, 256, 4096), (16_385, 128, 2048), (5_000_000, 128, 128)],
)
def test_chunks_are_a_power_of_two_that_fits_the_cache(vocab_size, on_cpu, on_accelerators):
    assert CPU.chunk_size(vocab_size) == on_cpu
    assert ACCELERATOR.chunk_size(vocab_size) == on_accelerators


@pytest.mark.parametrize("spread", [25.0, 500.0])
def test_biases_far_apart_stay_exact_in_float32(spread):
    """The most likely word may have the smallest bias."""
    bias_V = np.linspace(0, -spread, VOCAB)
    kernel_DxV = np.array([[0.0] * (VOCAB - 1) + [2 * spread], *[[0.0] * VOCAB] * (FEATURES - 1)])
    features_FxD = np.abs(FEATURES_FxD)
    features, kernel, bias = (
        jnp.asarray(a, jnp.float32) for a in (features_FxD, kernel_DxV, bias_V)
    )
    rest = (jnp.asarray(TARGETS_F), jnp.asarray(MASKS["all"]), None, plan_of(5))
    nll_F = token_nll(features, kernel, bias, *rest)
    expected_F = numpy_nll(features_FxD, kernel_DxV, bias_V)
    np.testing.assert_allclose(nll_F, expected_F, rtol=1e-4, atol=1e-4)
    gradients = jax.grad(summed_nll, argnums=(0, 1, 2))(features, kernel, bias, *rest)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_logits_beyond_float32_are_no_likelihood():
    """Infinite products of both signs, as after a step that was far too long."""
    features = jnp.full((2, 1), 1e30, jnp.float32)
    kernel = jnp.asarray([[1e30, -1e30, 1.0]], jnp.float32)
    mask_F, targets_F = jnp.ones(2, bool), jnp.asarray([0, 1])
    nll_F = token_nll(features, kernel, jnp.zeros(3, jnp.float32), targets_F, mask_F, None, CPU)
    assert np.all(np.isnan(nll_F))
