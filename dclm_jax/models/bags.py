"""Bags of words: all words of a sentence, without END, predicted by one distribution."""

import jax
import jax.numpy as jnp

from dclm_jax.data.vocabulary import END
from dclm_jax.nn.layers import fold
from dclm_jax.nn.logits import OutputInputs
from dclm_jax.nn.plan import Plan
from dclm_jax.nn.softmax import summed_nll


def bag_targets(targets_SxNxB: jax.Array, mask_SxNxB: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The targets of R = S*B sentences [R, N], and whether each of them is a word and not END."""
    return fold(targets_SxNxB).T, fold(mask_SxNxB & (targets_SxNxB != END)).T


def bags_nll(
    inputs: OutputInputs,
    targets_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    plan: Plan,
    *,
    per_word: bool = False,
) -> jax.Array:
    """The sum of -log P in nats of the words of S*B sentences, each predicted by one distribution;
    with `per_word` the sum over sentences of the mean over their words."""
    targets_RxN, is_word_RxN = bag_targets(targets_SxNxB, mask_SxNxB)
    weights_RxN = is_word_RxN.astype(inputs.bias_V.dtype)
    if per_word:
        weights_RxN /= jnp.maximum(jnp.sum(is_word_RxN, axis=1, keepdims=True), 1)
    return summed_nll(inputs, targets_RxN, weights_RxN, plan)
