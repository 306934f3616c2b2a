"""A step of each gated cell against its equations in numpy, with gates joined and apart."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.plan import CPU, GPU, TPU, Plan
from tests import oracles

pytestmark = pytest.mark.usefixtures("x64")

ROWS, HIDDEN = 3, 4
GATED = [name for name, cell in CELLS.items() if cell.num_gates > 1]


@pytest.mark.parametrize(
    ("name", "joined", "apart"),
    [("lstm", 0, 3), ("lstm_linear_output", 0, 3), ("gru", 0, 2), ("coupled_peephole_lstm", 1, 2)],
)
def test_joined_gates_have_no_sigmoid_of_their_own(name, joined, apart):
    cell = CELLS[name]
    params = cell.init_recurrence(jax.random.key(0), HIDDEN)
    state = (jnp.zeros((ROWS, HIDDEN)),) * cell.num_states
    gates = jnp.zeros((ROWS, cell.num_gates * HIDDEN))
    for plan, sigmoids in ((CPU, joined), (GPU, apart), (TPU, apart)):
        step = jax.make_jaxpr(partial(cell.step, plan=plan))(params, state, gates)
        assert str(step).count(" logistic ") == sigmoids


@pytest.mark.parametrize("joins_gates", [True, False], ids=["joined", "apart"])
@pytest.mark.parametrize("name", GATED)
def test_values_and_gradients_of_gates(name, joins_gates):
    cell, (numpy_step, num_states) = CELLS[name], oracles.CELLS[name]
    rng = np.random.default_rng(0)
    params = cell.init_recurrence(jax.random.key(0), HIDDEN)
    weights = {name: rng.normal(size=params[name].shape) for name in cell.weights}
    state = rng.normal(size=(num_states, ROWS, HIDDEN))
    gates = rng.normal(size=(ROWS, cell.num_gates * HIDDEN))
    factors = rng.normal(size=(num_states, ROWS, HIDDEN))

    def step(weights, state, gates):
        new, h = cell.step(weights, tuple(state), gates, Plan(joins_gates=joins_gates))
        assert h is new[0]
        return jnp.stack(new)

    def numpy_steps(weights, state, gates):
        layer = {**weights, "bias": np.zeros(gates.shape[-1])}
        rows = [numpy_step(layer, gates[row], tuple(state[:, row])) for row in range(ROWS)]
        return np.stack(rows, axis=1)

    def loss(step, arrays):
        return (factors * step(*arrays)).sum()

    arrays = weights, state, gates
    np.testing.assert_allclose(step(*arrays), numpy_steps(*arrays), rtol=1e-12, atol=1e-12)
    gradient = jax.grad(partial(loss, step))(arrays)
    oracles.assert_gradient(gradient, partial(loss, numpy_steps), arrays, rtol=1e-12)
