"""`lax.scan` for recurrences, with the gradient of every weight matrix formed in one product.

The derivative of a plain scan adds to the gradient of each weight matrix W at each step. This scan
gives the step weights that record their products: the backward pass collects the left factors a_n
of all products a_n W and the products' cotangents z'_n, and computes dW = sum_n a_n^T z'_n as one
large product after the loop. The forward pass saves the values of the products, so that the
backward pass repeats only elementwise work, unless the plan also repeats products. A training step
of `ccdclm` on 16 segments takes 0.27 s on two CPU cores, and 0.32 s with plain `lax.scan`. On an
H100 with 64 segments it takes 7.0 ms, and 9.4 ms with plain `lax.scan`.

Leaves of carries have the shape [B, ...]; leaves of inputs and outputs are stacked, [N, B, ...].
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dclm_jax.nn.layers import Weight, as_matrix, combine, is_weight, rounded_product
from dclm_jax.nn.plan import Plan

TokenStep = Callable[[Any, Any, Any], tuple[Any, Any]]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def scan(
    step: TokenStep,
    plan: Plan,
    params: Any,
    carry: Any,
    xs: Any,
    mask_NxB: jax.Array,
) -> tuple[Any, Any]:
    """`lax.scan` of `carry, y = step(params, carry, x)`; padding leaves the carry unchanged.

    Args:
      step: a pure function.
      plan: how the loop is arranged. If it ends early, `ys` after the last real position are zero.
      params: constants of all steps. Gradients of `Weight`s are computed after the loop; gradients
        of other leaves are summed at each step, and `without_unread` removes leaves without one.
      carry: floating-point arrays [B, ...], the carry before the first step.
      xs: floating-point inputs [N, B, ...]; outputs are stacked in the same way.
      mask_NxB: True at real positions.

    Returns:
      The last carry and the stacked `ys`.
    """

    def body(carry: Any, inputs: Any) -> tuple[Any, Any]:
        x, is_real_Bx1 = inputs
        new_carry, y = step(params, carry, x)
        return keep_at_padding(is_real_Bx1, new_carry, carry), y

    return _loop(body, carry, xs, mask_NxB, plan)


def without_unread(step: TokenStep, params: Any, carry: Any, xs: Any) -> Any:
    """The `params` of a `scan`, with None for leaves that `step` does not read."""
    leaves, treedef = jax.tree.flatten(params, is_leaf=is_weight)
    jaxpr = jax.make_jaxpr(step)(params, carry, jax.tree.map(_without_first_axis, xs)).jaxpr
    used = {id(variable) for equation in jaxpr.eqns for variable in equation.invars}
    used |= {id(variable) for variable in jaxpr.outvars}
    is_read = [id(variable) in used for variable in jaxpr.invars[: len(leaves)]]
    pairs = zip(leaves, is_read, strict=True)
    return treedef.unflatten([leaf if leaf_is_read else None for leaf, leaf_is_read in pairs])


def keep_at_padding(is_real_Bx1: jax.Array, new: Any, old: Any) -> Any:
    """The new carry of batch elements with a real token, the old carry of other batch elements."""
    return jax.tree.map(lambda new, old: jnp.where(is_real_Bx1, new, old), new, old)


class _Observed:
    """A weight that passes its products to a function and has no other use."""

    __array_ufunc__ = None

    def __init__(self, multiply: Callable[[jax.Array], jax.Array]):
        self._multiply = multiply

    def __rmatmul__(self, a: jax.Array) -> jax.Array:
        return self._multiply(a)


def _observed(params: Any, multiply: Callable[[int, jax.Array], jax.Array]) -> Any:
    """The params with weights for which `a @ weight` calls `multiply(number of the weight, a)`."""
    number = itertools.count()
    return jax.tree.map(
        lambda leaf: _Observed(partial(multiply, next(number))) if is_weight(leaf) else leaf,
        params,
        is_leaf=is_weight,
    )


def _weights(params: Any) -> list[Weight]:
    return [leaf for leaf in jax.tree.leaves(params, is_leaf=is_weight) if is_weight(leaf)]


def _with_products(
    step: TokenStep, params: Any, carry: Any, x: Any
) -> tuple[tuple[Any, Any], list[jax.Array]]:
    """The result of a step, and its products with weights."""
    weights, products = _weights(params), []

    def record(number: int, a: jax.Array) -> jax.Array:
        products.append(a @ weights[number])
        return products[-1]

    return step(_observed(params, record), carry, x), products


def _scan_forward(step, plan, params, carry, xs, mask_NxB):
    def body(carry, inputs):
        x, is_real_Bx1 = inputs
        (new_carry, y), products = _with_products(step, params, carry, x)
        saved = None if plan.repeats_products else products
        return keep_at_padding(is_real_Bx1, new_carry, carry), (y, carry, saved)

    last, (ys, carries, products) = _loop(body, carry, xs, mask_NxB, plan)
    return (last, ys), (params, xs, mask_NxB, carries, products)


def _scan_backward(step, plan, residuals, cotangents):
    params, xs, mask_NxB, carries, products = residuals
    d_last, d_ys = cotangents
    weights = _weights(params)
    # CPUs are slower with products that transpose a factor inside the loop.
    transposed = [weight.array.T for weight in weights]
    summed = jax.tree.map(_if_summed, params, is_leaf=is_weight)

    # Most factors equal the carry, and most cotangents of products equal cotangents of inputs. Such
    # arrays are stored once, without which a step of `ccdclm` on 64 segments takes 23% more memory.
    # Tracing `body` shows which arrays and weights these are.
    weight_of_product: list[int] = []
    factor_of_carry: list[int | None] = []
    d_product_of_x: list[int | None] = []

    def body(sums, inputs):
        (d_carry, d_summed), ((d_y, x, carry, products), is_real_Bx1) = sums, inputs
        numbers = []
        _, shapes = jax.eval_shape(partial(_with_products, step, params), carry, x)

        def repeated(slots, summed, carry, x):
            unused, saved, factors = iter(slots), iter(products or ()), []

            def recall(number, a):
                numbers.append(number)
                factors.append(a)
                product = next(saved) if products else jax.lax.stop_gradient(a) @ weights[number]
                return _recalled(a, transposed[number], product, next(unused))

            new_carry, y = step(_observed(combine(summed, params), recall), carry, x)
            return (keep_at_padding(is_real_Bx1, new_carry, carry), y), factors

        slots = [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]
        _, transpose, factors = jax.vjp(repeated, slots, summed, carry, x, has_aux=True)
        d_products, d_more, d_carry, d_x = transpose((d_carry, d_y))
        weight_of_product[:] = numbers
        factor_of_carry[:] = _indices(factors, jax.tree.leaves(carry))
        d_product_of_x[:] = _indices(d_products, jax.tree.leaves(d_x))
        new = _new(factors, factor_of_carry), _new(d_products, d_product_of_x)
        return (d_carry, jax.tree.map(jnp.add, d_summed, d_more)), (d_x, *new)

    zeros = jax.tree.map(jnp.zeros_like, summed)
    inputs = (d_ys, xs, carries, products)
    (d_carry, d_summed), (d_xs, factors, d_products) = _loop(
        body, (d_last, zeros), inputs, mask_NxB, plan, reverse=True
    )
    factors = _put_back(factors, factor_of_carry, jax.tree.leaves(carries))
    d_products = _put_back(d_products, d_product_of_x, jax.tree.leaves(d_xs))
    d_weights: list[Any] = [None] * len(weights)
    for number, a, d_product in zip(weight_of_product, factors, d_products, strict=True):
        dtype = weights[number].array.dtype
        d_array = rounded_product(as_matrix(a).T, as_matrix(d_product), dtype).astype(dtype)
        before = d_weights[number]
        d_weights[number] = Weight(d_array if before is None else before.array + d_array)
    rest = iter(d_weights)
    d_params = jax.tree.map(
        lambda leaf: next(rest) if is_weight(leaf) else None, params, is_leaf=is_weight
    )
    return combine(d_summed, d_params), d_carry, d_xs, None


scan.defvjp(_scan_forward, _scan_backward)


def _if_summed(leaf: Any) -> Any:
    """The leaf if its gradient is summed at each step, or None."""
    return None if is_weight(leaf) or not jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


@jax.custom_vjp
def _recalled(a, transposed_weight, product, slot):
    """A product with a known value; its cotangent is also the cotangent of `slot`."""
    del a, transposed_weight, slot
    return product


def _recalled_forward(a, transposed_weight, product, slot):
    del a, slot
    return product, transposed_weight


def _recalled_backward(transposed_weight, d_product):
    d_a = rounded_product(d_product, transposed_weight, transposed_weight.dtype)
    return d_a, None, None, d_product


_recalled.defvjp(_recalled_forward, _recalled_backward)


def _loop(
    body: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    xs: Any,
    mask_NxB: jax.Array,
    plan: Plan,
    *,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`lax.scan` of `carry, y = body(carry, (x, is_real_Bx1))` in the plan's arrangement."""
    xs = (xs, mask_NxB[..., None])
    if plan.fuses_scans:
        # The import of Pallas takes 0.3 s, and only fused scans need it.
        from dclm_jax.nn import fused

        return fused.kernel_scan(body, carry, xs, reverse=reverse)
    if not plan.stops_early:
        return jax.lax.scan(body, carry, xs, reverse=reverse, unroll=plan.unrolled_steps)
    # Positions up to the last real position of any row.
    position_N = jnp.arange(1, len(mask_NxB) + 1)
    num_steps = jnp.max(jnp.where(jnp.any(mask_NxB, axis=1), position_N, 0), initial=0)
    _, y_shapes = jax.eval_shape(body, carry, jax.tree.map(_without_first_axis, xs))
    ys = jax.tree.map(lambda y: jnp.zeros((len(mask_NxB), *y.shape), y.dtype), y_shapes)

    def step(count: jax.Array, state: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, ys = state
        index = num_steps - 1 - count if reverse else count
        x = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, index, keepdims=False), xs)
        carry, y = body(carry, x)
        put = partial(jax.lax.dynamic_update_index_in_dim, index=index, axis=0)
        return carry, jax.tree.map(put, ys, y)

    return jax.lax.fori_loop(0, num_steps, step, (carry, ys))


def _indices(arrays: list[Any], known: list[Any]) -> list[int | None]:
    """For each array the index of the same array in `known`, or None."""
    return [next((i for i, leaf in enumerate(known) if leaf is array), None) for array in arrays]


def _new(arrays: list[Any], indices: list[int | None]) -> list[Any]:
    """The arrays without an index."""
    return [array for array, index in zip(arrays, indices, strict=True) if index is None]


def _put_back(new: list[Any], indices: list[int | None], known: list[Any]) -> list[Any]:
    """The arrays from which `_new` selected."""
    rest = iter(new)
    return [next(rest) if index is None else known[index] for index in indices]


def _without_first_axis(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape[1:], array.dtype)
