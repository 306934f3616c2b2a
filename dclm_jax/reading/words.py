"""A sentence that is read word by word, in B documents at once: pure functions to be compiled."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.data.vocabulary import END
from dclm_jax.models.base import Conditioning, Context, DocumentModel, Params, Sentence
from dclm_jax.nn import stack
from dclm_jax.nn.layers import resized
from dclm_jax.nn.recurrence import keep_at_padding
from dclm_jax.nn.stack import StackInput, StackState
from dclm_jax.reading.likelihoods import word_log_probs
from dclm_jax.reading.rows import axes_of, first_context, row_axes


class Read(NamedTuple):
    """What has been read at each position, with room for R of them: the input token, whether it is
    real, and the output of the step."""

    tokens_RxB: jax.Array
    mask_RxB: jax.Array
    outputs_R: Any


class Words(NamedTuple):
    """A sentence as far as it has been read, `count` words, and whether it goes on; `context` and
    `conditioning` are those it is read with."""

    count: jax.Array
    goes_on_B: jax.Array
    context: Context
    conditioning: Conditioning
    state: StackState
    read: Read


def begin(model: DocumentModel, params: Params, context: Context, rows: int, room: int) -> Words:
    """A sentence of which nothing has been read, START neither; params are `weighted` here and
    below."""
    conditioning = model.condition(params, context)
    state = model.open_sentence(params, context, rows)
    x_B, is_real_B = jnp.zeros(rows, jnp.int32), jnp.zeros(rows, bool)
    output = jax.eval_shape(lambda: _step(model, params, conditioning, state, x_B)[1])
    return Words(
        count=jnp.zeros((), jnp.int32),
        goes_on_B=jnp.ones(rows, bool),
        context=context,
        conditioning=conditioning,
        state=state,
        read=jax.tree.map(
            lambda a: jnp.zeros((room, *a.shape), a.dtype), Read(x_B, is_real_B, output)
        ),
    )


def advance(
    model: DocumentModel, params: Params, words: Words, tokens_B: jax.Array
) -> tuple[Words, jax.Array]:
    """Reads a token in every row, and gives log P [B, V] of the next one in nats; END ends a row's
    sentence, and what is read after it changes nothing there."""
    is_real_B = words.goes_on_B & (tokens_B != END)
    state, output = _step(model, params, words.conditioning, words.state, tokens_B)

    def put(all_R: jax.Array, one: jax.Array) -> jax.Array:
        return all_R.at[words.count].set(one)

    words = words._replace(
        count=words.count + 1,
        goes_on_B=is_real_B,
        state=keep_at_padding(is_real_B, state, words.state),
        read=jax.tree.map(put, words.read, Read(tokens_B, is_real_B, output)),
    )
    return words, word_log_probs(model, params, words.conditioning, tokens_B, output)


def _step(
    model: DocumentModel,
    params: Params,
    conditioning: Conditioning,
    state: StackState,
    tokens_B: jax.Array,
) -> tuple[StackState, Any]:
    x_BxK = model.embed(params, tokens_B)
    x = StackInput(stack.first_gates(params["stack"], x_BxK, conditioning.gates))
    return model.step(params, conditioning, state, x)


def close(model: DocumentModel, params: Params, words: Words) -> Context:
    """The context after the sentence."""
    tokens, mask, outputs = words.read
    summary = model.summarize(params, tokens, mask)
    context = model.resize_context(words.context, len(tokens))
    sentence = Sentence(tokens, mask, summary, outputs)
    context = model.close_sentence(params, context, words.state, sentence)
    return model.resize_context(context, len(tokens), cut=True)


def with_room(words: Words, room: int) -> Words:
    """The same words with room for more."""
    return words._replace(read=jax.tree.map(lambda array_R: resized(array_R, room), words.read))


def take(model: DocumentModel, params: Params, tree: Any, row_B: jax.Array) -> Any:
    """Some rows of a context of the model, or of `Words`, in any order and number."""

    def taken(axis: int, array: jax.Array) -> jax.Array:
        return array if axis < 0 else jnp.take(array, row_B, axis)

    if isinstance(tree, Words):
        axes = axes_of(
            lambda rows: begin(model, params, first_context(model, params, rows), rows, 1)
        )
    else:
        axes = row_axes(model, params)
    return jax.tree.map(taken, axes, tree)


def take_ahead(model: DocumentModel, params: Params, words: Words, row_B: jax.Array) -> Words:
    """Takes the rows of what is needed to read on. What has been read stays in its rows, where
    moving it word by word would cost more than reading; `trace` brings it along in the end."""
    ahead = words._replace(read=jax.tree.map(lambda array: array[:0], words.read))
    return take(model, params, ahead, row_B)._replace(read=words.read)


def trace(words: Words, row_RxB: jax.Array) -> Words:
    """Takes what has been read at each position from the rows in which it was read."""

    def traced(array_R: jax.Array) -> jax.Array:
        return array_R[jnp.arange(len(array_R))[:, None], row_RxB]

    return words._replace(read=jax.tree.map(traced, words.read))
