"""The output layer: softmax over the vocabulary, in chunks of packed tokens.

The positions that hold a real token are gathered (packed) first, so padding costs nothing here, and
a loop runs over as many chunks of them as there are. No array of all positions x V ever exists.
"""

from functools import partial

import jax
import jax.numpy as jnp

CHUNK = 256
"""Tokens in a chunk of the output layer."""


def _packed_positions(mask_F: jax.Array, chunk: int) -> tuple[jax.Array, jax.Array]:
    """Indices of the real positions, then F as filler up to whole chunks; and the chunks in use."""
    size = mask_F.size
    padded = -(-size // chunk) * chunk
    positions = jnp.nonzero(mask_F, size=padded, fill_value=size)[0]
    return positions, (jnp.sum(mask_F) + chunk - 1) // chunk


def _chunk_at(positions: jax.Array, index: jax.Array, chunk: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(positions, index * chunk, chunk)


def _take(array: jax.Array, positions: jax.Array) -> jax.Array:
    return jnp.asarray(array).at[positions].get(mode="fill", fill_value=0)


def _log_softmax(features: jax.Array, kernel_DxV: jax.Array, bias_V: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(features @ kernel_DxV + bias_V)


def _is_target(targets: jax.Array, vocab_size: int) -> jax.Array:
    return targets[:, None] == jnp.arange(vocab_size, dtype=targets.dtype)


def token_nll(
    features_FxD: jax.Array,
    kernel_DxV: jax.Array,
    bias_V: jax.Array,
    targets_F: jax.Array,
    mask_F: jax.Array,
    chunk: int = CHUNK,
) -> jax.Array:
    """-log softmax(features @ kernel + bias)[target] in nats at every position, 0 outside the mask.

    For scoring: it has no gradient.
    """
    positions, num_chunks = _packed_positions(mask_F, chunk)

    def add_chunk(index: jax.Array, nll_F: jax.Array) -> jax.Array:
        chosen = _chunk_at(positions, index, chunk)
        log_probs = _log_softmax(_take(features_FxD, chosen), kernel_DxV, bias_V)
        nll = -jnp.take_along_axis(log_probs, _take(targets_F, chosen)[:, None], axis=1)[:, 0]
        return nll_F.at[chosen].set(nll, mode="drop")

    zeros_F = jnp.zeros(features_FxD.shape[:1], features_FxD.dtype)
    return jax.lax.fori_loop(0, num_chunks, add_chunk, zeros_F)


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def summed_nll(
    features_FxD: jax.Array,
    kernel_DxV: jax.Array,
    bias_V: jax.Array,
    targets_F: jax.Array,
    mask_F: jax.Array,
    chunk: int = CHUNK,
) -> jax.Array:
    """The sum over masked positions of -log softmax(features @ kernel + bias)[target], in nats.

    Its gradient is formed chunk by chunk in the forward pass, while the chunk's probabilities
    exist.
    """
    return jnp.sum(token_nll(features_FxD, kernel_DxV, bias_V, targets_F, mask_F, chunk))


def _summed_nll_forward(features_FxD, kernel_DxV, bias_V, targets_F, mask_F, chunk):
    positions, num_chunks = _packed_positions(mask_F, chunk)
    size, vocab_size = mask_F.size, bias_V.size

    def add_chunk(index, sums):
        total, d_features_FxD, d_kernel_DxV, d_bias_V = sums
        chosen = _chunk_at(positions, index, chunk)
        features = _take(features_FxD, chosen)
        log_probs = _log_softmax(features, kernel_DxV, bias_V)
        is_target = _is_target(_take(targets_F, chosen), vocab_size)
        is_real = (chosen < size)[:, None]
        total -= jnp.sum(jnp.where(is_target & is_real, log_probs, 0))
        d_logits = jnp.where(is_real, jnp.exp(log_probs) - is_target, 0)
        return (
            total,
            d_features_FxD.at[chosen].set(d_logits @ kernel_DxV.T, mode="drop"),
            d_kernel_DxV + features.T @ d_logits,
            d_bias_V + jnp.sum(d_logits, axis=0),
        )

    zero = jnp.zeros((), features_FxD.dtype)
    gradients = jax.tree.map(jnp.zeros_like, (features_FxD, kernel_DxV, bias_V))
    total, *gradients = jax.lax.fori_loop(0, num_chunks, add_chunk, (zero, *gradients))
    return total, tuple(gradients)


def _summed_nll_backward(chunk, gradients, cotangent):
    del chunk
    return *(cotangent * gradient for gradient in gradients), None, None


summed_nll.defvjp(_summed_nll_forward, _summed_nll_backward)
