"""Hashed features: weights of pairs (history, word) in an array of fixed size (Mikolov 2012).

The weight of a history h (a word) and a word t = 0..V-1 is array[start(h) + t]. The weights of a
history are thus one slice of the array, and their gradient is one slice. A hash spreads starts over
0..size-V: no slice wraps around, and slices overlap if the array is too small for all slices.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.nn.logits import HashedLogits


@functools.cache
def history_starts(vocab_size: int, size: int) -> np.ndarray:
    """The start of each word's slice as a history, int32 [V], from 0 to size - V.

    The hash is the finalizer of SplitMix64 (Steele et al. 2014), in 64-bit integers on every
    platform.
    """
    x = np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (x % np.uint64(size - vocab_size + 1)).astype(np.int32)


def hashed_logits(weights_W: jax.Array, histories_FxM: jax.Array, vocab_size: int) -> HashedLogits:
    """The part of the logits of each position that its M histories add; -1 for none."""
    starts_V = jnp.asarray(history_starts(vocab_size, weights_W.size))
    start_FxM = starts_V[jnp.maximum(histories_FxM, 0)]
    return HashedLogits(weights_W, jnp.where(histories_FxM >= 0, start_FxM, -1))
