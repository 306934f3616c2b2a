"""Document context language models and their baselines (Ji et al. 2015, arXiv:1511.03962).

Equation numbers are the paper's. c_{t-1} is the context of sentence t; the first sentence of a
document has the learned c_0.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.errors import InputError
from dclm_jax.models.base import (
    Conditioning,
    Context,
    DocumentModel,
    DropoutMasks,
    Params,
    Sentence,
    State,
)
from dclm_jax.nn import recurrence, stack
from dclm_jax.nn.attention import Memory, attend, init_attention
from dclm_jax.nn.bags import sum_of_rows
from dclm_jax.nn.dropout import dropout_mask
from dclm_jax.nn.initializers import glorot_uniform
from dclm_jax.nn.products import product
from dclm_jax.nn.recurrence import Affine


class RNNLM(DocumentModel):
    """Sentences one by one, no context (2.1, Eq. 1-2)."""

    name = "rnnlm"
    context_order = 0
    states_read_context = False
    contexts_read_states = False


class DRNNLM(DocumentModel):
    """The RNNLM without sentence boundaries: sentence t starts from the last state of sentence t-1.

    Figure 1. The context is the state of every layer; it is zero at the start of a document.
    """

    name = "drnnlm"
    context_order = None
    states_read_context = True
    contexts_read_states = True

    def open_document(self, params: Params, batch_size: int, length: int) -> Context:
        del length
        return super().open_sentence(params, None, batch_size)

    def open_sentence(self, params: Params, context: Context, batch_size: int) -> State:
        del params, batch_size
        return context

    def close_sentence(
        self, params: Params, context: Context, state: State, sentence: Sentence
    ) -> Context:
        del params, context, sentence
        return state


class _LastHiddenState(DocumentModel):
    """c_{t-1} = h_{t-1,M}, the top hidden state after the last input of sentence t-1 (Eq. 3)."""

    contexts_read_states = True

    def _init_own(self, key: jax.Array, params: Params) -> None:
        params["initial_context"] = glorot_uniform(key, 1, self.hidden_dim)[0]

    def open_document(self, params: Params, batch_size: int, length: int) -> Context:
        del length
        return jnp.broadcast_to(params["initial_context"], (batch_size, self.hidden_dim))

    def close_sentence(
        self, params: Params, context: Context, state: State, sentence: Sentence
    ) -> Context:
        del params, context, sentence
        return stack.top_hidden(state)


class CCDCLM(_LastHiddenState):
    """Context-to-context: h_{t,n} = g(h_{t,n-1}, [x_{t,n}, c_{t-1}]) (2.2, Eq. 4-5)."""

    name = "ccdclm"
    context_order = None
    states_read_context = True

    def _init_stack(self, key: jax.Array) -> list[Params]:
        return _init_stack_with_context(self, key)

    def condition(self, params: Params, context: Context) -> Conditioning:
        return product(context, params["stack"][0]["context"])

    def context_gates(self, conditioning: Conditioning) -> jax.Array | None:
        return conditioning


class CODCLM(_LastHiddenState):
    """Context-to-output: y_{t,n} ~ softmax(W_h h_{t,n} + W_c c_{t-1} + b) (2.2.1, Eq. 6-7).

    Hidden states do not depend on the context, so a sentence's score depends on the sentence before
    it and on no other.
    """

    name = "codclm"
    context_order = 1
    states_read_context = False

    def _init_own(self, key: jax.Array, params: Params) -> None:
        context_key, output_key = jax.random.split(key)
        super()._init_own(context_key, params)
        params["output"]["context"] = glorot_uniform(output_key, self.hidden_dim, self.vocab_size)

    def dropout_masks(self, keys_B: jax.Array, shape_SxN: tuple[int, int]) -> DropoutMasks | None:
        masks = super().dropout_masks(keys_B, shape_SxN)
        if masks is None:
            return None
        # Keys of the other masks are split off: small numbers folded in would give them again.
        keys_B = jax.vmap(partial(jax.random.fold_in, data=2**32 - 1))(keys_B)
        shape = (shape_SxN[0], 1)
        contexts = dropout_mask(keys_B, shape, self.hidden_dim, self.dropout, per_sentence=True)
        return masks._replace(contexts=contexts)

    def condition(self, params: Params, context: Context) -> Conditioning:
        del params
        return context

    def context_features(self, conditioning: Conditioning) -> jax.Array | None:
        return conditioning

    def context_kernel(self, params: Params) -> jax.Array | None:
        return params["output"]["context"]


@dataclasses.dataclass(frozen=True)
class ADCLM(DocumentModel):
    """Attention over the words of the previous sentence (2.3, Eq. 8-12).

    Eq. 8-11 are circular: c_{t-1,n} is computed from h_{t,n} and h_{t,n} from c_{t-1,n}. As in the
    attention of Bahdanau et al. (2015) that they adapt, the query here is h_{t,n-1}. The first
    sentence has nothing to attend to: its memory is the learned c_0 alone, so that its context is
    c_0.
    """

    attention_dim: int = 48

    name = "adclm"
    context_order = None
    states_read_context = True
    contexts_read_states = True

    def __post_init__(self):
        super().__post_init__()
        if self.attention_dim < 1:
            raise InputError(f"model.attention_dim is {self.attention_dim}; expected at least 1")

    def _init_stack(self, key: jax.Array) -> list[Params]:
        return _init_stack_with_context(self, key)

    def _init_own(self, key: jax.Array, params: Params) -> None:
        H, A = self.hidden_dim, self.attention_dim
        keys = jax.random.split(key, 4)
        params["initial_context"] = glorot_uniform(keys[0], 1, H)[0]
        params["attention"] = init_attention(keys[1], H, H, A)
        params["output"] = {
            **{name: value for name, value in params["output"].items() if name != "bias"},
            "hidden": glorot_uniform(keys[2], H, H),
            "context": glorot_uniform(keys[3], H, H),
            "hidden_bias": jnp.zeros(H),
        }

    def open_document(self, params: Params, batch_size: int, length: int) -> Context:
        c_0 = params["initial_context"]
        values_MxBxH = jnp.zeros((length, batch_size, self.hidden_dim), c_0.dtype).at[0].set(c_0)
        mask_MxB = jnp.zeros((length, batch_size), bool).at[0].set(True)
        return self._remember(params, values_MxBxH, mask_MxB)

    def _remember(self, params: Params, values_MxBxH: jax.Array, mask_MxB: jax.Array) -> Memory:
        keys_MxBxA = product(values_MxBxH, params["attention"]["key"])
        return Memory(values_MxBxH, keys_MxBxA, mask_MxB)

    def widen_context(self, context: Context, length: int) -> Context:
        return self.resize_context(context, max(length, context.mask_MxB.shape[0]))

    def resize_context(self, context: Context, length: int) -> Context:
        return jax.tree.map(lambda array: _resize(array, length), context)

    def condition(self, params: Params, context: Context) -> Conditioning:
        del params
        return context

    def step(
        self,
        affine: Affine,
        params: Params,
        conditioning: Conditioning,
        state: State,
        inputs: tuple[jax.Array, tuple[jax.Array, ...]],
    ) -> tuple[State, Any]:
        gates_BxGH, layer_masks = inputs
        h_BxH = stack.top_hidden(state)
        c_BxH = attend(affine, params["attention"], h_BxH, conditioning)
        gates_BxGH = affine(gates_BxGH, c_BxH, params["stack"][0]["context"])
        state, h_BxH = stack.step_stack(
            affine, self.cell, params["stack"], state, gates_BxGH, layer_masks
        )
        return state, (h_BxH, c_BxH)

    read_sentence = DocumentModel.scan_steps

    def recurrent_params(self, params: Params) -> Params:
        attention = {name: params["attention"][name] for name in ("query", "score")}
        return {**super().recurrent_params(params), "attention": attention}

    def emit(self, params: Params, conditioning: Conditioning, outputs: Any) -> jax.Array:
        h, c = outputs
        output = params["output"]
        return jnp.tanh(
            product(h, output["hidden"]) + product(c, output["context"]) + output["hidden_bias"]
        )

    def close_sentence(
        self, params: Params, context: Context, state: State, sentence: Sentence
    ) -> Context:
        del state
        h_NxBxH, _ = sentence.outputs
        h_NxBxH = jnp.where(sentence.mask_NxB[..., None], h_NxBxH, 0)
        length = context.mask_MxB.shape[0]
        # A row whose document has ended attends to position 0, so that nothing is divided by zero.
        mask_MxB = _resize(sentence.mask_NxB, length).at[0].set(True)
        return self._remember(params, _resize(h_NxBxH, length), mask_MxB)

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array]:
        # Eq. 12 has its bias inside the tanh and none after W_o.
        float_type = params["output"]["hidden_bias"].dtype
        return self._output_kernel(params), jnp.zeros(self.vocab_size, float_type)


class SentenceHistory(NamedTuple):
    """The HRNNLM's context: d_{t-1} [B, H] and the state of the sentence-level stack."""

    vector_BxH: jax.Array
    state: State


@dataclasses.dataclass(frozen=True)
class HRNNLM(DocumentModel):
    """Hierarchical RNNLM with LSTM levels trained jointly (section 4; after Lin et al. 2015).

    d_t = sentence-level g(d_{t-1}, s_t),  s_t = sum of the embeddings of the words of sentence t
    h_{t,n} = word-level g(h_{t,n-1}, [x_{t,n}, d_{t-1}]),  y_{t,n} ~ softmax(W_o h_{t,n} + b)
    sentence-level objective: -sum over words w of sentence t of log softmax(W_s d_{t-1} + b_s)[w]
    (Lin et al., Eq. 5-8), added to the word-level loss with weight `sentence_loss_weight`. Both
    levels have `num_layers` layers of the same cell; d_0 is learned.
    """

    sentence_loss_weight: float = 1.0

    name = "hrnnlm"
    context_order = None
    states_read_context = True
    contexts_read_states = False
    has_auxiliary_loss = True

    def __post_init__(self):
        super().__post_init__()
        if self.sentence_loss_weight < 0:
            raise InputError(
                f"model.sentence_loss_weight is {self.sentence_loss_weight}; expected at least 0"
            )

    def _init_stack(self, key: jax.Array) -> list[Params]:
        return _init_stack_with_context(self, key)

    def _init_own(self, key: jax.Array, params: Params) -> None:
        context_key, stack_key, output_key = jax.random.split(key, 3)
        params["initial_context"] = glorot_uniform(context_key, 1, self.hidden_dim)[0]
        params["sentence_stack"] = stack.init_stack(
            stack_key, self.cell, self.num_layers, self.embedding_dim, self.hidden_dim
        )
        params["sentence_output"] = {
            "kernel": glorot_uniform(output_key, self.hidden_dim, self.vocab_size),
            "bias": jnp.zeros(self.vocab_size),
        }

    def open_document(self, params: Params, batch_size: int, length: int) -> Context:
        del length
        d_0 = jnp.broadcast_to(params["initial_context"], (batch_size, self.hidden_dim))
        state = stack.initial_state(self.cell, self.num_layers, batch_size, d_0)
        return SentenceHistory(d_0, state)

    def condition(self, params: Params, context: Context) -> Conditioning:
        return product(context.vector_BxH, params["stack"][0]["context"])

    def context_gates(self, conditioning: Conditioning) -> jax.Array | None:
        return conditioning

    def summarize(self, params: Params, tokens: jax.Array, mask: jax.Array) -> Any:
        return sum_of_rows(params["embedding"], tokens, mask)

    def close_sentence(
        self, params: Params, context: Context, state: State, sentence: Sentence
    ) -> Context:
        del state
        first = params["sentence_stack"][0]
        state, d = stack.step_stack(
            recurrence.affine,
            self.cell,
            params["sentence_stack"],
            context.state,
            product(sentence.summary, first["input"]) + first["bias"],
        )
        return SentenceHistory(d, state)

    def auxiliary_nll(self, params: Params, context: Context, sentence: Sentence) -> jax.Array:
        output = params["sentence_output"]
        logits_BxV = product(context.vector_BxH, output["kernel"]) + output["bias"]
        log_probs_BxV = jax.nn.log_softmax(logits_BxV)
        words_NxB, mask_NxB = sentence.tokens_NxB[1:], sentence.mask_NxB[1:]
        chosen_BxN = jnp.take_along_axis(log_probs_BxV, words_NxB.T, axis=1)
        return -self.sentence_loss_weight * jnp.sum(jnp.where(mask_NxB.T, chosen_BxN, 0))


MODELS = (RNNLM, DRNNLM, HRNNLM, CCDCLM, CODCLM, ADCLM)


def _init_stack_with_context(model: DocumentModel, key: jax.Array) -> list[Params]:
    return stack.init_stack(
        key,
        model.cell,
        model.num_layers,
        model.embedding_dim,
        model.hidden_dim,
        context_dim=model.hidden_dim,
    )


def _resize(array_MxX: jax.Array, length: int) -> jax.Array:
    """Cuts the first axis to `length`, or fills it up with zeros."""
    missing = max(0, length - array_MxX.shape[0])
    padding = [(0, missing)] + [(0, 0)] * (array_MxX.ndim - 1)
    return jnp.pad(array_MxX[:length], padding)
