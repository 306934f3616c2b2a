"""The DRNNLM with a pointer to the words of earlier sentences, after Merity et al. (2017).

The mixture is that of Pointer Sentinel Mixture Models (arXiv:1609.07843), section 2. The memory of
sentence t is the last M targets w_m of earlier sentences, END included, each with the hidden state
h_m from which it was predicted:

    q_{t,n} = W_q h_{t,n},  k_m = W_k h_m
    [a, g] = softmax([q_{t,n} . k_1, ..., q_{t,n} . k_M, s . h_{t,n} + b_s])
    p(w) = g softmax(W h_{t,n} + b)[w] + sum_{m: w_m = w} a_m

The paper has k_m = h_m, q = tanh(W h + b) and the sentinel score q . s; its memory is the last
words, regardless of sentences. W_k is initially W_q, so that a state attends to states like itself.
In the first sentence of a document g = 1.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax import files
from dclm_jax.models.base import (
    Conditioning,
    Params,
    Pointer,
    Sentence,
    Source,
    own_key,
)
from dclm_jax.models.dclm import DRNNLM
from dclm_jax.nn import stack
from dclm_jax.nn.layers import glorot_uniform
from dclm_jax.nn.stack import StackState


class TargetMemory(NamedTuple):
    """The PointerDRNNLM's context: the state of every layer after the last token, and the last M
    targets of earlier sentences, newest last, with the hidden states that predicted them. Empty
    positions have the target -1."""

    state: StackState
    states_MxBxH: jax.Array
    targets_MxB: jax.Array


@dataclasses.dataclass(frozen=True)
class PointerDRNNLM(DRNNLM):
    """DRNNLM with a pointer to the last M targets of earlier sentences.

    Attributes:
      memory_targets: M, the maximum number of targets, or pieces of words, in memory, which takes
        M * H floats per document. The shapes of parameters do not depend on it; the initial b_s is
        log M.
      attention_dim: A, the width of queries and keys.
    """

    memory_targets: files.Size = 256
    attention_dim: files.Size = 96

    name = "pointer_drnnlm"
    attends_to = "targets"

    def init(self, key: jax.Array) -> Params:
        query_HxA = glorot_uniform(own_key(key), self.hidden_dim, self.attention_dim)
        pointer = {
            "query": query_HxA,
            "key": query_HxA,
            "sentinel": jnp.zeros(self.hidden_dim),
            # With M targets in memory and scores near 0, g is about 1/2.
            "sentinel_bias": jnp.full((), math.log(self.memory_targets)),
        }
        return {**super().init(key), "pointer": pointer}

    def open_document(
        self, params: Params, rows: int, source: Source | None = None
    ) -> TargetMemory:
        state = super().open_document(params, rows, source)
        shape_MxB = (self.memory_targets, rows)
        hidden_BxH = stack.top_hidden(state)
        states_MxBxH = jnp.zeros((*shape_MxB, self.hidden_dim), hidden_BxH.dtype)
        # XLA would fold operations on the constant memory, which takes a second per compilation.
        return jax.lax.optimization_barrier(
            TargetMemory(state, states_MxBxH, jnp.full(shape_MxB, -1, jnp.int32))
        )

    def open_sentence(self, params: Params, context: TargetMemory, rows: int) -> StackState:
        return context.state

    def condition(self, params: Params, context: TargetMemory) -> Conditioning:
        keys_MxBxA = context.states_MxBxH @ params["pointer"]["key"]
        return Conditioning(inputs=(keys_MxBxA, context.targets_MxB))

    def pointer(self, params: Params, conditioning: Conditioning, outputs: Any) -> Pointer:
        weights, h_NxBxH = params["pointer"], outputs
        keys_MxBxA, targets_MxB = conditioning.inputs
        scores_NxBxM = jnp.einsum("nba,mba->nbm", h_NxBxH @ weights["query"], keys_MxBxA)
        may_copy_MxB = self.predicted(targets_MxB, targets_MxB >= 0)
        scores_NxBxM = jnp.where(may_copy_MxB.T, scores_NxBxM, -jnp.inf)
        sentinel_NxB = h_NxBxH @ weights["sentinel"] + weights["sentinel_bias"]
        scores_NxBxX = jnp.concatenate([scores_NxBxM, sentinel_NxB[..., None]], axis=-1)
        log_probs_NxBxX = jax.nn.log_softmax(scores_NxBxX)
        return Pointer(log_probs_NxBxX[..., -1], log_probs_NxBxX[..., :-1], targets_MxB)

    def attention(self, params: Params, conditioning: Conditioning, outputs: Any) -> jax.Array:
        pointer = self.pointer(params, conditioning, outputs)
        log_weights = pointer.log_share_NxB[..., None], pointer.log_weights_NxBxM
        return jnp.exp(jnp.concatenate(log_weights, axis=-1))

    def close_sentence(
        self, params: Params, context: TargetMemory, sentence: Sentence
    ) -> TargetMemory:
        count_B = jnp.sum(sentence.mask_NxB, axis=0)
        return TargetMemory(
            sentence.state,
            _newest(context.states_MxBxH, sentence.outputs, count_B),
            _newest(context.targets_MxB, sentence.targets_NxB, count_B),
        )

    def vector(self, params: Params, context: TargetMemory) -> jax.Array:
        return super().vector(params, context.state)


def _newest(memory_MxB: jax.Array, new_NxB: jax.Array, count_B: jax.Array) -> jax.Array:
    """The last M entries of each batch element's memory followed by the first `count` of `new`."""
    entries = jnp.concatenate([memory_MxB, new_NxB.astype(memory_MxB.dtype)])
    position_MxB = jnp.arange(len(memory_MxB))[:, None] + count_B
    other_axes = tuple(range(2, entries.ndim))
    return jnp.take_along_axis(entries, jnp.expand_dims(position_MxB, other_axes), axis=0)
