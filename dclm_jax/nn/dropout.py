"""Inverted dropout masks, drawn outside every scan."""

import jax
import jax.numpy as jnp


def dropout_mask(keys_B: jax.Array, shape_SxN: tuple[int, int], dim: int, rate: float) -> jax.Array:
    """Multipliers [S, N, B, dim]: 0 with probability `rate`, else 1 / (1 - rate).

    Every row of the batch has a key of its own, so that the draw does not depend on how rows are
    spread over devices.
    """
    keep = 1.0 - rate

    def row_mask(key: jax.Array) -> jax.Array:
        return jax.random.bernoulli(key, keep, (*shape_SxN, dim))

    kept_SxNxBxD = jax.vmap(row_mask, out_axes=2)(keys_B)
    return jnp.where(kept_SxNxBxD, 1.0 / keep, 0.0)
