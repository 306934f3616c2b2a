"""Dropout masks of a training step, drawn once, outside every scan.

Dropout is inverted. Each element of the global batch has its own key on any number of devices.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax

from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.layers import drop, dropout_mask

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
    input_rates, output_rate = _input_rates(model), _rate(model, model.output_dropout)
    if not any((*input_rates, output_rate)):
        return None
    output = jax.eval_shape(model.output_layer, params)
    kernel, context_kernel, *_ = [*jax.tree.leaves((output.kernel, output.context_kernel)), None]
    dims, rates = (*_input_dims(model), kernel.shape[0]), (*input_rates, output_rate)
    keys_XxB = _split(keys_B, len(dims))
    embeddings, *layers, features = _drawn(model, keys_XxB, shape_SxN, dims, rates)
    contexts = None
    if context_kernel is not None:
        keys_1xB, dims = _folded(keys_B, _OF_CONTEXTS)[None], (context_kernel.shape[0],)
        (contexts,) = _drawn(model, keys_1xB, (shape_SxN[0], 1), dims, (output_rate,))
    return DropoutMasks(embeddings, tuple(layers), features, contexts)


def draw_source_masks(
    model: DocumentModel, keys_B: jax.Array, shape_SxN: tuple[int, ...]
) -> tuple[jax.Array, ...]:
    """`Source.dropout` of one training step; none at dropout 0."""
    dims, rates = _input_dims(model), _input_rates(model)
    if not any(rates):
        return ()
    keys_XxB = _split(_folded(keys_B, _OF_SOURCES), len(dims))
    return tuple(_drawn(model, keys_XxB, shape_SxN, dims, rates))


def _input_dims(model: DocumentModel) -> tuple[int, ...]:
    """The widths of the inputs of all layers."""
    return (model.embedding_dim, *(model.hidden_dim,) * (model.num_layers - 1))


def _input_rates(model: DocumentModel) -> tuple[float, ...]:
    """The dropout rates on the inputs of all layers."""
    return (_rate(model, model.input_dropout), *(model.dropout,) * (model.num_layers - 1))


def _rate(model: DocumentModel, rate: float) -> float:
    return model.dropout if rate < 0 else rate


def _split(keys_B: jax.Array, count: int) -> jax.Array:
    return jax.vmap(lambda key: jax.random.split(key, count), out_axes=1)(keys_B)


def _folded(keys_B: jax.Array, number: int) -> jax.Array:
    return jax.vmap(partial(jax.random.fold_in, data=number))(keys_B)


def _drawn(
    model: DocumentModel,
    keys_XxB: jax.Array,
    shape_SxN: tuple[int, ...],
    dims: tuple[int, ...],
    rates: tuple[float, ...],
) -> Iterator[jax.Array]:
    for keys_B, dim, rate in zip(keys_XxB, dims, rates, strict=True):
        yield dropout_mask(keys_B, shape_SxN, dim, rate, per_sentence=model.variational_dropout)


def drop_weights(model: DocumentModel, params: Params, key: jax.Array) -> Params:
    """The parameters of one training step, after `recurrent_dropout`."""
    if not model.recurrent_dropout:
        return params
    layers = [dict(layer) for layer in params["stack"]]
    weights = [(layer, name) for layer in layers for name in CELLS[model.cell].weights]
    for (layer, name), weight_key in zip(weights, jax.random.split(key, len(weights)), strict=True):
        layer[name] = layer[name] * drop(weight_key, layer[name].shape, model.recurrent_dropout)
    return {**params, "stack": layers}
