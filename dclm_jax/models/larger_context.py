"""Larger-context language models (Wang and Cho 2015, arXiv:1511.03729).

P(S_l | S_{l-n}..S_{l-1}), Eq. 10-11: a recurrent language model (RLM) that also reads the n
previous sentences as bags of words. The paper combines three representations p of the bags of words
(section 3.1: BoW, SeqBoW, SeqBoW with attention) with two ways to feed p to the RLM (section 3.2:
early and late fusion). Each class changes the representation or the fusion of its base, or joins a
representation with a fusion.

A bag of words s has the relative frequency of each word, without START and END. The vector s is
never computed: P s is a sum of columns of P. A sentence with fewer than n predecessors reads all
predecessors; the first sentence of a document has p = 0.

With several layers (the paper has one), early fusion feeds the first layer and late fusion the
last.
"""

import dataclasses
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax import files
from dclm_jax.models.base import (
    Conditioning,
    DocumentModel,
    NumLayers,
    Params,
    Sentence,
    Source,
    own_key,
    require,
)
from dclm_jax.nn import stack
from dclm_jax.nn.attention import Memory, attend, init_attention, weights_of_steps
from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.layers import glorot_uniform, num_words, sum_of_rows
from dclm_jax.nn.stack import StackInput, StackState


@dataclasses.dataclass(frozen=True)
class RLM(DocumentModel):
    """The language model without context of Wang and Cho (2015, Eq. 4-9), by default one layer."""

    num_layers: NumLayers = 1

    name = "rlm"
    embedding_fan_in = None
    context_order = 0
    states_read_context = False
    contexts_read_states = False


class Bags(NamedTuple):
    """The n previous sentences, oldest first: sums of the columns of P over their words [B, C, P],
    numbers of words [B, C], and whether the sentences exist [B, C]."""

    sums_BxCxP: jax.Array
    words_BxC: jax.Array
    exists_BxC: jax.Array


_NUMBER_OF_SENTENCES = files.Range(
    1, 2**31 - 1, "a whole number from 1 to 2^31 - 1 (rlm is the model without context)"
)


@dataclasses.dataclass(frozen=True)
class BoWEF(DocumentModel):
    """RLM-BoW-EF-n: one bag of words of the previous n sentences, early fusion.

    p = P s for one bag of words s of all n sentences; x_t = E w_t + W_p p.

    Attributes:
      context_sentences: n, number of previous sentences in the context.
      context_dim: number of rows of P, and of units of the recurrent networks over the context.
    """

    num_layers: NumLayers = 1
    context_sentences: Annotated[int, _NUMBER_OF_SENTENCES] = 4
    context_dim: files.Size = 128

    name = "rlm_bow_ef"
    tables = ("embedding", "bag")
    embedding_fan_in = None
    states_read_context = True
    contexts_read_states = False

    @property
    def context_order(self) -> int:
        return self.context_sentences

    @property
    def representation_dim(self) -> int:
        """The width of p."""
        return self.context_dim

    def init(self, key: jax.Array) -> Params:
        bag_key, representation_key, fusion_key = jax.random.split(own_key(key), 3)
        return {
            **super().init(key),
            # Most of the V inputs are zero. A fan-in of V would make P so small that optimizers
            # that add a constant to the gradient, such as Adadelta, hardly change it.
            "bag": glorot_uniform(bag_key, self.vocab_size, self.context_dim, fan_in=1),
            **self._init_representation(representation_key),
            "fusion": self._init_fusion(fusion_key),
        }

    def open_document(self, params: Params, rows: int, source: Source | None = None) -> Bags:
        shape_BxC = (rows, self.context_sentences)
        return Bags(
            jnp.zeros((*shape_BxC, self.context_dim), params["bag"].dtype),
            jnp.zeros(shape_BxC, jnp.int32),
            jnp.zeros(shape_BxC, bool),
        )

    def summarize(
        self, params: Params, tokens: jax.Array, mask: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return sum_of_rows(params["bag"], tokens, mask), num_words(mask)

    def close_sentence(self, params: Params, context: Bags, sentence: Sentence) -> Bags:
        sums_BxP, words_B = sentence.summary
        newest = Bags(sums_BxP, words_B, sentence.mask_NxB[0])
        return jax.tree.map(
            lambda bags, bag: jnp.concatenate([bags[:, 1:], bag[:, None]], axis=1), context, newest
        )

    def condition(self, params: Params, context: Bags) -> Conditioning:
        return self.conditioning(self.feed(params, self.represent(params, context)))

    def vector(self, params: Params, context: Bags) -> jax.Array:
        """p; with attention, the mean of the states attended to."""
        return self.represent(params, context)

    def _init_representation(self, key: jax.Array) -> Params:
        """The representation's parameters other than P."""
        return {}

    def represent(self, params: Params, context: Bags) -> jax.Array:
        """p [B, P], or with attention the states [C, B, P] whose weighted mean is p."""
        words_B = jnp.sum(context.words_BxC, axis=1)
        return jnp.sum(context.sums_BxCxP, axis=1) / jnp.maximum(words_B, 1)[:, None]

    def _init_fusion(self, key: jax.Array) -> Params:
        return {"context": glorot_uniform(key, self.representation_dim, self.embedding_dim)}

    def feed(self, params: Params, p: jax.Array) -> jax.Array:
        """A linear map of p, [..., P] -> [..., X], whose values are fed to the RLM."""
        return p @ params["fusion"]["context"] @ params["stack"][0]["input"]

    def conditioning(self, fed: jax.Array) -> Conditioning:
        """The conditioning that feeds the same values [B, X] to all tokens of a sentence."""
        return Conditioning(gates=fed)

    def step_fed(
        self, params: Params, fed_BxX: jax.Array, state: StackState, x: StackInput
    ) -> tuple[StackState, jax.Array]:
        """Reads one token and the values that are fed to it; returns as `step`."""
        return stack.step_stack(self.cell, params["stack"], state, x.plus(fed_BxX), self.plan)


class SeqBoWEF(BoWEF):
    """RLM-SeqBoW-EF-n: a recurrent network over n bags of words, early fusion.

    p = z_{l-1}, with z_j = g(P s_j, z_{j-1}) for j = l-n..l-1; g is a layer of the model's cell.
    """

    name = "rlm_seqbow_ef"

    def _init_representation(self, key: jax.Array) -> Params:
        return {"context_stack": self._init_context_stack(key)}

    def _init_context_stack(self, key: jax.Array) -> list[Params]:
        return stack.init_stack(key, self.cell, 1, self.context_dim, self.context_dim)

    def represent(self, params: Params, context: Bags) -> jax.Array:
        state, _ = self._read_bags(params["context_stack"], *_sequence(context))
        return stack.top_hidden(state)

    def _read_bags(self, layers: list[Params], bags_CxBxP: jax.Array, exists_CxB: jax.Array):
        zero = stack.initial_state(self.cell, 1, bags_CxBxP.shape[1], bags_CxBxP)
        bags_CxB = stack.stack_input(layers, bags_CxBxP, self.plan)
        return stack.read_stack(self.cell, layers, zero, bags_CxB, exists_CxB, self.plan)


@dataclasses.dataclass(frozen=True)
class SeqBoWATTEF(SeqBoWEF):
    """RLM-SeqBoW-ATT-EF-n: attention over n bags of words, early fusion.

    p_t = sum_j alpha_{t,j} z_j, z_j = [forward; reverse] states of two context networks.

    alpha_{t,j} = softmax_j(score(z_j, h_{t-1})),  score(z, h) = v . tanh(W_z z + W_h h)

    The paper leaves the score open. Its query is h_t, which itself depends on p_t. The query of
    this class is h_{t-1} of the top layer, as in the attention of Bahdanau et al. (2015), which the
    paper follows.

    Attributes:
      attention_dim: A, the width of W_z z + W_h h.
    """

    attention_dim: files.Size = 128

    name = "rlm_seqbow_att_ef"
    attends_to = "sentences"

    @property
    def attended_sentences(self) -> int:
        return self.context_sentences

    @property
    def representation_dim(self) -> int:
        return 2 * self.context_dim

    def _init_representation(self, key: jax.Array) -> Params:
        forward_key, reverse_key, attention_key = jax.random.split(key, 3)
        return {
            "context_stack": self._init_context_stack(forward_key),
            "reverse_context_stack": self._init_context_stack(reverse_key),
            "attention": init_attention(
                attention_key, self.hidden_dim, self.representation_dim, self.attention_dim
            ),
        }

    def represent(self, params: Params, context: Bags) -> jax.Array:
        bags_CxBxP, exists_CxB = _sequence(context)
        _, forward_CxBxP = self._read_bags(params["context_stack"], bags_CxBxP, exists_CxB)
        _, reverse_CxBxP = self._read_bags(
            params["reverse_context_stack"], bags_CxBxP[::-1], exists_CxB[::-1]
        )
        z_CxBxZ = jnp.concatenate([forward_CxBxP, reverse_CxBxP[::-1]], axis=-1)
        return jnp.where(exists_CxB[..., None], z_CxBxZ, 0)

    def condition(self, params: Params, context: Bags) -> Conditioning:
        z_CxBxZ = self.represent(params, context)
        keys_CxBxA = z_CxBxZ @ params["attention"]["key"]
        exists_CxB = context.exists_BxC.T
        # A first sentence attends to all C positions, which are zero.
        mask_CxB = exists_CxB | ~jnp.any(exists_CxB, axis=0)
        return Conditioning(inputs=Memory(self.feed(params, z_CxBxZ), keys_CxBxA, mask_CxB))

    def step(
        self, params: Params, conditioning: Conditioning, state: StackState, x: StackInput
    ) -> tuple[StackState, jax.Array]:
        # `feed` is linear and therefore commutes with the mean.
        fed_BxX = attend(
            params["attention"], stack.top_hidden(state), conditioning.inputs, self.plan
        )
        return self.step_fed(params, fed_BxX, state, x)

    def attention(self, params: Params, conditioning: Conditioning, outputs: Any) -> jax.Array:
        return weights_of_steps(params["attention"], outputs, conditioning.inputs, self.plan)

    def vector(self, params: Params, context: Bags) -> jax.Array:
        count_Bx1 = jnp.maximum(jnp.sum(context.exists_BxC, axis=1), 1)[:, None]
        return jnp.sum(self.represent(params, context), axis=0) / count_Bx1


class BoWLF(BoWEF):
    """RLM-BoW-LF-n: one bag of words of the previous n sentences, late fusion.

    r_t = sigmoid(W_r (W_p p) + W_r c_t + b_r),  h_t = o_t tanh(c_t + r_t (W_p p)).

    W_r is one matrix, as in the paper. The memory cell c_t does not read p.
    """

    name = "rlm_bow_lf"

    def __post_init__(self):
        super().__post_init__()
        cells = ", ".join(name for name, cell in CELLS.items() if cell.has_memory)
        has_memory = CELLS[self.cell].has_memory
        require(self, "cell", has_memory, f"a memory cell for late fusion: one of {cells}")

    def _init_fusion(self, key: jax.Array) -> Params:
        context_key, gate_key = jax.random.split(key)
        return {
            "context": glorot_uniform(context_key, self.representation_dim, self.hidden_dim),
            "gate": glorot_uniform(gate_key, self.hidden_dim, self.hidden_dim),
            "gate_bias": jnp.zeros(self.hidden_dim),
        }

    def feed(self, params: Params, p: jax.Array) -> jax.Array:
        return p @ params["fusion"]["context"]

    def conditioning(self, fed: jax.Array) -> Conditioning:
        return Conditioning(inputs=fed)

    def step(
        self, params: Params, conditioning: Conditioning, state: StackState, x: StackInput
    ) -> tuple[StackState, jax.Array]:
        return self.step_fed(params, conditioning.inputs, state, x)

    def step_fed(
        self, params: Params, fed_BxX: jax.Array, state: StackState, x: StackInput
    ) -> tuple[StackState, jax.Array]:
        fusion = params["fusion"]

        def expose(c_BxH: jax.Array) -> jax.Array:
            r_BxH = jax.nn.sigmoid((fed_BxX + c_BxH) @ fusion["gate"] + fusion["gate_bias"])
            return c_BxH + r_BxH * fed_BxX

        return stack.step_stack(self.cell, params["stack"], state, x, self.plan, expose)


class SeqBoWLF(SeqBoWEF, BoWLF):
    """RLM-SeqBoW-LF-n: a recurrent network over n bags of words, late fusion."""

    name = "rlm_seqbow_lf"


class SeqBoWATTLF(SeqBoWATTEF, BoWLF):
    """RLM-SeqBoW-ATT-LF-n: attention over n bags of words, late fusion."""

    name = "rlm_seqbow_att_lf"


def _sequence(context: Bags) -> tuple[jax.Array, jax.Array]:
    """Ps_j [C, B, P] for each sentence j, oldest first, and whether it exists [C, B]."""
    words_BxCx1 = jnp.maximum(context.words_BxC, 1)[..., None]
    bags_BxCxP = context.sums_BxCxP / words_BxCx1
    return jnp.swapaxes(bags_BxCxP, 0, 1), context.exists_BxC.T
