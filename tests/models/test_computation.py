"""How a model is computed, not what: `remat`, `compute_dtype`, and compilers of accelerators."""

import dataclasses
from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax import models
from dclm_jax.data.batches import Batch, shard_rows
from dclm_jax.nn.plan import TPU_V4
from dclm_jax.processes import DEVICES
from dclm_jax.reading.driver import cast_params
from dclm_jax.reading.likelihoods import batch_likelihood, block_nll
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.job import first_shapes
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import train_step
from tests.exhaustive import also
from tests.models.support import (
    DOCUMENTS,
    EACH_OF_FEW,
    model_jit,
    opened,
    pack,
    random_params,
    simple_model,
    small_model,
)
from tests.training.test_step import make_batch

BATCH = pack(DOCUMENTS)


@model_jit
def loss_and_gradient(model, params):
    def loss(params):
        result = batch_likelihood(model, params, BATCH)
        return result.nll + result.auxiliary

    return jax.value_and_grad(loss)(params)


@pytest.mark.parametrize("name", ["ccdclm", *also(["rnnlm", "hrnnlm"])])
def test_remat_keeps_long_documents_small(name):
    """64 sentences of 32 tokens: what grows with them is features, not gates and states."""
    model = models.create(name, vocab_size=50, embedding_dim=16, hidden_dim=64)
    ids = np.zeros((4, 64, 32), np.int32)
    batch = Batch(ids, ids, ids > 0)
    params = jax.eval_shape(model.init, jax.random.key(0))

    def temporary_bytes(model):
        gradient = jax.grad(lambda params, batch: batch_likelihood(model, params, batch).nll)
        memory = jax.jit(gradient).lower(params, batch).compile().memory_analysis()
        assert memory is not None
        return memory.temp_size_in_bytes

    assert temporary_bytes(dataclasses.replace(model, remat=True)) * 3 < temporary_bytes(model)


@EACH_OF_FEW
def test_bfloat16_is_close_and_keeps_float32_parameters(name):
    model = simple_model(name)
    params = random_params(model)
    expected, expected_gradient = loss_and_gradient(model, params)
    shorter = dataclasses.replace(model, compute_dtype="bfloat16")
    actual, gradient = loss_and_gradient(shorter, params)
    assert actual.dtype == jnp.float32
    assert 0 < abs(actual - expected) < 0.01 * expected
    for leaf, actual_leaf, expected_leaf in zip(
        *map(jax.tree.leaves, (params, gradient, expected_gradient)), strict=True
    ):
        assert actual_leaf.dtype == leaf.dtype == jnp.float32
        size = np.linalg.norm(expected_leaf)
        assert np.linalg.norm(actual_leaf - expected_leaf) < 0.1 * size + 1e-6


@pytest.mark.parametrize("name", ["rnnlm", *also(["hrnnlm"])])
def test_bfloat16_sums_the_gradient_of_a_frequent_word_in_float32(name):
    """In bfloat16 a sum stops growing once it is 256 times its terms."""
    model = simple_model(name, compute_dtype="bfloat16")
    params = random_params(model)

    def gradient(copies):
        batch = pack([((3, 4, 3), (5,))] * copies)
        objective = jax.grad(lambda params: batch_likelihood(model, params, batch).nll)
        return np.asarray(jax.jit(objective)(params)["embedding"])

    np.testing.assert_allclose(gradient(1024), 1024 * gradient(1), rtol=0.02, atol=1e-3)


@EACH_OF_FEW
def test_accelerators_can_compile_a_step_and_a_block_of_scores(name):
    """Lowered with their plan, without anything that XLA for them does not have itself."""
    model = dataclasses.replace(small_model(name, dropout=0.3), plan=TPU_V4)
    batch, optimizer = make_batch(name), create_optimizer(OptimizerConfig(), 1)
    state = first_shapes(model, optimizer)
    # One device: `pmap` itself is not exported.
    step = partial(train_step, model, optimizer, "token")
    step = jax.vmap(step, (None, 0, None), axis_name=DEVICES)

    def scores(params, batch):
        params = cast_params(model, params)
        context = opened(model, params, batch)
        return block_nll(model, params, context, batch)

    def exported(function, *arguments):
        lowered = jax.export.export(function, platforms=("cuda", "tpu"))(*arguments)
        return lowered.mlir_module()

    for text in (
        exported(jax.jit(step), state, shard_rows(batch, 1), jax.random.key(0)),
        exported(jax.jit(scores), state.params, batch),
    ):
        assert "stablehlo.dot" in text
        assert "custom_call" not in text and "callback" not in text
