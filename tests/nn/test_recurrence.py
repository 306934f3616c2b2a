"""The scan with deferred weight gradients against numpy loops and against `lax.scan`."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.nn import recurrence
from dclm_jax.nn.layers import Weight

pytestmark = pytest.mark.usefixtures("x64")

STEPS, ROWS, WIDTH = 6, 6, 4
NUM_STEPS = [None, 0, STEPS - 2, STEPS]
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


def scan(params, carry, xs, num_steps) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    x, is_real = xs
    read = recurrence.without_unread(step, with_weights(params), carry, x)
    return recurrence.scan(step, read, carry, x, is_real, num_steps)


def numpy_scan(params, carry, xs, steps):
    """A row after the other."""
    (first, second, scale), (x, is_real) = params, xs
    ys = np.zeros((STEPS, ROWS, WIDTH)), np.zeros((STEPS, ROWS))
    last = np.array(carry)
    for row in range(ROWS):
        for n in range(STEPS if steps is None else steps):
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


@pytest.mark.parametrize("steps", NUM_STEPS)
def test_values_are_those_of_a_loop(arguments, steps):
    num_steps = None if steps is None else jnp.array(steps)
    params, carry, xs = arguments
    expected = numpy_scan(params, carry, xs, steps)
    params, carry, xs = jax.tree.map(jnp.asarray, arguments)
    actual = jax.jit(scan)(params, carry, xs, num_steps)
    jax.tree.map(close, actual, expected)


@pytest.mark.parametrize("steps", NUM_STEPS)
def test_gradients_are_those_of_lax_scan(arguments, steps):
    params, carry, (x, is_real) = jax.tree.map(jnp.asarray, arguments)
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(STEPS, ROWS, WIDTH)), rng.normal(size=(STEPS, ROWS))

    def loss(read, params, carry, x):
        last, ys = read(params, carry, (x, is_real))
        return jnp.sum(jnp.cos(last)) + sum(
            jnp.vdot(w, y) for w, y in zip(weights, ys, strict=True)
        )

    def deferred(params, carry, xs):
        return scan(params, carry, xs, None if steps is None else jnp.array(steps))

    taken_N = np.arange(STEPS) < (STEPS if steps is None else steps)

    def plain(params, carry, xs):
        def kept(carry, inputs):
            (x, is_real), is_taken = inputs
            new_carry, ys = step((*params, None), carry, x)
            carry = jnp.where((is_real & is_taken)[:, None], new_carry, carry)
            return carry, (ys[0] * is_taken, ys[1] * is_taken)

        return jax.lax.scan(kept, carry, (xs, taken_N))

    expected = jax.grad(partial(loss, plain), argnums=(0, 1, 2))(params, carry, x)
    actual = jax.jit(jax.grad(partial(loss, deferred), argnums=(0, 1, 2)))(params, carry, x)
    jax.tree.map(close, actual, expected)
    # Without any step only the carry has a gradient.
    assert all(np.any(leaf) for leaf in jax.tree.leaves(expected[1] if steps == 0 else expected))


def test_a_step_may_give_out_what_is_the_same_at_every_step(arguments):
    params, carry, (x, is_real) = jax.tree.map(jnp.asarray, arguments)

    def constant_step(params, h, x):
        weight, constant = params
        return jnp.tanh(x + h @ weight), constant

    def loss(weight, constant):
        params = (Weight(weight), constant)
        scanned: tuple[jax.Array, Any] = recurrence.scan(constant_step, params, carry, x, is_real)
        return jnp.sum(scanned[1] * jnp.arange(1.0, STEPS + 1)[:, None])

    gradient = jax.grad(loss, argnums=1)(params[0], params[2])
    close(gradient, np.full(WIDTH, STEPS * (STEPS + 1) / 2))


def test_no_weight_gradient_is_made_inside_the_loop(arguments):
    """What the module is for: no product of the shape of a weight in any loop's body."""
    params, carry, xs = jax.tree.map(jnp.asarray, arguments)

    def loss(params):
        last, _ = scan(params, carry, xs, None)
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
        scanned: tuple[jax.Array, Any] = recurrence.scan(plain_step, Weight(weight), carry, x, real)
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
