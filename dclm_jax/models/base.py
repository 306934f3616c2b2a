"""The contract of a model, and what most models share.

A model is a frozen object of pure functions over an explicit parameter tree. To read a document:

    context = open_document(params, batch_size, length)             c_0
    for every sentence:
        conditioning = condition(params, context)                   per-sentence work, done once
        state = open_sentence(params, context, batch_size)
        for every token:                                            a scan
            state, output = read_token(params, conditioning, state, x)
        features = emit(params, conditioning, outputs)              outside the scan
        context = close_sentence(params, context, state, sentence)

with x = project(params, tokens) and sentence.summary = summarize(params, tokens, mask) for all
sentences at once, and p(next word) = softmax(features @ kernel + bias) with
(kernel, bias) = output_layer(params); where context_features(conditioning) are any, their product
with context_kernel(params) is added, the same for all tokens of the sentence.
`models/reading.py` is the driver that runs this for any model.

Arrays are time-major, [N, B, ...] inside a sentence and [S, N, B, ...] over sentences; the legend
of axis letters is in `dclm_jax/nn/__init__.py`.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.errors import InputError
from dclm_jax.nn import recurrence, stack
from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.dropout import drop, dropout_mask
from dclm_jax.nn.initializers import glorot_uniform
from dclm_jax.nn.products import product
from dclm_jax.nn.recurrence import Affine

COMPUTE_DTYPES = ("float32", "bfloat16")
MAX_LAYERS = 1000

Params = dict[str, Any]
Context = Any
Conditioning = Any
State = Any


class TokenInputs(NamedTuple):
    """What tokens bring to a sentence: embeddings [..., B, K], and the dropout multipliers of the
    layers above the first one, each [..., B, H]; none outside training."""

    embedded: jax.Array
    layer_masks: tuple[jax.Array, ...] = ()


class Sentence(NamedTuple):
    """A sentence that has been read: input tokens (START w1..wM), their mask, what the model's
    `summarize` says of them, and the outputs."""

    tokens_NxB: jax.Array
    mask_NxB: jax.Array
    summary: Any
    outputs: Any


class DropoutMasks(NamedTuple):
    """Multipliers of embeddings [S,N,B,K], upper layers' inputs [S,N,B,H], features [S,N,B,D], and
    of contexts that enter the output layer [S,1,B,H], where they do."""

    embeddings: jax.Array
    layers: tuple[jax.Array, ...]
    features: jax.Array
    contexts: jax.Array | None = None


@dataclasses.dataclass(frozen=True)
class DocumentModel:
    """A language model of documents: P(word | earlier words of its sentence, earlier sentences).

    Attributes:
      vocab_size: V, special tokens included.
      embedding_dim: K.
      hidden_dim: H.
      num_layers: recurrent layers of every stack.
      cell: one of `dclm_jax.nn.cells.CELLS`.
      dropout: rate on non-recurrent connections while training: embeddings, between layers,
        features, and contexts that enter the output layer.
      variational_dropout: draw once a sentence, not once a token (Gal and Ghahramani 2016); what
        belongs to a sentence, as a context does, is always drawn so.
      recurrent_dropout: rate on the recurrent weights of the stack while training, drawn once a
        step (Merity et al. 2018).
      tie_embeddings: use the embedding matrix as the output matrix of the hidden state (K = H).
      compute_dtype: float32, or bfloat16 to round the factors of all matrix products and the
        gradients of their weights; parameters, sums, states and losses stay float32.
      remat: forget gates and states of a sentence in training and read it again in the backward
        pass: less memory for more time.

    Class attributes that subclasses set:
      tables: parameters that are looked up by word and are no factor of a product. A model looks
        up nothing else by input tokens and makes no other use of them, unless it has an auxiliary
        loss: training may number the words of a batch anew (training/touched.py).
      embedding_fan_in: inputs that the initial range of embeddings counts; None for all V words.
      context_order: sentences before the current one that it depends on: 0, n, or None for all.
      states_read_context: hidden states depend on the context. If not, all sentences of a document
        can be read at once, folded into the batch, before their contexts are known.
      contexts_read_states: contexts depend on hidden states. If not, all contexts can be computed
        up front, and the sentences are again read at once.
      has_auxiliary_loss: `auxiliary_nll` adds a training objective.

    Raises:
      InputError: a value that no model can be built from.
    """

    vocab_size: int
    embedding_dim: int = 128
    hidden_dim: int = 128
    num_layers: int = 2
    cell: str = "lstm"
    dropout: float = 0.0
    variational_dropout: bool = False
    recurrent_dropout: float = 0.0
    tie_embeddings: bool = False
    compute_dtype: str = "float32"
    remat: bool = False

    name: ClassVar[str]
    tables: ClassVar[tuple[str, ...]] = ("embedding",)
    embedding_fan_in: ClassVar[int | None] = 1
    context_order: ClassVar[int | None]
    states_read_context: ClassVar[bool]
    contexts_read_states: ClassVar[bool]
    has_auxiliary_loss: ClassVar[bool] = False

    def __post_init__(self):
        for field in ("vocab_size", "embedding_dim", "hidden_dim", "num_layers"):
            if getattr(self, field) < 1:
                raise InputError(f"model.{field} is {getattr(self, field)}; expected at least 1")
        # Layers are made one by one, and a number in a file may be any.
        if self.num_layers > MAX_LAYERS:
            raise InputError(
                f"model.num_layers is {self.num_layers}; expected at most {MAX_LAYERS}"
            )
        if self.cell not in CELLS:
            raise InputError(f"model.cell is {self.cell!r}; expected one of {', '.join(CELLS)}")
        if self.compute_dtype not in COMPUTE_DTYPES:
            raise InputError(
                f"model.compute_dtype is {self.compute_dtype!r}; "
                f"expected one of {', '.join(COMPUTE_DTYPES)}"
            )
        for field in ("dropout", "recurrent_dropout"):
            if not 0 <= getattr(self, field) < 1:
                raise InputError(
                    f"model.{field} is {getattr(self, field)}; expected 0 <= {field} < 1"
                )
        if self.tie_embeddings and self.embedding_dim != self.hidden_dim:
            raise InputError(
                f"model.tie_embeddings needs embedding_dim = hidden_dim; "
                f"they are {self.embedding_dim} and {self.hidden_dim}"
            )

    @property
    def earlier_sentences(self) -> int:
        """Sentences that training reads before a segment to have its first contexts whole: n, of a
        model whose contexts are made of the words of the last n sentences, otherwise 0."""
        return 0 if self.contexts_read_states else self.context_order or 0

    @property
    def feature_dim(self) -> int:
        """D, the width of the features that enter the output layer."""
        return self.hidden_dim

    def init(self, key: jax.Array) -> Params:
        """Initial parameters."""
        embedding_key, stack_key, output_key, own_key = jax.random.split(key, 4)
        params = {
            "embedding": glorot_uniform(
                embedding_key, self.vocab_size, self.embedding_dim, fan_in=self.embedding_fan_in
            ),
            "stack": self._init_stack(stack_key),
            "output": {"bias": jnp.zeros(self.vocab_size)},
        }
        if not self.tie_embeddings:
            params["output"]["kernel"] = glorot_uniform(
                output_key, self.hidden_dim, self.vocab_size
            )
        self._init_own(own_key, params)
        return params

    def _init_stack(self, key: jax.Array) -> list[Params]:
        return stack.init_stack(
            key, self.cell, self.num_layers, self.embedding_dim, self.hidden_dim
        )

    def _init_own(self, key: jax.Array, params: Params) -> None:
        """Adds what this model has beyond embeddings, stack and output layer."""

    def compute_params(self, params: Params) -> Params:
        """The parameters to compute with: weights rounded to `compute_dtype` if it is shorter.

        Tables are no factors of products, and the gradient of a frequent word is a sum of too many
        terms for a short type.
        """
        if self.compute_dtype == "float32":
            return params
        weights = {name: value for name, value in params.items() if name not in self.tables}
        rounded = jax.tree.map(
            lambda leaf: leaf.astype(self.compute_dtype) if leaf.ndim == 2 else leaf, weights
        )
        return {**rounded, **{name: params[name] for name in self.tables}}

    def project(
        self, params: Params, tokens: jax.Array, masks: DropoutMasks | None = None
    ) -> TokenInputs:
        """The work on token ids [..., B] that no scan needs to wait for: their embeddings."""
        embedded = params["embedding"][tokens]
        if masks is None:
            return TokenInputs(embedded)
        return TokenInputs(embedded * masks.embeddings, masks.layers)

    def summarize(self, params: Params, tokens: jax.Array, mask: jax.Array) -> Any:
        """What `close_sentence` needs of the words alone, for the input tokens [..., N, B] of many
        sentences at once; arrays [..., B] or [..., B, X], or None."""
        del params, tokens, mask
        return None

    def dropout_masks(self, keys_B: jax.Array, shape_SxN: tuple[int, int]) -> DropoutMasks | None:
        """The masks of one training step, or None at dropout 0; `keys_B` is one key a row."""
        if not self.dropout:
            return None
        dims = (self.embedding_dim, *(self.hidden_dim,) * (self.num_layers - 1), self.feature_dim)
        keys_XxB = jax.vmap(lambda key: jax.random.split(key, len(dims)), out_axes=1)(keys_B)
        embeddings, *layers, features = (
            dropout_mask(keys, shape_SxN, dim, self.dropout, per_sentence=self.variational_dropout)
            for keys, dim in zip(keys_XxB, dims, strict=True)
        )
        return DropoutMasks(embeddings, tuple(layers), features)

    def drop_weights(self, params: Params, key: jax.Array) -> Params:
        """The parameters of one training step, after `recurrent_dropout`."""
        if not self.recurrent_dropout:
            return params
        layers = [dict(layer) for layer in params["stack"]]
        places = [(layer, name) for layer in layers for name in CELLS[self.cell].weights]
        for (layer, name), own_key in zip(places, jax.random.split(key, len(places)), strict=True):
            layer[name] = layer[name] * drop(own_key, layer[name].shape, self.recurrent_dropout)
        return {**params, "stack": layers}

    def open_document(self, params: Params, batch_size: int, length: int) -> Context:
        """The context before the first sentence, with room for `length` positions."""
        del params, batch_size, length
        return ()

    def widen_context(self, context: Context, length: int) -> Context:
        """The same context with room for at least `length` positions of a sentence."""
        del length
        return context

    def resize_context(self, context: Context, length: int) -> Context:
        """The same context with room for exactly `length` positions, which must hold all of it."""
        del length
        return context

    def condition(self, params: Params, context: Context) -> Conditioning:
        """What the context contributes to every token of the sentence, computed once."""
        del params, context
        return None

    def open_sentence(self, params: Params, context: Context, batch_size: int) -> State:
        """The recurrent state before the first token; reset to zero at every sentence."""
        del context
        like = params["stack"][0]["bias"][: self.hidden_dim]
        return stack.initial_state(self.cell, self.num_layers, batch_size, like)

    def context_gates(self, conditioning: Conditioning) -> jax.Array | None:
        """The context's part of the first layer's gates [B, G*H], the same for all tokens."""
        del conditioning
        return None

    def context_features(self, conditioning: Conditioning) -> jax.Array | None:
        """What of the context enters the output layer [B, E], the same for all tokens."""
        del conditioning
        return None

    def context_kernel(self, params: Params) -> jax.Array | None:
        """The matrix [E, V] that acts on `context_features`; None without them."""
        del params
        return None

    def read_token(
        self, params: Params, conditioning: Conditioning, state: State, x: TokenInputs
    ) -> tuple[State, Any]:
        """One step of the recurrence; the output is the top hidden state [B, H]."""
        gates_BxGH = self.input_gates(params, x)
        inputs = (gates_BxGH, x.layer_masks)
        return self.step(recurrence.affine, params, conditioning, state, inputs)

    def input_gates(self, params: Params, x: TokenInputs) -> jax.Array:
        """The token's part of the first layer's gates, bias included, [..., B, G*H]."""
        layer = params["stack"][0]
        return product(x.embedded, layer["input"]) + layer["bias"]

    def step(
        self,
        affine: Affine,
        params: Params,
        conditioning: Conditioning,
        state: State,
        inputs: tuple[jax.Array, tuple[jax.Array, ...]],
    ) -> tuple[State, Any]:
        """`read_token` from the input's gates [B, G*H] and the layers' dropout multipliers."""
        gates_BxGH, layer_masks = inputs
        context_gates_BxGH = self.context_gates(conditioning)
        if context_gates_BxGH is not None:
            gates_BxGH = gates_BxGH + context_gates_BxGH
        return stack.step_stack(affine, self.cell, params["stack"], state, gates_BxGH, layer_masks)

    def read_sentence(
        self,
        params: Params,
        conditioning: Conditioning,
        state: State,
        x_NxB: TokenInputs,
        mask_NxB: jax.Array,
    ) -> tuple[State, Any]:
        """`read_token` over the tokens of a sentence, in an equal form that is faster.

        Returns:
          The state after each row's last real token, and the outputs of all positions; those of
          padding are anything.
        """
        return stack.read_stack(
            self.cell,
            params["stack"],
            state,
            x_NxB.embedded,
            mask_NxB,
            x_NxB.layer_masks,
            self.context_gates(conditioning),
        )

    def scan_steps(
        self,
        params: Params,
        conditioning: Conditioning,
        state: State,
        x_NxB: TokenInputs,
        mask_NxB: jax.Array,
    ) -> tuple[State, Any]:
        """`read_sentence` of a model that has a `step` of its own: one step after the other."""
        inputs = (self.input_gates(params, x_NxB), x_NxB.layer_masks)
        return recurrence.scan(
            self._step_real,
            (self.recurrent_params(params), conditioning),
            state,
            (inputs, mask_NxB),
            stack.steps_to_take(mask_NxB),
        )

    def _step_real(self, affine: Affine, constants: Any, state: State, inputs: Any):
        (params, conditioning), (inputs, is_real_B) = constants, inputs
        new_state, output = self.step(affine, params, conditioning, state, inputs)
        return stack.keep_at_padding(is_real_B, new_state, state), output

    def recurrent_params(self, params: Params) -> Params:
        """The parameters that `step` reads: input products are made before the scan."""
        first, *others = params["stack"]
        first = {name: array for name, array in first.items() if name not in ("input", "bias")}
        return {"stack": [first, *others]}

    def emit(self, params: Params, conditioning: Conditioning, outputs: Any) -> jax.Array:
        """The features [N, B, D] that enter the output layer, from the outputs of a sentence."""
        del params, conditioning
        return outputs

    def close_sentence(
        self, params: Params, context: Context, state: State, sentence: Sentence
    ) -> Context:
        """The context for the next sentence; `state` is the state after the last token."""
        del params, state, sentence
        return context

    def auxiliary_nll(self, params: Params, context: Context, sentence: Sentence) -> jax.Array:
        """A further objective in nats, summed over the batch; `context` is the sentence's own."""
        del params, context, sentence
        return jnp.zeros(())

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array]:
        """The kernel [D, V] and bias [V] of the softmax (Eq. 2)."""
        return self._output_kernel(params), params["output"]["bias"]

    def _output_kernel(self, params: Params) -> jax.Array:
        """The matrix [H, V] that acts on hidden states."""
        if not self.tie_embeddings:
            return params["output"]["kernel"]
        kernel_HxV = params["embedding"].T
        if self.compute_dtype == "float32":
            return kernel_HxV
        return kernel_HxV.astype(self.compute_dtype)
