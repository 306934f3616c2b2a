"""An example of a model: the context is a moving mean of words."""

import dataclasses

import jax
import jax.numpy as jnp

from dclm_jax import files
from dclm_jax.models.base import DocumentModel, Params, Sentence, Source
from dclm_jax.nn.layers import num_words, sum_of_rows


@dataclasses.dataclass(frozen=True)
class MeanContext(DocumentModel):
    """h_{t,n} = g(h_{t,n-1}, [x_{t,n}, c_{t-1}]),
    c_t = (1 - m) mean_n x_{t,n} + m c_{t-1}, c_0 = 0.

    Attributes:
      memory: m, the weight of the earlier sentences in the context.
    """

    name = "mean_context"
    context_order = None
    states_read_context = True
    contexts_read_states = False

    memory: files.Rate = 0.5

    @property
    def gate_context_dim(self) -> int:
        return self.embedding_dim

    def summarize(self, params: Params, tokens: jax.Array, mask: jax.Array) -> jax.Array:
        words = jnp.maximum(num_words(mask), 1)[..., None]
        return sum_of_rows(params["embedding"], tokens, mask) / words

    def open_document(self, params: Params, rows: int, source: Source | None = None) -> jax.Array:
        return jnp.zeros((rows, self.embedding_dim), params["embedding"].dtype)

    def close_sentence(self, params: Params, context: jax.Array, sentence: Sentence) -> jax.Array:
        return (1 - self.memory) * sentence.summary + self.memory * context
