"""The output layer: softmax over the vocabulary, in chunks of packed tokens.

The positions that hold a real token are gathered (packed) first, so padding costs nothing here, and
a loop runs over as many chunks of them as there are. No array of all positions x V ever exists.
"""

from functools import partial

import jax
import jax.numpy as jnp

from dclm_jax.nn.products import rounded_product

CHUNK = 256
"""Tokens in a chunk of the output layer, where there are so many."""


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


def _softmax(
    features: jax.Array, kernel_DxV: jax.Array, bias_V: jax.Array, targets: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """-log p(target) of a chunk [C], exp(logits - their largest) [C, V] and its row sums [C]."""
    logits_CxV = rounded_product(features, kernel_DxV, kernel_DxV.dtype) + bias_V
    largest = jnp.max(logits_CxV, axis=1)
    exps_CxV = jnp.exp(logits_CxV - largest[:, None])
    normalizer = jnp.sum(exps_CxV, axis=1)
    target_logit = jnp.take_along_axis(logits_CxV, targets[:, None], axis=1)[:, 0]
    return jnp.log(normalizer) + largest - target_logit, exps_CxV, normalizer


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
    chunk = min(chunk, mask_F.size)
    positions, num_chunks = _packed_positions(mask_F, chunk)

    def add_chunk(index: jax.Array, nll_F: jax.Array) -> jax.Array:
        chosen = _chunk_at(positions, index, chunk)
        features, targets = _take(features_FxD, chosen), _take(targets_F, chosen)
        nll, _, _ = _softmax(features, kernel_DxV, bias_V, targets)
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
    chunk = min(chunk, mask_F.size)
    positions, num_chunks = _packed_positions(mask_F, chunk)
    size, dtype = mask_F.size, kernel_DxV.dtype

    def add_chunk(index, sums):
        total, d_features_FxD, d_kernel_DxV, d_bias_V = sums
        chosen = _chunk_at(positions, index, chunk)
        features = _take(features_FxD, chosen)
        nll, exps_CxV, normalizer = _softmax(features, kernel_DxV, bias_V, _take(targets_F, chosen))
        # p = exps / normalizer: dividing the thin factors spares a pass over exps.
        weight = jnp.where(chosen < size, 1 / normalizer, 0)
        d_features = rounded_product(exps_CxV, kernel_DxV.T, dtype) * weight[:, None]
        return (
            total + jnp.sum(jnp.where(chosen < size, nll, 0)),
            d_features_FxD.at[chosen].set(d_features, mode="drop"),
            d_kernel_DxV + rounded_product((features * weight[:, None]).T, exps_CxV, dtype),
            d_bias_V + weight @ exps_CxV,
        )

    zero = jnp.zeros((), features_FxD.dtype)
    gradients = [jnp.zeros(a.shape, bias_V.dtype) for a in (features_FxD, kernel_DxV, bias_V)]
    total, d_features_FxD, d_kernel_DxV, d_bias_V = jax.lax.fori_loop(
        0, num_chunks, add_chunk, (zero, *gradients)
    )
    # The gradient of a logit is p - [it is the target's]; this is the second term.
    real_Fx1 = mask_F[:, None]
    d_features_FxD -= jnp.where(real_Fx1, kernel_DxV.T[targets_F], 0)
    d_kernel_DxV = d_kernel_DxV.at[:, targets_F].add(-jnp.where(real_Fx1, features_FxD, 0).T)
    d_bias_V = d_bias_V.at[targets_F].add(-mask_F.astype(bias_V.dtype))
    return total, (d_features_FxD, d_kernel_DxV.astype(dtype), d_bias_V)


def _summed_nll_backward(chunk, gradients, cotangent):
    del chunk
    scaled = ((cotangent * gradient).astype(gradient.dtype) for gradient in gradients)
    return *scaled, None, None


summed_nll.defvjp(_summed_nll_forward, _summed_nll_backward)
