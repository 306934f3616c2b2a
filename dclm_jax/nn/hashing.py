"""Hashed features: weights of pairs (history, word) in an array of fixed size (Mikolov 2012).

The weight of a history h (a word) and a word t = 0..V-1 is array[start(h) + t]. The weights of a
history are thus one slice of the array, and their gradient is one slice. A hash spreads starts over
0..size-V: no slice wraps around, and slices overlap if the array is too small for all slices.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.nn.softmax import HashedLogits


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


class HashedRows(NamedTuple):
    """The weights of all histories: an array [W], and the start of each history's slice."""

    weights_W: jax.Array
    start_V: jax.Array | np.ndarray

    def logits(self, histories_FxM: jax.Array) -> HashedLogits:
        """The part of the logits of each position that its M histories add; -1 for none."""
        start_FxM = jnp.asarray(self.start_V)[jnp.maximum(histories_FxM, 0)]
        return HashedLogits(self.weights_W, jnp.where(histories_FxM >= 0, start_FxM, -1))


class PackedSlices(NamedTuple):
    """The slices of some histories, copied into one small array.

    Slices keep their order and their overlaps, so that an update of an entry of the packed array is
    an update of one entry of the whole array. There are U slices of one width in the order of their
    starts; the first `count` are real.

    Attributes:
      start_U, packed_U: starts of the slices in the whole and in the packed array.
      packed_V: the start in the packed array by history.
      size: size of the packed array.
    """

    count: jax.Array
    start_U: jax.Array
    packed_U: jax.Array
    packed_V: jax.Array
    width: int
    size: int

    @classmethod
    def of(cls, is_there_V: jax.Array, max_count: int, size: int) -> "PackedSlices":
        """The slices of at most `max_count` histories.

        Args:
          is_there_V: bool, whether each word of the vocabulary is one of the histories.
          size: size of the whole array.
        """
        (vocab_size,) = is_there_V.shape
        starts_V = history_starts(vocab_size, size)
        order_V = np.argsort(starts_V, kind="stable")
        index_U = jnp.nonzero(is_there_V[order_V], size=min(max_count, vocab_size), fill_value=0)[0]
        start_U = jnp.asarray(starts_V[order_V])[index_U]
        gaps = jnp.minimum(jnp.diff(start_U, prepend=start_U[:1]), vocab_size)
        packed_U = jnp.cumsum(gaps)
        count = jnp.sum(is_there_V)
        is_real_U = jnp.arange(index_U.size) < count
        history_U = jnp.where(is_real_U, jnp.asarray(order_V)[index_U], vocab_size)
        packed_V = jnp.zeros(vocab_size, jnp.int32).at[history_U].set(packed_U, mode="drop")
        size = min(index_U.size * vocab_size, size)
        return cls(count, start_U, packed_U, packed_V, vocab_size, size)

    def read(self, array: jax.Array) -> jax.Array:
        """The packed array, zero after the last slice."""
        packed = jnp.zeros(self.size, array.dtype)
        return self._copy(array, self.start_U, packed, self.packed_U)

    def write(self, array: jax.Array, packed: jax.Array) -> jax.Array:
        """The whole array with the packed slices written back."""
        return self._copy(packed, self.packed_U, array, self.start_U)

    def _copy(self, source, from_U, target, to_U) -> jax.Array:
        def copy_slice(index: jax.Array, target: jax.Array) -> jax.Array:
            part = jax.lax.dynamic_slice(source, (from_U[index],), (self.width,))
            return jax.lax.dynamic_update_slice(target, part, (to_U[index],))

        return jax.lax.fori_loop(0, self.count, copy_slice, target)
