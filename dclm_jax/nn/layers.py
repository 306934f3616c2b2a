"""Small functions used by models: products, initial values, dropout, bags of words."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Weight:
    """A matrix [I, O] whose only use is the product `x @ weight`.

    Its dtype may be narrower than the dtype of x. Then both factors are rounded to the narrower
    dtype, and products are accumulated in the dtype of x.
    """

    array: jax.Array

    # Without this attribute, numpy would compute `x @ weight` if x is a numpy array.
    __array_ufunc__ = None

    def __rmatmul__(self, x: jax.Array) -> jax.Array:
        return product(x, self.array)


def is_weight(node: object) -> bool:
    """Whether a node of a tree is a `Weight`: for `is_leaf` of `jax.tree`."""
    return isinstance(node, Weight)


@jax.custom_vjp
def product(a: jax.Array, weight: jax.Array) -> jax.Array:
    """a @ weight in the type of a, [..., I] x [I, O] -> [..., O]."""
    return rounded_product(a, weight, weight.dtype)


def rounded_product(a: jax.Array, b: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    """a @ b with both factors rounded to `dtype`; unlike `product`, it has no custom gradient."""
    wider = jnp.promote_types(a.dtype, b.dtype)
    return jnp.matmul(a.astype(dtype), b.astype(dtype), preferred_element_type=wider)


def as_matrix(array: jax.Array) -> jax.Array:
    """[..., I] -> [F, I]."""
    return array.reshape(-1, array.shape[-1])


def _product_forward(a, weight):
    return product(a, weight), (a, weight)


def _product_backward(factors, d_product):
    a, weight = factors
    d_weight = rounded_product(as_matrix(a).T, as_matrix(d_product), weight.dtype)
    return (
        rounded_product(d_product, weight.T, weight.dtype).astype(a.dtype),
        d_weight.astype(weight.dtype),
    )


product.defvjp(_product_forward, _product_backward)


def vector_product(vector_F: jax.Array, matrix_FxO: jax.Array) -> jax.Array:
    """vector @ matrix [O], as a product of matrices on TPUs (`Plan.bias_by_product`)."""
    # A TPU computes at least eight rows of a product; rows 1 to 7 are 0.
    rows_8xF = jnp.zeros((8, len(vector_F)), vector_F.dtype).at[0].set(vector_F)
    return (rows_8xF @ matrix_FxO)[0]


@jax.custom_vjp
def plus_bias(x: jax.Array, bias_I: jax.Array) -> jax.Array:
    """x [..., I] + bias; the gradient of the bias is a `vector_product`."""
    return x + bias_I


def _plus_bias_forward(x, bias_I):
    return x + bias_I, None


def _plus_bias_backward(_, d_sum):
    rows_FxI = as_matrix(d_sum)
    return d_sum, vector_product(jnp.ones(len(rows_FxI), rows_FxI.dtype), rows_FxI)


plus_bias.defvjp(_plus_bias_forward, _plus_bias_backward)


def glorot_uniform(
    key: jax.Array, input_dim: int, output_dim: int, *, copies: int = 1, fan_in: int | None = None
) -> jax.Array:
    """A float matrix [input_dim, copies * output_dim] of `copies` matrices side by side, uniform in
    [-sqrt(6 / (d1 + d2)), sqrt(6 / (d1 + d2))] (Ji et al. 2015, 3.1).

    Each copy (a gate of a cell) has d1 = `fan_in` and d2 = `output_dim`. `fan_in`, by default
    `input_dim`, is larger if the matrix is one block of a product over a concatenation, and smaller
    if most inputs are zero.
    """
    limit = jnp.sqrt(6.0 / ((fan_in or input_dim) + output_dim))
    return jax.random.uniform(key, (input_dim, copies * output_dim), minval=-limit, maxval=limit)


def uniform_matrices(key: jax.Array, params: Any, limit: Callable[[int], float]) -> Any:
    """The parameters with every matrix [I, O] redrawn uniformly from [-limit(I), limit(I)]."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        jax.random.uniform(key, leaf.shape, minval=-limit(len(leaf)), maxval=limit(len(leaf)))
        if leaf.ndim == 2
        else leaf
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, drawn)


def drop(key: jax.Array, shape: tuple[int, ...], rate: float) -> jax.Array:
    """Multipliers of inverted dropout: 0 with probability `rate`, else 1 / (1 - rate)."""
    return jnp.where(jax.random.bernoulli(key, 1.0 - rate, shape), 1.0 / (1.0 - rate), 0.0)


def sum_of_rows(table_VxX: jax.Array, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """The product of each sentence's bag of words w1..wM with a table.

    Args:
      table_VxX: one row per word.
      tokens: int32 [..., N, B], START w1..wM, padded.
      mask: bool [..., N, B], True at START and the words.

    Returns:
      [..., B, X]; zero for a sentence without words.
    """
    rows = table_VxX[tokens[..., 1:, :]]
    return jnp.sum(rows * mask[..., 1:, :, None], axis=-3)


def resized(array: jax.Array, length: int, axis: int = 0, fill: int = 0) -> jax.Array:
    """Cuts or pads an axis to `length`."""
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, max(0, length - array.shape[axis]))
    cut = jax.lax.slice_in_dim(array, 0, min(length, array.shape[axis]), axis=axis)
    return jnp.pad(cut, padding, constant_values=fill)


def fold(tree_SxNxB: Any) -> Any:
    """[S, N, B, ...] -> [N, S*B, ...]: one batch element per sentence."""
    return jax.tree.map(
        lambda a: jnp.swapaxes(a, 0, 1).reshape(a.shape[1], -1, *a.shape[3:]), tree_SxNxB
    )


def unfold(tree_NxR: Any, num_sentences: int) -> Any:
    """[N, S*B, ...] -> [S, N, B, ...]."""
    return jax.tree.map(
        lambda a: jnp.swapaxes(a.reshape(a.shape[0], num_sentences, -1, *a.shape[2:]), 0, 1),
        tree_NxR,
    )


def combine(tree: Any, others: Any) -> Any:
    """The tree with the leaves of `others` in place of None."""
    return jax.tree.map(
        lambda x, other: other if x is None else x, tree, others, is_leaf=lambda x: x is None
    )


def num_words(mask: jax.Array) -> jax.Array:
    """M, the number of words of every sentence, from the mask [..., N, B] of START w1..wM."""
    return jnp.sum(mask[..., 1:, :], axis=-2, dtype=jnp.int32)
