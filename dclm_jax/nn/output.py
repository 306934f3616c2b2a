"""The output layer: softmax over the vocabulary, in chunks of packed tokens.

The positions that hold a real token are gathered (packed) first, so padding costs nothing here, and
a loop runs over as many chunks of them as there are. No array of all positions x V ever exists.
"""

from functools import partial

import jax
import jax.numpy as jnp

from dclm_jax.nn.products import rounded_product

LOGITS = {"cpu": 2**22}
"""Logits of a chunk by backend: what stays in a CPU's cache, and 256 MiB elsewhere."""

MIN_CHUNK, MAX_CHUNK = 128, 4096
"""Below, adding each chunk to the gradient of the kernel costs more than its products; above,
products no longer gain."""


def chunk_size(vocab_size: int) -> int:
    """Tokens in a chunk of the output layer, a power of two, on the default backend."""
    tokens = LOGITS.get(jax.default_backend(), 2**26) // vocab_size
    return min(max(MIN_CHUNK, 1 << max(0, tokens.bit_length() - 1)), MAX_CHUNK)


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
    """-log p(target) of a chunk [C], exp(logits - their bound) [C, V] and its row sums [C]."""
    products_CxV = rounded_product(features, kernel_DxV, kernel_DxV.dtype)
    bound = _logit_bound(products_CxV, bias_V)
    exps_CxV = jnp.exp(products_CxV + (bias_V - bound[:, None]))
    normalizer = jnp.sum(exps_CxV, axis=1)
    product = jnp.take_along_axis(products_CxV, targets[:, None], axis=1)[:, 0]
    nll = jnp.log(normalizer) - (product + (bias_V[targets] - bound))
    # Logits beyond float32 make both ends infinite: that is no likelihood, not a perfect one.
    nll = jnp.where(jnp.isfinite(bound) & (normalizer > 0), nll, jnp.nan)
    return nll, exps_CxV, normalizer


def _logit_bound(products_CxV: jax.Array, bias_V: jax.Array) -> jax.Array:
    """What exps are relative to: at least each row's largest logit, and less than 30 above it.

    On CPUs the sum of both maxima spares a pass over all logits. It is that close where biases are,
    and leaves the exp of the largest logit far above the smallest float32.
    """
    if jax.default_backend() != "cpu":
        return jnp.max(products_CxV + bias_V, axis=1)
    top = jnp.max(bias_V)
    return jax.lax.cond(
        top - jnp.min(bias_V) < 30,
        lambda: jnp.max(products_CxV, axis=1) + top,
        lambda: jnp.max(products_CxV + bias_V, axis=1),
    )


def token_nll(
    features_FxD: jax.Array,
    kernel_DxV: jax.Array,
    bias_V: jax.Array,
    targets_F: jax.Array,
    mask_F: jax.Array,
    chunk: int | None = None,
) -> jax.Array:
    """-log softmax(features @ kernel + bias)[target] in nats at every position, 0 outside the mask.

    For scoring: it has no gradient. `chunk` is `chunk_size(V)` unless told.
    """
    chunk = min(chunk or chunk_size(bias_V.size), mask_F.size)
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
    chunk: int | None = None,
) -> jax.Array:
    """The sum over masked positions of -log softmax(features @ kernel + bias)[target], in nats.

    Its gradient is formed chunk by chunk in the forward pass, while the chunk's probabilities
    exist.
    """
    return jnp.sum(token_nll(features_FxD, kernel_DxV, bias_V, targets_F, mask_F, chunk))


def _summed_nll_forward(features_FxD, kernel_DxV, bias_V, targets_F, mask_F, chunk):
    chunk = min(chunk or chunk_size(bias_V.size), mask_F.size)
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
    d_features_FxD -= jnp.where(mask_F[:, None], kernel_DxV[:, targets_F].T, 0)
    counted_F = jnp.where(mask_F, targets_F, bias_V.size)
    d_kernel_DxV = d_kernel_DxV.at[:, counted_F].add(-features_FxD.T, mode="drop")
    d_bias_V = d_bias_V.at[counted_F].add(-1, mode="drop")
    return total, (d_features_FxD, d_kernel_DxV.astype(dtype), d_bias_V)


def _summed_nll_backward(chunk, gradients, cotangent):
    del chunk
    scaled = ((cotangent * gradient).astype(gradient.dtype) for gradient in gradients)
    return *scaled, None, None


summed_nll.defvjp(_summed_nll_forward, _summed_nll_backward)
