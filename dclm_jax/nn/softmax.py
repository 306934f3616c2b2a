"""The output layer: softmax over the vocabulary, in chunks of packed tokens.

The positions that hold a real token are gathered (packed) first, so padding costs nothing here, and
a loop runs over as many chunks of them as there are. No array of all positions x V ever exists;
what positions share of their logits (`RowLogits`) is an array of its rows x V.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.nn.backend import Tuning
from dclm_jax.nn.layers import rounded_product


class RowLogits(NamedTuple):
    """A part of the logits that positions share: the rows [R, V], and which of them each position
    has, int [F]."""

    logits_RxV: jax.Array
    row_F: jax.Array


def _fold_chunks(
    mask_F: jax.Array,
    vocab_size: int,
    tuning: Tuning,
    first: Callable[[jax.Array], Any],
    add: Callable[[Any, jax.Array], Any],
) -> Any:
    """`add(sums, chosen)` over the real positions in chunks, which begins with `first(chosen)`.

    `chosen` are indices of positions, F as filler. The first chunk takes what whole chunks leave
    over, in the shortest of a few sizes that holds it; a batch of few tokens is that chunk alone.
    """
    size = mask_F.size
    chunk = min(tuning.chunk_size(vocab_size), size)
    positions = jnp.nonzero(mask_F, size=size, fill_value=size)[0]
    count = jnp.sum(mask_F)
    whole_chunks = jnp.maximum(count - 1, 0) // chunk
    rest = count - whole_chunks * chunk

    def begin(length: int) -> Any:
        chosen = positions[:length]
        return first(jnp.where(jnp.arange(length) < rest, chosen, size))

    num_sizes = tuning.only_chunks if size == chunk else tuning.short_chunks
    parts = (chunk * part // num_sizes for part in range(1, num_sizes))
    least = max(tuning.min_short_chunk, tuning.min_short_logits // vocab_size)
    lengths = [*(length for length in parts if length >= least), chunk]
    shortest = jnp.searchsorted(jnp.asarray(lengths), rest)
    sums = jax.lax.switch(shortest, [partial(begin, length) for length in lengths])
    if size == chunk:
        return sums

    def step(index: jax.Array, sums: Any) -> Any:
        start = rest + index * chunk
        return add(sums, jax.lax.dynamic_slice_in_dim(positions, start, chunk))

    return jax.lax.fori_loop(0, whole_chunks, step, sums)


def _take(array: jax.Array, positions: jax.Array) -> jax.Array:
    return jnp.asarray(array).at[positions].get(mode="fill", fill_value=0)


def _softmax(
    features: jax.Array,
    kernel_DxV: jax.Array,
    bias_V: jax.Array,
    shared: RowLogits | None,
    targets: jax.Array,
    tuning: Tuning,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """-log p(target) of a chunk [C], exp(logits - their bound) [C, V] and its row sums [C]."""
    products_CxV = rounded_product(features, kernel_DxV, kernel_DxV.dtype)
    if shared is not None:
        products_CxV += _take(shared.logits_RxV, shared.row_F)
    bound = _logit_bound(products_CxV, bias_V, tuning)
    exps_CxV = jnp.exp(products_CxV + (bias_V - bound[:, None]))
    normalizer = jnp.sum(exps_CxV, axis=1)
    product = jnp.take_along_axis(products_CxV, targets[:, None], axis=1)[:, 0]
    nll = jnp.log(normalizer) - (product + (bias_V[targets] - bound))
    # Logits beyond float32 make both ends infinite: that is no likelihood, not a perfect one.
    nll = jnp.where(jnp.isfinite(bound) & (normalizer > 0), nll, jnp.nan)
    return nll, exps_CxV, normalizer


def _logit_bound(products_CxV: jax.Array, bias_V: jax.Array, tuning: Tuning) -> jax.Array:
    """What exps are relative to: at least each row's largest logit, and less than 30 above it.

    By parts it is the sum of both maxima. It is that close where biases are, and leaves the exp of
    the largest logit far above the smallest float32.
    """
    if not tuning.bound_by_parts:
        return jnp.max(products_CxV + bias_V, axis=1)
    top = jnp.max(bias_V)
    return jax.lax.cond(
        top - jnp.min(bias_V) < 30,
        lambda: jnp.max(products_CxV, axis=1) + top,
        lambda: jnp.max(products_CxV + bias_V, axis=1),
    )


def _rows_of(shared: RowLogits | None, chosen: jax.Array) -> RowLogits | None:
    """The shared logits with the rows of a chunk; those of filler do not exist."""
    if shared is None:
        return None
    filler = len(shared.logits_RxV)
    row_C = shared.row_F.at[chosen].get(mode="fill", fill_value=filler)
    return RowLogits(shared.logits_RxV, row_C)


def token_nll(
    features_FxD: jax.Array,
    kernel_DxV: jax.Array,
    bias_V: jax.Array,
    targets_F: jax.Array,
    mask_F: jax.Array,
    shared: RowLogits | None,
    tuning: Tuning,
) -> jax.Array:
    """-log softmax(features @ kernel + bias + shared)[target] in nats, 0 outside the mask.

    For scoring: it has no gradient.
    """

    def add_chunk(nll_F: jax.Array, chosen: jax.Array) -> jax.Array:
        features, targets = _take(features_FxD, chosen), _take(targets_F, chosen)
        rows = _rows_of(shared, chosen)
        nll, _, _ = _softmax(features, kernel_DxV, bias_V, rows, targets, tuning)
        return nll_F.at[chosen].set(nll, mode="drop")

    zeros_F = jnp.zeros(features_FxD.shape[:1], features_FxD.dtype)
    return _fold_chunks(mask_F, bias_V.size, tuning, partial(add_chunk, zeros_F), add_chunk)


@partial(jax.custom_vjp, nondiff_argnums=(6,))
def summed_nll(
    features_FxD: jax.Array,
    kernel_DxV: jax.Array,
    bias_V: jax.Array,
    targets_F: jax.Array,
    mask_F: jax.Array,
    shared: RowLogits | None,
    tuning: Tuning,
) -> jax.Array:
    """The sum of `token_nll` over all positions.

    Its gradient is formed chunk by chunk in the forward pass, while the chunk's probabilities
    exist.
    """
    return jnp.sum(token_nll(features_FxD, kernel_DxV, bias_V, targets_F, mask_F, shared, tuning))


def _summed_nll_forward(features_FxD, kernel_DxV, bias_V, targets_F, mask_F, shared, tuning):
    size, dtype = mask_F.size, kernel_DxV.dtype

    def of_chunk(d_features_FxD, d_shared_RxV, chosen):
        """Nats and gradients of a chunk; the two that have rows are put into what they have."""
        features, targets = _take(features_FxD, chosen), _take(targets_F, chosen)
        rows = _rows_of(shared, chosen)
        nll, exps_CxV, normalizer = _softmax(features, kernel_DxV, bias_V, rows, targets, tuning)
        # The gradient of a logit is p - [it is the target's], p = exps / normalizer. Dividing the
        # thin factors spares a pass over exps.
        errors_CxV = exps_CxV.at[jnp.arange(chosen.size), targets].add(-normalizer)
        weight = jnp.where(chosen < size, 1 / normalizer, 0)
        # Laid out as the transpose it is: CPUs take a quarter longer to read it across.
        weighted_DxC = jax.lax.optimization_barrier((features * weight[:, None]).T)
        d_features = rounded_product(errors_CxV, kernel_DxV.T, dtype) * weight[:, None]
        if rows is not None:
            d_logits_CxV = errors_CxV * weight[:, None]
            d_shared_RxV = d_shared_RxV.at[rows.row_F].add(d_logits_CxV, mode="drop")
        sums = (
            jnp.sum(jnp.where(chosen < size, nll, 0)).astype(features_FxD.dtype),
            rounded_product(weighted_DxC, errors_CxV, dtype),
            weight @ errors_CxV,
        )
        return sums, d_features_FxD.at[chosen].set(d_features, mode="drop"), d_shared_RxV

    def add_chunk(gradients, chosen):
        sums, d_features_FxD, d_shared_RxV = gradients
        more, *placed = of_chunk(d_features_FxD, d_shared_RxV, chosen)
        return jax.tree.map(jnp.add, sums, more), *placed

    d_features_FxD = jnp.zeros(features_FxD.shape, bias_V.dtype)
    d_shared_RxV = None if shared is None else jnp.zeros_like(shared.logits_RxV)
    first = partial(of_chunk, d_features_FxD, d_shared_RxV)
    gradients = _fold_chunks(mask_F, bias_V.size, tuning, first, add_chunk)
    (total, d_kernel_DxV, d_bias_V), d_features_FxD, d_shared_RxV = gradients
    return total, (d_features_FxD, d_kernel_DxV.astype(dtype), d_bias_V, d_shared_RxV)


def _summed_nll_backward(tuning, gradients, cotangent):
    del tuning
    d_features, d_kernel, d_bias, d_shared = jax.tree.map(
        lambda gradient: (cotangent * gradient).astype(gradient.dtype), gradients
    )
    no_gradient: Any = None
    shared = None if d_shared is None else RowLogits(d_shared, no_gradient)
    return d_features, d_kernel, d_bias, None, None, shared


summed_nll.defvjp(_summed_nll_forward, _summed_nll_backward)
