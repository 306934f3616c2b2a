"""Larger-context language models (Wang and Cho 2015, arXiv:1511.03729).

P(S_l | S_{l-n}..S_{l-1}), Eq. 10-11: a recurrent language model (RLM) that also sees the n
sentences before the current one as bags of words. The paper combines three representations p of
them (3.1: BoW, SeqBoW, SeqBoW with attention) with two ways to feed p to the RLM (3.2: early and
late fusion). Here a model is made of one class for its representation and one for its fusion.

A bag s holds the frequency of each word: its count over the number of words, START and END not
among them. It is never made, since P s is a sum of columns of P. A sentence with fewer than n
predecessors has those there are; the first sentence of a document has p = 0.

With several layers (the paper has one), early fusion feeds the first and late fusion the last.
"""

import abc
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.errors import InputError
from dclm_jax.models.base import (
    Conditioning,
    Context,
    DocumentModel,
    Params,
    Sentence,
    State,
)
from dclm_jax.nn import stack
from dclm_jax.nn.attention import Memory, attend, init_attention
from dclm_jax.nn.bags import num_words, sum_of_rows
from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.initializers import glorot_uniform
from dclm_jax.nn.products import product
from dclm_jax.nn.recurrence import Affine

TokenGates = tuple[jax.Array, tuple[jax.Array, ...]]
"""What `DocumentModel.step` takes of a token: its part of the first layer's gates, dropout."""


@dataclasses.dataclass(frozen=True)
class RLM(DocumentModel):
    """The recurrent language model without context (2, Eq. 4-9), by default of one layer."""

    num_layers: int = 1

    name = "rlm"
    embedding_fan_in = None
    context_order = 0
    states_read_context = False
    contexts_read_states = False


class Bags(NamedTuple):
    """The n sentences before, oldest first: sums of the columns of P over their words [B, C, P],
    their numbers of words [B, C], and which of the sentences there are [B, C]."""

    sums_BxCxP: jax.Array
    words_BxC: jax.Array
    exists_BxC: jax.Array


@dataclasses.dataclass(frozen=True)
class _LargerContext(DocumentModel, abc.ABC):
    """A model of a sentence given the n before it.

    Attributes:
      context_sentences: n.
      context_dim: rows of P, and the units of a context recurrent network.
    """

    num_layers: int = 1
    context_sentences: int = 4
    context_dim: int = 128

    tables = ("embedding", "bag")
    embedding_fan_in = None
    states_read_context = True
    contexts_read_states = False

    def __post_init__(self):
        super().__post_init__()
        if self.context_sentences < 1:
            raise InputError(
                f"model.context_sentences is {self.context_sentences}; expected at least 1 "
                "(rlm is the model without context)"
            )
        if self.context_dim < 1:
            raise InputError(f"model.context_dim is {self.context_dim}; expected at least 1")

    @property
    def context_order(self) -> int:
        return self.context_sentences

    @property
    def representation_dim(self) -> int:
        """The width of p."""
        return self.context_dim

    def _init_own(self, key: jax.Array, params: Params) -> None:
        bag_key, representation_key, fusion_key = jax.random.split(key, 3)
        # Of V inputs few are not zero. Counted as V they would make P so small that optimizers with
        # a constant beside the gradient, such as Adadelta, hardly move it.
        params["bag"] = glorot_uniform(bag_key, self.vocab_size, self.context_dim, fan_in=1)
        self._init_representation(representation_key, params)
        params["fusion"] = self._init_fusion(fusion_key)

    def open_document(self, params: Params, batch_size: int, length: int) -> Context:
        del length
        shape_BxC = (batch_size, self.context_sentences)
        return Bags(
            jnp.zeros((*shape_BxC, self.context_dim), params["bag"].dtype),
            jnp.zeros(shape_BxC, jnp.int32),
            jnp.zeros(shape_BxC, bool),
        )

    def summarize(self, params: Params, tokens: jax.Array, mask: jax.Array) -> Any:
        return sum_of_rows(params["bag"], tokens, mask), num_words(mask)

    def close_sentence(
        self, params: Params, context: Context, state: State, sentence: Sentence
    ) -> Context:
        del params, state
        sums_BxP, words_B = sentence.summary
        newest = Bags(sums_BxP, words_B, sentence.mask_NxB[0])
        return jax.tree.map(
            lambda bags, bag: jnp.concatenate([bags[:, 1:], bag[:, None]], axis=1), context, newest
        )

    def condition(self, params: Params, context: Context) -> Conditioning:
        return self.feed(params, self.represent(params, context))

    # The representation.

    @abc.abstractmethod
    def _init_representation(self, key: jax.Array, params: Params) -> None:
        """Adds the representation's parameters beside P."""

    @abc.abstractmethod
    def represent(self, params: Params, context: Bags) -> jax.Array:
        """p [B, P], or what p is a mean of, [C, B, P]."""

    # The fusion.

    @abc.abstractmethod
    def _init_fusion(self, key: jax.Array) -> Params:
        """The fusion's parameters."""

    @abc.abstractmethod
    def feed(self, params: Params, p: jax.Array) -> jax.Array:
        """The linear map of p that `step` takes as conditioning, [..., X] of [..., P]."""


class _BoW(_LargerContext):
    """p = P s, with one bag s of all n sentences."""

    def _init_representation(self, key: jax.Array, params: Params) -> None:
        """P is all there is."""

    def represent(self, params: Params, context: Bags) -> jax.Array:
        del params
        words_B = jnp.sum(context.words_BxC, axis=1)
        return jnp.sum(context.sums_BxCxP, axis=1) / jnp.maximum(words_B, 1)[:, None]


class _SeqBoW(_LargerContext):
    """p = z_{l-1} of z_j = g(P s_j, z_{j-1}), j = l-n..l-1; g is a layer of the model's cell."""

    def _init_representation(self, key: jax.Array, params: Params) -> None:
        params["context_stack"] = self._init_context_stack(key)

    def _init_context_stack(self, key: jax.Array) -> list[Params]:
        return stack.init_stack(key, self.cell, 1, self.context_dim, self.context_dim)

    def represent(self, params: Params, context: Bags) -> jax.Array:
        state, _ = self._read_bags(params["context_stack"], *_sequence(context))
        return stack.top_hidden(state)

    def _read_bags(self, layers: list[Params], bags_CxBxP: jax.Array, exists_CxB: jax.Array):
        zero = stack.initial_state(self.cell, 1, bags_CxBxP.shape[1], bags_CxBxP)
        return stack.read_stack(self.cell, layers, zero, bags_CxBxP, exists_CxB)


@dataclasses.dataclass(frozen=True)
class _SeqBoWATT(_SeqBoW):
    """p_t = sum_j alpha_{t,j} z_j, z_j = [forward; reverse] states of two context networks.

    alpha_{t,j} = softmax_j(score(z_j, h_{t-1})),  score(z, h) = v . tanh(W_z z + W_h h)

    The paper leaves the score open, and asks with h_t, which itself depends on p_t. As in the
    attention of Bahdanau et al. (2015) that it follows, h_{t-1} asks here, of the top layer.
    """

    attention_dim: int = 128

    def __post_init__(self):
        super().__post_init__()
        if self.attention_dim < 1:
            raise InputError(f"model.attention_dim is {self.attention_dim}; expected at least 1")

    @property
    def representation_dim(self) -> int:
        return 2 * self.context_dim

    def _init_representation(self, key: jax.Array, params: Params) -> None:
        forward_key, reverse_key, attention_key = jax.random.split(key, 3)
        params["context_stack"] = self._init_context_stack(forward_key)
        params["reverse_context_stack"] = self._init_context_stack(reverse_key)
        params["attention"] = init_attention(
            attention_key, self.hidden_dim, self.representation_dim, self.attention_dim
        )

    def represent(self, params: Params, context: Bags) -> jax.Array:
        bags_CxBxP, exists_CxB = _sequence(context)
        _, forward_CxBxP = self._read_bags(params["context_stack"], bags_CxBxP, exists_CxB)
        _, reverse_CxBxP = self._read_bags(
            params["reverse_context_stack"], bags_CxBxP[::-1], exists_CxB[::-1]
        )
        z_CxBxZ = jnp.concatenate([forward_CxBxP, reverse_CxBxP[::-1]], axis=-1)
        return jnp.where(exists_CxB[..., None], z_CxBxZ, 0)

    def condition(self, params: Params, context: Context) -> Conditioning:
        z_CxBxZ = self.represent(params, context)
        keys_CxBxA = product(z_CxBxZ, params["attention"]["key"])
        exists_CxB = context.exists_BxC.T
        # A first sentence attends to all C places, which hold zero.
        mask_CxB = exists_CxB | ~jnp.any(exists_CxB, axis=0)
        return Memory(self.feed(params, z_CxBxZ), keys_CxBxA, mask_CxB)

    def step(
        self,
        affine: Affine,
        params: Params,
        conditioning: Conditioning,
        state: State,
        inputs: TokenGates,
    ) -> tuple[State, Any]:
        # To feed is linear: the mean of what is fed is what the mean feeds.
        fed_BxX = attend(affine, params["attention"], stack.top_hidden(state), conditioning)
        return super().step(affine, params, fed_BxX, state, inputs)

    read_sentence = DocumentModel.scan_steps

    def recurrent_params(self, params: Params) -> Params:
        attention = {name: params["attention"][name] for name in ("query", "score")}
        return {**super().recurrent_params(params), "attention": attention}


class _EarlyFusion(_LargerContext):
    """x_t = E w_t + W_p p."""

    def _init_fusion(self, key: jax.Array) -> Params:
        return {"context": glorot_uniform(key, self.representation_dim, self.embedding_dim)}

    def feed(self, params: Params, p: jax.Array) -> jax.Array:
        return product(product(p, params["fusion"]["context"]), params["stack"][0]["input"])

    def context_gates(self, conditioning: Conditioning) -> jax.Array | None:
        return conditioning


class _LateFusion(_LargerContext):
    """r_t = sigmoid(W_r (W_p p) + W_r c_t + b_r),  h_t = o_t tanh(c_t + r_t (W_p p)).

    W_r is one matrix, as the paper writes it. The memory cell c_t does not see p.
    """

    def __post_init__(self):
        super().__post_init__()
        if not CELLS[self.cell].has_memory:
            cells = ", ".join(name for name, cell in CELLS.items() if cell.has_memory)
            raise InputError(
                f"model.cell is {self.cell!r}; late fusion needs a memory cell: one of {cells}"
            )

    def _init_fusion(self, key: jax.Array) -> Params:
        context_key, gate_key = jax.random.split(key)
        return {
            "context": glorot_uniform(context_key, self.representation_dim, self.hidden_dim),
            "gate": glorot_uniform(gate_key, self.hidden_dim, self.hidden_dim),
            "gate_bias": jnp.zeros(self.hidden_dim),
        }

    def feed(self, params: Params, p: jax.Array) -> jax.Array:
        return product(p, params["fusion"]["context"])

    def step(
        self,
        affine: Affine,
        params: Params,
        conditioning: Conditioning,
        state: State,
        inputs: TokenGates,
    ) -> tuple[State, Any]:
        gates_BxGH, layer_masks = inputs
        fusion, fed_BxH = params["fusion"], conditioning

        def expose(c_BxH: jax.Array) -> jax.Array:
            bias_BxH = jnp.broadcast_to(fusion["gate_bias"], c_BxH.shape)
            r_BxH = jax.nn.sigmoid(affine(bias_BxH, fed_BxH + c_BxH, fusion["gate"]))
            return c_BxH + r_BxH * fed_BxH

        return stack.step_stack(
            affine, self.cell, params["stack"], state, gates_BxGH, layer_masks, expose
        )

    read_sentence = DocumentModel.scan_steps

    def recurrent_params(self, params: Params) -> Params:
        fusion = {name: params["fusion"][name] for name in ("gate", "gate_bias")}
        return {**super().recurrent_params(params), "fusion": fusion}


class BoWEF(_BoW, _EarlyFusion):
    """RLM-BoW-EF-n."""

    name = "rlm_bow_ef"


class BoWLF(_BoW, _LateFusion):
    """RLM-BoW-LF-n."""

    name = "rlm_bow_lf"


class SeqBoWEF(_SeqBoW, _EarlyFusion):
    """RLM-SeqBoW-EF-n."""

    name = "rlm_seqbow_ef"


class SeqBoWLF(_SeqBoW, _LateFusion):
    """RLM-SeqBoW-LF-n."""

    name = "rlm_seqbow_lf"


class SeqBoWATTEF(_SeqBoWATT, _EarlyFusion):
    """RLM-SeqBoW-ATT-EF-n."""

    name = "rlm_seqbow_att_ef"


class SeqBoWATTLF(_SeqBoWATT, _LateFusion):
    """RLM-SeqBoW-ATT-LF-n."""

    name = "rlm_seqbow_att_lf"


MODELS = (RLM, BoWEF, BoWLF, SeqBoWEF, SeqBoWLF, SeqBoWATTEF, SeqBoWATTLF)


def _sequence(context: Bags) -> tuple[jax.Array, jax.Array]:
    """Ps_j [C, B, P] for each sentence j, oldest first, and which there are [C, B]."""
    words_BxCx1 = jnp.maximum(context.words_BxC, 1)[..., None]
    bags_BxCxP = context.sums_BxCxP / words_BxCx1
    return jnp.swapaxes(bags_BxCxP, 0, 1), context.exists_BxC.T
