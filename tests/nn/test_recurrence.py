"""The scan with deferred weight gradients against numpy loops and against `lax.scan`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.nn import recurrence

pytestmark = pytest.mark.usefixtures("x64")

STEPS, ROWS, WIDTH = 6, 3, 4
close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)


def step(affine, params, carry, inputs):
    """Uses a weight twice, one product inside another, a summed constant and a mask."""
    (first, second, scale), (x, is_real) = params, inputs
    inner = jnp.tanh(affine(x, carry, first))
    new = affine(scale * inner, jnp.sin(affine(inner, inner, second)), first)
    carry = jnp.where(is_real[:, None], new, carry)
    return carry, (new, carry.sum())


def scan(params, carry, xs, num_steps) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return recurrence.scan(step, params, carry, xs, num_steps)


def numpy_scan(params, carry, xs, steps):
    (first, second, scale), (x, is_real) = params, xs
    ys = np.zeros((STEPS, ROWS, WIDTH)), np.zeros(STEPS)
    for n in range(steps):
        inner = np.tanh(x[n] + carry @ first)
        new = scale * inner + np.sin(inner + inner @ second) @ first
        carry = np.where(is_real[n][:, None], new, carry)
        ys[0][n], ys[1][n] = new, carry.sum()
    return carry, ys


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


@pytest.mark.parametrize("steps", [None, 0, 1, 4, STEPS])
def test_values_are_those_of_a_loop(arguments, steps):
    num_steps = None if steps is None else jnp.int32(steps)
    params, carry, xs = arguments
    expected = numpy_scan(params, carry, xs, STEPS if steps is None else steps)
    params, carry, xs = jax.tree.map(jnp.asarray, arguments)
    actual = jax.jit(scan)(params, carry, xs, num_steps)
    jax.tree.map(close, actual, expected)


@pytest.mark.parametrize("steps", [None, 1, 4, STEPS])
def test_gradients_are_those_of_lax_scan(arguments, steps):
    params, carry, (x, is_real) = jax.tree.map(jnp.asarray, arguments)
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(STEPS, ROWS, WIDTH)), rng.normal(size=STEPS)

    def loss(read, params, carry, x):
        last, ys = read(params, carry, (x, is_real))
        return jnp.sum(jnp.cos(last)) + sum(
            jnp.vdot(w, y) for w, y in zip(weights, ys, strict=True)
        )

    def ours(params, carry, xs):
        return scan(params, carry, xs, None if steps is None else jnp.int32(steps))

    def plain(params, carry, xs):
        taken = STEPS if steps is None else steps
        last, ys = jax.lax.scan(
            partial(step, recurrence.affine, params), carry, jax.tree.map(lambda a: a[:taken], xs)
        )
        missing = STEPS - taken
        return last, jax.tree.map(
            lambda y: jnp.pad(y, [(0, missing)] + [(0, 0)] * (y.ndim - 1)), ys
        )

    expected = jax.grad(partial(loss, plain), argnums=(0, 1, 2))(params, carry, x)
    actual = jax.jit(jax.grad(partial(loss, ours), argnums=(0, 1, 2)))(params, carry, x)
    jax.tree.map(close, actual, expected)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(expected))


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
