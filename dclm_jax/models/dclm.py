"""Document context language models and their baselines (Ji et al. 2015, arXiv:1511.03962).

Numbers of equations and sections are the paper's. c_{t-1} is the context of sentence t; the first
sentence of a document has the learned c_0.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax import files
from dclm_jax.models.bags import bags_nll
from dclm_jax.models.base import (
    Conditioning,
    DocumentModel,
    OutputLayer,
    Params,
    Sentence,
    Source,
    own_key,
)
from dclm_jax.nn import stack
from dclm_jax.nn.attention import Memory, attend, init_attention, weights_of_steps
from dclm_jax.nn.layers import glorot_uniform, resized, sum_of_rows
from dclm_jax.nn.logits import OutputInputs
from dclm_jax.nn.stack import StackInput, StackState


class RNNLM(DocumentModel):
    """A language model of single sentences, without context (Ji et al. 2015, Eq. 1-2)."""

    name = "rnnlm"
    context_order = 0
    states_read_context = False
    contexts_read_states = False


class DRNNLM(DocumentModel):
    """The RNNLM without sentence boundaries: sentence t starts from the last state of sentence t-1.

    The model is Figure 1 of the paper. The context is the state of every layer, zero at the start
    of a document. Every sentence reads START and predicts END.
    """

    name = "drnnlm"
    context_order = None
    states_read_context = True
    contexts_read_states = True

    def open_document(self, params: Params, rows: int, source: Source | None = None) -> StackState:
        return super().open_sentence(params, None, rows)

    def open_sentence(self, params: Params, context: StackState, rows: int) -> StackState:
        return context

    def close_sentence(self, params: Params, context: StackState, sentence: Sentence) -> StackState:
        return sentence.state

    def vector(self, params: Params, context: StackState) -> jax.Array:
        return stack.top_hidden(context)


class _LastHiddenState(DocumentModel):
    """c_{t-1} = h_{t-1,M}, the top hidden state after the last input of sentence t-1 (Eq. 3)."""

    contexts_read_states = True

    def open_document(self, params: Params, rows: int, source: Source | None = None) -> jax.Array:
        return jnp.broadcast_to(params["initial_context"], (rows, self.hidden_dim))

    def close_sentence(self, params: Params, context: jax.Array, sentence: Sentence) -> jax.Array:
        return stack.top_hidden(sentence.state)


class CCDCLM(_LastHiddenState):
    """Context-to-context: h_{t,n} = g(h_{t,n-1}, [x_{t,n}, c_{t-1}]) (Ji et al. 2015, Eq. 4-5)."""

    name = "ccdclm"
    context_order = None
    states_read_context = True

    @property
    def gate_context_dim(self) -> int:
        return self.hidden_dim

    def init(self, key: jax.Array) -> Params:
        c_0 = glorot_uniform(own_key(key), 1, self.hidden_dim)[0]
        return {**super().init(key), "initial_context": c_0}


@dataclasses.dataclass(frozen=True)
class CODCLM(_LastHiddenState):
    """Context-to-output: y_{t,n} ~ softmax(W_h h_{t,n} + W_c c_{t-1} + b), Ji et al. 2015, Eq. 6-7.

    Hidden states do not depend on the context, so that the score of a sentence depends on the
    previous sentence only.
    """

    name = "codclm"
    context_order = 1
    states_read_context = False

    def init(self, key: jax.Array) -> Params:
        params = super().init(key)
        context_key, output_key = jax.random.split(own_key(key))
        params["initial_context"] = glorot_uniform(context_key, 1, self.hidden_dim)[0]
        params["output"]["context"] = glorot_uniform(output_key, self.hidden_dim, self.vocab_size)
        return params

    def condition(self, params: Params, context: jax.Array) -> Conditioning:
        return Conditioning(features=context)

    def output_layer(self, params: Params) -> OutputLayer:
        return super().output_layer(params)._replace(context_kernel=params["output"]["context"])


class RecentSentences(NamedTuple):
    """The ADCLM's context: the hidden states of the last C = `memory_sentences` sentences, oldest
    first, and their mask, with at least one real state per batch element. Each sentence has M
    positions."""

    values_CxMxBxH: jax.Array
    mask_CxMxB: jax.Array


@dataclasses.dataclass(frozen=True)
class ADCLM(DocumentModel):
    """Attention over the words of the last k sentences; in Ji et al. (2015, Eq. 8-12) k = 1.

    Eq. 8-11 are circular: c_{t-1,n} is computed from h_{t,n} and h_{t,n} from c_{t-1,n}. This class
    computes c_{t-1,n} from h_{t,n-1}, as in the attention of Bahdanau et al. (2015), which the
    paper adapts. The memory of the first sentence is only the learned c_0, so that its context is
    c_0. The memory of sentence t is the words of the sentences t-k..t-1 that exist, without c_0. In
    training these are sentences of the segment and, with `data.carry_context`, of the previous
    segment.

    Attributes:
      attention_dim: A, the width of queries and keys.
      memory_sentences: k, maximum number of sentences in memory. With k > 1 a learned offset [A]
        for each distance, initially 0, is added to the keys of the sentence at this distance.
    """

    attention_dim: files.Size = 48
    memory_sentences: files.Size = 1

    name = "adclm"
    attends_to = "words"
    context_order = None
    states_read_context = True
    contexts_read_states = True

    @property
    def gate_context_dim(self) -> int:
        return self.hidden_dim

    @property
    def attended_sentences(self) -> int:
        return self.memory_sentences

    def init(self, key: jax.Array) -> Params:
        H, A, C = self.hidden_dim, self.attention_dim, self.memory_sentences
        params = super().init(key)
        keys = jax.random.split(own_key(key), 4)
        # Eq. 12 has its bias inside the tanh and none after W_o.
        D = self.embedding_dim if self.tie_embeddings else H
        params["output"] = {
            "hidden": glorot_uniform(keys[2], H, D),
            "context": glorot_uniform(keys[3], H, D),
            "hidden_bias": jnp.zeros(D),
            **({} if self.tie_embeddings else {"kernel": params["output"]["kernel"]}),
        }
        params["initial_context"] = glorot_uniform(keys[0], 1, H)[0]
        params["attention"] = init_attention(keys[1], H, H, A)
        if C > 1:
            # A flat vector, oldest sentence first, because a matrix (`Weight`) allows only x @ W.
            params["attention"]["offset"] = jnp.zeros(C * A)
        return params

    def open_document(
        self, params: Params, rows: int, source: Source | None = None
    ) -> RecentSentences:
        # c_0 has the position of the oldest sentence, which the first sentence replaces.
        c_0 = jnp.broadcast_to(params["initial_context"], (1, rows, self.hidden_dim))
        return RecentSentences(
            resized(c_0, self.memory_sentences)[:, None],
            resized(jnp.ones((1, rows), bool), self.memory_sentences)[:, None],
        )

    def condition(self, params: Params, context: RecentSentences) -> Conditioning:
        # Keys are computed in the current sentence (Eq. 8), so that W_key gets a gradient even
        # where the context is constant.
        keys_CxMxBxA = context.values_CxMxBxH @ params["attention"]["key"]
        if self.memory_sentences > 1:
            offset_CA = params["attention"]["offset"]
            keys_CxMxBxA += offset_CA.reshape(self.memory_sentences, 1, 1, -1)
        positions = (context.values_CxMxBxH, keys_CxMxBxA, context.mask_CxMxB)
        return Conditioning(inputs=Memory(*map(_joined, positions)))

    def step(
        self, params: Params, conditioning: Conditioning, state: StackState, x: StackInput
    ) -> tuple[StackState, tuple[jax.Array, jax.Array]]:
        c_BxH = attend(params["attention"], stack.top_hidden(state), conditioning.inputs, self.plan)
        x = x.plus(c_BxH @ params["stack"][0]["context"])
        state, h_BxH = stack.step_stack(self.cell, params["stack"], state, x, self.plan)
        return state, (h_BxH, c_BxH)

    def emit(self, params: Params, conditioning: Conditioning, outputs: Any) -> jax.Array:
        h, c = outputs
        output = params["output"]
        return jnp.tanh(h @ output["hidden"] + c @ output["context"] + output["hidden_bias"])

    def attention(self, params: Params, conditioning: Conditioning, outputs: Any) -> jax.Array:
        h_NxBxH, _ = outputs
        return weights_of_steps(params["attention"], h_NxBxH, conditioning.inputs, self.plan)

    def close_sentence(
        self, params: Params, context: RecentSentences, sentence: Sentence
    ) -> RecentSentences:
        h_NxBxH, _ = sentence.outputs
        h_NxBxH = jnp.where(sentence.mask_NxB[..., None], h_NxBxH, 0)
        length = context.mask_CxMxB.shape[1]
        # If the document has ended, a batch element attends to position 0, which avoids a division
        # by zero.
        mask_MxB = resized(sentence.mask_NxB, length).at[0].set(True)
        return RecentSentences(
            _appended(context.values_CxMxBxH, resized(h_NxBxH, length)),
            _appended(context.mask_CxMxB, mask_MxB),
        )

    def output_layer(self, params: Params) -> OutputLayer:
        output = params["output"]
        bias = jnp.zeros(self.vocab_size, output["hidden_bias"].dtype)
        return OutputLayer(self.output_kernel(params), bias)

    def resize_context(
        self, context: RecentSentences, length: int, *, sentences: int = 0
    ) -> RecentSentences:
        capacity = context.mask_CxMxB.shape[1]
        # Older sentences in memory may be longer. They leave memory within a few sentences.
        if sentences < self.memory_sentences:
            length = max(length, capacity)
        return RecentSentences(*(resized(array, length, axis=1) for array in context))

    def vector(self, params: Params, context: RecentSentences) -> jax.Array:
        """The mean of the memory."""
        values_FxBxH, mask_FxB = map(_joined, context)
        return jnp.mean(values_FxBxH, axis=0, where=mask_FxB[..., None])


class SentenceHistory(NamedTuple):
    """The HRNNLM's context: d_{t-1} [B, H] and the state of the sentence-level stack."""

    vector_BxH: jax.Array
    state: StackState


@dataclasses.dataclass(frozen=True)
class HRNNLM(DocumentModel):
    """Hierarchical RNNLM with LSTM levels trained jointly (Ji et al. 2015, after Lin et al. 2015).

    d_t = sentence-level g(d_{t-1}, s_t),  s_t = sum of the embeddings of the words of sentence t
    h_{t,n} = word-level g(h_{t,n-1}, [x_{t,n}, d_{t-1}]),  y_{t,n} ~ softmax(W_o h_{t,n} + b)
    sentence-level objective: -sum over words w of sentence t of log softmax(W_s d_{t-1} + b_s)[w]
    (Lin et al., Eq. 5-8), added to the word-level loss with weight `sentence_loss_weight`. Both
    levels have `num_layers` layers of the same cell. The sentence level starts from the zero state.
    The learned d_0 conditions the first sentence only.

    Attributes:
      sentence_loss_weight: weight of the sentence-level objective.
    """

    sentence_loss_weight: files.Finite = 1.0

    name = "hrnnlm"
    auxiliary_objective = "bags"
    context_order = None
    states_read_context = True
    contexts_read_states = False

    @property
    def gate_context_dim(self) -> int:
        return self.hidden_dim

    def init(self, key: jax.Array) -> Params:
        K, H, V = self.embedding_dim, self.hidden_dim, self.vocab_size
        context_key, stack_key, output_key = jax.random.split(own_key(key), 3)
        return {
            **super().init(key),
            "initial_context": glorot_uniform(context_key, 1, H)[0],
            "sentence_stack": stack.init_stack(stack_key, self.cell, self.num_layers, K, H),
            "sentence_output": {"kernel": glorot_uniform(output_key, H, V), "bias": jnp.zeros(V)},
        }

    def open_document(
        self, params: Params, rows: int, source: Source | None = None
    ) -> SentenceHistory:
        d_0 = jnp.broadcast_to(params["initial_context"], (rows, self.hidden_dim))
        return SentenceHistory(d_0, stack.initial_state(self.cell, self.num_layers, rows, d_0))

    def condition(self, params: Params, context: SentenceHistory) -> Conditioning:
        return super().condition(params, context.vector_BxH)

    def summarize(self, params: Params, tokens: jax.Array, mask: jax.Array) -> jax.Array:
        return sum_of_rows(params["embedding"], tokens, mask)

    def close_sentence(
        self, params: Params, context: SentenceHistory, sentence: Sentence
    ) -> SentenceHistory:
        layers = params["sentence_stack"]
        s = stack.stack_input(layers, sentence.summary, self.plan)
        state, d = stack.step_stack(self.cell, layers, context.state, s, self.plan)
        return SentenceHistory(d, state)

    def auxiliary_loss(
        self,
        params: Params,
        contexts: SentenceHistory,
        last: SentenceHistory,
        targets_SxNxB: jax.Array,
        mask_SxNxB: jax.Array,
    ) -> jax.Array:
        output = params["sentence_output"]
        inputs = OutputInputs(contexts.vector_BxH, output["kernel"].array, output["bias"])
        predicted_SxNxB = self.predicted(targets_SxNxB, mask_SxNxB)
        nll = bags_nll(inputs, targets_SxNxB, predicted_SxNxB, self.plan)
        return self.sentence_loss_weight * nll

    def vector(self, params: Params, context: SentenceHistory) -> jax.Array:
        return context.vector_BxH


def _joined(array_CxMxB: jax.Array) -> jax.Array:
    """The positions of all sentences on one axis, [C*M, B, ...]."""
    return array_CxMxB.reshape(-1, *array_CxMxB.shape[2:])


def _appended(array_CxMxB: jax.Array, newest_MxB: jax.Array) -> jax.Array:
    """The last C sentences after one more sentence."""
    return jnp.concatenate([array_CxMxB[1:], newest_MxB[None]])
