"""The driver that reads documents with any model: scans over sentences and over tokens.

`models/base.py` defines the values by a loop over sentences, and in each sentence a loop over
tokens. The driver computes the same values faster.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.models.base import Conditioning, Context, DocumentModel, Params, Pointer, Sentence
from dclm_jax.nn import recurrence, stack
from dclm_jax.nn.layers import fold, unfold
from dclm_jax.nn.stack import StackInput, StackState
from dclm_jax.reading.batch_elements import row_axes
from dclm_jax.reading.dropout import DropoutMasks

Emit = Callable[[Params, Conditioning, Any], jax.Array]


class SentenceFeatures(NamedTuple):
    """The result of reading S sentences of B documents.

    Attributes:
      context: the context after the last sentence.
      contexts: the contexts with which the S*B sentences were read, as one context of S*B batch
        elements.
      features: [S, N, B, D]; None for a model of bags of words.
      context_features: [S, B, E], the part of contexts that enters the output layer, if any.
      pointer: the pointer of each sentence, with the leading axis S, if the model copies words.
    """

    context: Context
    contexts: Context
    features: Any
    context_features: jax.Array | None
    pointer: Pointer | None = None


def cast_params(model: DocumentModel, params: Params) -> Params:
    """The parameters in the form that computations use: matrices as `Weight`s of `compute_dtype`.
    `batch_likelihood`, `NeuralScorer`, `Reader` and dynamic evaluation call this function.

    Tables keep their type: they are not factors of products, and a short type is not precise enough
    for the gradient of a frequent word, which is a sum of many terms.
    """

    def computed(leaf: jax.Array) -> Any:
        return model.weight(leaf) if leaf.ndim == 2 else leaf

    return {
        name: value if name in model.tables else jax.tree.map(computed, value)
        for name, value in params.items()
    }


def read_sentences(
    model: DocumentModel,
    params: Params,
    context: Context,
    tokens_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    masks: DropoutMasks | None = None,
    emit: Emit | None = None,
) -> SentenceFeatures:
    """Reads S sentences of B documents after `context`.

    Args:
      params: the result of `cast_params`.
      tokens_SxNxB: input ids, START w1..wM, padded.
      mask_SxNxB: True at real positions, which come first in every sentence. A document of fewer
        than S sentences ends in sentences without real positions.
      masks: dropout multipliers, in training only. The caller computes and multiplies features of
        bags of words.
      emit: the method that makes the features of a sentence, by default `model.emit`.
    """
    emit = emit or model.emit
    num_sentences, length, rows = tokens_SxNxB.shape
    context = model.resize_context(context, length)

    def read_sentence(context: Context, inputs: Any) -> tuple[Context, Any]:
        tokens_NxB, mask_NxB, summary, x_NxBxK, masks_N = inputs
        conditioning = model.condition(params, context)
        state = model.open_sentence(params, context, rows)
        dropout_NxB = () if masks_N is None else masks_N.layers
        state, outputs = _read_tokens(
            model, params, conditioning, state, x_NxBxK, dropout_NxB, mask_NxB
        )
        sentence = Sentence(tokens_NxB, mask_NxB, summary, state, outputs)
        features_NxBxD = emit(params, conditioning, outputs)
        pointer = model.pointer(params, conditioning, outputs)
        closed = model.close_sentence(params, context, sentence)
        return closed, (context, features_NxBxD, conditioning.features, pointer)

    if model.objective == "bags":
        context, contexts_S = close_sentences(model, params, context, tokens_SxNxB, mask_SxNxB)
        result = SentenceFeatures(context, contexts_S, None, None)
    elif model.remat or (model.states_read_context and model.contexts_read_states):
        context, results = jax.lax.scan(
            jax.checkpoint(read_sentence) if model.remat else read_sentence,
            context,
            (
                tokens_SxNxB,
                mask_SxNxB,
                model.summarize(params, tokens_SxNxB, mask_SxNxB),
                _embedded(model, params, tokens_SxNxB, masks),
                masks,
            ),
            unroll=1 if model.remat else model.plan.round_of(num_sentences),
        )
        result = SentenceFeatures(context, *results)
    else:
        result = _read_at_once(model, params, context, tokens_SxNxB, mask_SxNxB, masks, emit)
    if masks is not None and model.objective == "words":
        result = result._replace(features=result.features * masks.features)
        if (contexts := result.context_features) is not None and masks.contexts is not None:
            result = result._replace(context_features=contexts * masks.contexts[:, 0])
    return result._replace(
        context=model.resize_context(result.context, length, sentences=num_sentences),
        contexts=jax.tree.map(_folded, row_axes(model, params), result.contexts),
    )


def _folded(axis: int, array_S: jax.Array) -> jax.Array:
    """[S, ..., B, ...] with B at `axis` + 1 -> [..., S*B, ...] with S*B at `axis`."""
    array = jnp.moveaxis(array_S, 0, axis)
    return array.reshape(*array.shape[:axis], -1, *array.shape[axis + 2 :])


def _read_at_once(
    model: DocumentModel,
    params: Params,
    context: Context,
    tokens_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    masks: DropoutMasks | None,
    emit: Emit,
) -> SentenceFeatures:
    """Reads all sentences at once, as R = S * B batch elements. If hidden states read contexts, the
    contexts are computed first, otherwise afterwards."""
    num_sentences, _, batch_size = tokens_SxNxB.shape
    rows = num_sentences * batch_size
    masks_NxR: DropoutMasks | None = fold(masks)
    x_NxRxK = _embedded(model, params, fold(tokens_SxNxB), masks_NxR)
    dropout_NxR = () if masks_NxR is None else masks_NxR.layers

    def read(conditioning: Conditioning, contexts: Context) -> tuple[StackState, Any]:
        state = model.open_sentence(params, contexts, rows)
        return _read_tokens(
            model, params, conditioning, state, x_NxRxK, dropout_NxR, fold(mask_SxNxB)
        )

    state_SxB = outputs_S = None
    outputs_NxR: Any = None
    if not model.states_read_context:
        state, outputs_NxR = read(Conditioning(), None)
        state_SxB = jax.tree.map(lambda a: a.reshape(num_sentences, -1, *a.shape[1:]), state)
        outputs_S = unfold(outputs_NxR, num_sentences)
    context, contexts_S = close_sentences(
        model, params, context, tokens_SxNxB, mask_SxNxB, state_SxB, outputs_S
    )
    contexts = jax.tree.map(lambda a: a.reshape(rows, *a.shape[2:]), contexts_S)
    conditioning = model.condition(params, contexts)
    if model.states_read_context:
        _, outputs_NxR = read(conditioning, contexts)
    features = unfold(emit(params, conditioning, outputs_NxR), num_sentences)
    context_features = conditioning.features
    if context_features is not None:
        context_features = context_features.reshape(num_sentences, batch_size, -1)
    return SentenceFeatures(context, contexts_S, features, context_features)


def _read_tokens(
    model: DocumentModel,
    params: Params,
    conditioning: Conditioning,
    state: StackState,
    x_NxBxK: jax.Array,
    dropout_NxB: tuple[jax.Array, ...],
    mask_NxB: jax.Array,
) -> tuple[StackState, Any]:
    """The state after the last real token of each batch element, and the outputs of all positions
    (undefined at padding). If the model does not override `step`, layer after layer reads the
    sentence."""
    layers = params["stack"]
    x_NxB = stack.stack_input(layers, x_NxBxK, model.plan, conditioning.gates, dropout_NxB)
    if type(model).step is DocumentModel.step:
        return stack.read_stack(model.cell, layers, state, x_NxB, mask_NxB, model.plan)

    def step(constants: Any, state: StackState, x: StackInput) -> tuple[StackState, Any]:
        params, conditioning = constants
        return model.step(params, conditioning, state, x)

    constants = recurrence.without_unread(step, (params, conditioning), state, x_NxB)
    return recurrence.scan(step, model.plan, constants, state, x_NxB, mask_NxB)


def _embedded(
    model: DocumentModel, params: Params, tokens: jax.Array, masks: DropoutMasks | None
) -> jax.Array:
    x = model.embed(params, tokens)
    return x if masks is None else x * masks.embeddings


def close_sentences(
    model: DocumentModel,
    params: Params,
    context: Context,
    tokens_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    state_SxB: StackState | None = None,
    outputs_S: Any = None,
) -> tuple[Context, Context]:
    """The context after all sentences, and the contexts [S, ...] before each sentence. States and
    outputs may be None for a model whose contexts do not read hidden states."""
    summaries_S = model.summarize(params, tokens_SxNxB, mask_SxNxB)

    def close(context: Context, sentence: Sentence) -> tuple[Context, Context]:
        return model.close_sentence(params, context, sentence), context

    sentences_S = Sentence(tokens_SxNxB, mask_SxNxB, summaries_S, state_SxB, outputs_S)
    return jax.lax.scan(close, context, sentences_S)
