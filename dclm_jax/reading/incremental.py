"""Pure functions that read a sentence word by word, in B documents at once."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.data.vocabulary import END
from dclm_jax.models.base import Conditioning, Context, DocumentModel, Params, Sentence
from dclm_jax.nn import stack
from dclm_jax.nn.recurrence import keep_at_padding
from dclm_jax.nn.stack import StackState
from dclm_jax.reading.batch_elements import axes_of, first_context, row_axes
from dclm_jax.reading.driver import SentenceFeatures
from dclm_jax.reading.likelihoods import output_inputs


class SentencePrefix(NamedTuple):
    """The first `count` tokens of a sentence in each of B documents, read with `context` and its
    `conditioning`; `continues_B` is False where the sentence has ended. `steps` has the tokens,
    mask and outputs of R positions (R is the capacity)."""

    count: jax.Array
    continues_B: jax.Array
    context: Context
    conditioning: Conditioning
    state: StackState
    steps: Sentence


def begin(
    model: DocumentModel, params: Params, context: Context, rows: int, capacity: int
) -> SentencePrefix:
    """The state of a sentence before START."""
    conditioning = model.condition(params, context)
    state = model.open_sentence(params, context, rows)
    x_B, is_real_B = jnp.zeros(rows, jnp.int32), jnp.zeros(rows, bool)
    output = jax.eval_shape(lambda: _step(model, params, conditioning, state, x_B)[1])
    return SentencePrefix(
        count=jnp.zeros((), jnp.int32),
        continues_B=jnp.ones(rows, bool),
        context=context,
        conditioning=conditioning,
        state=state,
        steps=jax.tree.map(
            lambda a: jnp.zeros((capacity, *a.shape), a.dtype),
            Sentence(x_B, is_real_B, None, None, output),
        ),
    )


def advance(
    model: DocumentModel, params: Params, prefix: SentencePrefix, tokens_B: jax.Array
) -> tuple[SentencePrefix, jax.Array]:
    """Reads a token in every batch element, and returns log P [B, V] of the next token in nats.
    After END a batch element ignores further tokens."""
    is_real_B = prefix.continues_B & (tokens_B != END)
    conditioning = prefix.conditioning
    state, output = _step(model, params, conditioning, prefix.state, tokens_B)
    steps = jax.tree.map(
        lambda array_R, new: array_R.at[prefix.count].set(new),
        prefix.steps,
        Sentence(tokens_B, is_real_B, None, None, output),
    )
    prefix = prefix._replace(
        count=prefix.count + 1,
        continues_B=is_real_B,
        state=keep_at_padding(is_real_B[:, None], state, prefix.state),
        steps=steps,
    )
    # S = 1 sentence with N = 1 position.
    outputs_1xB = jax.tree.map(lambda array_B: array_B[None], output)
    features_1xBxD = model.emit(params, conditioning, outputs_1xB)
    context_features = None if conditioning.features is None else conditioning.features[None]
    pointer = jax.tree.map(
        lambda array: array[None], model.pointer(params, conditioning, outputs_1xB)
    )
    read = SentenceFeatures(None, None, features_1xBxD[None], context_features, pointer)
    return prefix, jax.nn.log_softmax(output_inputs(model, params, read, tokens_B).logits())


def _step(
    model: DocumentModel,
    params: Params,
    conditioning: Conditioning,
    state: StackState,
    tokens_B: jax.Array,
) -> tuple[StackState, Any]:
    x_BxK = model.embed(params, tokens_B)
    x = stack.stack_input(params["stack"], x_BxK, model.plan, conditioning.gates)
    return model.step(params, conditioning, state, x)


def close(model: DocumentModel, params: Params, prefix: SentencePrefix) -> Context:
    """The context after the sentence."""
    tokens, mask, *_ = prefix.steps
    summary = model.summarize(params, tokens, mask)
    context = model.resize_context(prefix.context, len(tokens))
    sentence = prefix.steps._replace(summary=summary, state=prefix.state)
    context = model.close_sentence(params, context, sentence)
    return model.resize_context(context, len(tokens), sentences=1)


def take(model: DocumentModel, params: Params, tree: Any, row_B: jax.Array) -> Any:
    """Batch elements of a context of the model or of a `SentencePrefix`, in any order and
    number."""

    def taken(axis: int, array: jax.Array) -> jax.Array:
        return array if axis < 0 else jnp.take(array, row_B, axis)

    if isinstance(tree, SentencePrefix):
        axes = axes_of(
            lambda rows: begin(model, params, first_context(model, params, rows), rows, 1)
        )
    else:
        axes = row_axes(model, params)
    return jax.tree.map(taken, axes, tree)


def take_ahead(
    model: DocumentModel, params: Params, prefix: SentencePrefix, row_B: jax.Array
) -> SentencePrefix:
    """Takes batch elements of all arrays that the next step reads. `steps` is unchanged, because
    moving it at every word would take more time than reading; `trace` moves it once, at the end."""
    ahead = prefix._replace(steps=jax.tree.map(lambda array: array[:0], prefix.steps))
    return take(model, params, ahead, row_B)._replace(steps=prefix.steps)


def trace(prefix: SentencePrefix, row_RxB: jax.Array) -> SentencePrefix:
    """Takes the step at each position from the batch element that computed it."""

    def traced(array_R: jax.Array) -> jax.Array:
        return array_R[jnp.arange(len(array_R))[:, None], row_RxB]

    return prefix._replace(steps=jax.tree.map(traced, prefix.steps))
