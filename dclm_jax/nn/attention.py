"""Additive attention (Bahdanau et al. 2015; Ji et al. 2015, Eq. 8-10).

Parameters: the matrices `query` [H, A] of the attending state and `key` [X, A] of the memory, and
the vector `score` [A].
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.nn.layers import glorot_uniform
from dclm_jax.nn.plan import Plan


class Memory(NamedTuple):
    """The memory: values, their keys W_key m, and a mask of real positions, at least one per batch
    element."""

    values_MxBxH: jax.Array
    keys_MxBxA: jax.Array
    mask_MxB: jax.Array


def init_attention(
    key: jax.Array, query_dim: int, key_dim: int, attention_dim: int
) -> dict[str, jax.Array]:
    """The parameters of an attention."""
    query_key, key_key, score_key = jax.random.split(key, 3)
    return {
        "query": glorot_uniform(query_key, query_dim, attention_dim),
        "key": glorot_uniform(key_key, key_dim, attention_dim),
        "score": glorot_uniform(score_key, attention_dim, 1)[:, 0],
    }


def attention_weights(
    params: dict[str, Any], h_BxH: jax.Array, memory: Memory, plan: Plan
) -> jax.Array:
    """alpha = softmax_m(score . tanh(W_query h + keys_m)), [M, B]; 0 at padding."""
    query_BxA = h_BxH @ params["query"]
    tanh_MxBxA = jnp.tanh(query_BxA + memory.keys_MxBxA)
    if plan.fuses_scans:
        scores_MxB = jnp.sum(tanh_MxBxA * params["score"], axis=-1)
    else:
        scores_MxB = tanh_MxBxA @ params["score"]
    return jax.nn.softmax(scores_MxB, axis=0, where=memory.mask_MxB)


def attend(params: dict[str, Any], h_BxH: jax.Array, memory: Memory, plan: Plan) -> jax.Array:
    """sum_m alpha_m values_m, [B, H], with alpha from `attention_weights`."""
    alpha_MxB = attention_weights(params, h_BxH, memory, plan)
    # Kernels of whole loops (nn/fused.py) have no products of arrays with three axes.
    if plan.fuses_scans:
        return jnp.sum(alpha_MxB[..., None] * memory.values_MxBxH, axis=0)
    return jnp.einsum("mb,mbh->bh", alpha_MxB, memory.values_MxBxH)


def weights_of_steps(
    params: dict[str, Any], h_NxBxH: jax.Array, memory: Memory, plan: Plan
) -> jax.Array:
    """The `attention_weights` [N, B, M] of all steps of a sentence that begins with zero states:
    step n attends with the hidden state h_{n-1}, and h_0 = 0."""
    earlier_NxBxH = jnp.pad(h_NxBxH[:-1], [(1, 0), (0, 0), (0, 0)])
    # Step by step, because keys [M, B, A] of all steps at once take N times the memory.
    weights_NxMxB = jax.lax.map(
        lambda h_BxH: attention_weights(params, h_BxH, memory, plan), earlier_NxBxH
    )
    return jnp.swapaxes(weights_NxMxB, 1, 2)
