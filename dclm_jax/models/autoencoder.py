"""Neural autoencoders of paragraphs and documents (Li, Luong and Jurafsky 2015, arXiv:1506.01057).

An encoder reads the source, and a decoder predicts the document word by word. As one sequence:

    h_t(enc) = LSTM_encode(e_t^w, h_{t-1}(enc)),  h_0(dec) = e_D, the encoder's last state
    h_t(dec) = LSTM_decode(e_t^w, h_{t-1}(dec)),  p(w_{t+1}) = softmax(W h_t(dec) + b)

or in a hierarchy of words and sentences, s in the source and t in the document:

    h_n^w(enc) = LSTM_encode^word(e_n^w, h_{n-1}^w(enc)),      e_s = h_{end_s}^w(enc)         (5)
    h_s^s(enc) = LSTM_encode^sentence(e_s, h_{s-1}^s(enc)),    e_D = h_{end_D}^s(enc)         (6)
    h_t^s(dec) = LSTM_decode^sentence(e_t^s, h_{t-1}^s(dec)),  h_0^s(dec) = e_D               (7)
    h_n^w(dec) = LSTM_decode^word(e_n^w, h_{n-1}^w(dec)),      h_0^w(dec) = h_t^s(dec)        (8)
    p(w_{n+1}) = softmax(W h_n^w(dec) + b), of the words of sentence t + 1                    (9)

Before each sentence and after the last sentence, a binary classifier of the decoder's state decides
whether the document has ended (section 3.3). Numbers of equations and sections are the paper's. The
paper leaves these choices open:

- The states e_D and h_0^w include all layers, with hidden states and memories.
- e_t^s represents a decoded sentence: the top hidden state of the word decoder after the last word,
  which predicts END. The word encoder reads END.
- Encoder and decoder share one table of word embeddings.
- The reversed input starts with the last sentence, and each sentence starts with its last word;
  END remains the last token of each sentence.
- Dropout acts on embeddings, between layers of words and on features, not on sentences.
- The paper has no biases. Here biases are trained; biases of forget gates start at 1, other biases
  at 0.
"""

import abc
import dataclasses
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax import files
from dclm_jax.data.vocabulary import END
from dclm_jax.errors import InputError
from dclm_jax.models.base import (
    Context,
    DocumentModel,
    Params,
    Sentence,
    Source,
    own_key,
)
from dclm_jax.nn import stack
from dclm_jax.nn.attention import Memory, attend, init_attention
from dclm_jax.nn.layers import fold, num_words, uniform_matrices
from dclm_jax.nn.stack import StackState


@dataclasses.dataclass(frozen=True)
class _Autoencoder(DocumentModel, abc.ABC):
    """The part that the three models share; `stack` is the decoder of words.

    Attributes:
      reverse: reversed order of the source: "words" in each sentence, "sentences", both
        ("documents"), or "none".
      initial_range: r of the uniform distribution on [-r, r] of initial matrices.
    """

    cell: str = "lstm_linear_output"
    reverse: Literal["documents", "words", "sentences", "none"] = "documents"
    initial_range: files.FinitePositive = 0.08

    auxiliary_objective = "ending"
    reads_source = True
    context_order = None
    states_read_context = True
    contexts_read_states = True

    def init(self, key: jax.Array) -> Params:
        ending = {"kernel": jnp.zeros((self.hidden_dim, 1)), "bias": jnp.zeros(1)}
        stacks_key, matrices_key = jax.random.split(own_key(key))
        params = super().init(key) | self._init_stacks(stacks_key) | {"ending": ending}
        return uniform_matrices(matrices_key, params, lambda inputs: self.initial_range)

    @abc.abstractmethod
    def _init_stacks(self, key: jax.Array) -> Params:
        """The parameters outside the decoder of words."""

    def decoder_state(self, context: Context) -> StackState:
        """The initial state of the decoder of words; e_D before the first sentence."""
        return context

    def open_sentence(self, params: Params, context: Context, rows: int) -> StackState:
        return self.decoder_state(context)

    def ending(self, params: Params, context: Context) -> jax.Array:
        h_BxH = stack.top_hidden(self.decoder_state(context))
        return (h_BxH @ params["ending"]["kernel"] + params["ending"]["bias"])[:, 0]

    def auxiliary_loss(
        self,
        params: Params,
        contexts: Context,
        last: Context,
        targets_SxNxB: jax.Array,
        mask_SxNxB: jax.Array,
    ) -> jax.Array:
        """The loss of the decisions that the document continues, before each sentence, and that it
        has ended, after the last sentence. Batch elements without a sentence are padding."""
        before_SB, after_B = self.ending(params, contexts), self.ending(params, last)
        exists_SxB = mask_SxNxB[:, 0]
        continues_RxB = jnp.pad(exists_SxB, [(0, 1), (0, 0)])
        ends_RxB = jnp.pad(exists_SxB, [(1, 0), (0, 0)]) & ~continues_RxB
        log_odds_RxB = jnp.concatenate([before_SB, after_B]).reshape(ends_RxB.shape)
        nll_RxB = jax.nn.softplus(jnp.where(ends_RxB, -log_odds_RxB, log_odds_RxB))
        return jnp.sum(jnp.where(continues_RxB | ends_RxB, nll_RxB, 0))

    def vector(self, params: Params, context: Context) -> jax.Array:
        """The top hidden state; e_D before the first sentence."""
        return stack.top_hidden(self.decoder_state(context))

    def _encode_words(self, params: Params, name: str, words: Source) -> StackState:
        """The state of the stack `name` after words in reading order [N, R], from a zero state."""
        x_NxRxK = self.embed(params, words.tokens_SxNxB)
        for multipliers in words.dropout[:1]:
            x_NxRxK = x_NxRxK * multipliers
        return self._encode(params[name], x_NxRxK, words.mask_SxNxB, words.dropout[1:])[0]

    def _encode(
        self,
        layers: list[Params],
        x_NxRxX: jax.Array,
        mask_NxR: jax.Array,
        dropout: tuple[jax.Array, ...] = (),
    ) -> tuple[StackState, jax.Array]:
        """The last state, and the top hidden states of all positions [N, R, H]."""
        like = layers[0]["bias"][: self.hidden_dim]
        zero = stack.initial_state(self.cell, self.num_layers, mask_NxR.shape[1], like)
        x_NxR = stack.stack_input(layers, x_NxRxX, self.plan, dropout=dropout)
        return stack.read_stack(self.cell, layers, zero, x_NxR, mask_NxR, self.plan)


class StandardAutoencoder(_Autoencoder):
    """Input and output are one sequence of tokens each (Li et al. 2015, section 3.2).

    As in `drnnlm`, the decoder's state crosses sentences, and each sentence reads START and
    predicts END. The end of the document is decided between sentences.
    """

    name = "standard_autoencoder"

    def _init_stacks(self, key: jax.Array) -> Params:
        K, H = self.embedding_dim, self.hidden_dim
        return {"encoder": stack.init_stack(key, self.cell, self.num_layers, K, H)}

    def open_document(self, params: Params, rows: int, source: Source | None = None) -> StackState:
        words = in_reading_order(required_source(self, source), self.reverse)
        return self._encode_words(params, "encoder", joined_sentences(words))

    def close_sentence(self, params: Params, context: StackState, sentence: Sentence) -> StackState:
        return sentence.state


class HierarchicalAutoencoder(_Autoencoder):
    """Encoder and decoder each have a level of words and a level of sentences (Li et al. 2015)."""

    name = "hierarchical_autoencoder"

    def _init_stacks(self, key: jax.Array) -> Params:
        K, H = self.embedding_dim, self.hidden_dim
        words_key, sentences_key, decoder_key = jax.random.split(key, 3)
        init = partial(stack.init_stack, cell=self.cell, num_layers=self.num_layers, hidden_dim=H)
        return {
            "word_encoder": init(words_key, input_dim=K),
            "sentence_encoder": init(sentences_key, input_dim=H),
            "sentence_decoder": init(decoder_key, input_dim=H, context_dim=self._memory_dim),
        }

    @property
    def _memory_dim(self) -> int:
        """Width of the further input, besides e_t^s, of the decoder of sentences; 0 for none."""
        return 0

    def open_document(self, params: Params, rows: int, source: Source | None = None) -> Context:
        return self._encode_document(params, required_source(self, source))[0]

    def _encode_document(
        self, params: Params, source: Source
    ) -> tuple[StackState, jax.Array, jax.Array]:
        """e_D, the states h_s^s of the sentences [S, B, H], and whether they exist [S, B]."""
        words = in_reading_order(source, self.reverse)
        sentences, _, rows = words.tokens_SxNxB.shape
        # All sentences are read at once, as R = S * B batch elements.
        tokens_NxR, mask_NxR, dropout_NxR = fold((*words[:2], words.dropout))
        words_NxR = Source(tokens_NxR, mask_NxR, dropout_NxR)
        e_RxH = stack.top_hidden(self._encode_words(params, "word_encoder", words_NxR))
        e_SxBxH, exists_SxB = e_RxH.reshape(sentences, rows, -1), words.mask_SxNxB[:, 0]
        layers = params["sentence_encoder"]
        e_D, h_SxBxH = self._encode(layers, e_SxBxH, exists_SxB)
        return e_D, h_SxBxH, exists_SxB

    def close_sentence(self, params: Params, context: Context, sentence: Sentence) -> Context:
        return self._decode_sentence(params, context, stack.top_hidden(sentence.state), None)

    def _decode_sentence(
        self, params: Params, before: StackState, e_BxH: jax.Array, gates_BxGH: jax.Array | None
    ) -> StackState:
        """A step of the decoder of sentences (Eq. 7), with optional further gates."""
        layers = params["sentence_decoder"]
        e = stack.stack_input(layers, e_BxH, self.plan, gates_BxGH)
        return stack.step_stack(self.cell, layers, before, e, self.plan)[0]


class Remembering(NamedTuple):
    """The state of the decoder of sentences, and a memory of the sentences of the source."""

    state: StackState
    memory: Memory


class HierarchicalAttentionAutoencoder(HierarchicalAutoencoder):
    """The decoder of sentences also attends to the source (Li et al. 2015, section 3.4).

    v_i = U . tanh(W_1 h_{t-1}^s(dec) + W_2 h_i^s(enc)),  a = softmax(v)                 (10), (11)
    m_t = sum_i a_i h_i^s(enc),  h_t^s(dec) = LSTM([e_t^s, m_t], h_{t-1}^s(dec))         (12)-(15)
    """

    name = "hierarchical_attention_autoencoder"

    def _init_stacks(self, key: jax.Array) -> Params:
        H = self.hidden_dim
        stacks_key, attention_key = jax.random.split(key)
        return super()._init_stacks(stacks_key) | {
            "attention": init_attention(attention_key, H, H, H)
        }

    @property
    def _memory_dim(self) -> int:
        return self.hidden_dim

    def open_document(self, params: Params, rows: int, source: Source | None = None) -> Remembering:
        e_D, h_SxBxH, exists_SxB = self._encode_document(params, required_source(self, source))
        # A batch element without a source attends to position 0, which avoids a division by zero.
        memory = Memory(h_SxBxH, h_SxBxH @ params["attention"]["key"], exists_SxB.at[0].set(True))
        return Remembering(e_D, memory)

    def decoder_state(self, context: Remembering) -> StackState:
        return context.state

    def close_sentence(
        self, params: Params, context: Remembering, sentence: Sentence
    ) -> Remembering:
        m_BxH = attend(
            params["attention"], stack.top_hidden(context.state), context.memory, self.plan
        )
        gates_BxGH = m_BxH @ params["sentence_decoder"][0]["context"]
        e_BxH = stack.top_hidden(sentence.state)
        return context._replace(
            state=self._decode_sentence(params, context.state, e_BxH, gates_BxGH)
        )


def required_source(model: DocumentModel, source: Source | None) -> Source:
    """The source, which must not be missing."""
    if source is None:
        raise InputError(f"{model.name} reads a source; pass a source")
    return source


def in_reading_order(source: Source, reverse: str) -> Source:
    """The source with w1..wM END instead of START w1..wM, reversed as `reverse` says; multipliers
    of dropout are not moved."""
    tokens, mask = source.tokens_SxNxB, source.mask_SxNxB
    # A position has a word if an input follows it.
    is_word = jnp.pad(mask[:, 1:], [(0, 0), (0, 1), (0, 0)])
    tokens = jnp.where(is_word, jnp.roll(tokens, -1, axis=1), END)
    if reverse in ("documents", "words"):
        tokens = _reversed(tokens, num_words(mask)[:, None], axis=1)
    if reverse in ("documents", "sentences"):
        sentences_B = jnp.sum(mask[:, 0], axis=0, dtype=jnp.int32)
        tokens, mask = (_reversed(array, sentences_B, axis=0) for array in (tokens, mask))
    return source._replace(tokens_SxNxB=tokens, mask_SxNxB=mask)


def _reversed(array: jax.Array, count: jax.Array, axis: int) -> jax.Array:
    """The array with its first `count` entries along an axis reversed."""
    index = jax.lax.broadcasted_iota(jnp.int32, array.shape, axis)
    index = jnp.where(index < count, count - 1 - index, index)
    return jnp.take_along_axis(array, index, axis)


def joined_sentences(words: Source) -> Source:
    """Each document as one sequence [S*N, B], with all padding at its end."""
    arrays = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), (words[:2], words.dropout))
    order = jnp.argsort(~arrays[0][1], axis=0, stable=True)

    def moved(array: jax.Array) -> jax.Array:
        index = order.reshape(*order.shape, *(1,) * (array.ndim - 2))
        return jnp.take_along_axis(array, index, axis=0)

    (tokens, mask), dropout = jax.tree.map(moved, arrays)
    return Source(tokens, mask, dropout)
