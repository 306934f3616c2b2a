"""Stacks of recurrent layers: the lower layer's hidden state is the upper layer's input.

Parameters of a stack are a list with one dict a layer: `input` [I, G*H] and the recurrence of the
cell (nn/cells.py).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dclm_jax.nn import recurrence
from dclm_jax.nn.cells import CELLS, Expose, Params, State
from dclm_jax.nn.initializers import glorot_uniform
from dclm_jax.nn.products import product
from dclm_jax.nn.recurrence import Affine
from dclm_jax.nn.rows import RowOrder, ends, num_blocks

StackState = tuple[State, ...]


def init_stack(
    key: jax.Array,
    cell: str,
    num_layers: int,
    input_dim: int,
    hidden_dim: int,
    *,
    context_dim: int = 0,
) -> list[Params]:
    """Parameters of a stack. With `context_dim`, the first layer reads [x, context] (Eq. 5):
    the rows of its matrix that act on the context are kept apart, as `context` [context_dim, G*H].
    """
    kind = CELLS[cell]
    layers = []
    for index, layer_key in enumerate(jax.random.split(key, num_layers)):
        input_key, context_key, recurrence_key = jax.random.split(layer_key, 3)
        context_rows = context_dim if index == 0 else 0
        width = input_dim if index == 0 else hidden_dim
        gates = {"copies": kind.num_gates, "fan_in": width + context_rows}
        layer = kind.init_recurrence(recurrence_key, hidden_dim)
        layer["input"] = glorot_uniform(input_key, width, hidden_dim, **gates)
        if context_rows:
            layer["context"] = glorot_uniform(context_key, context_rows, hidden_dim, **gates)
        layers.append(layer)
    return layers


def initial_state(cell: str, num_layers: int, batch_size: int, like: jax.Array) -> StackState:
    """The zero state: every layer's [B, H] arrays, with H and dtype of `like` [..., H]."""
    zeros = jnp.zeros((batch_size, like.shape[-1]), like.dtype)
    return ((zeros,) * CELLS[cell].num_states,) * num_layers


def step_stack(
    affine: Affine,
    cell: str,
    layers: list[Params],
    state: StackState,
    gates_BxGH: jax.Array,
    dropout_masks: tuple[jax.Array, ...] = (),
    expose: Expose | None = None,
) -> tuple[StackState, jax.Array]:
    """One token through all layers; `gates_BxGH` is the first layer's input product plus bias.

    Args:
      affine: makes the products (nn/recurrence.py).
      dropout_masks: one [B, H] multiplier for the input of each layer after the first, or none.
      expose: what the last layer's output nonlinearity sees of its memory; None for all of it.

    Returns:
      The new state of every layer, and the top layer's hidden state [B, H].
    """
    step = CELLS[cell].step
    last_step = step if expose is None else partial(step, expose=expose)
    steps = [step] * (len(layers) - 1) + [last_step]
    new_state = [steps[0](affine, layers[0], state[0], gates_BxGH)]
    for index, layer in enumerate(layers[1:], start=1):
        below = new_state[-1][0]
        if dropout_masks:
            below = below * dropout_masks[index - 1]
        bias_BxGH = jnp.broadcast_to(layer["bias"], gates_BxGH.shape)
        new_state.append(
            steps[index](affine, layer, state[index], affine(bias_BxGH, below, layer["input"]))
        )
    return tuple(new_state), top_hidden(tuple(new_state))


def read_stack(
    cell: str,
    layers: list[Params],
    state: StackState,
    x_NxBxK: jax.Array,
    mask_NxB: jax.Array,
    dropout_masks: tuple[jax.Array, ...] = (),
    conditioning_BxGH: jax.Array | None = None,
) -> tuple[StackState, jax.Array]:
    """All tokens of a sentence, layer after layer: the input product of each layer is one for all.

    Args:
      x_NxBxK: inputs of the first layer.
      mask_NxB: True at real positions; at others a row's state stays as it is.
      dropout_masks: one [N, B, H] multiplier for the input of each layer after the first, or none.
      conditioning_BxGH: what is added to the first layer's gates at every position, or none.

    Returns:
      The state of every layer after each row's last real token, and the top layer's hidden states
      [N, B, H].
    """
    blocks = num_blocks(mask_NxB.shape[1])
    order = RowOrder.by_length(mask_NxB, blocks)
    x_NxBxK, mask_NxB, dropout_masks = order.sort((x_NxBxK, mask_NxB, dropout_masks))
    state, conditioning_BxGH = order.sort((state, conditioning_BxGH), axis=0)
    num_steps = steps_to_take(mask_NxB, blocks)
    last_state = []
    h_NxBxH = x_NxBxK
    for index, layer in enumerate(layers):
        if index > 0 and dropout_masks:
            h_NxBxH = h_NxBxH * dropout_masks[index - 1]
        gates_NxBxGH = product(h_NxBxH, layer["input"]) + layer["bias"]
        if index == 0 and conditioning_BxGH is not None:
            gates_NxBxGH += conditioning_BxGH
        weights = {name: layer[name] for name in CELLS[cell].weights}
        scanned: tuple[State, jax.Array] = recurrence.scan(
            partial(_step_layer, cell),
            weights,
            state[index],
            (gates_NxBxGH, mask_NxB),
            num_steps,
        )
        last, h_NxBxH = scanned
        last_state.append(last)
    return order.restore(tuple(last_state), axis=0), order.restore(h_NxBxH)


def _step_layer(cell: str, affine: Affine, weights: Params, state: State, inputs: Any):
    gates_BxGH, is_real_B = inputs
    new_state = CELLS[cell].step(affine, weights, state, gates_BxGH)
    return keep_at_padding(is_real_B, new_state, state), new_state[0]


def keep_at_padding(is_real_B: jax.Array, new_state: Any, state: Any) -> Any:
    """`new_state` in rows with a real token, `state` in the others."""
    return jax.tree.map(lambda new, old: jnp.where(is_real_B[:, None], new, old), new_state, state)


def steps_to_take(mask_NxB: jax.Array, blocks: int = 1) -> jax.Array | None:
    """The steps up to the last real position of any row, for each of some equal blocks of rows,
    where a loop of unknown length costs nothing: on CPUs."""
    if jax.default_backend() != "cpu":
        return None
    return jnp.max(ends(mask_NxB).reshape(blocks, -1), axis=1, initial=0)


def top_hidden(state: StackState) -> jax.Array:
    """The top layer's hidden state h [B, H]."""
    return state[-1][0]
