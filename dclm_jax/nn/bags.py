"""Bags of words, kept sparse: a bag times a matrix is a sum of the rows of its words."""

import jax
import jax.numpy as jnp


def sum_of_rows(table_VxX: jax.Array, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """The sum of the table's rows of the words w1..wM of every sentence.

    Args:
      table_VxX: a row a word.
      tokens: int32 [..., N, B], START w1..wM, padded.
      mask: bool [..., N, B], True at START and the words.

    Returns:
      [..., B, X]; zero for a sentence without words.
    """
    rows = table_VxX[tokens[..., 1:, :]]
    return jnp.sum(rows * mask[..., 1:, :, None], axis=-3)


def num_words(mask: jax.Array) -> jax.Array:
    """M, the number of words of every sentence, from the mask [..., N, B] of START w1..wM."""
    return jnp.sum(mask[..., 1:, :], axis=-2, dtype=jnp.int32)
