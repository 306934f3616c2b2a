"""What the tokens of documents attend to: the weights of each of the model's own steps."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from dclm_jax.data.batches import Batch
from dclm_jax.models.base import Conditioning, Context, DocumentModel, Params, Sentence
from dclm_jax.nn.stack import StackInput, StackState
from dclm_jax.reading.driver import read_documents
from dclm_jax.reading.likelihoods import time_major


class _Recording(DocumentModel):
    """A model whose features are the weights that its tokens attend with, [N, B, M]."""

    def step(
        self, params: Params, conditioning: Conditioning, state: StackState, x: StackInput
    ) -> tuple[StackState, Any]:
        weights_MxB: Any = self.attention(params, conditioning, state)
        state, output = super().step(params, conditioning, state, x)
        return state, (output, weights_MxB)

    def emit(self, params: Params, conditioning: Conditioning, outputs: Any) -> jax.Array:
        _, weights_NxMxB = outputs
        return jnp.swapaxes(weights_NxMxB, 1, 2)

    def close_sentence(
        self, params: Params, context: Context, state: StackState, sentence: Sentence
    ) -> Context:
        if self.contexts_read_states:
            output_N, _ = sentence.outputs
            sentence = sentence._replace(outputs=output_N)
        return super().close_sentence(params, context, state, sentence)


@functools.cache
def _recording(model: DocumentModel) -> DocumentModel:
    return type("Recording", (_Recording, type(model)), {})(**vars(model))


def block_attention(
    model: DocumentModel, params: Params, context: Context, batch: Batch
) -> tuple[Context, jax.Array]:
    """The weights with which the tokens of some consecutive sentences attend.

    Args:
      model: one that `attends_to` something.
      context: of the sentences before.

    Returns:
      The context after them, and the weights [B, S, N, M] of every step over the positions that are
      remembered.
    """
    tokens, _, mask = time_major(batch)
    read = read_documents(_recording(model), params, context, tokens, mask)
    return read.context, jnp.moveaxis(read.features, 2, 0)
