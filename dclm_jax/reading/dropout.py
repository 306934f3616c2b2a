"""What is left out in a step of training: drawn once, outside every scan."""

from functools import partial
from typing import NamedTuple

import jax

from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.layers import drop, dropout_mask

# Keys of other masks are split off: small numbers folded in would give them again.
_OF_CONTEXTS = 2**32 - 1


class DropoutMasks(NamedTuple):
    """Multipliers of embeddings [S,N,B,K], upper layers' inputs [S,N,B,H], features [S,N,B,D], and
    of contexts that enter the output layer [S,1,B,E]; None where none do."""

    embeddings: jax.Array
    layers: tuple[jax.Array, ...]
    features: jax.Array
    contexts: jax.Array | None


def draw_masks(
    model: DocumentModel, params: Params, keys_B: jax.Array, shape_SxN: tuple[int, ...]
) -> DropoutMasks | None:
    """The masks of one training step, or None at dropout 0; `keys_B` is one key a row."""
    if not model.dropout:
        return None
    output = jax.eval_shape(model.output_layer, params)
    kernel, context_kernel, *_ = [*jax.tree.leaves((output.kernel, output.context_kernel)), None]
    dims = (model.embedding_dim, *(model.hidden_dim,) * (model.num_layers - 1), kernel.shape[0])
    keys_XxB = jax.vmap(lambda key: jax.random.split(key, len(dims)), out_axes=1)(keys_B)
    draw = partial(dropout_mask, rate=model.dropout, per_sentence=model.variational_dropout)
    embeddings, *layers, features = (
        draw(keys, shape_SxN, dim) for keys, dim in zip(keys_XxB, dims, strict=True)
    )
    contexts = None
    if context_kernel is not None:
        keys_B = jax.vmap(partial(jax.random.fold_in, data=_OF_CONTEXTS))(keys_B)
        contexts = draw(keys_B, (shape_SxN[0], 1), context_kernel.shape[0])
    return DropoutMasks(embeddings, tuple(layers), features, contexts)


def drop_weights(model: DocumentModel, params: Params, key: jax.Array) -> Params:
    """The parameters of one training step, after `recurrent_dropout`."""
    if not model.recurrent_dropout:
        return params
    layers = [dict(layer) for layer in params["stack"]]
    places = [(layer, name) for layer in layers for name in CELLS[model.cell].weights]
    for (layer, name), own_key in zip(places, jax.random.split(key, len(places)), strict=True):
        layer[name] = layer[name] * drop(own_key, layer[name].shape, model.recurrent_dropout)
    return {**params, "stack": layers}
