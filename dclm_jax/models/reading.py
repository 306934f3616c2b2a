"""The driver that reads documents with any model, and the likelihoods that come of it."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.data.batches import Batch
from dclm_jax.models.base import (
    Conditioning,
    Context,
    DocumentModel,
    DropoutMasks,
    Params,
    Sentence,
    State,
    TokenInputs,
)
from dclm_jax.nn.output import RowLogits, summed_nll, token_nll
from dclm_jax.nn.products import flat, product
from dclm_jax.nn.stack import keep_at_padding

UNROLLED_SENTENCES = 5
"""Sentences in one round of the loop over them, at most: what the backward pass needs of a sentence
is copied between rounds alone, while each sentence of a round is compiled anew."""


class Reading(NamedTuple):
    """What reading gives: the context after the last sentence, features [S, N, B, D], what of the
    contexts enters the output layer [S, B, E] (None without it), and the sum of the model's
    auxiliary loss (0 without one)."""

    context: Context
    features: jax.Array
    context_features: jax.Array | None
    auxiliary: jax.Array


def read_documents(
    model: DocumentModel,
    params: Params,
    context: Context,
    tokens_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    masks: DropoutMasks | None = None,
    *,
    nested: bool = False,
) -> Reading:
    """Reads S sentences of B documents from `context` on.

    The definition is a `lax.scan` over sentences with a `lax.scan` over tokens inside. Where no
    hidden state crosses sentences they are folded into the batch instead, with equal results.

    Args:
      tokens_SxNxB: input ids, START w1..wM, padded.
      mask_SxNxB: True at real positions, which come first in every sentence; a document that is
        shorter than S ends in sentences without any.
      masks: dropout multipliers, in training only.
      nested: take the definition even where a faster path exists.
    """
    length = tokens_SxNxB.shape[1]
    context = model.widen_context(context, length)
    # Sentences that are read at once could not be forgotten one by one.
    if nested or model.remat:
        read = partial(_read_nested, plain=nested)
    elif not model.states_read_context:
        read = _read_states_first
    elif not model.contexts_read_states:
        read = _read_contexts_first
    else:
        read = partial(_read_nested, plain=False)
    reading = read(model, params, context, tokens_SxNxB, mask_SxNxB, masks)
    return reading._replace(context=model.resize_context(reading.context, length))


def scan_tokens(
    model: DocumentModel,
    params: Params,
    conditioning: Conditioning,
    state: State,
    x_NxB: TokenInputs,
    mask_NxB: jax.Array,
) -> tuple[State, Any]:
    """The definition of `read_sentence`: `read_token` over the tokens of a sentence."""

    def step(state: State, inputs: tuple[TokenInputs, jax.Array]) -> tuple[State, Any]:
        x, is_real_B = inputs
        new_state, output = model.read_token(params, conditioning, state, x)
        return keep_at_padding(is_real_B, new_state, state), output

    return jax.lax.scan(step, state, (x_NxB, mask_NxB))


def _read_nested(
    model: DocumentModel,
    params: Params,
    context: Context,
    tokens_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    masks: DropoutMasks | None,
    *,
    plain: bool,
) -> Reading:
    batch_size = tokens_SxNxB.shape[2]
    x_SxNxB = model.project(params, tokens_SxNxB, masks)
    context_masks_S = None if masks is None else masks.contexts
    summaries_S = model.summarize(params, tokens_SxNxB, mask_SxNxB)
    read_sentence = partial(scan_tokens, model) if plain else model.read_sentence

    def read_one(context, inputs):
        tokens_NxB, mask_NxB, summary, x_NxB, context_mask = inputs
        conditioning = model.condition(params, _dropped(context, context_mask))
        state = model.open_sentence(params, context, batch_size)
        state, outputs = read_sentence(params, conditioning, state, x_NxB, mask_NxB)
        sentence = Sentence(tokens_NxB, mask_NxB, summary, outputs)
        features_NxBxD = model.emit(params, conditioning, outputs)
        auxiliary = model.auxiliary_nll(params, context, sentence)
        context = model.close_sentence(params, context, state, sentence)
        return context, (features_NxBxD, model.context_features(conditioning), auxiliary)

    unroll = 1
    if model.remat:
        read_one = jax.checkpoint(read_one)
    elif not plain:
        sizes = range(1, UNROLLED_SENTENCES + 1)
        unroll = max(size for size in sizes if len(tokens_SxNxB) % size == 0)
    context, (features, context_features, auxiliary) = jax.lax.scan(
        read_one,
        context,
        (tokens_SxNxB, mask_SxNxB, summaries_S, x_SxNxB, context_masks_S),
        unroll=unroll,
    )
    return Reading(context, features, context_features, jnp.sum(auxiliary))


def _read_states_first(
    model: DocumentModel,
    params: Params,
    context: Context,
    tokens_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    masks: DropoutMasks | None,
) -> Reading:
    """For hidden states that ignore the context: all sentences at once, then their contexts."""
    num_sentences, _, batch_size = tokens_SxNxB.shape
    rows = num_sentences * batch_size
    state = model.open_sentence(params, None, rows)
    masks_NxR = _fold(masks)
    x_NxR = model.project(params, _fold(tokens_SxNxB), masks_NxR)
    state, outputs = model.read_sentence(params, None, state, x_NxR, _fold(mask_SxNxB))
    state_SxB = jax.tree.map(lambda a: a.reshape(num_sentences, batch_size, *a.shape[1:]), state)

    context, contexts_S = _close_sentences(
        model,
        params,
        context,
        tokens_SxNxB,
        mask_SxNxB,
        state_SxB,
        _unfold(outputs, num_sentences),
    )
    contexts = _dropped(_rows(contexts_S), None if masks is None else masks_NxR.contexts)
    conditioning = model.condition(params, contexts)
    auxiliary = _auxiliary(model, params, contexts_S, tokens_SxNxB, mask_SxNxB)
    return _reading_of_rows(model, params, context, conditioning, outputs, auxiliary, num_sentences)


def _read_contexts_first(
    model: DocumentModel,
    params: Params,
    context: Context,
    tokens_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    masks: DropoutMasks | None,
) -> Reading:
    """For contexts that ignore the hidden states: all contexts, then all sentences at once."""
    num_sentences, _, batch_size = tokens_SxNxB.shape
    rows = num_sentences * batch_size

    context, contexts_S = _close_sentences(model, params, context, tokens_SxNxB, mask_SxNxB)
    contexts = _rows(contexts_S)
    conditioning = model.condition(params, contexts)
    state = model.open_sentence(params, contexts, rows)
    x_NxR = model.project(params, _fold(tokens_SxNxB), _fold(masks))
    _, outputs = model.read_sentence(params, conditioning, state, x_NxR, _fold(mask_SxNxB))
    auxiliary = _auxiliary(model, params, contexts_S, tokens_SxNxB, mask_SxNxB)
    return _reading_of_rows(model, params, context, conditioning, outputs, auxiliary, num_sentences)


def _reading_of_rows(
    model: DocumentModel,
    params: Params,
    context: Context,
    conditioning: Conditioning,
    outputs_NxR: Any,
    auxiliary: jax.Array,
    num_sentences: int,
) -> Reading:
    """The reading of sentences that were read at once."""
    features = _unfold(model.emit(params, conditioning, outputs_NxR), num_sentences)
    contexts = model.context_features(conditioning)
    if contexts is not None:
        contexts = contexts.reshape(num_sentences, -1, contexts.shape[-1])
    return Reading(context, features, contexts, auxiliary)


def _dropped(context: Context, mask_1xB: jax.Array | None) -> Context:
    """The context as it enters the conditioning of a sentence, in training."""
    return context if mask_1xB is None else context * mask_1xB[0]


def _close_sentences(
    model: DocumentModel,
    params: Params,
    context: Context,
    tokens_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    state_SxB: State = None,
    outputs_S: Any = None,
) -> tuple[Context, Context]:
    """The context after all sentences, and the context [S, ...] that each of them is read with."""
    summaries_S = model.summarize(params, tokens_SxNxB, mask_SxNxB)

    def close(context, inputs):
        state, *sentence = inputs
        return model.close_sentence(params, context, state, Sentence(*sentence)), context

    return jax.lax.scan(
        close, context, (state_SxB, tokens_SxNxB, mask_SxNxB, summaries_S, outputs_S)
    )


def _auxiliary(
    model: DocumentModel,
    params: Params,
    contexts_S: Context,
    tokens_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
) -> jax.Array:
    """The auxiliary loss, a sentence position at a time: it may be as wide as the vocabulary."""
    if not model.has_auxiliary_loss:
        return jnp.zeros(())

    @jax.checkpoint
    def one(inputs):
        context, tokens_NxB, mask_NxB = inputs
        sentence = Sentence(tokens_NxB, mask_NxB, summary=None, outputs=None)
        return model.auxiliary_nll(params, context, sentence)

    return jnp.sum(jax.lax.map(one, (contexts_S, tokens_SxNxB, mask_SxNxB)))


def _rows(tree_SxB):
    """[S, B, ...] -> [S*B, ...]."""
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree_SxB)


def _fold(tree_SxNxB):
    """[S, N, B, ...] -> [N, S*B, ...]."""
    return jax.tree.map(
        lambda a: jnp.swapaxes(a, 0, 1).reshape(a.shape[1], -1, *a.shape[3:]), tree_SxNxB
    )


def _unfold(tree_NxR, num_sentences: int):
    """[N, S*B, ...] -> [S, N, B, ...]."""
    return jax.tree.map(
        lambda a: jnp.swapaxes(a.reshape(a.shape[0], num_sentences, -1, *a.shape[2:]), 0, 1),
        tree_NxR,
    )


class Likelihood(NamedTuple):
    """Sums over a batch: nats of the targets, nats of the auxiliary loss, number of targets and of
    sentences."""

    nll: jax.Array
    auxiliary: jax.Array
    tokens: jax.Array
    sentences: jax.Array


def batch_likelihood(
    model: DocumentModel,
    params: Params,
    batch: Batch,
    keys_B: jax.Array | None = None,
    weights_key: jax.Array | None = None,
) -> Likelihood:
    """The likelihood of a batch of documents or segments, each read from its start.

    Args:
      batch: its `earlier` sentences, if any, give the first contexts and are not scored; they need
        a model whose contexts do not read hidden states.
      keys_B: one dropout key a row, in training; None scores without dropout.
      weights_key: the key of dropout on weights, in training.
    """
    if weights_key is not None:
        params = model.drop_weights(params, weights_key)
    params = model.compute_params(params)
    tokens, targets, mask = _time_major(batch)
    num_sentences, length, batch_size = tokens.shape
    masks = None if keys_B is None else model.dropout_masks(keys_B, (num_sentences, length))
    context = model.open_document(params, batch_size, length)
    if batch.earlier is not None:
        earlier_tokens, _, earlier_mask = _time_major(batch.earlier)
        context, _ = _close_sentences(model, params, context, earlier_tokens, earlier_mask)
    reading = read_documents(model, params, context, tokens, mask, masks)
    if masks is not None:
        reading = reading._replace(features=reading.features * masks.features)
    features, kernel, bias, shared = output_inputs(model, params, reading)
    nll: jax.Array = summed_nll(
        features, kernel, bias, targets.reshape(-1), mask.reshape(-1), shared
    )
    # Every sentence has a first position, START's.
    return Likelihood(nll, reading.auxiliary, jnp.sum(mask), jnp.sum(mask[:, 0]))


def block_nll(
    model: DocumentModel,
    params: Params,
    context: Context,
    batch: Batch,
    scored_BxS: jax.Array | None = None,
) -> tuple[Context, jax.Array]:
    """The nats of every target of some consecutive sentences, read from `context` on.

    Args:
      context: of the sentences before.
      scored_BxS: bool, the sentences to score; None for all. The others are read, but their
        positions do not enter the output layer.

    Returns:
      The context after them and the negative log-likelihoods [B, S, N], 0 at padding and in
      sentences that are not scored.
    """
    model = dataclasses.replace(model, remat=False)
    params = model.compute_params(params)
    tokens, targets, mask = _time_major(batch)
    reading = read_documents(model, params, context, tokens, mask)
    if scored_BxS is not None:
        mask &= scored_BxS.T[:, None, :]
    features, kernel, bias, shared = output_inputs(model, params, reading)
    nll_F = token_nll(features, kernel, bias, targets.reshape(-1), mask.reshape(-1), shared)
    return reading.context, jnp.moveaxis(nll_F.reshape(mask.shape), 2, 0)


MAX_SHARED_LOGITS = 2**24
"""Sentences times V up to which the contexts' part of their logits is made once for each."""


def output_inputs(
    model: DocumentModel, params: Params, reading: Reading
) -> tuple[jax.Array, jax.Array, jax.Array, RowLogits | None]:
    """Features of all positions [F, D], kernel [D, V], bias [V] and the contexts' part of logits.

    Of many sentences or words that part would be too large: then each token's features have its
    context as well, and the kernel acts on both.
    """
    kernel_DxV, bias_V = model.output_layer(params)
    features, contexts = reading.features, reading.context_features
    kernel_ExV = model.context_kernel(params)
    if contexts is None or kernel_ExV is None:
        return flat(features), kernel_DxV, bias_V, None
    sentences, length, rows, _ = features.shape
    if sentences * rows * model.vocab_size > MAX_SHARED_LOGITS:
        contexts = jnp.broadcast_to(contexts[:, None], (*features.shape[:3], contexts.shape[-1]))
        both = jnp.concatenate([features, contexts], axis=-1)
        return flat(both), jnp.concatenate([kernel_DxV, kernel_ExV]), bias_V, None
    row_Sx1xB = jnp.arange(sentences * rows).reshape(sentences, 1, rows)
    row_F = jnp.broadcast_to(row_Sx1xB, (sentences, length, rows)).reshape(-1)
    shared = RowLogits(product(flat(contexts), kernel_ExV), row_F)
    return flat(features), kernel_DxV, bias_V, shared


def _time_major(batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens, targets and mask as [S, N, B]."""
    arrays_BxSxN = (batch.tokens_BxSxN, batch.targets_BxSxN, batch.mask_BxSxN)
    tokens, targets, mask = (jnp.moveaxis(array, 0, 2) for array in arrays_BxSxN)
    return tokens, targets, mask
