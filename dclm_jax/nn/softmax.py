"""The output layer: softmax over the vocabulary, in chunks of packed tokens.

Positions with a real token are gathered (packed) first, so that padding costs nothing, and a loop
runs over chunks of them. No array has the shape [positions, V].

A position has one target, or several targets with one distribution: the words of a bag of words.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.nn.layers import rounded_product, vector_product
from dclm_jax.nn.logits import CopiedTargets, OutputInputs, entries_at
from dclm_jax.nn.plan import Plan


def _fold_chunks(
    mask_F: jax.Array,
    vocab_size: int,
    plan: Plan,
    first: Callable[[jax.Array], Any],
    add: Callable[[Any, jax.Array], Any],
) -> Any:
    """`add(sums, position_C)` over the real positions in chunks, after `first(position_C)`.

    A chunk has indices of positions, with F as filler. The first chunk has the remainder after
    whole chunks; its size is the smallest sufficient of `first_chunk_sizes`. A batch of few tokens
    has only this chunk.
    """
    size = mask_F.size
    lengths = first_chunk_sizes(size, vocab_size, plan)
    chunk = lengths[-1]
    positions = jnp.nonzero(mask_F, size=size, fill_value=size)[0]
    count = jnp.sum(mask_F)
    whole_chunks = jnp.maximum(count - 1, 0) // chunk
    rest = count - whole_chunks * chunk

    def begin(length: int) -> Any:
        position_C = positions[:length]
        return first(jnp.where(jnp.arange(length) < rest, position_C, size))

    shortest = jnp.sum(jnp.asarray(lengths[:-1], rest.dtype) < rest)
    sums = jax.lax.switch(shortest, [partial(begin, length) for length in lengths])
    if size == chunk:
        return sums

    def step(index: jax.Array, sums: Any) -> Any:
        start = rest + index * chunk
        return add(sums, jax.lax.dynamic_slice_in_dim(positions, start, chunk))

    return jax.lax.fori_loop(0, whole_chunks, step, sums)


def first_chunk_sizes(size: int, vocab_size: int, plan: Plan) -> list[int]:
    """The sizes that the first chunk of `size` positions can have, ascending; the last is the size
    of all further chunks."""
    chunk = min(plan.chunk_size(vocab_size), size)
    num_sizes = plan.only_chunks if size == chunk else plan.short_chunks
    parts = (chunk * part // num_sizes for part in range(1, num_sizes))
    smallest = max(plan.min_short_chunk, plan.min_short_logits // vocab_size)
    return [*(length for length in parts if length >= smallest), chunk]


def _softmax(
    inputs: OutputInputs,
    features_CxD: jax.Array,
    position_C: jax.Array,
    targets_CxT: jax.Array,
    plan: Plan,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """-log p(target) of a chunk [C, T], exp(logits - bound) [C, V] and its row sums [C]."""
    bias_V = inputs.bias_V
    products_CxV = inputs.products(position_C, features_CxD)
    bound = _logit_bound(products_CxV, bias_V, plan)
    exps_CxV = jnp.exp(products_CxV + (bias_V - bound[:, None]))
    normalizer = jnp.sum(exps_CxV, axis=1)
    product_CxT = jnp.take_along_axis(products_CxV, targets_CxT, axis=1)
    logit_CxT = product_CxT + (bias_V[targets_CxT] - bound[:, None])
    nll_CxT = jnp.log(normalizer)[:, None] - logit_CxT
    # Logits beyond float32 make both terms infinite, which must not look like probability 1.
    is_finite = jnp.isfinite(bound) & (normalizer > 0)
    return jnp.where(is_finite[:, None], nll_CxT, jnp.nan), exps_CxV, normalizer


def _logit_bound(products_CxV: jax.Array, bias_V: jax.Array, plan: Plan) -> jax.Array:
    """An upper bound of each row's largest logit; exps are of logits minus this bound.

    By parts, if biases differ by less than 30, the bound is the sum of the maxima of products and
    bias. It exceeds the largest logit by less than 30, far from an underflow of exps in float32.
    """
    if not plan.bound_by_parts:
        return jnp.max(products_CxV + bias_V, axis=1)
    top = jnp.max(bias_V)
    return jax.lax.cond(
        top - jnp.min(bias_V) < 30,
        lambda: jnp.max(products_CxV, axis=1) + top,
        lambda: jnp.max(products_CxV + bias_V, axis=1),
    )


def token_nll(inputs: OutputInputs, targets: jax.Array, mask: jax.Array, plan: Plan) -> jax.Array:
    """-log p(target) in nats, 0 outside the mask; for scoring, without a gradient.

    Args:
      targets: int [F], or [F, T] for several targets per position.
      mask: bool, of the shape of `targets`.
    """
    size, inputs = len(inputs.features_FxD), inputs.at_targets(targets)
    targets_FxT, mask_FxT = (array.reshape(size, -1) for array in (targets, mask))

    def nll_of(position_C: jax.Array) -> jax.Array:
        features, targets_CxT = (
            entries_at(inputs.features_FxD, position_C),
            entries_at(targets_FxT, position_C),
        )
        nll, _, _ = _softmax(inputs, features, position_C, targets_CxT, plan)
        if isinstance(inputs.copies, CopiedTargets):
            nll, _ = inputs.copies.mixed_nll(position_C, nll)
        return jnp.where(entries_at(mask_FxT, position_C), nll, 0)

    nll_FxT = _placed(nll_of, inputs, jnp.any(mask_FxT, axis=1), targets_FxT.shape[1], plan)
    return nll_FxT.reshape(targets.shape)


def token_measures(
    inputs: OutputInputs,
    targets_F: jax.Array,
    mask_F: jax.Array,
    plan: Plan,
    others: OutputInputs | None = None,
) -> jax.Array:
    """Measures of the distribution p at every target, 0 outside the mask; without a gradient.

    Args:
      targets_F: int [F].
      mask_F: bool [F].
      others: the factors of the logits of a second distribution q at every target.

    Returns:
      float [F, 3]: -log p(target) and the entropy of p in nats, and the rank of the target: 1 plus
      the number of entries of the vocabulary that are more probable. With `others` float [F, 7]:
      then the three measures of q, and the divergence KL(p || q) in nats.
    """

    def measures_of(position_C: jax.Array) -> jax.Array:
        targets_Cx1 = entries_at(targets_F, position_C)[:, None]
        p, columns = _measured(inputs, position_C, targets_Cx1)
        if others is not None:
            q, others_columns = _measured(others, position_C, targets_Cx1)
            ratios_C = p.expected(p.logits_CxV - q.logits_CxV)
            divergence_C = ratios_C - jnp.log(p.normalizer_C) + jnp.log(q.normalizer_C)
            # Rounding can make the divergence of equal distributions negative.
            columns = [*columns, *others_columns, jnp.maximum(divergence_C, 0)]
        return jnp.stack(columns, axis=1)

    return _placed(measures_of, inputs, mask_F, 3 if others is None else 7, plan)


class _Distributions(NamedTuple):
    """Distributions of a chunk: logits minus the largest logit of each row, their exps, and the
    sums of exps."""

    logits_CxV: jax.Array
    exps_CxV: jax.Array
    normalizer_C: jax.Array

    def expected(self, values_CxV: jax.Array) -> jax.Array:
        """The expected values [C]; values of entries with probability 0 may be infinite."""
        terms_CxV = jnp.where(self.exps_CxV > 0, self.exps_CxV * values_CxV, 0)
        return jnp.sum(terms_CxV, axis=1) / self.normalizer_C


def _measured(
    inputs: OutputInputs, position_C: jax.Array, targets_Cx1: jax.Array
) -> tuple[_Distributions, list[jax.Array]]:
    """The distributions of a chunk; -log p(target), the entropy, and the rank of the target, [C]
    each."""
    logits_CxV = inputs.logits_at(position_C)
    logits_CxV -= jnp.max(logits_CxV, axis=1, keepdims=True)
    exps_CxV = jnp.exp(logits_CxV)
    p = _Distributions(logits_CxV, exps_CxV, jnp.sum(exps_CxV, axis=1))
    target_Cx1 = jnp.take_along_axis(logits_CxV, targets_Cx1, axis=1)
    log_normalizer_C = jnp.log(p.normalizer_C)
    nll_C = log_normalizer_C - target_Cx1[:, 0]
    # The logits are at most 0, and one of them is 0: the entropy is at least 0.
    entropy_C = log_normalizer_C - p.expected(logits_CxV)
    rank_C = 1 + jnp.sum(logits_CxV > target_Cx1, axis=1)
    # Logits beyond float32 have no distribution.
    is_finite_C = jnp.isfinite(nll_C)
    columns = [nll_C, entropy_C, rank_C.astype(nll_C.dtype)]
    return p, [jnp.where(is_finite_C, column, jnp.nan) for column in columns]


def _placed(
    values_of: Callable[[jax.Array], jax.Array],
    inputs: OutputInputs,
    mask_F: jax.Array,
    width: int,
    plan: Plan,
) -> jax.Array:
    """`values_of(position_C)` [C, width] of the real positions, computed in chunks, in zeros
    [F, width]."""

    def add_chunk(values_FxX: jax.Array, position_C: jax.Array) -> jax.Array:
        return values_FxX.at[position_C].set(values_of(position_C), mode="drop")

    zeros_FxX = jnp.zeros((mask_F.size, width), inputs.features_FxD.dtype)
    first = partial(add_chunk, zeros_FxX)
    return _fold_chunks(mask_F, inputs.bias_V.size, plan, first, add_chunk)


def summed_nll(
    inputs: OutputInputs, targets: jax.Array, weights: jax.Array, plan: Plan
) -> jax.Array:
    """The weighted sum of `token_nll` over all targets.

    The forward pass computes the gradient of each chunk while the chunk's probabilities exist.

    Args:
      targets: as for `token_nll`.
      weights: at least 0, of the shape of `targets`; without a gradient.
    """
    return _summed_nll(inputs.at_targets(targets).padded(plan), targets, weights, plan)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _summed_nll(
    inputs: OutputInputs, targets: jax.Array, weights: jax.Array, plan: Plan
) -> jax.Array:
    return jnp.sum(token_nll(inputs, targets, weights > 0, plan) * weights)


def _summed_nll_forward(inputs, targets, weights, plan):
    features_FxD, kernel_DxV, bias_V, shared, copies = inputs
    size, dtype = len(features_FxD), kernel_DxV.dtype
    targets_FxT, weights_FxT = (array.reshape(size, -1) for array in (targets, weights))
    weights_FxT = weights_FxT.astype(bias_V.dtype)
    multiply = vector_product if plan.bias_by_product else jnp.matmul

    def chunk_gradients(d_positions, d_shared, position_C):
        """Nats and gradients of a chunk; gradients of features, of copies and of the shared part
        are added to their arrays."""
        features, targets_CxT = (
            entries_at(features_FxD, position_C),
            entries_at(targets_FxT, position_C),
        )
        weights_CxT = entries_at(weights_FxT, position_C)
        nll_CxT, exps_CxV, normalizer = _softmax(inputs, features, position_C, targets_CxT, plan)
        softmax_weights_CxT, d_copies = weights_CxT, None
        if copies is not None:
            nll_CxT, fraction_CxT = copies.mixed_nll(position_C, nll_CxT)
            softmax_weights_CxT = weights_CxT * fraction_CxT
            copied_weights_CxT = weights_CxT * (1 - fraction_CxT)
            d_copies = CopiedTargets(-softmax_weights_CxT[:, 0], -copied_weights_CxT[:, 0])
        # The gradient of a logit is w p - (the weights of its targets), with p = exps / normalizer
        # and w the sum of weights. Dividing the thin factors saves a pass over exps.
        total_C = jnp.sum(softmax_weights_CxT, axis=1)
        shares_CxT = softmax_weights_CxT / jnp.where(total_C > 0, total_C, 1)[:, None]
        rows_Cx1 = jnp.arange(position_C.size)[:, None]
        errors_CxV = exps_CxV.at[rows_Cx1, targets_CxT].add(-normalizer[:, None] * shares_CxT)
        weight = jnp.where(total_C > 0, total_C / normalizer, 0)
        # The barrier makes the transpose an array: strided reads take 25% more time on CPUs.
        weighted_DxC = jax.lax.optimization_barrier((features * weight[:, None]).T)
        d_features = rounded_product(errors_CxV, kernel_DxV.T, dtype) * weight[:, None]
        if shared is not None:
            d_shared = shared.add(d_shared, position_C, errors_CxV * weight[:, None])
        sums = (
            jnp.sum(jnp.where(weights_CxT > 0, weights_CxT * nll_CxT, 0)).astype(features.dtype),
            rounded_product(weighted_DxC, errors_CxV, dtype),
            multiply(weight, errors_CxV),
        )
        placed = jax.tree.map(
            lambda d_array, d_C: d_array.at[position_C].set(d_C, mode="drop"),
            d_positions,
            (d_features, d_copies),
        )
        return sums, placed, d_shared

    def add_chunk(gradients, position_C):
        sums, d_positions, d_shared = gradients
        more, *placed = chunk_gradients(d_positions, d_shared, position_C)
        return jax.tree.map(jnp.add, sums, more), *placed

    d_features_FxD = jnp.zeros(features_FxD.shape, bias_V.dtype)
    d_positions = d_features_FxD, jax.tree.map(jnp.zeros_like, copies)
    d_shared = None if shared is None else jnp.zeros_like(shared.values)
    first = partial(chunk_gradients, d_positions, d_shared)
    has_any_F = jnp.any(weights_FxT > 0, axis=1)
    gradients = _fold_chunks(has_any_F, bias_V.size, plan, first, add_chunk)
    (total, d_kernel_DxV, d_bias_V), (d_features_FxD, d_copies), d_shared = gradients
    if shared is not None:
        no_gradient: Any = None
        d_shared = type(shared)(d_shared, no_gradient)
    d_kernel_DxV = d_kernel_DxV.astype(dtype)
    return total, OutputInputs(d_features_FxD, d_kernel_DxV, d_bias_V, d_shared, d_copies)


def _summed_nll_backward(plan, d_inputs, cotangent):
    del plan
    scaled = jax.tree.map(lambda d_input: (cotangent * d_input).astype(d_input.dtype), d_inputs)
    return scaled, None, None


_summed_nll.defvjp(_summed_nll_forward, _summed_nll_backward)
