"""`lax.scan` for recurrences, with the gradient of every weight matrix formed in one product.

Differentiating a scan adds to the gradient of each weight matrix W at each step. Here a step makes
its products through a function affine(x, a, W) = x + a W, and the backward pass collects the left
factors a_n and the cotangents z'_n of all products: dW = sum_n a_n^T z'_n is one large product
after the loop. The products' values are kept from the forward pass, so that the backward pass
repeats elementwise work only.
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
      carry: floating-point arrays; the carry before the first step.
      xs: inputs, stacked along the first axis.
      num_steps: int scalar: the steps after the first `num_steps` are left out, and their `ys` are
        zero. None for all steps, in a loop whose length is known when it is compiled.

    Returns:
      The last carry and the stacked `ys`.
    """

    def body(carry: Any, x: Any) -> tuple[Any, Any]:
        return step(affine, params, carry, x)

    return _loop(body, carry, xs, num_steps)


def _scan_forward(step, params, carry, xs, num_steps):
    def body(carry, x):
        products = []

        def recording(x, a, weight):
            products.append(affine(x, a, weight))
            return products[-1]

        new_carry, y = step(recording, params, carry, x)
        return new_carry, (y, carry, products)

    last, (ys, carries, products) = _loop(body, carry, xs, num_steps)
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

    def body(sums, inputs):
        d_carry, d_summed = sums
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
        return (d_carry, jax.tree.map(jnp.add, d_summed, d_more)), (d_x, d_products, factors)

    zeros = jax.tree.map(jnp.zeros_like, summed)
    (d_carry, d_summed), (d_xs, d_products, factors) = _loop(
        body, (d_last, zeros), (d_ys, xs, other_xs, carries, products), num_steps, reverse=True
    )
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
    body: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    xs: Any,
    num_steps: jax.Array | None,
    *,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`lax.scan` over the first `num_steps` of `xs`."""
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
        put = jax.lax.dynamic_update_index_in_dim
        return carry, jax.tree.map(lambda all_ys, y: put(all_ys, y, index, 0), ys, y)

    return jax.lax.fori_loop(0, num_steps, step, (carry, ys))


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
