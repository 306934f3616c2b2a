"""Temporary memory of a training step, compiled but never run, with our output layer and a plain
one."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from dclm_jax.data.batches import Batch
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.reading.driver import read_documents, weighted
from dclm_jax.reading.likelihoods import open_documents, output_inputs, time_major
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import TrainState, first_state, parallel_step


def step_memory(model: DocumentModel, shape_BxSxN: tuple[int, int, int]) -> int:
    """Bytes that our training step needs beside its arguments, on one device."""
    optimizer = create_optimizer(OptimizerConfig(), 1)
    state, batch, key = _arguments(model, optimizer, shape_BxSxN)
    of_one_device = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape), a.dtype), batch)
    return _temporary_bytes(parallel_step(model, optimizer).lower(state, of_one_device, key))


def plain_step_memory(model: DocumentModel, shape_BxSxN: tuple[int, int, int]) -> int:
    """The same for the same step with `plain_nll`."""
    optimizer = create_optimizer(OptimizerConfig(), 1)

    def step(state: TrainState, batch: Batch) -> TrainState:
        gradients = jax.grad(lambda params: plain_nll(model, params, batch))(state.params)
        updates, optimizer_state = optimizer.update(gradients, state.optimizer_state, state.params)
        params = jax.tree.map(jnp.add, state.params, updates)
        return TrainState(state.step + 1, params, optimizer_state)

    state, batch, _ = _arguments(model, optimizer, shape_BxSxN)
    return _temporary_bytes(jax.jit(step, donate_argnums=0).lower(state, batch))


def plain_nll(model: DocumentModel, params: Params, batch: Batch) -> jax.Array:
    """Nats per target of a batch, by one softmax over all positions [S*N*B, V]."""
    tokens, targets, mask = time_major(batch)
    context = open_documents(model, params, tokens.shape[-1])
    read = read_documents(model, params, context, tokens, mask)
    log_probs = jax.nn.log_softmax(
        output_inputs(model, weighted(model, params), read, tokens).logits()
    )
    chosen_F = jnp.take_along_axis(log_probs, targets.reshape(-1, 1), axis=-1)[:, 0]
    return -jnp.sum(jnp.where(mask.reshape(-1), chosen_F, 0)) / jnp.sum(mask)


def _arguments(
    model: DocumentModel,
    optimizer: optax.GradientTransformation,
    shape_BxSxN: tuple[int, int, int],
) -> tuple[Any, Any, Any]:
    """State, batch and key as shapes: nothing of this size is made."""

    def make() -> tuple[TrainState, Batch, jax.Array]:
        key, ids = jax.random.key(0), jnp.zeros(shape_BxSxN, jnp.int32)
        batch = Batch(tokens_BxSxN=ids, targets_BxSxN=ids, mask_BxSxN=ids > 0)
        return first_state(model.init(key), optimizer), batch, key

    return jax.eval_shape(make)


def _temporary_bytes(lowered: Any) -> int:
    return lowered.compile().memory_analysis().temp_size_in_bytes
