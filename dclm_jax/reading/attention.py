"""Attention weights of documents, recorded at each step of the model."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from dclm_jax.data.batches import Batch
from dclm_jax.models.base import Conditioning, Context, DocumentModel, Params, Sentence
from dclm_jax.nn import stack
from dclm_jax.nn.attention import attention_weights
from dclm_jax.nn.stack import StackInput, StackState
from dclm_jax.reading.driver import read_sentences
from dclm_jax.reading.likelihoods import time_major


class _Recording(DocumentModel):
    """A model whose features are the attention weights of its tokens, [N, B, M]."""

    def step(
        self, params: Params, conditioning: Conditioning, state: StackState, x: StackInput
    ) -> tuple[StackState, Any]:
        h_BxH, memory = stack.top_hidden(state), conditioning.inputs
        weights_MxB = attention_weights(params["attention"], h_BxH, memory, self.plan)
        state, output = super().step(params, conditioning, state, x)
        return state, (output, weights_MxB)

    def emit(self, params: Params, conditioning: Conditioning, outputs: Any) -> jax.Array:
        _, weights_NxMxB = outputs
        return jnp.swapaxes(weights_NxMxB, 1, 2)

    def close_sentence(self, params: Params, context: Context, sentence: Sentence) -> Context:
        if self.contexts_read_states:
            output_N, _ = sentence.outputs
            sentence = sentence._replace(outputs=output_N)
        return super().close_sentence(params, context, sentence)


@functools.cache
def _recording(model: DocumentModel) -> DocumentModel:
    return type("Recording", (_Recording, type(model)), {})(**vars(model))


def block_attention(
    model: DocumentModel, params: Params, context: Context, batch: Batch
) -> tuple[Context, jax.Array]:
    """Attention weights of consecutive sentences.

    Args:
      model: a model with `attends_to`.
      context: the context before the sentences.

    Returns:
      The context after the sentences, and for every token its weights [B, S, N, M] over the M
      positions in memory. If the model attends to "targets", a first position has the share of the
      softmax.
    """
    tokens, _, mask = time_major(batch)
    if model.attends_to == "targets":
        read = read_sentences(model, params, context, tokens, mask)
        pointer: Any = read.pointer
        logs = pointer.log_share_NxB[..., None], pointer.log_weights_NxBxM
        weights_SxNxBxM = jnp.exp(jnp.concatenate(logs, axis=-1))
    else:
        read = read_sentences(_recording(model), params, context, tokens, mask)
        weights_SxNxBxM = read.features
    return read.context, jnp.moveaxis(weights_SxNxBxM, 2, 0)
