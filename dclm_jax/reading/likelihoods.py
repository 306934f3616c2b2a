"""The likelihoods of sentences that are read: of training batches, and of each target."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.data.batches import Batch
from dclm_jax.models.base import Conditioning, Context, DocumentModel, Params
from dclm_jax.nn.backend import Tuning
from dclm_jax.nn.layers import Weight, flat, product, rounded_product
from dclm_jax.nn.softmax import RowLogits, SharedLogits, summed_nll, token_nll
from dclm_jax.reading.driver import Reading, context_after, read_documents, weighted
from dclm_jax.reading.dropout import draw_masks, drop_weights


class Likelihood(NamedTuple):
    """Sums over a batch: nats of the targets (of bags: of each sentence the mean over its words),
    nats of the extra objective, number of targets and of sentences; and of how many terms `nll` is
    the sum: targets, or sentences with words."""

    nll: jax.Array
    extra: jax.Array
    tokens: jax.Array
    sentences: jax.Array
    terms: jax.Array


def earlier_sentences(model: DocumentModel) -> int:
    """Sentences that training reads before a segment to have its first contexts whole: n, of a
    model whose contexts are made of the words of the last n sentences, otherwise 0."""
    return 0 if model.contexts_read_states else model.context_order or 0


def batch_likelihood(
    model: DocumentModel,
    params: Params,
    batch: Batch,
    tuning: Tuning,
    keys_B: jax.Array | None = None,
    weights_key: jax.Array | None = None,
) -> Likelihood:
    """The likelihood of a batch of documents or segments, each read from its start.

    Args:
      batch: its `earlier` sentences, if any, give the first contexts and are not scored; they need
        a model whose contexts do not read hidden states.
      tuning: how it is computed.
      keys_B: one dropout key a row, in training; None scores without dropout.
      weights_key: the key of dropout on weights, in training.
    """
    if weights_key is not None:
        params = drop_weights(model, params, weights_key)
    params = weighted(model, params)
    tokens, targets, mask = _time_major(batch)
    num_sentences, length, rows = tokens.shape
    # A sentence of a bag has one position.
    drawn_SxN = (num_sentences, 1 if model.objective == "bags" else length)
    masks = None if keys_B is None else draw_masks(model, params, keys_B, drawn_SxN)
    context = model.open_document(params, rows)
    if batch.earlier is not None:
        earlier_tokens, _, earlier_mask = _time_major(batch.earlier)
        context = context_after(model, params, context, earlier_tokens, earlier_mask)
    reading = read_documents(model, params, context, tokens, mask, masks, tuning)
    if masks is not None:
        reading = reading._replace(features=reading.features * masks.features)
    features, kernel, bias, shared = output_inputs(model, params, reading, tuning)
    targets, is_target = predicted(model, targets, mask)
    weights = is_target.astype(bias.dtype)
    if model.objective == "bags":
        # Eq. 9 of Lin et al. (2015).
        weights /= jnp.maximum(jnp.sum(is_target, axis=1, keepdims=True), 1)
    nll: jax.Array = summed_nll(features, kernel, bias, targets, weights, shared, tuning)
    # Every sentence has a first position, START's.
    sentences, terms = jnp.sum(mask[:, 0]), jnp.round(jnp.sum(weights))
    return Likelihood(nll, reading.extra, jnp.sum(is_target), sentences, terms)


def block_nll(
    model: DocumentModel,
    tuning: Tuning,
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
      The context after them and the negative log-likelihoods [B, S, N], 0 at padding, in sentences
      that are not scored and, of bags, at END.
    """
    model = dataclasses.replace(model, remat=False)
    params = weighted(model, params)
    tokens, targets, mask = _time_major(batch)
    reading = read_documents(model, params, context, tokens, mask, None, tuning)
    if scored_BxS is not None:
        mask &= scored_BxS.T[:, None, :]
    features, kernel, bias, shared = output_inputs(model, params, reading, tuning)
    targets, is_target = predicted(model, targets, mask)
    nll = token_nll(features, kernel, bias, targets, is_target, shared, tuning)
    if model.objective == "bags":
        num_sentences, length, rows = mask.shape
        nll_SxBxN = nll.reshape(num_sentences, rows, length)
        return reading.context, jnp.swapaxes(nll_SxBxN, 0, 1)
    return reading.context, jnp.moveaxis(nll.reshape(mask.shape), 2, 0)


def predicted(
    model: DocumentModel, targets_SxNxB: jax.Array, mask_SxNxB: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The targets of each position of the features and which there are: [F] of words; of bags
    [S*B, N], the words of a sentence without END."""
    if model.objective == "words":
        return targets_SxNxB.reshape(-1), mask_SxNxB.reshape(-1)
    # A position is a word's where an input follows it.
    is_word = jnp.pad(mask_SxNxB[:, 1:], [(0, 0), (0, 1), (0, 0)]) & mask_SxNxB
    length = targets_SxNxB.shape[1]
    targets, is_word = (
        jnp.swapaxes(array, 1, 2).reshape(-1, length) for array in (targets_SxNxB, is_word)
    )
    return targets, is_word


def word_log_probs(
    model: DocumentModel,
    params: Params,
    conditioning: Conditioning,
    tokens_B: jax.Array,
    output: Any,
    tuning: Tuning,
) -> jax.Array:
    """log P [B, V] in nats of the next word, after a step that read these tokens and gave this
    output.

    Args:
      params: of `weighted`.
    """
    features_1xBxD = model.emit(params, conditioning, jax.tree.map(lambda one: one[None], output))
    of_context = conditioning.features
    reading = Reading(
        context=None,
        features=features_1xBxD[None],
        context_features=None if of_context is None else of_context[None],
        extra=jnp.zeros(()),
        histories=tokens_B[:, None],
    )
    features, kernel, bias, shared = output_inputs(model, params, reading, tuning)
    logits_BxV = rounded_product(features, kernel, kernel.dtype) + bias
    if shared is not None:
        logits_BxV += shared.of(jnp.arange(len(tokens_B)), model.vocab_size)
    return jax.nn.log_softmax(logits_BxV)


def output_inputs(
    model: DocumentModel, params: Params, reading: Reading, tuning: Tuning
) -> tuple[jax.Array, jax.Array, jax.Array, SharedLogits | None]:
    """Features of all positions [F, D], kernel [D, V], bias [V] and the contexts' part of logits,
    or that of hashed features; no model has both.

    Of many sentences or words that part would be too large: then each token's features have its
    context as well, and the kernel acts on both.
    """
    output = model.output_layer(params)
    kernel_DxV, kernel_ExV = (
        _rounded(model, one) for one in (output.kernel, output.context_kernel)
    )
    features, contexts = reading.features, reading.context_features
    if contexts is None:
        bigrams = output.bigrams
        shared = None if bigrams is None else bigrams.logits(reading.histories)
        return flat(features), kernel_DxV, output.bias, shared
    sentences, length, rows, _ = features.shape
    if sentences * rows * model.vocab_size > tuning.shared_logits:
        contexts = jnp.broadcast_to(contexts[:, None], (*features.shape[:3], contexts.shape[-1]))
        both = jnp.concatenate([features, contexts], axis=-1)
        return flat(both), jnp.concatenate([kernel_DxV, kernel_ExV]), output.bias, None
    row_Sx1xB = jnp.arange(sentences * rows).reshape(sentences, 1, rows)
    row_F = jnp.broadcast_to(row_Sx1xB, (sentences, length, rows)).reshape(-1)
    shared = RowLogits(product(flat(contexts), kernel_ExV), row_F)
    return flat(features), kernel_DxV, output.bias, shared


def _rounded(model: DocumentModel, kernel: Weight | jax.Array | None) -> Any:
    """A kernel as an array; tied embeddings are a table, and rounded only here."""
    array = kernel.array if isinstance(kernel, Weight) else kernel
    if array is None or model.compute_dtype == "float32":
        return array
    return array.astype(model.compute_dtype)


def _time_major(batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens, targets and mask as [S, N, B]."""
    arrays_BxSxN = (batch.tokens_BxSxN, batch.targets_BxSxN, batch.mask_BxSxN)
    tokens, targets, mask = (jnp.moveaxis(array, 0, 2) for array in arrays_BxSxN)
    return tokens, targets, mask
