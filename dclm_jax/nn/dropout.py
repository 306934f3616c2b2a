"""Inverted dropout masks, drawn outside every scan."""

import jax
import jax.numpy as jnp


def dropout_mask(
    keys_B: jax.Array, shape_SxN: tuple[int, int], dim: int, rate: float, *, per_sentence: bool
) -> jax.Array:
    """Multipliers [S, N, B, dim]: 0 with probability `rate`, else 1 / (1 - rate).

    Every row of the batch has a key of its own, so that the draw does not depend on how rows are
    spread over devices.

    Args:
      per_sentence: all tokens of a sentence share one draw (Gal and Ghahramani 2016).
    """
    sentences, length = shape_SxN
    drawn_SxNxD = (sentences, 1 if per_sentence else length, dim)
    mask_SxNxBxD = jax.vmap(lambda key: drop(key, drawn_SxNxD, rate), out_axes=2)(keys_B)
    return jnp.broadcast_to(mask_SxNxBxD, (sentences, length, len(keys_B), dim))


def drop(key: jax.Array, shape: tuple[int, ...], rate: float) -> jax.Array:
    """Multipliers of that shape: 0 with probability `rate`, else 1 / (1 - rate)."""
    return jnp.where(jax.random.bernoulli(key, 1.0 - rate, shape), 1.0 / (1.0 - rate), 0.0)
