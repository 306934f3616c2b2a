"""The likelihoods of sentences that are read: of training batches, and of each target."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.data.batches import Batch
from dclm_jax.models.base import Bags, Conditioning, Context, DocumentModel, Params, Source
from dclm_jax.nn.layers import Weight, flat, product, rounded_product
from dclm_jax.nn.softmax import RowLogits, SharedLogits, summed_nll, token_nll
from dclm_jax.reading.driver import Reading, context_after, read_documents, weighted
from dclm_jax.reading.dropout import DropoutMasks, draw_masks, draw_source_masks, drop_weights
from dclm_jax.reading.rows import select


class Likelihood(NamedTuple):
    """Sums over a batch: nats of the targets (of bags: of each sentence the mean over its words),
    nats of further objectives (`bags`, and the decisions whether documents end), number of targets
    and of sentences; and of how many terms `nll` is the sum: targets, or sentences with words."""

    nll: jax.Array
    extra: jax.Array
    tokens: jax.Array
    sentences: jax.Array
    terms: jax.Array


def earlier_sentences(model: DocumentModel, carried: int = 0) -> int:
    """Sentences that training reads before a segment to have its first contexts.

    Of a model whose contexts are made of the words of the last n sentences they are n, so that the
    contexts are whole. Of others they are none, or of the segment before, which has `carried`
    sentences, those that a context depends on.
    """
    if _contexts_are_words(model):
        return model.context_order or 0
    return carried if model.context_order is None else min(carried, model.context_order)


def _contexts_are_words(model: DocumentModel) -> bool:
    return model.context_order is not None and not model.contexts_read_states


def batch_likelihood(
    model: DocumentModel,
    params: Params,
    batch: Batch,
    keys_B: jax.Array | None = None,
    weights_key: jax.Array | None = None,
    context: Context | None = None,
) -> Likelihood:
    """The likelihood of a batch of documents or segments, each read from its start.

    Args:
      batch: its `earlier` sentences, if any, give the first contexts and are not scored: as many as
        `earlier_sentences` says. Where contexts are not made of their words alone they have no
        gradient and no dropout but that of weights, and a row has all of them or none.
      keys_B: one dropout key a row, in training; None scores without dropout.
      weights_key: the key of dropout on weights, in training.
      context: of the sentences before, to read on from; None for the start.
    """
    if weights_key is not None:
        params = drop_weights(model, params, weights_key)
    params = weighted(model, params)
    tokens, targets, mask = time_major(batch)
    num_sentences, length, rows = tokens.shape
    # A sentence of a bag has one position.
    drawn_SxN = (num_sentences, 1 if model.objective == "bags" else length)
    masks = None if keys_B is None else draw_masks(model, params, keys_B, drawn_SxN)
    if context is None:
        context = open_documents(model, params, rows, batch.source, keys_B)
    if batch.earlier is not None:
        context = _carried(model, params, context, batch.earlier)
    reading = read_documents(model, params, context, tokens, mask, masks)
    nll, terms = _bags_nll(model, params, reading, targets, mask, masks)
    is_target, extra = mask, jnp.zeros(())
    if model.objective == "bags":
        is_target = _is_word(mask)
    else:
        extra, terms = nll + _endings_nll(model, params, reading, mask), jnp.sum(mask)
        nll = _words_nll(model, params, reading, tokens, targets, mask, masks)
    # Every sentence has a first position, START's.
    return Likelihood(nll, extra, jnp.sum(is_target), jnp.sum(mask[:, 0]), terms)


def _carried(model: DocumentModel, params: Params, context: Context, earlier: Batch) -> Context:
    """The context after the sentences before."""
    tokens, _, mask = time_major(earlier)
    if _contexts_are_words(model):
        return context_after(model, params, context, tokens, mask)
    context = model.resize_context(context, tokens.shape[1])
    fixed = jax.lax.stop_gradient((params, context))
    after = read_documents(model, *fixed, tokens, mask, None).context
    return select(model, params, jnp.any(mask, axis=(0, 1)), after, context)


def open_documents(
    model: DocumentModel,
    params: Params,
    rows: int,
    source: Batch | None,
    keys_B: jax.Array | None = None,
) -> Context:
    """The context before the first sentence of each of B = `rows` documents.

    Args:
      params: of `weighted`.
      source: what they are made of, for a model that reads it; others leave it alone.
      keys_B: one dropout key a row, in training.
    """
    if source is None or not model.reads_source:
        return model.open_document(params, rows)
    tokens, _, mask = time_major(source)
    dropout = () if keys_B is None else draw_source_masks(model, keys_B, tokens.shape[:2])
    return model.open_document(params, rows, Source(tokens, mask, dropout))


def _words_nll(
    model: DocumentModel,
    params: Params,
    reading: Reading,
    tokens_SxNxB: jax.Array,
    targets_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    masks: DropoutMasks | None,
) -> jax.Array:
    """Nats of all words and ENDs."""
    if masks is not None:
        reading = reading._replace(features=reading.features * masks.features)
    features, kernel, bias, shared = output_inputs(model, params, reading, tokens_SxNxB)
    weights = mask_SxNxB.astype(bias.dtype)
    targets, weights = targets_SxNxB.reshape(-1), weights.reshape(-1)
    return summed_nll(features, kernel, bias, targets, weights, shared, model.plan)


def _bags_nll(
    model: DocumentModel,
    params: Params,
    reading: Reading,
    targets_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    masks: DropoutMasks | None,
) -> tuple[jax.Array, jax.Array]:
    """Weighted nats of the words of all sentences as bags, and of how many sentences; 0 of a model
    without that objective."""
    bags = model.bags(params, reading.contexts)
    if bags is None:
        return jnp.zeros(()), jnp.zeros((), jnp.int32)
    if masks is not None and model.objective == "bags":
        bags = bags._replace(features_RxD=bags.features_RxD * flat(masks.features))
    features, kernel, bias, shared = _bag_inputs(model, bags)
    targets_RxN, is_word_RxN = _by_sentence(targets_SxNxB), _by_sentence(_is_word(mask_SxNxB))
    words_Rx1 = jnp.sum(is_word_RxN, axis=1, keepdims=True)
    weights_RxN = bags.weight * is_word_RxN.astype(bias.dtype)
    if bags.mean:
        weights_RxN /= jnp.maximum(words_Rx1, 1)
    nll: jax.Array = summed_nll(
        features, kernel, bias, targets_RxN, weights_RxN, shared, model.plan
    )
    return nll, jnp.sum(words_Rx1 > 0)


def _endings_nll(
    model: DocumentModel, params: Params, reading: Reading, mask_SxNxB: jax.Array
) -> jax.Array:
    """Nats of the decisions whether documents have ended: each goes on before all of its sentences
    and ends after the last one. Rows without a sentence are no documents."""
    before_SB = model.ending(params, reading.contexts)
    after_B = model.ending(params, reading.context)
    if before_SB is None or after_B is None:
        return jnp.zeros(())
    exists_SxB = mask_SxNxB[:, 0]
    goes_on_RxB = jnp.pad(exists_SxB, [(0, 1), (0, 0)])
    ends_RxB = jnp.pad(exists_SxB, [(1, 0), (0, 0)]) & ~goes_on_RxB
    log_odds_RxB = jnp.concatenate([before_SB, after_B]).reshape(ends_RxB.shape)
    nll_RxB = jax.nn.softplus(jnp.where(ends_RxB, -log_odds_RxB, log_odds_RxB))
    return jnp.sum(jnp.where(goes_on_RxB | ends_RxB, nll_RxB, 0))


def block_nll(
    model: DocumentModel,
    params: Params,
    context: Context,
    batch: Batch,
    scored: jax.Array | None = None,
) -> tuple[Context, jax.Array]:
    """The nats of every target of some consecutive sentences, read from `context` on.

    Args:
      context: of the sentences before.
      scored: bool [B, S, N], or [B, S, 1] for whole sentences: the targets to score; None for all.
        The others are read, but their positions do not enter the output layer.

    Returns:
      The context after them and the negative log-likelihoods [B, S, N], 0 at padding, at targets
      that are not scored and, of bags, at END.
    """
    reading, nll_BxSxN = read_and_score(model, params, context, batch, scored)
    return reading.context, nll_BxSxN


def read_and_score(
    model: DocumentModel,
    params: Params,
    context: Context,
    batch: Batch,
    scored: jax.Array | None = None,
) -> tuple[Reading, jax.Array]:
    """As `block_nll`, with all that reading gives."""
    model = dataclasses.replace(model, remat=False)
    params = weighted(model, params)
    tokens, targets, mask = time_major(batch)
    reading = read_documents(model, params, context, tokens, mask, None)
    if scored is not None:
        mask &= jnp.moveaxis(scored, 0, 2)
    if model.objective == "bags":
        bags: Any = model.bags(params, reading.contexts)
        features, kernel, bias, shared = _bag_inputs(model, bags)
        targets_RxN, is_word_RxN = _by_sentence(targets), _by_sentence(_is_word(mask))
        nll_RxN = token_nll(features, kernel, bias, targets_RxN, is_word_RxN, shared, model.plan)
        return reading, jnp.swapaxes(nll_RxN.reshape(len(mask), -1, mask.shape[1]), 0, 1)
    features, kernel, bias, shared = output_inputs(model, params, reading, tokens)
    targets_F, mask_F = targets.reshape(-1), mask.reshape(-1)
    nll_F = token_nll(features, kernel, bias, targets_F, mask_F, shared, model.plan)
    return reading, jnp.moveaxis(nll_F.reshape(mask.shape), 2, 0)


def _is_word(mask_SxNxB: jax.Array) -> jax.Array:
    """Whether the target of a position is a word, not END: an input follows it."""
    return jnp.pad(mask_SxNxB[:, 1:], [(0, 0), (0, 1), (0, 0)]) & mask_SxNxB


def _by_sentence(array_SxNxB: jax.Array) -> jax.Array:
    """[S, N, B] -> [S*B, N]."""
    return jnp.swapaxes(array_SxNxB, 1, 2).reshape(-1, array_SxNxB.shape[1])


def word_log_probs(
    model: DocumentModel,
    params: Params,
    conditioning: Conditioning,
    tokens_B: jax.Array,
    output: Any,
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
        contexts=None,
        features=features_1xBxD[None],
        context_features=None if of_context is None else of_context[None],
    )
    features, kernel, bias, shared = output_inputs(model, params, reading, tokens_B)
    logits_BxV = rounded_product(features, kernel, kernel.dtype) + bias
    if shared is not None:
        logits_BxV += shared.of(jnp.arange(len(tokens_B)), model.vocab_size)
    return jax.nn.log_softmax(logits_BxV)


def output_inputs(
    model: DocumentModel, params: Params, reading: Reading, tokens: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, SharedLogits | None]:
    """Features of all positions [F, D], kernel [D, V], bias [V] and the contexts' part of logits,
    or that of hashed features, given the tokens read there; no model has both.

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
        shared = None if bigrams is None else bigrams.logits(tokens.reshape(-1, 1))
        return flat(features), kernel_DxV, output.bias, shared
    sentences, length, rows, _ = features.shape
    if sentences * rows * model.vocab_size > model.plan.shared_logits:
        contexts = jnp.broadcast_to(contexts[:, None], (*features.shape[:3], contexts.shape[-1]))
        both = jnp.concatenate([features, contexts], axis=-1)
        return flat(both), jnp.concatenate([kernel_DxV, kernel_ExV]), output.bias, None
    row_Sx1xB = jnp.arange(sentences * rows).reshape(sentences, 1, rows)
    row_F = jnp.broadcast_to(row_Sx1xB, (sentences, length, rows)).reshape(-1)
    shared = RowLogits(product(flat(contexts), kernel_ExV), row_F)
    return flat(features), kernel_DxV, output.bias, shared


def _bag_inputs(
    model: DocumentModel, bags: Bags
) -> tuple[jax.Array, jax.Array, jax.Array, SharedLogits | None]:
    """What `output_inputs` gives, of sentences as bags."""
    layer, histories, shared = bags.layer, bags.histories_RxM, None
    if layer.bigrams is not None and histories is not None:
        shared = layer.bigrams.logits(histories)
    return bags.features_RxD, _rounded(model, layer.kernel), layer.bias, shared


def _rounded(model: DocumentModel, kernel: Weight | jax.Array | None) -> Any:
    """A kernel as an array; tied embeddings are a table, and rounded only here."""
    array = kernel.array if isinstance(kernel, Weight) else kernel
    if array is None or model.compute_dtype == "float32":
        return array
    return array.astype(model.compute_dtype)


def time_major(batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens, targets and mask as [S, N, B]."""
    arrays_BxSxN = (batch.tokens_BxSxN, batch.targets_BxSxN, batch.mask_BxSxN)
    tokens, targets, mask = (jnp.moveaxis(array, 0, 2) for array in arrays_BxSxN)
    return tokens, targets, mask
