"""Likelihoods: sums over training batches, and the score of each target."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.data.batches import Batch
from dclm_jax.models.bags import bag_targets, bags_nll
from dclm_jax.models.base import Context, DocumentModel, Params, Pointer, Source
from dclm_jax.nn.hashing import hashed_logits
from dclm_jax.nn.layers import as_matrix, fold, product, unfold
from dclm_jax.nn.logits import Copies, OutputInputs, RowLogits
from dclm_jax.nn.softmax import summed_nll, token_measures, token_nll
from dclm_jax.reading.batch_elements import select
from dclm_jax.reading.driver import SentenceFeatures, cast_params, close_sentences, read_sentences
from dclm_jax.reading.dropout import (
    DropoutMasks,
    draw_masks,
    draw_source_masks,
    drop_weights,
)


class Likelihood(NamedTuple):
    """Sums over a batch.

    Attributes:
      nats: nats of the targets, as evaluation measures them.
      nll: the sum that training minimizes: `nats`, or for a model of bags of words the sum over
        sentences of the mean nats per word.
      auxiliary: nats of the model's `auxiliary_loss`.
      tokens: number of targets: words and ENDs.
      sentences: number of sentences.
      terms: number of terms in `nll`: targets, or sentences with words.
    """

    nats: jax.Array
    nll: jax.Array
    auxiliary: jax.Array
    tokens: jax.Array
    sentences: jax.Array
    terms: jax.Array


def for_scoring(model: DocumentModel) -> DocumentModel:
    """The model for scoring, which has no backward pass: without `remat`, and with one sentence per
    round, because short rounds compile faster."""
    return dataclasses.replace(
        model, remat=False, plan=dataclasses.replace(model.plan, max_round=1)
    )


def earlier_sentences(model: DocumentModel, carried: int = 0) -> int:
    """The number of sentences that training reads before a segment for the segment's first context.

    The number is n for a model whose contexts are made of the words of the last n sentences. For
    other models it is the number of sentences that a context depends on, at most `carried`, the
    number of sentences of the previous segment.
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
      batch: a batch. Its `earlier` sentences, if any, are read for the first contexts and not
        scored; `earlier_sentences` returns their number. If contexts read hidden states, earlier
        sentences have no gradient and no dropout except on weights, and a batch element has all
        earlier sentences or none.
      keys_B: one dropout key per batch element, in training; None for no dropout.
      weights_key: key of dropout on weights, in training.
      context: the context before the batch; None for the start of the documents.
    """
    if weights_key is not None:
        params = drop_weights(model, params, weights_key)
    params = cast_params(model, params)
    tokens, targets, mask = time_major(batch)
    num_sentences, length, rows = tokens.shape
    is_of_bags = model.objective == "bags"
    # A sentence that is predicted as a bag of words has one position.
    drawn_SxN = (num_sentences, 1 if is_of_bags else length)
    masks = None if keys_B is None else draw_masks(model, params, keys_B, drawn_SxN)
    if context is None:
        context = open_documents(model, params, rows, batch.source, keys_B)
    if batch.earlier is not None:
        context = _carried(model, params, context, batch.earlier)
    read = read_sentences(model, params, context, tokens, mask, masks)
    if is_of_bags:
        return _likelihood_of_bags(model, params, read, targets, mask, masks)
    return _likelihood_of_words(model, params, read, tokens, targets, mask)


def _likelihood_of_words(
    model: DocumentModel,
    params: Params,
    read: SentenceFeatures,
    tokens_SxNxB: jax.Array,
    targets_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
) -> Likelihood:
    """The likelihood of words and END, from the features of sentences."""
    inputs = output_inputs(model, params, read, tokens_SxNxB)
    weights = model.predicted(targets_SxNxB, mask_SxNxB).astype(inputs.bias_V.dtype).reshape(-1)
    nll: jax.Array = summed_nll(inputs, targets_SxNxB.reshape(-1), weights, model.plan)
    auxiliary = model.auxiliary_loss(params, read.contexts, read.context, targets_SxNxB, mask_SxNxB)
    num_targets = model.num_targets(targets_SxNxB, mask_SxNxB)
    return Likelihood(nll, nll, auxiliary, num_targets, _num_sentences(mask_SxNxB), num_targets)


def _likelihood_of_bags(
    model: DocumentModel,
    params: Params,
    read: SentenceFeatures,
    targets_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
    masks: DropoutMasks | None,
) -> Likelihood:
    """The likelihood of bags of words, from the contexts of sentences."""
    bags = model.bags(params, read.contexts)
    if masks is not None:
        bags = bags._replace(features_FxD=bags.features_FxD * as_matrix(masks.features))
    _, is_word_RxN = bag_targets(targets_SxNxB, mask_SxNxB)
    with_words = jnp.sum(jnp.any(is_word_RxN, axis=1))
    nll = bags_nll(bags, targets_SxNxB, mask_SxNxB, model.plan, per_word=True)
    nats = bags_nll(jax.lax.stop_gradient(bags), targets_SxNxB, mask_SxNxB, model.plan)
    num_words, num_sentences = jnp.sum(is_word_RxN), _num_sentences(mask_SxNxB)
    return Likelihood(nats, nll, jnp.zeros(()), num_words, num_sentences, with_words)


def _num_sentences(mask_SxNxB: jax.Array) -> jax.Array:
    # Every sentence has a real START, at position 0.
    return jnp.sum(mask_SxNxB[:, 0])


def _carried(model: DocumentModel, params: Params, context: Context, earlier: Batch) -> Context:
    """The context after the earlier sentences."""
    tokens, _, mask = time_major(earlier)
    if _contexts_are_words(model):
        return close_sentences(model, params, context, tokens, mask)[0]
    context = model.resize_context(context, tokens.shape[1])
    fixed = jax.lax.stop_gradient((params, context))
    after = read_sentences(model, *fixed, tokens, mask).context
    return select(model, params, jnp.any(mask, axis=(0, 1)), after, context)


def open_documents(
    model: DocumentModel,
    params: Params,
    rows: int,
    source: Batch | None = None,
    keys_B: jax.Array | None = None,
) -> Context:
    """The context before the first sentence of each of B = `rows` documents.

    Args:
      source: the documents' sources; models that read no source ignore it.
      keys_B: one dropout key per batch element, in training.
    """
    if source is None or not model.reads_source:
        return model.open_document(params, rows)
    tokens, _, mask = time_major(source)
    dropout = () if keys_B is None else draw_source_masks(model, keys_B, tokens.shape[:2])
    return model.open_document(params, rows, Source(tokens, mask, dropout))


def block_nll(
    model: DocumentModel,
    params: Params,
    context: Context,
    batch: Batch,
    scored: jax.Array | None = None,
) -> tuple[Context, jax.Array]:
    """The negative log-likelihood (nats) of every target of consecutive sentences.

    Args:
      context: the context before the sentences.
      batch: the sentences. If `batch.context` has other sentences, each sentence is read after the
        other sentences before its position, and has no part in the context of later sentences.
      scored: bool [B, S, N], or [B, S, 1] for whole sentences: the targets to score; None for all.
        Other targets are read, but their positions do not enter the output layer.

    Returns:
      The context after the sentences and the negative log-likelihoods [B, S, N], which are 0 at
      padding, at targets that are not scored or not predicted and, for bag-of-words models, at END.
    """
    read, nll_BxSxN = read_and_score(model, params, context, batch, scored)
    return read.context, nll_BxSxN


def read_and_score(
    model: DocumentModel,
    params: Params,
    context: Context,
    batch: Batch,
    scored: jax.Array | None = None,
) -> tuple[SentenceFeatures, jax.Array]:
    """The features of consecutive sentences, and the negative log-likelihoods of `block_nll`."""
    model = for_scoring(model)
    tokens, targets, mask = time_major(batch)
    if batch.context is None:
        read = read_sentences(model, params, context, tokens, mask)
    else:
        other_tokens, _, other_mask = time_major(batch.context)
        others = read_sentences(model, params, context, other_tokens, other_mask)
        read = _read_apart(model, params, others.contexts, tokens, mask)
        read = read._replace(context=others.context)
    if scored is not None:
        mask &= jnp.moveaxis(scored, 0, 2)
    if model.objective == "bags":
        bags = model.bags(params, read.contexts)
        nll_RxN = token_nll(bags, *bag_targets(targets, mask), model.plan)
        return read, jnp.swapaxes(nll_RxN.reshape(len(mask), -1, mask.shape[1]), 0, 1)
    mask = model.predicted(targets, mask)
    inputs = output_inputs(model, params, read, tokens)
    nll_F = token_nll(inputs, targets.reshape(-1), mask.reshape(-1), model.plan)
    return read, jnp.moveaxis(nll_F.reshape(mask.shape), 2, 0)


def next_log_probs(
    model: DocumentModel, params: Params, context: Context, batch: Batch, position_B: jax.Array
) -> jax.Array:
    """log P [B, V] in nats of every entry of the vocabulary as a target of one sentence.

    Args:
      context: the context before the sentence.
      batch: one sentence [B, 1, N] per document.
      position_B: int [B], the number of ids before the target.
    """
    model = for_scoring(model)
    tokens, _, mask = time_major(batch)
    read = read_sentences(model, params, context, tokens, mask)
    inputs = output_inputs(model, params, read, tokens)
    # Features are flattened from [1, N, B].
    rows = tokens.shape[2]
    return jax.nn.log_softmax(inputs.logits_at(position_B * rows + jnp.arange(rows)))


def block_measures(
    model: DocumentModel,
    params: Params,
    context: Context,
    batch: Batch,
    scored: jax.Array,
    *,
    no_context_too: bool,
) -> tuple[Context, jax.Array]:
    """Measures of the next-word distribution at every target of consecutive sentences.

    Args:
      context, batch, scored: as for `block_nll`.
      no_context_too: whether to read every sentence also as the first sentence of a document.

    Returns:
      The context after the sentences and the measures [B, S, N, X] of `token_measures`; the second
      distribution is the distribution without earlier sentences.
    """
    model = for_scoring(model)
    tokens, targets, mask = time_major(batch)
    read, others = read_sentences(model, params, context, tokens, mask), None
    inputs = output_inputs(model, params, read, tokens)
    if no_context_too:
        beginnings = open_documents(model, params, mask.shape[0] * mask.shape[2])
        # A first sentence copies no word.
        alone = _read_apart(model, params, beginnings, tokens, mask)._replace(pointer=None)
        others = output_inputs(model, params, alone, tokens)
    mask &= jnp.moveaxis(scored, 0, 2)
    measures_FxX = token_measures(inputs, targets.reshape(-1), mask.reshape(-1), model.plan, others)
    measures_SxNxBxX = measures_FxX.reshape(*mask.shape, -1)
    return read.context, jnp.moveaxis(measures_SxNxBxX, 2, 0)


def _read_apart(
    model: DocumentModel,
    params: Params,
    contexts: Context,
    tokens_SxNxB: jax.Array,
    mask_SxNxB: jax.Array,
) -> SentenceFeatures:
    """The features of sentences, each read with its own of the S*B `contexts`."""
    num_sentences, _, rows = tokens_SxNxB.shape
    tokens_1xNxR, mask_1xNxR = (fold(array)[None] for array in (tokens_SxNxB, mask_SxNxB))
    read = read_sentences(model, params, contexts, tokens_1xNxR, mask_1xNxR)
    if read.features is None:
        return read
    context_features = read.context_features
    if context_features is not None:
        context_features = context_features.reshape(num_sentences, rows, -1)
    features, pointer = unfold(
        jax.tree.map(lambda array: array[0], (read.features, read.pointer)), num_sentences
    )
    return SentenceFeatures(read.context, read.contexts, features, context_features, pointer)


def output_inputs(
    model: DocumentModel, params: Params, read: SentenceFeatures, tokens: jax.Array
) -> OutputInputs:
    """The factors of the logits of all positions F = S*N*B, given their input tokens.

    Several positions share the part of the logits from contexts, or from hashed features; no model
    has both parts. If the part from contexts is too large, the features of each position include
    its context instead, and the kernel multiplies both. Models with such contexts have no pointer.
    """
    output = model.output_layer(params)
    kernel_DxV, bias_V = output.kernel.array, model.masked_bias(output.bias)
    features, contexts = read.features, read.context_features
    if contexts is None or output.context_kernel is None:
        shared = copies = None
        if output.bigrams is not None:
            shared = hashed_logits(output.bigrams, tokens.reshape(-1, 1), model.vocab_size)
        if read.pointer is not None:
            copies = _copies(read.pointer)
        return OutputInputs(as_matrix(features), kernel_DxV, bias_V, shared, copies)
    kernel_ExV = output.context_kernel.array
    sentences, length, rows, _ = features.shape
    if sentences * rows * model.vocab_size > model.plan.shared_logits:
        contexts = jnp.broadcast_to(contexts[:, None], (*features.shape[:3], contexts.shape[-1]))
        joined = jnp.concatenate([features, contexts], axis=-1)
        return OutputInputs(as_matrix(joined), jnp.concatenate([kernel_DxV, kernel_ExV]), bias_V)
    shared = RowLogits(
        product(as_matrix(contexts), kernel_ExV), _sentence_index(sentences, length, rows)
    )
    return OutputInputs(as_matrix(features), kernel_DxV, bias_V, shared)


def _copies(pointer: Pointer) -> Copies:
    """The copies of all positions F = S*N*B."""
    words_RxM = fold(pointer.words_MxB).T
    sentence_F = _sentence_index(*pointer.log_share_NxB.shape)
    log_weights_FxM = as_matrix(pointer.log_weights_NxBxM)
    return Copies(pointer.log_share_NxB.reshape(-1), log_weights_FxM, words_RxM, sentence_F)


def _sentence_index(sentences: int, length: int, rows: int) -> jax.Array:
    """The sentence of every position, of the S*B sentences of [S, N, B]."""
    index_Sx1xB = jnp.arange(sentences * rows).reshape(sentences, 1, rows)
    return jnp.broadcast_to(index_Sx1xB, (sentences, length, rows)).reshape(-1)


def time_major(batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens, targets and mask as [S, N, B]."""
    arrays_BxSxN = (batch.tokens_BxSxN, batch.targets_BxSxN, batch.mask_BxSxN)
    tokens, targets, mask = (jnp.moveaxis(array, 0, 2) for array in arrays_BxSxN)
    return tokens, targets, mask
