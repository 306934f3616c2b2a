"""`lax.scan` for recurrences, with the gradient of every weight matrix formed in one product.

Differentiating a scan adds to the gradient of each weight matrix W at each step. Here a step makes
its products through a function affine(x, a, W) = x + a W, and the backward pass collects the left
factors a_n and the cotangents z'_n of all products: dW = sum_n a_n^T z'_n is one large product
after the loop. The products' values are kept from the forward pass, so that the backward pass
repeats elementwise work only.

Leaves of carries, inputs and outputs have rows [B, ...] (inputs and outputs stacked, [N, B, ...]),
which may be read in blocks: fewer rows at a time stay in a cache, and short ones end early.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dclm_jax.nn.products import flat, product, rounded_product

Affine = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
Step = Callable[[Affine, Any, Any, Any], tuple[Any, Any]]


def affine(x: jax.Array, a: jax.Array, weight: jax.Array) -> jax.Array:
    """x + a @ weight; x has the shape of the sum."""
    return x + product(a, weight)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def scan(
    step: Step, params: Any, carry: Any, xs: Any, num_steps: jax.Array | None
) -> tuple[Any, Any]:
    """`lax.scan` of `carry, y = step(affine, params, carry, x)`.

    Args:
      step: a pure, hashable function. A leaf of `params` that it hands to its `affine` as `weight`
        is used in no other way.
      params: all that is the same at every step. Gradients of the weights are formed after the
        loop, those of other leaves are summed step by step.
      carry: floating-point arrays [B, ...]; the carry before the first step.
      xs: inputs [N, B, ...], stacked along the first axis, as the outputs will be.
      num_steps: int, one for each of some equal blocks of consecutive rows, which are read one
        after the other: a block's later steps are left out, and their `ys` are zero. With more than
        one block, no leaf of `params` has rows. None for all steps of all rows, in a loop whose
        length is known when it is compiled.

    Returns:
      The last carry and the stacked `ys`.
    """

    def body(carry: Any, sums: Any, x: Any) -> tuple[Any, Any, Any]:
        carry, y = step(affine, params, carry, x)
        return carry, sums, y

    last, _, ys = _loop(body, carry, (), xs, num_steps)
    return last, ys


def _scan_forward(step, params, carry, xs, num_steps):
    def body(carry, sums, x):
        products = []

        def recording(x, a, weight):
            products.append(affine(x, a, weight))
            return products[-1]

        new_carry, y = step(recording, params, carry, x)
        return new_carry, sums, (y, carry, products)

    last, _, (ys, carries, products) = _loop(body, carry, (), xs, num_steps)
    return (last, ys), (params, xs, num_steps, carries, products)


def _scan_backward(step, residuals, cotangents):
    params, xs, num_steps, carries, products = residuals
    d_last, d_ys = cotangents
    leaves, params_tree = jax.tree.flatten(params)
    weight_of_product = _weights_used(step, leaves, params_tree, carries, xs)
    # Made here, because a product with the transpose of its factor is slower in a loop on CPUs.
    transposed_weights = [leaves[index].T for index in weight_of_product]
    is_summed = [
        _is_float(leaf) and index not in weight_of_product for index, leaf in enumerate(leaves)
    ]
    summed, other_params, merge_params = _split(params, is_summed)
    xs, other_xs, merge_xs = _split(xs, [_is_float(leaf) for leaf in jax.tree.leaves(xs)])

    # Most factors are the carry, most cotangents of products those of inputs: these are kept once.
    # Which ones is seen when `body` is traced.
    factor_of_carry: list[int | None] = []
    d_product_of_x: list[int | None] = []

    def body(d_carry, d_summed, inputs):
        d_y, x, other_x, carry, products = inputs

        def repeated(slots, summed, carry, x):
            known = zip(transposed_weights, products, slots, strict=True)
            factors = []

            def recalling(x, a, weight):
                del weight
                factors.append(a)
                return _recalled(x, a, *next(known))

            params = merge_params(summed, other_params)
            return step(recalling, params, carry, merge_xs(x, other_x)), factors

        slots = jax.tree.map(jnp.zeros_like, products)
        _, transpose, factors = jax.vjp(repeated, slots, summed, carry, x, has_aux=True)
        d_products, d_more, d_carry, d_x = transpose((d_carry, d_y))
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
        dtype = leaves[index].dtype
        d_weight = rounded_product(flat(a).T, flat(d_product), dtype).astype(dtype)
        d_leaves[index] = d_weight if d_leaves[index] is None else d_leaves[index] + d_weight
    return params_tree.unflatten(d_leaves), d_carry, merge_xs(d_xs, [None] * len(other_xs)), None


def _weights_used(step, leaves, params_tree, carries, xs) -> list[int]:
    """For each product of a step the index of its weight among the leaves of `params`."""
    indices: list[int] = []

    def look(leaves, carry, x):
        def noting(x, a, weight):
            indices.append(next(i for i, leaf in enumerate(leaves) if leaf is weight))
            return affine(x, a, weight)

        return step(noting, params_tree.unflatten(leaves), carry, x)

    jax.eval_shape(look, leaves, *jax.tree.map(_without_first_axis, (carries, xs)))
    return indices


scan.defvjp(_scan_forward, _scan_backward)


@jax.custom_vjp
def _recalled(x, a, transposed_weight, product, slot):
    """`affine(x, a, weight)` of known value; its cotangent is also that of `slot`."""
    del x, a, transposed_weight, slot
    return product


def _recalled_forward(x, a, transposed_weight, product, slot):
    del x, a, slot
    return product, transposed_weight


def _recalled_backward(transposed_weight, d_product):
    d_a = rounded_product(d_product, transposed_weight, transposed_weight.dtype)
    return d_product, d_a, None, None, d_product


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
    """`lax.scan` of `carry, sums, y = body(carry, sums, x)` over the first `num_steps` of `xs` of
    each block of rows; `sums` go through all blocks. Returns carry, sums and the stacked `y`."""
    if num_steps is None:

        def of_all_rows(state: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], Any]:
            carry, sums, y = body(*state, x)
            return (carry, sums), y

        (carry, sums), ys = jax.lax.scan(of_all_rows, (carry, sums), xs, reverse=reverse)
        return carry, sums, ys
    blocks, length = len(num_steps), len(jax.tree.leaves(xs)[0])
    carry = jax.tree.map(lambda a: a.reshape(blocks, -1, *a.shape[1:]), carry)
    xs = jax.tree.map(lambda a: a.reshape(length * blocks, -1, *a.shape[2:]), xs)
    carry_shapes, x_shapes = jax.tree.map(_without_first_axis, (carry, xs))
    _, _, y_shapes = jax.eval_shape(body, carry_shapes, sums, x_shapes)
    ys = jax.tree.map(lambda y: jnp.zeros((length * blocks, *y.shape), y.dtype), y_shapes)
    ends = jnp.cumsum(num_steps)

    def step(count: jax.Array, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        carry, sums, ys = state
        taken = ends[-1] - 1 - count if reverse else count
        block = jnp.sum(taken >= ends[:-1])
        # Step n of a block is at n * blocks + block of the axis that both share.
        index = (taken - ends[block] + num_steps[block]) * blocks + block
        get, put = jax.lax.dynamic_index_in_dim, jax.lax.dynamic_update_index_in_dim
        own = jax.tree.map(lambda a: get(a, block, keepdims=False), carry)
        x = jax.tree.map(lambda a: get(a, index, keepdims=False), xs)
        own, sums, y = body(own, sums, x)
        carry = jax.tree.map(lambda a, own: put(a, own, block, 0), carry, own)
        return carry, sums, jax.tree.map(lambda all_ys, y: put(all_ys, y, index, 0), ys, y)

    carry, sums, ys = jax.lax.fori_loop(0, ends[-1], step, (carry, sums, ys))
    carry = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), carry)
    return carry, sums, jax.tree.map(lambda y: y.reshape(length, -1, *y.shape[2:]), ys)


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


def _without_first_axis(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape[1:], array.dtype)
