"""The scan as one kernel, interpreted, against numpy loops and `lax.scan`."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.nn import fused, recurrence
from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.layers import Weight
from dclm_jax.nn.plan import TPU
from dclm_jax.reading.likelihoods import batch_likelihood
from tests import oracles
from tests.models.support import DOCUMENTS, model_jit, pack, random_params, simple_model

pytestmark = pytest.mark.usefixtures("x64")

ROWS, HIDDEN = 3, 4
FUSED = dataclasses.replace(TPU, fuses_scans=True)
close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(fused.pl, "pallas_call", partial(fused.pl.pallas_call, interpret=True))


def kernels_of(function: Any, *args: Any) -> int:
    return str(jax.make_jaxpr(function)(*args)).count("pallas_call[")


@pytest.mark.parametrize("length", [7, 16])
@pytest.mark.parametrize("name", ["lstm", "coupled_peephole_lstm"])
def test_values_and_gradients_are_those_of_a_loop(name, length):
    """7 steps are as many chunks, and 16 are two."""
    cell, (numpy_step, _) = CELLS[name], oracles.CELLS[name]
    rng = np.random.default_rng(0)
    shapes = {name: (HIDDEN, HIDDEN) for name in cell.weights}
    shapes["recurrent"] = (HIDDEN, cell.num_gates * HIDDEN)
    weights = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    state = rng.normal(size=(2, ROWS, HIDDEN))
    gates = rng.normal(size=(length, ROWS, cell.num_gates * HIDDEN))
    is_real = rng.random((length, ROWS)) < 0.7
    factors = rng.normal(size=(length, ROWS, HIDDEN)), rng.normal(size=(2, ROWS, HIDDEN))

    def scan(weights, state, gates):
        scanned: tuple[Any, Any] = recurrence.scan(
            partial(cell.step, plan=FUSED),
            FUSED,
            {name: Weight(array) for name, array in weights.items()},
            tuple(state),
            gates,
            is_real,
        )
        last, ys = scanned
        return ys, jnp.stack(last)

    def numpy_scan(weights, state, gates):
        layer = {**weights, "bias": np.zeros(gates.shape[-1])}
        ys, last = np.zeros((length, ROWS, HIDDEN), complex), np.array(state, complex)
        for n in range(length):
            for row in range(ROWS):
                new = numpy_step(layer, gates[n, row], tuple(last[:, row]))
                ys[n, row] = new[0]
                last[:, row] = new if is_real[n, row] else last[:, row]
        return ys, last

    def loss(scanned):
        return sum((factor * array).sum() for factor, array in zip(factors, scanned, strict=True))

    def loss_and_values(arrays):
        scanned = scan(*arrays)
        return loss(scanned), scanned

    arrays = (weights, state, gates)
    differentiated = jax.grad(loss_and_values, has_aux=True)
    assert kernels_of(differentiated, arrays) == 2
    gradient, scanned = jax.jit(differentiated)(arrays)
    jax.tree.map(close, scanned, numpy_scan(*arrays))
    jax.tree.map(close, jax.jit(scan)(*arrays), scanned)
    oracles.assert_gradient(gradient, lambda arrays: loss(numpy_scan(*arrays)), arrays, rtol=1e-12)


@pytest.mark.parametrize("name", ["ccdclm", "adclm", "adclm_3", "rlm_seqbow_att_lf"])
def test_a_model_has_the_same_gradient(name):
    """Whose scans read matrices alone, the words of a sentence, or sentences with late fusion."""
    model = simple_model(name)
    params, batch = random_params(model), pack(DOCUMENTS)

    @model_jit
    def gradient(model, params):
        return jax.value_and_grad(lambda params: batch_likelihood(model, params, batch).nll)(params)

    expected = gradient(dataclasses.replace(model, plan=TPU), params)
    jax.tree.map(close, gradient(dataclasses.replace(model, plan=FUSED), params), expected)


def test_a_precision_that_kernels_lack_is_a_loop():
    carry, xs = jnp.zeros((2, 2)), jnp.ones((3, 2, 2))

    def scan(carry, xs):
        return fused.kernel_scan(lambda h, x: (x + h @ h, h), carry, xs)

    for precision, count in (("highest", 1), ("high", 0)):
        with jax.default_matmul_precision(precision):
            assert kernels_of(scan, carry, xs) == count


@pytest.mark.parametrize("reverse", [False, True])
def test_steps_that_do_not_fit_are_a_loop(reverse):
    rows = fused.VMEM_BYTES // 1024
    carry, xs = jnp.zeros((rows, 2)), jnp.ones((3, rows, 2))

    def scan(scanned, carry, xs):
        return scanned(lambda h, x: (h + x, h), carry, xs, reverse=reverse)

    assert kernels_of(partial(scan, fused.kernel_scan), carry, xs) == 0
    assert kernels_of(partial(scan, fused.kernel_scan), carry[:2], xs[:, :2]) == 1
    jax.tree.map(close, scan(fused.kernel_scan, carry, xs), scan(jax.lax.scan, carry, xs))
