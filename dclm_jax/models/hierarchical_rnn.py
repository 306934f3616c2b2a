"""The hierarchical RNN language model (Lin et al. 2015) and its two levels.

    sentences  hs_j = f(U_s hs_{j-1} + W_s xs_j),                 ys_{j+1} = g(V_s hs_j + sum D[w])
    words      hw_i = f(U_w hw_{i-1} + W_w xw_i + U_sw hs_{j-1}), yw_{i+1} = g(V_w hw_i + D[w_i])

xs_j is the vector of word counts of sentence j, and xw_i is one word; f is the cell, by default
HTanh, and g is a softmax. Each level has its own D, the weights of hashed bigram features
(`nn.hashing`). The sentence level sums D[w] over all words w of sentence j; at the word level w_i
is the last word. Words enter the gates of the first layer directly (W_s and W_w have one row per
word), so that K = H. Numbers of equations and sections are the paper's.

The paper has no biases. Here biases start at zero and are trained.
"""

import dataclasses
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax import files
from dclm_jax.models.bags import bags_nll
from dclm_jax.models.base import (
    Conditioning,
    DocumentModel,
    NumLayers,
    OutputLayer,
    Params,
    Sentence,
    Source,
    own_key,
    require,
)
from dclm_jax.nn import stack
from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.hashing import hashed_logits
from dclm_jax.nn.layers import resized, sum_of_rows, uniform_matrices
from dclm_jax.nn.logits import OutputInputs
from dclm_jax.nn.stack import StackState

FIRST_HISTORY = 0.1
"""The initial value of all entries of hs_0 (section 4.3)."""


class SentenceContext(NamedTuple):
    """The state of all layers of the sentence level, whose top hidden state is hs_{j-1}, and the
    words of sentence j-1, int [B, M], padded with -1."""

    state: StackState
    words_BxM: jax.Array

    @property
    def history_BxH(self) -> jax.Array:
        return stack.top_hidden(self.state)


@dataclasses.dataclass(frozen=True)
class _Lin(DocumentModel):
    """The part that both levels share.

    Attributes:
      hash_size: number of entries of each array of hashed features, initially zero (section 4.3); 0
        for no features.
    """

    num_layers: NumLayers = 1
    cell: str = "htanh"
    hash_size: Annotated[int, files.Range(0, 2**31 - 1, "a whole number from 0 to 2^31 - 1")] = (
        10_000_000
    )

    def __post_init__(self):
        super().__post_init__()
        simple = ", ".join(name for name, cell in CELLS.items() if cell.num_gates == 1)
        one_gate = CELLS[self.cell].num_gates == 1
        require(self, "cell", one_gate, f"a cell of a simple recurrent network: {simple}")
        equal = self.embedding_dim == self.hidden_dim
        hidden = f"model.hidden_dim, {self.hidden_dim}: words enter the hidden layer directly"
        require(self, "embedding_dim", equal, hidden)
        enough = self.hash_size == 0 or self.hash_size >= self.vocab_size
        words = f"at least {self.vocab_size}, the size of the vocabulary, or 0 for no features"
        require(self, "hash_size", enough, words)


class _SentenceLevel(_Lin):
    """The sentence level (section 4): contexts, and predictions of a sentence's bag of words."""

    context_order = None
    contexts_read_states = False

    def init(self, key: jax.Array) -> Params:
        H, V = self.hidden_dim, self.vocab_size
        keys = jax.random.split(key, 3)
        layers = stack.init_stack(keys[0], self.cell, self.num_layers, H, H)
        del layers[0]["input"]
        params = {
            "sentence_embedding": jnp.zeros((V, H)),
            "sentence_stack": layers,
            "sentence_output": {"kernel": jnp.zeros((H, V)), "bias": jnp.zeros(V)},
        }
        params = uniform_by_inputs(keys[1], params)
        return params | ({"sentence_bigrams": jnp.zeros(self.hash_size)} if self.hash_size else {})

    def summarize(self, params: Params, tokens: jax.Array, mask: jax.Array) -> jax.Array:
        """W_s xs_j for each sentence."""
        return sum_of_rows(params["sentence_embedding"], tokens, mask)

    def open_document(
        self, params: Params, rows: int, source: Source | None = None
    ) -> SentenceContext:
        like = params["sentence_stack"][0]["bias"]
        zero = stack.initial_state(self.cell, self.num_layers, rows, like)
        state = jax.tree.map(lambda array: array + FIRST_HISTORY, zero)
        return SentenceContext(state, jnp.full((rows, 1), -1, jnp.int32))

    def close_sentence(
        self, params: Params, context: SentenceContext, sentence: Sentence
    ) -> SentenceContext:
        """The context after sentence j, with hs_j (Eq. 4)."""
        layers = params["sentence_stack"]
        x = stack.stack_input(layers, sentence.summary, self.plan)
        sentence_state, _ = stack.step_stack(self.cell, layers, context.state, x, self.plan)
        words_NxB = jnp.where(sentence.mask_NxB, sentence.tokens_NxB, -1)[1:]
        words_BxN = words_NxB.T.astype(context.words_BxM.dtype)
        length = context.words_BxM.shape[1]
        return SentenceContext(sentence_state, resized(words_BxN, length, axis=1, fill=-1))

    def resize_context(
        self, context: SentenceContext, length: int, *, sentences: int = 0
    ) -> SentenceContext:
        if not sentences:
            length = max(length, context.words_BxM.shape[1])
        return context._replace(words_BxM=resized(context.words_BxM, length, axis=1, fill=-1))

    def bags(self, params: Params, context: SentenceContext) -> OutputInputs:
        """The softmax over the words of a sentence, given earlier sentences (Eq. 5, 8)."""
        output, hashed = params["sentence_output"], None
        if self.hash_size:
            hashed = hashed_logits(params["sentence_bigrams"], context.words_BxM, self.vocab_size)
        return OutputInputs(context.history_BxH, output["kernel"].array, output["bias"], hashed)

    def vector(self, params: Params, context: SentenceContext) -> jax.Array:
        return context.history_BxH


class _WordLevel(_Lin):
    """A recurrent network over the words of a sentence."""

    def init(self, key: jax.Array) -> Params:
        params = super().init(key)
        del params["stack"][0]["input"]
        params = uniform_by_inputs(own_key(key), params)
        return params | ({"bigrams": jnp.zeros(self.hash_size)} if self.hash_size else {})

    def output_layer(self, params: Params) -> OutputLayer:
        return super().output_layer(params)._replace(bigrams=params.get("bigrams"))


class RNNLin(_WordLevel):
    """The word level without context, the baseline of Lin et al. (2015, section 6.2)."""

    name = "rnn_lin"
    hashed = ("bigrams",)
    context_order = 0
    states_read_context = False
    contexts_read_states = False


class RNNSLM(_SentenceLevel):
    """The sentence level, which predicts bags of words (Lin et al. 2015, section 4)."""

    name = "rnnslm"
    objective = "bags"
    tables = ("sentence_embedding",)
    hashed = ("sentence_bigrams",)
    states_read_context = True

    def __post_init__(self):
        super().__post_init__()
        reason = "the model has no word level"
        require(self, "input_dropout", self.input_dropout <= 0, f"-1 or 0: {reason}")
        require(self, "recurrent_dropout", not self.recurrent_dropout, f"0: {reason}")
        require(self, "tie_embeddings", not self.tie_embeddings, f"False: {reason}")

    def output_layer(self, params: Params) -> OutputLayer:
        return OutputLayer(**params["sentence_output"])


@dataclasses.dataclass(frozen=True)
class HRNNLMTwoStep(_SentenceLevel, _WordLevel):
    """The sentence level and the word level, which reads hs_{j-1} (Lin et al. 2015, Eq. 10).

    Two-stage training (section 5.2) first trains an `rnnslm`, whose parameters have the same names,
    and then the remaining parameters (`training.start_from`, `training.frozen`). Joint training
    adds the objective of the sentence level (Eq. 9) to the objective of the word level.

    Attributes:
      sentence_loss_weight: weight of the sentence level's objective in joint training.
    """

    sentence_loss_weight: files.Finite = 1.0

    name = "hrnnlm_two_step"
    auxiliary_objective = "bags"
    tables = ("embedding", "sentence_embedding")
    hashed = ("bigrams", "sentence_bigrams")
    states_read_context = True

    @property
    def gate_context_dim(self) -> int:
        return self.hidden_dim

    def init(self, key: jax.Array) -> Params:
        word_key, sentence_key = jax.random.split(key)
        return _WordLevel.init(self, word_key) | _SentenceLevel.init(self, sentence_key)

    def condition(self, params: Params, context: SentenceContext) -> Conditioning:
        return super().condition(params, context.history_BxH)

    def auxiliary_loss(
        self,
        params: Params,
        contexts: SentenceContext,
        last: SentenceContext,
        targets_SxNxB: jax.Array,
        mask_SxNxB: jax.Array,
    ) -> jax.Array:
        inputs = self.bags(params, contexts)
        predicted_SxNxB = self.predicted(targets_SxNxB, mask_SxNxB)
        nll = bags_nll(inputs, targets_SxNxB, predicted_SxNxB, self.plan, per_word=True)
        return self.sentence_loss_weight * nll


def uniform_by_inputs(key: jax.Array, params: Params) -> Params:
    """The parameters with every matrix [I, O] drawn uniformly from [-1/I, 1/I]. I is the size of
    the input (section 4.3): V for words, H for hidden layers."""
    return uniform_matrices(key, params, lambda inputs: 1 / inputs)
