"""Recurrent cells as pure steps: state_n, h_n = g(state_{n-1}, x_n) (Ji et al. 2015, Eq. 1).

A step takes the input's part of the gates, `gates_BxGH` = W x_n + b, because products with inputs
are computed outside the token scan. A state is a tuple of [B, H] arrays. Its first entry is the
hidden state h, which is the output of a step.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.nn.layers import glorot_uniform
from dclm_jax.nn.plan import Plan

State = tuple[jax.Array, ...]
Expose = Callable[[jax.Array], jax.Array]
Params = dict[str, Any]


class Cell(NamedTuple):
    """A kind of recurrent cell: its numbers of gates G and of state arrays, the names of its
    recurrent matrices, and its functions.

    A step takes the recurrent matrices, the state, the input's part of the gates, and the plan. The
    step of a cell with a memory c also takes a function `expose`; the output nonlinearity then
    reads expose(c) instead of c.
    """

    num_gates: int
    num_states: int
    weights: tuple[str, ...]
    init_recurrence: Callable[[jax.Array, int], Params]
    step: Callable[..., tuple[State, jax.Array]]

    @property
    def has_memory(self) -> bool:
        """Whether the state has a memory c besides the hidden state."""
        return self.num_states == 2


def _all_of_it(c_BxH: jax.Array) -> jax.Array:
    return c_BxH


def _gate_values(
    z_BxGH: jax.Array, num_gates: int, plan: Plan, tanh_gate: int = -1
) -> list[jax.Array]:
    """The values [B, H] of G gates: tanh(z) of the gate `tanh_gate` (-1: no gate), and sigmoid(z)
    of all others.

    If the plan joins gates, they are computed as one tanh over all gates, because
    sigmoid(z) = (1 + tanh(z / 2)) / 2.
    """
    if not plan.joins_gates:
        gates = enumerate(jnp.split(z_BxGH, num_gates, axis=-1))
        return [jnp.tanh(z) if gate == tanh_gate else jax.nn.sigmoid(z) for gate, z in gates]
    size = z_BxGH.shape[-1]
    gate_1xGH = jax.lax.broadcasted_iota(jnp.int32, (1, size), 1) // (size // num_gates)
    scale_1xGH = jnp.where(gate_1xGH == tanh_gate, 1.0, 0.5).astype(z_BxGH.dtype)
    values_BxGH = scale_1xGH * jnp.tanh(scale_1xGH * z_BxGH) + (1 - scale_1xGH)
    return jnp.split(values_BxGH, num_gates, axis=-1)


def _init_coupled_peephole_lstm(key: jax.Array, hidden_dim: int) -> Params:
    recurrent_key, input_key, output_key = jax.random.split(key, 3)
    return {
        "recurrent": glorot_uniform(recurrent_key, hidden_dim, hidden_dim, copies=3),
        "peephole_input": glorot_uniform(input_key, hidden_dim, hidden_dim),
        "peephole_output": glorot_uniform(output_key, hidden_dim, hidden_dim),
        "bias": jnp.zeros(3 * hidden_dim),
    }


def _coupled_peephole_lstm(
    params: Params,
    state: State,
    gates_BxGH: jax.Array,
    plan: Plan,
    expose: Expose = _all_of_it,
) -> tuple[State, jax.Array]:
    """The LSTM of DyNet, the toolkit of Ji et al. (2015): f = 1 - i, peepholes are full matrices P.

    i = sigmoid(W_i x + U_i h + P_i c_{n-1} + b_i),  g = tanh(W_g x + U_g h + b_g)
    c_n = (1 - i) c_{n-1} + i g,  o = sigmoid(W_o x + U_o h + P_o c_n + b_o),  h_n = o tanh(c_n)
    Gate order in the fused matrices: i, g, o.
    """
    h, c = state
    i, g, o = jnp.split(gates_BxGH + h @ params["recurrent"], 3, axis=-1)
    ig_Bx2H = jnp.concatenate([i + c @ params["peephole_input"], g], axis=-1)
    i, g = _gate_values(ig_Bx2H, 2, plan, tanh_gate=1)
    c = (1 - i) * c + i * g
    o = jax.nn.sigmoid(o + c @ params["peephole_output"])
    h = o * jnp.tanh(expose(c))
    return (h, c), h


def _init_lstm(key: jax.Array, hidden_dim: int) -> Params:
    # The forget gates start open (bias 1), so that gradients reach back from the first step on.
    bias = jnp.zeros(4 * hidden_dim).at[hidden_dim : 2 * hidden_dim].set(1.0)
    return {"recurrent": glorot_uniform(key, hidden_dim, hidden_dim, copies=4), "bias": bias}


def _lstm(
    params: Params,
    state: State,
    gates_BxGH: jax.Array,
    plan: Plan,
    expose: Expose = _all_of_it,
    *,
    squash: Expose = jnp.tanh,
) -> tuple[State, jax.Array]:
    """The LSTM with input, forget and output gates and no peepholes; gate order i, f, g, o.

    c_n = f c_{n-1} + i g,  h_n = o tanh(c_n), or h_n = o c_n (Li et al. 2015, Eq. 1-3)
    """
    h, c = state
    i, f, g, o = _gate_values(gates_BxGH + h @ params["recurrent"], 4, plan, tanh_gate=2)
    c = f * c + i * g
    h = o * squash(expose(c))
    return (h, c), h


def _init_gru(key: jax.Array, hidden_dim: int) -> Params:
    gate_key, candidate_key = jax.random.split(key)
    return {
        "recurrent": glorot_uniform(gate_key, hidden_dim, hidden_dim, copies=2),
        "candidate": glorot_uniform(candidate_key, hidden_dim, hidden_dim),
        "bias": jnp.zeros(3 * hidden_dim),
    }


def _gru(
    params: Params, state: State, gates_BxGH: jax.Array, plan: Plan
) -> tuple[State, jax.Array]:
    """The gated recurrent unit of Chung et al. (2014); gate order z, r, candidate.

    z = sigmoid(W_z x + U_z h + b_z),  r = sigmoid(W_r x + U_r h + b_r)
    h_n = (1 - z) h_{n-1} + z tanh(W x + U (r h_{n-1}) + b)
    """
    (h,) = state
    zr_Bx2H, candidate = jnp.split(gates_BxGH, [2 * h.shape[-1]], axis=-1)
    z, r = _gate_values(zr_Bx2H + h @ params["recurrent"], 2, plan)
    h = (1 - z) * h + z * jnp.tanh(candidate + (r * h) @ params["candidate"])
    return (h,), h


def _init_simple(key: jax.Array, hidden_dim: int) -> Params:
    recurrent = glorot_uniform(key, hidden_dim, hidden_dim)
    return {"recurrent": recurrent, "bias": jnp.zeros(hidden_dim)}


def _rnn(
    params: Params, state: State, gates_BxGH: jax.Array, plan: Plan
) -> tuple[State, jax.Array]:
    """The elementwise sigmoid recurrence: h_n = sigmoid(W x + U h_{n-1} + b)."""
    (h,) = state
    h = jax.nn.sigmoid(gates_BxGH + h @ params["recurrent"])
    return (h,), h


def _htanh(
    params: Params, state: State, gates_BxGH: jax.Array, plan: Plan
) -> tuple[State, jax.Array]:
    """h_n = HTanh(W x + U h_{n-1} + b), HTanh(z) = min(max(z, -1), 1) (Lin et al. 2015, Eq. 6)."""
    (h,) = state
    h = jax.nn.hard_tanh(gates_BxGH + h @ params["recurrent"])
    return (h,), h


CELLS = {
    "coupled_peephole_lstm": Cell(
        3,
        2,
        ("recurrent", "peephole_input", "peephole_output"),
        _init_coupled_peephole_lstm,
        _coupled_peephole_lstm,
    ),
    "lstm": Cell(4, 2, ("recurrent",), _init_lstm, _lstm),
    "lstm_linear_output": Cell(4, 2, ("recurrent",), _init_lstm, partial(_lstm, squash=_all_of_it)),
    "gru": Cell(3, 1, ("recurrent", "candidate"), _init_gru, _gru),
    "rnn": Cell(1, 1, ("recurrent",), _init_simple, _rnn),
    "htanh": Cell(1, 1, ("recurrent",), _init_simple, _htanh),
}
