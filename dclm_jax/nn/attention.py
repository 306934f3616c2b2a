"""Additive attention over the hidden states of a sentence (Ji et al. 2015, Eq. 8-10)."""

import jax
import jax.numpy as jnp


def additive_attention(
    score_A: jax.Array,
    query_BxA: jax.Array,
    keys_MxBxA: jax.Array,
    values_MxBxH: jax.Array,
    mask_MxB: jax.Array,
) -> jax.Array:
    """sum_m alpha_m values_m with alpha = softmax_m(score . tanh(query + keys_m)), [B, H].

    `query_BxA` and `keys_MxBxA` are W_a1 h and W_a2 h_m; positions outside `mask_MxB` weigh
    nothing. At least one position of every row must be inside the mask.
    """
    scores_MxB = jnp.tanh(query_BxA + keys_MxBxA) @ score_A
    weights_MxB = jax.nn.softmax(scores_MxB, axis=0, where=mask_MxB)
    return jnp.einsum("mb,mbh->bh", weights_MxB, values_MxBxH)
