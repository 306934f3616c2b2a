"""Dropout masks of a training step, drawn once, outside every scan.

Dropout is inverted. Each element of the global batch has its own key on any number of devices.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.layers import drop

# Other masks have keys from `split`; a small number folded in could repeat one of these keys.
_OF_CONTEXTS = 2**32 - 1
_OF_SOURCES = 2**32 - 2


class DropoutMasks(NamedTuple):
    """Multipliers of embeddings [S,N,B,K], of inputs of upper layers [S,N,B,H], of features
    [S,N,B,D], and of contexts that enter the output layer [S,1,B,E] (None if contexts do not)."""

    embeddings: jax.Array
    layers: tuple[jax.Array, ...]
    features: jax.Array
    contexts: jax.Array | None


def draw_masks(
    model: DocumentModel, params: Params, keys_B: jax.Array, shape_SxN: tuple[int, ...]
) -> DropoutMasks | None:
    """The masks of a training step, None at dropout 0; `keys_B` has one key per batch element."""
    (input_dims, input_rates), output_rate = _inputs(model), _rate(model, model.output_dropout)
    if not any((*input_rates, output_rate)):
        return None
    output = jax.eval_shape(model.output_layer, params)
    dims = (*input_dims, output.kernel.array.shape[0])
    keys_XxB = _split(keys_B, len(dims))
    masks = map(partial(_drawn, model, shape_SxN), keys_XxB, dims, (*input_rates, output_rate))
    embeddings, *layers, features = masks
    contexts = None
    if output.context_kernel is not None:
        dim, keys_B = output.context_kernel.array.shape[0], _folded(keys_B, _OF_CONTEXTS)
        contexts = _drawn(model, (shape_SxN[0], 1), keys_B, dim, output_rate)
    return DropoutMasks(embeddings, tuple(layers), features, contexts)


def draw_source_masks(
    model: DocumentModel, keys_B: jax.Array, shape_SxN: tuple[int, ...]
) -> tuple[jax.Array, ...]:
    """`Source.dropout` of one training step; none at dropout 0."""
    dims, rates = _inputs(model)
    if not any(rates):
        return ()
    keys_XxB = _split(_folded(keys_B, _OF_SOURCES), len(dims))
    return tuple(map(partial(_drawn, model, shape_SxN), keys_XxB, dims, rates))


def _inputs(model: DocumentModel) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The widths of the inputs of all layers, and the dropout rates on them."""
    upper = model.num_layers - 1
    dims = (model.embedding_dim, *(model.hidden_dim,) * upper)
    return dims, (_rate(model, model.input_dropout), *(model.dropout,) * upper)


def _rate(model: DocumentModel, rate: float) -> float:
    return model.dropout if rate < 0 else rate


def _split(keys_B: jax.Array, count: int) -> jax.Array:
    return jax.vmap(lambda key: jax.random.split(key, count), out_axes=1)(keys_B)


def _folded(keys_B: jax.Array, number: int) -> jax.Array:
    return jax.vmap(partial(jax.random.fold_in, data=number))(keys_B)


def _drawn(
    model: DocumentModel,
    shape_SxN: tuple[int, ...],
    keys_B: jax.Array,
    dim: int,
    rate: float,
) -> jax.Array:
    """Multipliers [S, N, B, dim]. Each batch element has its own key, so that masks do not depend
    on the number of devices."""
    sentences, length = shape_SxN
    drawn_SxNxD = (sentences, 1 if model.variational_dropout else length, dim)
    mask_SxNxBxD = jax.vmap(lambda key: drop(key, drawn_SxNxD, rate), out_axes=2)(keys_B)
    return jnp.broadcast_to(mask_SxNxBxD, (sentences, length, len(keys_B), dim))


def drop_weights(model: DocumentModel, params: Params, key: jax.Array) -> Params:
    """The parameters of one training step, after `recurrent_dropout`."""
    if not model.recurrent_dropout:
        return params
    layers = [dict(layer) for layer in params["stack"]]
    weights = [(layer, name) for layer in layers for name in CELLS[model.cell].weights]
    for (layer, name), weight_key in zip(weights, jax.random.split(key, len(weights)), strict=True):
        layer[name] = layer[name] * drop(weight_key, layer[name].shape, model.recurrent_dropout)
    return {**params, "stack": layers}
