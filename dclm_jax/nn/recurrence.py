"""`lax.scan` for recurrences, with the gradient of every weight matrix formed in one product.

Differentiating a scan adds to the gradient of each weight matrix W at each step. Here the step is
given weights that observe how they are used: the backward pass collects the left factors a_n of all
products a_n W and the products' cotangents z'_n, and dW = sum_n a_n^T z'_n is one large product
after the loop. The products' values are kept from the forward pass, so that the backward pass
repeats elementwise work only.
A step of `ccdclm` on 16 segments takes 0.27 s so on two CPU cores, and 0.32 s by plain `lax.scan`s.

Leaves of carries, inputs and outputs have rows [B, ...] (inputs and outputs stacked, [N, B, ...]).
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dclm_jax.nn.layers import Weight, flat, is_weight, rounded_product

Step = Callable[[Any, Any, Any], tuple[Any, Any]]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def scan(
    step: Step,
    params: Any,
    carry: Any,
    xs: Any,
    mask_NxB: jax.Array,
    num_steps: jax.Array | None = None,
) -> tuple[Any, Any]:
    """`lax.scan` of `carry, y = step(params, carry, x)`; a row's carry stays as it is at padding.

    Args:
      step: a pure function.
      params: all that is the same at every step. Gradients of `Weight`s are formed after the loop,
        those of other leaves are summed step by step: `without_unread` leaves out what needs none.
      carry: floating-point arrays [B, ...]; the carry before the first step.
      xs: floating-point inputs [N, B, ...], stacked along the first axis, as the outputs will be.
      mask_NxB: True at real positions.
      num_steps: int, the steps to take: later ones are left out, and their `ys` are zero. None for
        all steps, in a loop whose length is known when it is compiled.

    Returns:
      The last carry and the stacked `ys`.
    """

    def body(carry: Any, inputs: Any) -> tuple[Any, Any]:
        x, is_real_B = inputs
        new_carry, y = step(params, carry, x)
        return keep_at_padding(is_real_B, new_carry, carry), y

    return _loop(body, carry, (xs, mask_NxB), num_steps)


def without_unread(step: Step, params: Any, carry: Any, xs: Any) -> Any:
    """The `params` of a `scan` with None in place of the leaves that `step` does not read."""
    leaves, treedef = jax.tree.flatten(params, is_leaf=is_weight)
    jaxpr = jax.make_jaxpr(step)(params, carry, jax.tree.map(_without_first_axis, xs)).jaxpr
    used = {id(variable) for equation in jaxpr.eqns for variable in equation.invars}
    used |= {id(variable) for variable in jaxpr.outvars}
    is_read = [id(variable) in used for variable in jaxpr.invars[: len(leaves)]]
    pairs = zip(leaves, is_read, strict=True)
    return treedef.unflatten([leaf if leaf_is_read else None for leaf, leaf_is_read in pairs])


def keep_at_padding(is_real_B: jax.Array, new: Any, old: Any) -> Any:
    """The new carry in rows with a real token, the old one in the others."""
    return jax.tree.map(lambda new, old: jnp.where(is_real_B[:, None], new, old), new, old)


class _Observed:
    """A weight that hands its products to a function; it can be used in no other way."""

    __array_ufunc__ = None

    def __init__(self, multiply: Callable[[jax.Array], jax.Array]):
        self._multiply = multiply

    def __rmatmul__(self, a: jax.Array) -> jax.Array:
        return self._multiply(a)


def _observed(params: Any, multiply: Callable[[int, jax.Array], jax.Array]) -> Any:
    """The params, with a @ weight being `multiply(the weight's number, a)`."""
    number = itertools.count()
    return jax.tree.map(
        lambda leaf: _Observed(partial(multiply, next(number))) if is_weight(leaf) else leaf,
        params,
        is_leaf=is_weight,
    )


def _weights(params: Any) -> list[Weight]:
    return [leaf for leaf in jax.tree.leaves(params, is_leaf=is_weight) if is_weight(leaf)]


def _scan_forward(step, params, carry, xs, mask_NxB, num_steps):
    weights = _weights(params)

    def body(carry, inputs):
        x, is_real_B = inputs
        products = []

        def record(number, a):
            products.append(a @ weights[number])
            return products[-1]

        new_carry, y = step(_observed(params, record), carry, x)
        return keep_at_padding(is_real_B, new_carry, carry), (y, carry, products)

    last, (ys, carries, products) = _loop(body, carry, (xs, mask_NxB), num_steps)
    return (last, ys), (params, xs, mask_NxB, num_steps, carries, products)


def _scan_backward(step, residuals, cotangents):
    params, xs, mask_NxB, num_steps, carries, products = residuals
    d_last, d_ys = cotangents
    leaves, treedef = jax.tree.flatten(params, is_leaf=is_weight)
    weights = _weights(params)
    # Made here, because a product with the transpose of its factor is slower in a loop on CPUs.
    transposed = [weight.array.T for weight in weights]
    is_summed = [
        not is_weight(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves
    ]

    # Most factors are the carry, most cotangents of products those of inputs: these are kept once.
    # Which ones, and of which weight each product is, is seen when `body` is traced.
    weight_of_product: list[int] = []
    factor_of_carry: list[int | None] = []
    d_product_of_x: list[int | None] = []

    def body(sums, inputs):
        (d_carry, d_summed), (d_y, x, is_real_B, carry, products) = sums, inputs
        numbers = []

        def repeated(slots, summed, carry, x):
            known, factors = zip(products, slots, strict=True), []

            def recall(number, a):
                numbers.append(number)
                factors.append(a)
                return _recalled(a, transposed[number], *next(known))

            both = treedef.unflatten(_merge(is_summed, summed, leaves))
            new_carry, y = step(_observed(both, recall), carry, x)
            return (keep_at_padding(is_real_B, new_carry, carry), y), factors

        slots = jax.tree.map(jnp.zeros_like, products)
        summed = _select(is_summed, leaves)
        _, transpose, factors = jax.vjp(repeated, slots, summed, carry, x, has_aux=True)
        d_products, d_more, d_carry, d_x = transpose((d_carry, d_y))
        weight_of_product[:] = numbers
        factor_of_carry[:] = _places(factors, jax.tree.leaves(carry))
        d_product_of_x[:] = _places(d_products, jax.tree.leaves(d_x))
        new = _new(factors, factor_of_carry), _new(d_products, d_product_of_x)
        return (d_carry, jax.tree.map(jnp.add, d_summed, d_more)), (d_x, *new)

    zeros = jax.tree.map(jnp.zeros_like, _select(is_summed, leaves))
    inputs = (d_ys, xs, mask_NxB, carries, products)
    (d_carry, d_summed), (d_xs, factors, d_products) = _loop(
        body, (d_last, zeros), inputs, num_steps, reverse=True
    )
    factors = _put_back(factors, factor_of_carry, jax.tree.leaves(carries))
    d_products = _put_back(d_products, d_product_of_x, jax.tree.leaves(d_xs))
    d_weights: list[Any] = [None] * len(weights)
    for number, a, d_product in zip(weight_of_product, factors, d_products, strict=True):
        dtype = weights[number].array.dtype
        d_array = rounded_product(flat(a).T, flat(d_product), dtype).astype(dtype)
        before = d_weights[number]
        d_weights[number] = Weight(d_array if before is None else before.array + d_array)
    is_of_weight = [is_weight(leaf) for leaf in leaves]
    d_leaves = _merge(is_summed, d_summed, [None] * len(leaves))
    d_params = treedef.unflatten(_merge(is_of_weight, d_weights, d_leaves))
    return d_params, d_carry, d_xs, None, None


scan.defvjp(_scan_forward, _scan_backward)


@jax.custom_vjp
def _recalled(a, transposed_weight, product, slot):
    """A product of known value with the weight; its cotangent is also that of `slot`."""
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
    num_steps: jax.Array | None,
    *,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`lax.scan` of `carry, y = body(carry, x)` over the first `num_steps` of `xs`."""
    if num_steps is None:
        return jax.lax.scan(body, carry, xs, reverse=reverse)
    length = len(jax.tree.leaves(xs)[0])
    _, y_shapes = jax.eval_shape(body, carry, jax.tree.map(_without_first_axis, xs))
    ys = jax.tree.map(lambda y: jnp.zeros((length, *y.shape), y.dtype), y_shapes)

    def step(count: jax.Array, state: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, ys = state
        index = num_steps - 1 - count if reverse else count
        x = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, index, keepdims=False), xs)
        carry, y = body(carry, x)
        put = partial(jax.lax.dynamic_update_index_in_dim, index=index, axis=0)
        return carry, jax.tree.map(put, ys, y)

    return jax.lax.fori_loop(0, num_steps, step, (carry, ys))


def _select(is_selected: list[bool], leaves: list[Any]) -> list[Any]:
    return [leaf for leaf, selected in zip(leaves, is_selected, strict=True) if selected]


def _merge(is_selected: list[bool], values: list[Any], others: list[Any]) -> list[Any]:
    """The others, with the selected ones in their places."""
    rest = iter(values)
    return [
        next(rest) if selected else leaf for selected, leaf in zip(is_selected, others, strict=True)
    ]


def _places(arrays: list[Any], known: list[Any]) -> list[int | None]:
    """For each array the index of the known one that it is, or None."""
    return [next((i for i, leaf in enumerate(known) if leaf is array), None) for array in arrays]


def _new(arrays: list[Any], places: list[int | None]) -> list[Any]:
    """The arrays that are not known."""
    return _select([place is None for place in places], arrays)


def _put_back(new: list[Any], places: list[int | None], known: list[Any]) -> list[Any]:
    """The arrays that `_new` has chosen from."""
    rest = iter(new)
    return [next(rest) if place is None else known[place] for place in places]


def _without_first_axis(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape[1:], array.dtype)
