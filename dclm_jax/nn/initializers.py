"""Initial values: uniform in [-sqrt(6 / (d1 + d2)), sqrt(6 / (d1 + d2))] (Ji et al. 2015, 3.1)."""

import jax
import jax.numpy as jnp


def glorot_uniform(
    key: jax.Array, input_dim: int, output_dim: int, *, copies: int = 1, fan_in: int | None = None
) -> jax.Array:
    """A float matrix [input_dim, copies * output_dim] of `copies` matrices side by side.

    Every copy (a gate of a cell) is drawn for its own dimensions, `fan_in` to `output_dim`;
    `fan_in` (default `input_dim`) is larger where the matrix is one block of a product over a
    concatenation, and smaller where most inputs are zero.
    """
    limit = jnp.sqrt(6.0 / ((fan_in or input_dim) + output_dim))
    return jax.random.uniform(key, (input_dim, copies * output_dim), minval=-limit, maxval=limit)
