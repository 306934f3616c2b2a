"""The interface of a model, with the parts that most models share.

A model is a frozen object of pure functions over a tree of parameters. To read a document:

    context = open_document(params, rows, source)                   c_0
    for every sentence:
        conditioning = condition(params, context)                   per-sentence work, done once
        state = open_sentence(params, context, rows)
        for every token:                                            a scan
            state, output = step(params, conditioning, state, x)
        features = emit(params, conditioning, outputs)              outside the scan
        context = close_sentence(params, context, sentence)

x is computed from embed(params, tokens), and sentence.summary is summarize(params, tokens, mask),
both for all sentences at once; p(next word) follows from features, conditioning,
output_layer(params) and, if the model copies words, pointer(params, conditioning, outputs).
attention(params, conditioning, outputs) has the weights of a model that attends to earlier
sentences. The package `reading` reads documents with any model, and has all scans, padding, dropout
and optimizations. Its driver calls `step` only if a model overrides it; for other models it calls
`stack.read_stack`, which computes the same values layer by layer. In all functions except `init`, a
matrix is a `Weight` with `x @ weight`, and the `tables` are arrays.

A model whose `objective` is "bags" has no steps: the context before a sentence predicts all words
of the sentence with one distribution, `bags(params, context)`. Arrays are time-major, [N, B, ...]
in a sentence and [S, N, B, ...] over sentences.
"""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax import files
from dclm_jax.data.vocabulary import END, FIRST_WORD, START, UNKNOWN, word_ends
from dclm_jax.errors import InputError
from dclm_jax.nn import stack
from dclm_jax.nn.cells import CELLS, Params
from dclm_jax.nn.layers import Weight, glorot_uniform
from dclm_jax.nn.logits import NEVER, OutputInputs
from dclm_jax.nn.plan import Plan, default_plan
from dclm_jax.nn.precision import MatmulPrecision
from dclm_jax.nn.stack import StackInput, StackState

# Layers are made one by one, and a configuration file may have any number.
NumLayers = Annotated[int, files.Range(1, 1000, "a whole number from 1 to 1000")]
Context = Any  # The state between sentences, of a type that the model defines.


class Conditioning(NamedTuple):
    """The parts of a context that a sentence reads: in the first layer's gates [B, G*H], in the
    output layer [B, E], and in the model's own steps."""

    gates: jax.Array | None = None
    features: jax.Array | None = None
    inputs: Any = None


class Sentence(NamedTuple):
    """A sentence after reading: input tokens (START w1..wM), their mask, the model's `summarize` of
    them, the state after the last token, and the outputs of its steps."""

    tokens_NxB: jax.Array
    mask_NxB: jax.Array
    summary: Any
    state: Any
    outputs: Any

    @property
    def targets_NxB(self) -> jax.Array:
        """The targets w1..wM END; undefined at padding."""
        next_tokens = jnp.where(self.mask_NxB[1:], self.tokens_NxB[1:], END)
        return jnp.pad(next_tokens, [(0, 1), (0, 0)], constant_values=END)


class Source(NamedTuple):
    """The sources of B documents: input tokens [S, N, B] (START w1..wM) and their mask; sentences
    without tokens fill up shorter sources. `dropout` has, in training, multipliers of embeddings
    [S, N, B, K] and of inputs of upper layers [S, N, B, H]."""

    tokens_SxNxB: jax.Array
    mask_SxNxB: jax.Array
    dropout: tuple[jax.Array, ...] = ()


class OutputLayer(NamedTuple):
    """p = softmax(features @ kernel + bias + conditioning.features @ context_kernel + bigrams[w]),
    with kernel [D, V], bias [V], context_kernel [E, V] if a context enters, and hashed features
    [W] of the last word w read."""

    kernel: Weight
    bias: jax.Array
    context_kernel: Weight | None = None
    bigrams: jax.Array | None = None


class Pointer(NamedTuple):
    """The part of next-word distributions that copies the words of a memory [M, B]:

    p(w) = exp(log_share) softmax(w) + sum_{m: words_m = w} exp(log_weights_m)

    with log_weights [N, B, M], log_share [N, B] and the softmax of the output layer. A word of -1
    has weight 0, and a document's first sentence has log_share 0."""

    log_share_NxB: jax.Array
    log_weights_NxBxM: jax.Array
    words_MxB: jax.Array


@dataclasses.dataclass(frozen=True)
class DocumentModel:
    """A language model of documents: P(word | earlier words of its sentence, earlier sentences).

    Attributes:
      vocab_size: V, number of words or of pieces of words, special tokens included.
      embedding_dim: K, the width of embeddings.
      hidden_dim: H, the width of hidden states.
      num_layers: number of recurrent layers of every stack.
      cell: recurrent cell: lstm, gru, rnn, coupled_peephole_lstm (Ji et al. 2015),
        lstm_linear_output (Li et al. 2015) or htanh (Lin et al. 2015).
      dropout: dropout rate on non-recurrent connections: embeddings, between layers, features, and
        contexts that enter the output layer.
      input_dropout: dropout rate on embeddings; -1 for the rate `dropout`.
      output_dropout: dropout rate on features, and on contexts that enter the output layer; -1 for
        the rate `dropout`.
      variational_dropout: draw one mask per sentence (Gal and Ghahramani 2016), not per token.
      recurrent_dropout: dropout rate on the recurrent weights of the stack, with one mask per
        training step (Merity et al. 2018).
      tie_embeddings: use the embedding matrix also as the output matrix; if K is not H, hidden
        states are first projected to K dimensions, so that V enters no product with H.
      compute_dtype: type of the factors of matrix products and of the gradients of their weights:
        float32 or bfloat16. Parameters, sums, states and losses are always float32.
      matmul_precision: precision of products of float32 factors in training: default (the fastest
        on the device: bfloat16 on TPUs, TF32 on H100), high, or highest (float32, as on all CPUs).
        Validation uses highest, and other commands use --matmul_precision.
      remat: recompute a sentence's gates and states in the backward pass of training, which takes
        less memory and more time.
      fused_scan: compute a loop over tokens as one kernel (nn/fused.py), on a TPU v5 or newer; no
        effect on other devices. The kernel has been compiled for TPUs and has never run on one.
      first_word_end: the first id from which all entries of the vocabulary end a word: the first
        word, or with a vocabulary of subwords the first last piece of a word. Not an option of a
        configuration.
      plan: how the platform computes the model; changes only speed and memory, and is not an option
        of a configuration.

    Class attributes, which subclasses define:
      context_order: number of previous sentences that a sentence depends on: 0, n, or None for all.
      states_read_context: whether hidden states depend on the context. If not, all sentences are
        read at once, folded into the batch, before their contexts are known.
      contexts_read_states: whether contexts depend on hidden states. If not, all contexts are
        computed first, and all sentences are then read at once.
      objective: the targets that the model predicts and validation measures: "words", with END, or
        "bags", the words of a sentence without their order.
      auxiliary_objective: name of `auxiliary_loss` in training logs; None for a model without one.
      reads_source: whether a document has a source, which `open_document` reads.
      attends_to: the positions that every token attends to, with the weights of `attention`:
        "words", the inputs of the n previous sentences; "sentences", the n previous sentences;
        "targets" of earlier sentences; None without attention.
      attended_sentences: n; 0 for "targets" and without attention.
      tables: parameters that are looked up by word and never multiplied.
      hashed: arrays of hashed features (`nn.hashing`), all of one size.
      embedding_fan_in: number of inputs for the initial range of embeddings; None for V.
    """

    vocab_size: files.Size
    embedding_dim: files.Size = 128
    hidden_dim: files.Size = 128
    num_layers: NumLayers = 2
    cell: str = "lstm"
    dropout: files.Rate = 0.0
    input_dropout: files.Number = -1.0
    output_dropout: files.Number = -1.0
    variational_dropout: bool = False
    recurrent_dropout: files.Rate = 0.0
    tie_embeddings: bool = False
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    matmul_precision: MatmulPrecision = "default"
    remat: bool = False
    fused_scan: bool = False
    first_word_end: files.Size = dataclasses.field(default=FIRST_WORD, repr=False, kw_only=True)
    plan: Plan = dataclasses.field(default_factory=default_plan, repr=False, kw_only=True)

    name: ClassVar[str]
    context_order: ClassVar[int | None]
    states_read_context: ClassVar[bool]
    contexts_read_states: ClassVar[bool]
    objective: ClassVar[str] = "words"
    auxiliary_objective: ClassVar[str | None] = None
    reads_source: ClassVar[bool] = False
    attends_to: ClassVar[str | None] = None
    attended_sentences: ClassVar[int] = 0
    tables: ClassVar[tuple[str, ...]] = ("embedding",)
    hashed: ClassVar[tuple[str, ...]] = ()
    embedding_fan_in: ClassVar[int | None] = 1

    @classmethod
    def options(cls) -> list[dataclasses.Field]:
        """The attributes that a configuration sets."""
        not_options = "first_word_end", "plan"
        return [field for field in dataclasses.fields(cls) if field.name not in not_options]

    def __post_init__(self):
        files.require_valid(self, "model.")
        require(self, "cell", self.cell in CELLS, f"one of {', '.join(CELLS)}")
        for field in ("input_dropout", "output_dropout"):
            rate = getattr(self, field)
            require(self, field, rate == -1 or 0 <= rate < 1, f"0 <= {field} < 1, or -1")

    @property
    def gate_context_dim(self) -> int:
        """Width of the context that the first layer reads in addition to x (Eq. 5); 0 for none."""
        return 0

    @property
    def has_pieces(self) -> bool:
        """Whether targets are pieces of words, and UNKNOWN is read and never predicted."""
        return self.first_word_end > FIRST_WORD

    def predicted(self, targets: jax.Array, mask: jax.Array) -> jax.Array:
        """The mask without the targets that the model only reads."""
        return mask & (targets != UNKNOWN) if self.has_pieces else mask

    def num_targets(self, targets: jax.Array, mask: jax.Array) -> jax.Array:
        """The number of words and ENDs among the ids `targets` where `mask`."""
        is_last = word_ends(targets, self.first_word_end) | (targets == END)
        return jnp.sum(self.predicted(targets, mask) & is_last)

    def init(self, key: jax.Array) -> Params:
        """Initial parameters; a subclass adds its own, drawn from `own_key(key)`."""
        K, H, V = self.embedding_dim, self.hidden_dim, self.vocab_size
        embedding_key, stack_key, output_key, _ = jax.random.split(key, 4)
        output = {"bias": jnp.zeros(V)}
        if not self.tie_embeddings:
            output["kernel"] = glorot_uniform(output_key, H, V)
        elif K != H:
            output["projection"] = glorot_uniform(output_key, H, K)
        return {
            "embedding": glorot_uniform(embedding_key, V, K, fan_in=self.embedding_fan_in),
            "stack": stack.init_stack(
                stack_key, self.cell, self.num_layers, K, H, context_dim=self.gate_context_dim
            ),
            "output": output,
        }

    def weight(self, matrix: jax.Array) -> Weight:
        """A matrix in the type of products."""
        if self.compute_dtype == "float32":
            return Weight(matrix)
        return Weight(matrix.astype(self.compute_dtype))

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        """The stack's inputs [..., B, K] for token ids [..., B]."""
        return params["embedding"][tokens]

    def summarize(self, params: Params, tokens: jax.Array, mask: jax.Array) -> Any:
        """The part of `close_sentence` that depends only on words, for the input tokens [..., N, B]
        of many sentences at once; arrays [..., B] or [..., B, X], or None."""

    def open_document(self, params: Params, rows: int, source: Source | None = None) -> Context:
        """The context before the first sentence of each of B = `rows` documents, which have a
        `source` if the model reads one."""
        return ()

    def condition(self, params: Params, context: Context) -> Conditioning:
        """The parts of the context that the sentence reads, computed once per sentence."""
        if not self.gate_context_dim:
            return Conditioning()
        return Conditioning(gates=context @ params["stack"][0]["context"])

    def open_sentence(self, params: Params, context: Context, rows: int) -> StackState:
        """The recurrent state before the first token."""
        like = params["stack"][0]["bias"][: self.hidden_dim]
        return stack.initial_state(self.cell, self.num_layers, rows, like)

    def step(
        self, params: Params, conditioning: Conditioning, state: StackState, x: StackInput
    ) -> tuple[StackState, Any]:
        """Reads one token, with the conditioning in its gates. Returns the new state, and an
        output, by default the top hidden state [B, H]."""
        return stack.step_stack(self.cell, params["stack"], state, x, self.plan)

    def emit(self, params: Params, conditioning: Conditioning, outputs: Any) -> jax.Array:
        """The features [N, B, D] that enter the output layer, from the outputs of a sentence."""
        projection = params["output"].get("projection")
        return outputs if projection is None else outputs @ projection

    def pointer(self, params: Params, conditioning: Conditioning, outputs: Any) -> Pointer | None:
        """The pointer to targets of earlier sentences, from the outputs of a sentence; None for a
        model that copies no words. Only models whose states read contexts and whose contexts read
        states have one."""

    def attention(self, params: Params, conditioning: Conditioning, outputs: Any) -> jax.Array:
        """The weights [N, B, M] with which each token attends to M positions in memory, from the
        outputs of a sentence; only for a model with `attends_to`. For "targets" a first position
        has the share of the softmax."""
        raise NotImplementedError

    def close_sentence(self, params: Params, context: Context, sentence: Sentence) -> Context:
        """The context for the next sentence. If contexts do not read hidden states, the state and
        the outputs of the sentence may be None."""
        return context

    def output_layer(self, params: Params) -> OutputLayer:
        """The softmax over the vocabulary (Eq. 2)."""
        return OutputLayer(self.output_kernel(params), params["output"]["bias"])

    def masked_bias(self, bias_V: jax.Array) -> jax.Array:
        """The bias of the softmax. With a vocabulary of subwords START and UNKNOWN have probability
        0, so that the probabilities of all sequences of pieces add up to 1."""
        if not self.has_pieces:
            return bias_V
        return bias_V.at[np.array([START, UNKNOWN])].set(NEVER)

    def output_kernel(self, params: Params) -> Weight:
        """The output matrix [D, V], which may be the embedding matrix."""
        if self.tie_embeddings:
            return self.weight(params["embedding"].T)
        return params["output"]["kernel"]

    def bags(self, params: Params, context: Context) -> OutputInputs:
        """The factors of the distributions of the words of the next sentence, one distribution per
        context; only for a model whose `objective` is "bags", which is trained on the mean over
        the words of each sentence."""
        raise NotImplementedError

    def auxiliary_loss(
        self,
        params: Params,
        contexts: Context,
        last: Context,
        targets_SxNxB: jax.Array,
        mask_SxNxB: jax.Array,
    ) -> jax.Array:
        """The loss in nats, summed over a batch, that training adds to the loss of the targets.

        Args:
          contexts: the contexts before all S*B sentences.
          last: the context after the last sentence.
          targets_SxNxB: w1..wM END of all sentences, padded.
          mask_SxNxB: True at targets; sentences without targets fill up shorter documents.
        """
        return jnp.zeros(())

    def ending(self, params: Params, context: Context) -> jax.Array | None:
        """The log-odds [B] that the document has ended, with which generation ends it; None for a
        model without this decision."""

    def resize_context(self, context: Context, length: int, *, sentences: int = 0) -> Context:
        """The context with capacity for at least `length` positions of a sentence. The last
        `sentences` sentences have at most `length` positions; a context without older sentences is
        cut to exactly `length`."""
        return context

    def vector(self, params: Params, context: Context) -> jax.Array | None:
        """The context as one vector per batch element [B, X], for comparing documents; None if the
        model has none."""
        return context if isinstance(context, jax.Array) else None


def own_key(key: jax.Array) -> jax.Array:
    """The part of the key of `init` for parameters that a subclass adds."""
    return jax.random.split(key, 4)[3]


def require(model: DocumentModel, field: str, holds: bool, expected: str) -> None:
    """Raises an `InputError` about an option of a model unless the condition `holds` is true."""
    if not holds:
        raise InputError(f"model.{field} is {getattr(model, field)!r}; expected {expected}")
