"""The chunked output layer against the plain softmax."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.nn.logits import Copies, OutputInputs, RowLogits
from dclm_jax.nn.plan import CPU, GPU, TPU, Plan
from dclm_jax.nn.softmax import summed_nll, token_nll
from tests import oracles

pytestmark = pytest.mark.usefixtures("x64")

SIZE, FEATURES, VOCAB = 23, 4, 9
RNG = np.random.default_rng(0)
FEATURES_FxD = RNG.normal(size=(SIZE, FEATURES))
KERNEL_DxV = RNG.normal(size=(FEATURES, VOCAB))
BIAS_V = RNG.normal(size=VOCAB)
TARGETS_F = RNG.integers(0, VOCAB, SIZE)
SHARED_RxV = RNG.normal(size=(3, VOCAB))
ROW_F = RNG.integers(0, 3, SIZE)
# Some of the eight words in memory repeat, and one position is empty.
WORDS_RxM = RNG.integers(0, VOCAB, (3, 8))
WORDS_RxM[1, 0] = -1
LOG_SHARE_F = np.log(RNG.random(SIZE))
with np.errstate(divide="ignore"):
    LOG_WEIGHTS_FxM = np.log(RNG.random((SIZE, 8)) * (WORDS_RxM[ROW_F] >= 0))
ROW_1 = jnp.zeros(1, jnp.int32)
MASKS = {
    "all": np.ones(SIZE, bool),
    "none": np.zeros(SIZE, bool),
    "some": RNG.random(SIZE) < 0.5,
    "first": np.arange(SIZE) == 0,
    "last": np.arange(SIZE) == SIZE - 1,
}
close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)


def plan_of(chunk: int, platform: Plan = CPU) -> Plan:
    """Chunks of so many tokens; what is left over has all sizes at these few positions, too."""
    short = {"min_short_chunk": 1, "min_short_logits": 1}
    return dataclasses.replace(platform, min_chunk=chunk, max_chunk=chunk, **short)


def inputs(
    features: Any, kernel: Any, bias: Any, shared: Any = None, *copies: Any, dtype: Any = None
) -> OutputInputs:
    """OutputInputs from arrays; `shared` has the logits that rows share, `copies` the log share of
    the softmax and the log weights of WORDS_RxM."""
    features, kernel, bias = (jnp.asarray(array, dtype) for array in (features, kernel, bias))
    rows = None if shared is None else RowLogits(jnp.asarray(shared), jnp.asarray(ROW_F))
    mixture = None
    if copies:
        log_share_F, log_weights_FxM = (jnp.asarray(array, dtype) for array in copies)
        words_RxM, row_F = jnp.asarray(WORDS_RxM), jnp.asarray(ROW_F)
        mixture = Copies(log_share_F, log_weights_FxM, words_RxM, row_F)
    return OutputInputs(features, kernel, bias, rows, mixture)


@pytest.mark.parametrize(("V", "sizes"), [(2048, 8), (512, 5), (40, 1)])
def test_a_size_is_compiled_where_it_saves_time(V, sizes):
    """256 positions are one chunk: of 32, 64, .. 256 tokens those with 65,536 logits and more."""
    arrays = inputs(np.zeros((256, 4)), np.zeros((4, V)), np.zeros(V))
    targets, mask = np.zeros(256, int), np.zeros(256, bool)
    jaxpr = jax.make_jaxpr(token_nll, static_argnums=3)(arrays, targets, mask, CPU)
    branches = [b for equation in jaxpr.eqns for b in equation.params.get("branches", ())]
    softmaxes = [
        part
        for part in (jaxpr, *branches)
        if any(equation.primitive.name == "exp" for equation in part.eqns)
    ]
    assert len(softmaxes) == sizes


def numpy_nll(
    features_FxD, kernel_DxV, bias_V, shared_RxV: Any = None, log_share_F=None, log_weights_FxM=None
) -> np.ndarray:
    """-log p(target) at every position, in numpy."""
    logits = features_FxD @ kernel_DxV + bias_V + (0 if shared_RxV is None else shared_RxV[ROW_F])
    logits = logits - logits.max(axis=1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    log_probs_F = log_probs[np.arange(SIZE), TARGETS_F]
    if log_share_F is None or log_weights_FxM is None:
        return -log_probs_F
    copied_F = np.sum(np.exp(log_weights_FxM) * (WORDS_RxM[ROW_F] == TARGETS_F[:, None]), axis=1)
    return -np.log(np.exp(log_share_F + log_probs_F) + copied_F)


@partial(jax.jit, static_argnums=2)
def chunked(arrays, mask_F, plan):
    """All nats; and their sum times 3, because a factor other than 1 shows a cotangent that is
    dropped, with its gradient."""

    def loss(arrays):
        return jnp.multiply(3, summed_nll(inputs(*arrays), jnp.asarray(TARGETS_F), mask_F, plan))

    nll_F = token_nll(inputs(*arrays), jnp.asarray(TARGETS_F), mask_F, plan)
    return nll_F, *jax.value_and_grad(loss)(arrays)


@pytest.mark.parametrize(
    "more",
    [(), (SHARED_RxV,), (None, LOG_SHARE_F, LOG_WEIGHTS_FxM)],
    ids=["", "shared", "copies"],
)
@pytest.mark.parametrize(
    "plan",
    [plan_of(1), plan_of(5), plan_of(SIZE), plan_of(5, GPU), plan_of(5, TPU), CPU, TPU],
    ids=["1", "5", "all", "5 on GPUs", "5 on TPUs", "CPU", "TPU"],
)
@pytest.mark.parametrize("mask_F", MASKS.values(), ids=MASKS.keys())
def test_values_and_gradients(mask_F, plan, more):
    arrays = (FEATURES_FxD, KERNEL_DxV, BIAS_V, *more)
    expected_F = np.where(mask_F, numpy_nll(*arrays), 0)
    nll_F, total, gradient = chunked(arrays, mask_F, plan)
    close(nll_F, expected_F)
    close(total, 3 * expected_F.sum())
    oracles.assert_gradient(
        gradient, lambda moved: 3 * np.sum(numpy_nll(*moved)[mask_F]), arrays, rtol=1e-11
    )


def value_and_gradient(arrays, mask_F=MASKS["all"], plan=None):
    rest = (jnp.asarray(TARGETS_F), jnp.asarray(mask_F), plan or plan_of(5))
    return token_nll(arrays, *rest), jax.grad(summed_nll)(arrays, *rest)


def test_values_outside_the_mask_do_not_matter():
    mask_F = MASKS["some"]
    spoiled_FxD = np.where(mask_F[:, None], FEATURES_FxD, np.nan)
    clean, spoiled = (
        value_and_gradient(inputs(features, KERNEL_DxV, BIAS_V), mask_F)
        for features in (FEATURES_FxD, spoiled_FxD)
    )
    jax.tree.map(np.testing.assert_array_equal, spoiled, clean)


CERTAIN = np.array([[0.0] * (VOCAB - 1) + [2.0], *[[0.0] * VOCAB] * (FEATURES - 1)])


@pytest.mark.parametrize(
    ("features", "kernel", "bias", "atol"),
    [
        (1e3 * FEATURES_FxD, KERNEL_DxV, BIAS_V, 1e-3),
        (1e30 * FEATURES_FxD, KERNEL_DxV, BIAS_V, 1e-3),
        # Biases far apart; the most likely word may have the smallest one.
        (np.abs(FEATURES_FxD), 25.0 * CERTAIN, np.linspace(0, -25.0, VOCAB), 1e-4),
        (np.abs(FEATURES_FxD), 500.0 * CERTAIN, np.linspace(0, -500.0, VOCAB), 1e-4),
    ],
)
def test_large_logits_stay_finite_in_float32(features, kernel, bias, atol):
    arrays = inputs(features, kernel, bias, dtype=jnp.float32)
    nll_F, gradient = value_and_gradient(arrays)
    expected_F = numpy_nll(*(np.asarray(array, np.float64) for array in arrays[:3]))
    assert nll_F.dtype == jnp.float32
    np.testing.assert_allclose(nll_F, expected_F, rtol=1e-4, atol=atol)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_the_gradient_of_copies_has_the_weights_of_targets():
    """Some targets have softmax shares of e^-60, and probabilities of e^-50 to be copied."""
    weights_F = np.linspace(0.1, 2, SIZE)
    share_F = np.where(np.arange(SIZE) % 2, -60.0, LOG_SHARE_F)
    log_weights_FxM = LOG_WEIGHTS_FxM - 50.0 * (np.arange(SIZE)[:, None] % 2)
    arrays = (FEATURES_FxD, KERNEL_DxV, BIAS_V, None, share_F, log_weights_FxM)

    def loss(arrays):
        rest = jnp.asarray(TARGETS_F), jnp.asarray(weights_F), plan_of(5)
        return summed_nll(inputs(*arrays), *rest)

    gradient = jax.grad(loss)(arrays)
    p_F = np.exp(-numpy_nll(*arrays))
    is_target_FxM = WORDS_RxM[ROW_F] == TARGETS_F[:, None]
    expected_FxM = is_target_FxM * np.exp(log_weights_FxM) * -(weights_F / p_F)[:, None]
    np.testing.assert_allclose(gradient[5], expected_FxM, rtol=1e-9)
    assert p_F.min() < np.exp(-45)
    oracles.assert_gradient(
        gradient, lambda moved: np.sum(weights_F * numpy_nll(*moved)), arrays, rtol=1e-9
    )


def test_copies_whose_weights_underflow_float32_are_added():
    """Word 1 has the weights e^-128 and e^-127.5, and e^-195 from the softmax."""
    far = np.array([0.0, -195.0])
    mixture = Copies(
        jnp.zeros(1), jnp.asarray([[-128.0, -np.inf, -127.5]]), jnp.asarray([[1, -1, 1]]), ROW_1
    )
    arrays = OutputInputs(jnp.ones((1, 1)), jnp.zeros((1, 2)), jnp.asarray(far), None, mixture)
    arrays = jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype.kind == "f" else a, arrays)
    expected = -np.logaddexp.reduce([-128.0, -127.5, -195.0])
    (nll,) = token_nll(arrays, jnp.asarray([1]), jnp.asarray([True]), CPU)
    assert nll.dtype == jnp.float32
    np.testing.assert_allclose(nll, expected, rtol=1e-6)
    np.testing.assert_allclose(arrays.logits()[0], [0.0, -expected], rtol=1e-6, atol=1e-6)
    gradient = jax.grad(summed_nll, allow_int=True)(arrays, jnp.asarray([1]), jnp.ones(1), CPU)
    shares = np.exp(np.array([[-128.0, -np.inf, -127.5]]) + expected)
    np.testing.assert_allclose(gradient.copies.log_weights_FxM, -shares, rtol=1e-5)


def test_an_improbable_word_has_a_finite_gradient_with_copies():
    copies = np.full(SIZE, -200.0), np.full_like(LOG_WEIGHTS_FxM, -np.inf)
    arrays = inputs(FEATURES_FxD, KERNEL_DxV, BIAS_V, None, *copies, dtype=jnp.float32)
    targets, weights = jnp.asarray(TARGETS_F), jnp.ones(SIZE)
    nll_F = token_nll(arrays, targets, weights > 0, CPU)
    np.testing.assert_allclose(nll_F, 200 + numpy_nll(*arrays[:3]), rtol=1e-4)
    gradient = jax.grad(summed_nll, allow_int=True)(arrays, targets, weights, CPU)
    leaves = [leaf for leaf in jax.tree.leaves(gradient) if leaf.dtype == jnp.float32]
    assert len(leaves) == 5
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)


@pytest.mark.parametrize(
    ("vocab_size", "on_cpu", "on_gpu", "on_tpu"),
    [
        (9, 4096, 4096, 4096),
        (10_003, 256, 4096, 512),
        (16_385, 128, 2048, 256),
        (5_000_000, 128, 128, 128),
    ],
)
def test_chunks_are_a_power_of_two_that_fits_the_cache(vocab_size, on_cpu, on_gpu, on_tpu):
    assert CPU.chunk_size(vocab_size) == on_cpu
    assert GPU.chunk_size(vocab_size) == on_gpu
    assert TPU.chunk_size(vocab_size) == on_tpu


def test_logits_beyond_float32_are_no_likelihood():
    """Infinite products of both signs, as after a step that was far too long."""
    features, kernel = np.full((2, 1), 1e30), np.array([[1e30, -1e30, 1.0]])
    arrays = inputs(features, kernel, np.zeros(3), dtype=jnp.float32)
    nll_F = token_nll(arrays, jnp.asarray([0, 1]), jnp.ones(2, bool), CPU)
    assert np.all(np.isnan(nll_F))
