"""Rows in blocks and in order of length: loops over few rows of like length waste little.

A loop over the tokens of many rows takes as many steps as the longest has tokens, and what it
touches in a step is too much for the cache of a CPU's core. Read a block at a time, shortest rows
first, most blocks end early.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


def ends(mask_NxR: jax.Array) -> jax.Array:
    """The number of positions up to the last real one of each row [R]."""
    position_Nx1 = jnp.arange(1, len(mask_NxR) + 1)[:, None]
    return jnp.max(jnp.where(mask_NxR, position_Nx1, 0), axis=0)


class RowOrder(NamedTuple):
    """An order of rows: the row at each place [R], and the place of each row [R]; None where rows
    stay as they are."""

    row_R: jax.Array | None
    place_R: jax.Array | None

    @classmethod
    def by_length(cls, mask_NxR: jax.Array, blocks: int) -> "RowOrder":
        """Rows that end early come first, where there are several blocks."""
        if blocks == 1:
            return cls(None, None)
        row_R = jnp.argsort(ends(mask_NxR))
        return cls(row_R, jnp.argsort(row_R))

    def sort(self, tree: Any, axis: int = 1) -> Any:
        """Arrays that have rows along `axis`, in this order."""
        return _taken(tree, self.row_R, self.place_R, axis)

    def restore(self, tree: Any, axis: int = 1) -> Any:
        """Arrays of this order, with their rows as they were."""
        return _taken(tree, self.place_R, self.row_R, axis)


def _taken(tree: Any, chosen_R: jax.Array | None, back_R: jax.Array | None, axis: int) -> Any:
    if chosen_R is None:
        return tree
    return jax.tree.map(lambda array: _permuted(axis, array, chosen_R, back_R), tree)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _permuted(axis, array, chosen_R, back_R):
    """The rows `chosen_R`; the gradient takes them back instead of adding them up."""
    del back_R
    return jnp.take(array, chosen_R, axis)


def _permuted_forward(axis, array, chosen_R, back_R):
    return _permuted(axis, array, chosen_R, back_R), (chosen_R, back_R)


def _permuted_backward(axis, orders, d_array):
    chosen_R, back_R = orders
    return _permuted(axis, d_array, back_R, chosen_R), None, None


_permuted.defvjp(_permuted_forward, _permuted_backward)
