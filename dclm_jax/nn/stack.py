"""Stacks of recurrent layers: the lower layer's hidden state is the upper layer's input.

Parameters of a stack are a list with one dict a layer: `input` [I, G*H] and the recurrence of the
cell (nn/cells.py). The first layer's `input` acts outside the scan; every later one acts inside.
"""

import jax
import jax.numpy as jnp

from dclm_jax.nn.cells import CELLS, Params, State
from dclm_jax.nn.initializers import glorot_uniform

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
    cell: str,
    layers: list[Params],
    state: StackState,
    gates_BxGH: jax.Array,
    dropout_masks: tuple[jax.Array, ...] = (),
) -> tuple[StackState, jax.Array]:
    """One token through all layers; `gates_BxGH` is the first layer's input product plus bias.

    Args:
      dropout_masks: one [B, H] multiplier for the input of each layer after the first, or none.

    Returns:
      The new state of every layer, and the top layer's hidden state [B, H].
    """
    step = CELLS[cell].step
    new_state = [step(layers[0], state[0], gates_BxGH)]
    for index, layer in enumerate(layers[1:], start=1):
        below = new_state[-1][0]
        if dropout_masks:
            below = below * dropout_masks[index - 1]
        gates = below @ layer["input"] + layer["bias"]
        new_state.append(step(layer, state[index], gates))
    return tuple(new_state), top_hidden(tuple(new_state))


def top_hidden(state: StackState) -> jax.Array:
    """The top layer's hidden state h [B, H]."""
    return state[-1][0]
