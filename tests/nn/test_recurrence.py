"""The scan with deferred weight gradients against numpy loops."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.nn import recurrence
from dclm_jax.nn.layers import Weight
from dclm_jax.nn.plan import CPU, Plan
from tests import oracles

pytestmark = pytest.mark.usefixtures("x64")

STEPS, ROWS, WIDTH = 6, 6, 4
PLANS = {
    "ends early": CPU,
    "plain": Plan(),
    "unrolled": Plan(unrolled_steps=4),
    "products repeated": Plan(repeats_products=True),
}
close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)


def step(params, carry, x):
    """Uses a weight twice, one product inside another, and a summed constant."""
    first, second, scale, _ = params
    inner = jnp.tanh(x + carry @ first)
    new = scale * inner + jnp.sin(inner + inner @ second) @ first
    return new, (new, (new * carry).sum(axis=1))


def with_weights(params):
    """Matrices as weights, and one that no step reads."""
    first, second, scale = params
    return Weight(first), Weight(second), scale, {"unread": Weight(first)}


def scan(params, carry, xs, plan) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    x, is_real = xs
    read = recurrence.without_unread(step, with_weights(params), carry, x)
    return recurrence.scan(step, plan, read, carry, x, is_real)


def numpy_scan(params, carry, xs, steps):
    """A row after the other, complex."""
    (first, second, scale), (x, is_real) = params, xs
    ys = np.zeros((STEPS, ROWS, WIDTH), complex), np.zeros((STEPS, ROWS), complex)
    last = np.array(carry, complex)
    for row in range(ROWS):
        for n in range(steps):
            inner = np.tanh(x[n, row] + last[row] @ first)
            new = scale * inner + np.sin(inner + inner @ second) @ first
            ys[0][n, row], ys[1][n, row] = new, (new * last[row]).sum()
            last[row] = new if is_real[n, row] else last[row]
    return last, ys


@pytest.fixture
def arguments():
    rng = np.random.default_rng(0)
    params = [
        rng.normal(size=(WIDTH, WIDTH)),
        rng.normal(size=(WIDTH, WIDTH)),
        rng.normal(size=WIDTH),
    ]
    xs = rng.normal(size=(STEPS, ROWS, WIDTH)), rng.random((STEPS, ROWS)) < 0.7
    return params, rng.normal(size=(ROWS, WIDTH)), xs


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("real_steps", [0, STEPS - 2, STEPS])
def test_values_and_gradients_are_those_of_a_loop(arguments, real_steps, plan):
    """Also of a loop that ends early, whose later outputs are zero."""
    params, carry, (x, is_real) = arguments
    is_real[real_steps:] = False
    if real_steps:
        is_real[real_steps - 1, 0] = True
    steps = real_steps if plan.stops_early else STEPS
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(STEPS, ROWS, WIDTH)), rng.normal(size=(STEPS, ROWS))

    def loss(scanned, numpy):
        last, ys = scanned
        weighted_ys = (numpy.sum(w * y) for w, y in zip(weights, ys, strict=True))
        return numpy.sum(numpy.cos(last)) + sum(weighted_ys)

    def loss_of_scan(arrays):
        params, carry, x = arrays
        scanned = scan(params, carry, (x, is_real), plan)
        return loss(scanned, jnp), scanned

    def loss_of_numpy(arrays):
        params, carry, x = arrays
        return loss(numpy_scan(params, carry, (x, is_real), steps), np)

    arrays = (params, carry, x)
    gradient, scanned = jax.jit(jax.grad(loss_of_scan, has_aux=True))(arrays)
    jax.tree.map(close, scanned, numpy_scan(params, carry, (x, is_real), steps))
    oracles.assert_gradient(gradient, loss_of_numpy, arrays, rtol=1e-12)
    # Without any step only the carry has a gradient.
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient[1] if steps == 0 else gradient))


def test_a_step_may_give_out_what_is_the_same_at_every_step(arguments):
    params, carry, (x, is_real) = jax.tree.map(jnp.asarray, arguments)

    def constant_step(params, h, x):
        weight, constant = params
        return jnp.tanh(x + h @ weight), constant

    def loss(weight, constant):
        params = (Weight(weight), constant)
        scanned: tuple[jax.Array, Any] = recurrence.scan(
            constant_step, Plan(), params, carry, x, is_real
        )
        return jnp.sum(scanned[1] * jnp.arange(1.0, STEPS + 1)[:, None])

    gradient = jax.grad(loss, argnums=1)(params[0], params[2])
    close(gradient, np.full(WIDTH, STEPS * (STEPS + 1) / 2))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_no_weight_gradient_is_made_inside_the_loop(arguments, plan):
    """What the module is for: no product of the shape of a weight in any loop's body."""
    params, carry, xs = jax.tree.map(jnp.asarray, arguments)

    def loss(params):
        last, _ = scan(params, carry, xs, plan)
        return jnp.sum(last)

    def shapes_of_products(jaxpr, in_loop):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general" and in_loop:
                yield equation.outvars[0].aval.shape
            is_loop = equation.primitive.name in ("scan", "while")
            for value in equation.params.values():
                if hasattr(value, "jaxpr"):
                    yield from shapes_of_products(value.jaxpr, in_loop or is_loop)

    products = list(shapes_of_products(jax.make_jaxpr(jax.grad(loss))(params).jaxpr, False))
    assert (ROWS, WIDTH) in products
    assert (WIDTH, WIDTH) not in products


def test_the_backward_pass_stacks_no_array_twice(arguments):
    """In h' = tanh(x + h W) the factor h is the carry, and x and the product have one cotangent."""
    params, carry, (x, _) = jax.tree.map(jnp.asarray, arguments)
    real = jnp.ones((STEPS, ROWS), bool)

    def plain_step(weight, h, x):
        h = jnp.tanh(x + h @ weight)
        return h, h

    def loss(weight, x):
        scanned: tuple[jax.Array, Any] = recurrence.scan(
            plain_step, Plan(), Weight(weight), carry, x, real
        )
        return jnp.sum(scanned[0])

    def plain_loss(weight, x):
        h = carry
        for row in x:
            h = jnp.tanh(row + h @ weight)
        return jnp.sum(h)

    gradient = jax.grad(loss, argnums=(0, 1))
    jax.tree.map(close, gradient(params[0], x), jax.grad(plain_loss, argnums=(0, 1))(params[0], x))
    jaxpr = jax.make_jaxpr(gradient)(params[0], x).jaxpr
    *_, backward = [equation for equation in jaxpr.eqns if equation.primitive.name == "scan"]
    outputs: list[Any] = backward.outvars
    shapes = [output.aval.shape for output in outputs]
    assert shapes.count((STEPS, ROWS, WIDTH)) == 1 and not any(len(shape) > 3 for shape in shapes)
