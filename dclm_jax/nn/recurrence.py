"""`lax.scan` for recurrences, with the gradient of every weight matrix formed in one product.

Differentiating a scan adds to the gradient of each weight matrix W at each step. Here the step is
given weights that observe how they are used: the backward pass collects the left factors a_n of all
products a_n W and the products' cotangents z'_n, and dW = sum_n a_n^T z'_n is one large product
after the loop. The products' values are kept from the forward pass, so that the backward pass
repeats elementwise work only.

Leaves of carries, inputs and outputs have rows [B, ...] (inputs and outputs stacked, [N, B, ...]).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dclm_jax.nn.layers import Weight, flat, is_weight, rounded_product

Step = Callable[[Any, Any, Any], tuple[Any, Any]]


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
      params: all that is the same at every step, and more: what `step` does not read costs nothing.
        Gradients of `Weight`s are formed after the loop, those of other leaves are summed step by
        step.
      carry: floating-point arrays [B, ...]; the carry before the first step.
      xs: inputs [N, B, ...], stacked along the first axis, as the outputs will be.
      mask_NxB: True at real positions.
      num_steps: int, the steps to take: later ones are left out, and their `ys` are zero. None for
        all steps, in a loop whose length is known when it is compiled.

    Returns:
      The last carry and the stacked `ys`.
    """
    leaves, treedef = jax.tree.flatten(params, is_leaf=is_weight)
    x_shapes = jax.tree.map(_without_first_axis, xs)
    jaxpr = jax.make_jaxpr(step)(*jax.tree.map(_shape, (params, carry)), x_shapes).jaxpr
    used = {id(variable) for equation in jaxpr.eqns for variable in equation.invars}
    used |= {id(variable) for variable in jaxpr.outvars}
    is_read = [id(variable) in used for variable in jaxpr.invars[: len(leaves)]]
    unread = jax.tree.map(_shape, leaves)

    def step_of_read(read: list[Any], carry: Any, inputs: Any) -> tuple[Any, Any]:
        rest, (x, is_real_B) = iter(read), inputs
        both = [next(rest) if chosen else one for chosen, one in zip(is_read, unread, strict=True)]
        new_carry, y = step(treedef.unflatten(both), carry, x)
        return keep_at_padding(is_real_B, new_carry, carry), y

    read = [leaf for leaf, chosen in zip(leaves, is_read, strict=True) if chosen]
    return _scan(step_of_read, read, carry, (xs, mask_NxB), num_steps)


def keep_at_padding(is_real_B: jax.Array, new: Any, old: Any) -> Any:
    """The new carry in rows with a real token, the old one in the others."""
    return jax.tree.map(lambda new, old: jnp.where(is_real_B[:, None], new, old), new, old)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scan(step, leaves, carry, xs, num_steps):
    def body(carry: Any, sums: Any, x: Any) -> tuple[Any, Any, Any]:
        carry, y = step(leaves, carry, x)
        return carry, sums, y

    last, _, ys = _loop(body, carry, (), xs, num_steps)
    return last, ys


class _Observed:
    """A weight that hands its products to a function; it can be used in no other way."""

    __array_ufunc__ = None

    def __init__(self, multiply: Callable[[jax.Array], jax.Array]):
        self._multiply = multiply

    def __rmatmul__(self, a: jax.Array) -> jax.Array:
        return self._multiply(a)


def _observed(leaves: list[Any], multiply: Callable[[int, jax.Array], jax.Array]) -> list[Any]:
    """The leaves, with a @ weight being `multiply(the weight's index, a)`."""
    return [
        _Observed(partial(multiply, index)) if is_weight(leaf) else leaf
        for index, leaf in enumerate(leaves)
    ]


def _scan_forward(step, leaves, carry, xs, num_steps):
    def body(carry, sums, x):
        products = []

        def record(index, a):
            products.append(a @ leaves[index])
            return products[-1]

        new_carry, y = step(_observed(leaves, record), carry, x)
        return new_carry, sums, (y, carry, products)

    last, _, (ys, carries, products) = _loop(body, carry, (), xs, num_steps)
    return (last, ys), (leaves, xs, num_steps, carries, products)


def _scan_backward(step, residuals, cotangents):
    leaves, xs, num_steps, carries, products = residuals
    d_last, d_ys = cotangents
    # Made here, because a product with the transpose of its factor is slower in a loop on CPUs.
    transposed = [leaf.array.T if is_weight(leaf) else None for leaf in leaves]
    is_summed = [not is_weight(leaf) and _is_float(leaf) for leaf in leaves]
    summed = [leaf for leaf, chosen in zip(leaves, is_summed, strict=True) if chosen]
    xs, other_xs, merge_xs = _split(xs, [_is_float(leaf) for leaf in jax.tree.leaves(xs)])

    # Most factors are the carry, most cotangents of products those of inputs: these are kept once.
    # Which ones, and of which weight each product is, is seen when `body` is traced.
    weight_of_product: list[int] = []
    factor_of_carry: list[int | None] = []
    d_product_of_x: list[int | None] = []

    def body(d_carry, d_summed, inputs):
        d_y, x, other_x, carry, products = inputs
        weights = []

        def repeated(slots, summed, carry, x):
            known, factors = zip(products, slots, strict=True), []

            def recall(index, a):
                weights.append(index)
                factors.append(a)
                return _recalled(a, transposed[index], *next(known))

            rest = iter(summed)
            own = [
                next(rest) if chosen else leaf
                for chosen, leaf in zip(is_summed, leaves, strict=True)
            ]
            return step(_observed(own, recall), carry, merge_xs(x, other_x)), factors

        slots = jax.tree.map(jnp.zeros_like, products)
        _, transpose, factors = jax.vjp(repeated, slots, summed, carry, x, has_aux=True)
        d_products, d_more, d_carry, d_x = transpose((d_carry, d_y))
        weight_of_product[:] = weights
        factor_of_carry[:] = _places(factors, jax.tree.leaves(carry))
        d_product_of_x[:] = _places(d_products, d_x)
        new = _new(factors, factor_of_carry), _new(d_products, d_product_of_x)
        return d_carry, jax.tree.map(jnp.add, d_summed, d_more), (d_x, *new)

    zeros = jax.tree.map(jnp.zeros_like, summed)
    inputs = (d_ys, xs, other_xs, carries, products)
    d_carry, d_summed, (d_xs, factors, d_products) = _loop(
        body, d_last, zeros, inputs, num_steps, reverse=True
    )
    factors = _put_back(factors, factor_of_carry, jax.tree.leaves(carries))
    d_products = _put_back(d_products, d_product_of_x, d_xs)
    rest = iter(d_summed)
    d_leaves: list[Any] = [next(rest) if chosen else None for chosen in is_summed]
    for index, a, d_product in zip(weight_of_product, factors, d_products, strict=True):
        dtype = leaves[index].array.dtype
        d_array = rounded_product(flat(a).T, flat(d_product), dtype).astype(dtype)
        before = d_leaves[index]
        d_leaves[index] = Weight(d_array if before is None else before.array + d_array)
    return d_leaves, d_carry, merge_xs(d_xs, [None] * len(other_xs)), None


_scan.defvjp(_scan_forward, _scan_backward)


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
    body: Callable[[Any, Any, Any], tuple[Any, Any, Any]],
    carry: Any,
    sums: Any,
    xs: Any,
    num_steps: jax.Array | None,
    *,
    reverse: bool = False,
) -> tuple[Any, Any, Any]:
    """`lax.scan` of `carry, sums, y = body(carry, sums, x)` over the first `num_steps` of `xs`.
    Returns carry, sums and the stacked `y`."""
    if num_steps is None:

        def with_sums(state: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], Any]:
            carry, sums, y = body(*state, x)
            return (carry, sums), y

        (carry, sums), ys = jax.lax.scan(with_sums, (carry, sums), xs, reverse=reverse)
        return carry, sums, ys
    length = len(jax.tree.leaves(xs)[0])
    _, _, y_shapes = jax.eval_shape(body, carry, sums, jax.tree.map(_without_first_axis, xs))
    ys = jax.tree.map(lambda y: jnp.zeros((length, *y.shape), y.dtype), y_shapes)

    def step(count: jax.Array, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        carry, sums, ys = state
        index = num_steps - 1 - count if reverse else count
        x = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, index, keepdims=False), xs)
        carry, sums, y = body(carry, sums, x)
        put = partial(jax.lax.dynamic_update_index_in_dim, index=index, axis=0)
        return carry, sums, jax.tree.map(put, ys, y)

    return jax.lax.fori_loop(0, num_steps, step, (carry, sums, ys))


def _places(arrays: list[Any], known: list[Any]) -> list[int | None]:
    """For each array the index of the known one that it is, or None."""
    return [next((i for i, one in enumerate(known) if one is array), None) for array in arrays]


def _new(arrays: list[Any], places: list[int | None]) -> list[Any]:
    """The arrays that are not known."""
    return [array for array, place in zip(arrays, places, strict=True) if place is None]


def _put_back(new: list[Any], places: list[int | None], known: list[Any]) -> list[Any]:
    """The arrays that `_new` has chosen from."""
    rest = iter(new)
    return [next(rest) if place is None else known[place] for place in places]


def _split(tree: Any, chosen: list[bool]) -> tuple[list, list, Callable[[list, list], Any]]:
    """The chosen leaves, the others, and the function that puts both together again."""
    leaves, treedef = jax.tree.flatten(tree)

    def merge(ours: list[Any], others: list[Any]) -> Any:
        sources = {True: iter(ours), False: iter(others)}
        return treedef.unflatten([next(sources[kind]) for kind in chosen])

    ours = [leaf for leaf, kind in zip(leaves, chosen, strict=True) if kind]
    others = [leaf for leaf, kind in zip(leaves, chosen, strict=True) if not kind]
    return ours, others, merge


def _is_float(array: jax.Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)


def _shape(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _without_first_axis(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape[1:], array.dtype)
