"""Stacks of recurrent layers: the lower layer's hidden state is the upper layer's input.

The parameters of a stack are a list of one dict per layer: `input` [I, G*H] and the recurrence of
the cell (nn/cells.py). If the first layer has no `input`, the inputs of the stack are gates.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.nn import recurrence
from dclm_jax.nn.cells import CELLS, Expose, Params, State
from dclm_jax.nn.layers import glorot_uniform, plus_bias
from dclm_jax.nn.plan import Plan

StackState = tuple[State, ...]


class StackInput(NamedTuple):
    """The input of a stack for a token: its part of the first layer's gates, W x + b [..., B, G*H],
    and in training the dropout multipliers of the inputs of upper layers, each [..., B, H]."""

    gates: jax.Array
    dropout: tuple[jax.Array, ...] = ()

    def plus(self, gates: jax.Array) -> "StackInput":
        """The input with `gates` added to the first layer's gates."""
        return self._replace(gates=self.gates + gates)


def init_stack(
    key: jax.Array,
    cell: str,
    num_layers: int,
    input_dim: int,
    hidden_dim: int,
    *,
    context_dim: int = 0,
) -> list[Params]:
    """Parameters of a stack. With `context_dim`, the first layer reads [x, context] (Eq. 5). The
    rows of its matrix for the context are a separate parameter `context` [context_dim, G*H]."""
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


def stack_input(
    layers: list[Params],
    x: jax.Array,
    plan: Plan,
    context_gates_BxGH: jax.Array | None = None,
    dropout: tuple[jax.Array, ...] = (),
) -> StackInput:
    """The `StackInput` of inputs [..., B, K].

    Args:
      plan: how the gradient of the bias is computed.
      context_gates_BxGH: the context's part of the first layer's gates at every position, if any.
      dropout: the multipliers of the `StackInput`.
    """
    gates = x @ layers[0]["input"] if "input" in layers[0] else x
    gates = _with_bias(gates, layers[0]["bias"], plan)
    return StackInput(gates if context_gates_BxGH is None else gates + context_gates_BxGH, dropout)


def _with_bias(gates: jax.Array, bias_GH: jax.Array, plan: Plan) -> jax.Array:
    return plus_bias(gates, bias_GH) if plan.bias_by_product else gates + bias_GH


def _after_dropout(x: StackInput, index: int, h_below: jax.Array) -> jax.Array:
    """The input of a layer above the first, from the output of the layer below."""
    return h_below * x.dropout[index - 1] if x.dropout else h_below


def step_stack(
    cell: str,
    layers: list[Params],
    state: StackState,
    x: StackInput,
    plan: Plan,
    expose: Expose | None = None,
) -> tuple[StackState, jax.Array]:
    """Reads one token with all layers.

    Args:
      plan: how the gates are computed.
      expose: the `expose` of the last layer's cell, or None.

    Returns:
      The new state of every layer, and the top layer's hidden state [B, H].
    """
    step = partial(CELLS[cell].step, plan=plan)
    last_step = step if expose is None else partial(step, expose=expose)
    steps = [step] * (len(layers) - 1) + [last_step]
    new_state, h_BxH = [], x.gates
    for index, layer in enumerate(layers):
        gates_BxGH = x.gates
        if index:
            gates_BxGH = _after_dropout(x, index, h_BxH) @ layer["input"] + layer["bias"]
        new, h_BxH = steps[index](layer, state[index], gates_BxGH)
        new_state.append(new)
    return tuple(new_state), h_BxH


def read_stack(
    cell: str,
    layers: list[Params],
    state: StackState,
    x_NxB: StackInput,
    mask_NxB: jax.Array,
    plan: Plan,
) -> tuple[StackState, jax.Array]:
    """Reads all tokens of a sentence, layer after layer, with one input product per layer.

    Args:
      mask_NxB: True at real positions; padding leaves the state unchanged.
      plan: how the loop over tokens is arranged and gates are computed.

    Returns:
      The state of every layer after the last real token of each batch element, and the top layer's
      hidden states [N, B, H].
    """
    kind = CELLS[cell]
    last_state, h_NxBxH = [], x_NxB.gates
    for index, layer in enumerate(layers):
        gates_NxBxGH = x_NxB.gates
        if index:
            gates_NxBxGH = _after_dropout(x_NxB, index, h_NxBxH) @ layer["input"]
            gates_NxBxGH = _with_bias(gates_NxBxGH, layer["bias"], plan)
        weights = {name: layer[name] for name in kind.weights}
        scanned: tuple[State, jax.Array] = recurrence.scan(
            partial(kind.step, plan=plan), plan, weights, state[index], gates_NxBxGH, mask_NxB
        )
        last, h_NxBxH = scanned
        last_state.append(last)
    return tuple(last_state), h_NxBxH


def top_hidden(state: StackState) -> jax.Array:
    """The top layer's hidden state h [B, H]."""
    return state[-1][0]
