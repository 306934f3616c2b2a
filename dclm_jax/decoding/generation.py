"""Generation of text that continues the states of a reader, for a batch of documents, sentence by
sentence.

Each partial hypothesis is extended by every allowed word, and each document retains the W best:

    score = log P(partial hypothesis) / terms^a

The terms of a hypothesis are its words, its ENDs and, for a model that decides where a document
ends, its decisions: one decision to continue before each sentence, and one decision to end after
the last sentence.

The hypotheses of a document are synchronized at sentence ends. A hypothesis whose sentence has
ended waits for the other hypotheses. A hypothesis whose document has ended waits until generation
ends. Waiting hypotheses still compete with the extensions of other hypotheses. Greedy search is a
beam of width 1. A model that decides where its document ends (`ending`) decides before every
sentence. A text with its maximum number of words or sentences ends without a decision. A sentence
with its maximum number of words ends with END.

With a vocabulary of subwords every step adds a piece. END follows only complete words. A word is
one term of a hypothesis from its first piece, and has at most MAX_PIECES pieces. Bytes and UNKNOWN
are never generated, even with `allow_unknown`. The capacity of a sentence is PIECES_PER_WORD pieces
per word plus MAX_PIECES; a sentence ends when its capacity is full.

The R = B * W rows are partial hypotheses; rows of one document are adjacent. One compiled program
generates a sentence: a loop over its words for the whole batch, without the host.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.data.subwords import FIRST_PIECE
from dclm_jax.data.vocabulary import END, START, UNKNOWN, word_ends
from dclm_jax.decoding.choices import Decoding, Limits, choose
from dclm_jax.errors import InputError, brief
from dclm_jax.models.base import Context, DocumentModel, Params
from dclm_jax.nn.precision import compiled
from dclm_jax.reading import incremental
from dclm_jax.reading.blocks import Sentences, batches_of_like_size, power_of_two, size_of
from dclm_jax.reading.continuations import SentenceReader, filled_up
from dclm_jax.reading.incremental import SentencePrefix
from dclm_jax.reading.reader import Reader, ReaderState

DOCUMENTS_AT_ONCE = 64
"""Maximum number of documents generated at once; a power of two."""
MAX_LOGITS = 2**26
"""Maximum R*V of a batch, which bounds memory; only a single document may exceed it."""

MAX_PIECES, PIECES_PER_WORD = 16, 2
"""Maximum number of pieces of a generated word, and the mean for which a sentence has capacity."""
_FREE = -1
"""In place of a forced token: the token is free, and is chosen."""


class Generated(NamedTuple):
    """A generated text.

    Attributes:
      sentences: each int32 [M] ids of words or of their pieces, without END.
      log_probs: for each sentence float32 [M + 1], log P in nats of w1..wM END under the model,
        given all earlier text. The scores of `reader.read` are -log P.
      decisions: log P in nats of each decision: one decision to continue per sentence, and one
        decision to end if the document has ended. Empty for models that do not decide where a
        document ends.
      has_ended: whether the model has ended the document. If not, a limit has ended the text.
    """

    sentences: tuple[np.ndarray, ...] = ()
    log_probs: tuple[np.ndarray, ...] = ()
    decisions: tuple[float, ...] = ()
    has_ended: bool = False


class _Partials(NamedTuple):
    """R partial hypotheses.

    Attributes:
      log_prob_R, terms_R: log P in nats, and the number of terms.
      words_left_R: number of further words allowed.
      continues_R: whether the document continues.
      row_R: for each hypothesis, its row before the current sentence began.
      decision_R: log P of the decision before the current sentence; NaN without a decision.
      max_sentences_R, max_words_R: maximum numbers of sentences, and of words per sentence.
      keys_R: random keys for sampling.
    """

    log_prob_R: jax.Array
    terms_R: jax.Array
    words_left_R: jax.Array
    continues_R: jax.Array
    row_R: jax.Array
    decision_R: jax.Array
    max_sentences_R: jax.Array
    max_words_R: jax.Array
    keys_R: jax.Array


class _State(NamedTuple):
    """The loop's state between two sentences."""

    context: Context
    partials: _Partials


class _Sentence(NamedTuple):
    """A sentence of every partial hypothesis during generation.

    Attributes:
      token_R: the token to read next.
      words_R: number of words; the last word may be incomplete.
      pieces_R: number of pieces of the last word if it is incomplete, else 0.
      tokens_NxR, log_probs_NxR, rows_NxR: for each step the token, its log P, and the row of the
        hypothesis that it extends. Before a step, its token is END.
      keys_R: random keys of the sentence.
    """

    partials: _Partials
    prefix: SentencePrefix
    token_R: jax.Array
    words_R: jax.Array
    pieces_R: jax.Array
    tokens_NxR: jax.Array
    log_probs_NxR: jax.Array
    rows_NxR: jax.Array
    keys_R: jax.Array


def generate(
    start: ReaderState,
    decoding: Decoding,
    limits: Sequence[Limits],
    keys_B: jax.Array,
    prefix: Sequence[int] | np.ndarray = (),
) -> list[Generated]:
    """The best text after each of B states.

    Args:
      start: the state of a reader whose model predicts words.
      decoding: method and options of decoding.
      limits: the limits of each text, which should exceed the prefix.
      keys_B: the random key of each text for sampling, from `random_keys`.
      prefix: ids of the beginning of the first sentence, part of each text.
    """
    reader = require_words(start.reader)
    state, capacity = _opened(start, decoding, limits, keys_B, len(prefix))
    program = compiled(_next_sentence, reader.model, static=(0, 1))
    texts = [Generated()] * (start.rows * decoding.width)
    forced_N = np.full(capacity, _FREE, np.int32)
    forced_N[: len(prefix)] = prefix
    for number in range(max(limit.num_sentences for limit in limits)):
        if number == 1:
            forced_N = np.full(capacity, _FREE, np.int32)
        state, *sentence = program(decoding, capacity, reader.params, state, number, forced_N)
        texts = _extended_texts(texts, state.partials, *map(np.asarray, sentence))
        if not np.any(state.partials.continues_R):
            break
    scores_R = decoding.normalized(state.partials.log_prob_R, state.partials.terms_R)
    best_B = np.argmax(np.asarray(scores_R).reshape(start.rows, -1), axis=-1)
    return [texts[decoding.width * row + best] for row, best in enumerate(best_B.tolist())]


def generate_many(
    reader: Reader,
    documents: Sequence[Sentences],
    decoding: Decoding,
    limits: Sequence[Limits],
    keys: jax.Array,
    prefix: Sequence[int] | np.ndarray = (),
) -> list[Generated]:
    """A text for each of many documents; documents of similar size are generated together.

    Args:
      reader: the reader of a model that predicts words.
      documents: word ids of the texts to continue, or for an autoencoder of the sources.
      decoding: method and options of decoding.
      limits, keys: one per document; keys from `random_keys`.
      prefix: as for `generate`.
    """
    reads_source = reader.model.reads_source
    texts = [Generated()] * len(documents)
    sizes = [size_of(document, reads_source=reads_source) for document in documents]
    at_least_one = [(max(count, 1), longest, positions) for count, longest, positions in sizes]
    fitting = max(1, MAX_LOGITS // (decoding.width * reader.model.vocab_size))
    max_rows = min(DOCUMENTS_AT_ONCE, 1 << (fitting.bit_length() - 1))
    for batch, _ in batches_of_like_size(at_least_one, max_rows):
        rows = filled_up(batch)
        before = [documents[row] for row in rows]
        start = reader.open(len(rows), before) if reads_source else reader.after(before)
        row_limits = [limits[row] for row in rows]
        generated = generate(start, decoding, row_limits, keys[np.array(rows)], prefix)
        for index, text in zip(batch, generated, strict=False):
            texts[index] = text
    return texts


def require_words(reader: SentenceReader[Any]) -> Reader:
    """The reader, if its model generates sentences word by word."""
    if not isinstance(reader, Reader):
        raise InputError("n-gram models generate no text; choose a neural model")
    if reader.model.objective != "words":
        raise InputError(
            f"{reader.model.name} predicts bags of words and generates no text; choose a model "
            "that predicts words"
        )
    return reader


def scored(state: ReaderState, text: Generated, sentences: Sequence[np.ndarray]) -> Generated:
    """The text with other ids of its words, scored after the state before it."""
    reader, log_probs, decisions = state.reader, [], []
    log_odds = compiled(_ending, reader.model)

    def decision(sign: int) -> float:
        return float(jax.nn.log_sigmoid(sign * log_odds(reader.params, state.context))[0])

    for ids in sentences:
        if text.decisions:
            decisions.append(decision(-1))
        state, ((nll,),) = reader.read(state, [[ids]])
        log_probs.append(-nll)
    if text.has_ended:
        decisions.append(decision(1))
    return text._replace(
        sentences=tuple(sentences), log_probs=tuple(log_probs), decisions=tuple(decisions)
    )


def _ending(model: DocumentModel, params: Params, context: Context) -> jax.Array | None:
    return model.ending(params, context)


def _opened(
    start: ReaderState,
    decoding: Decoding,
    limits: Sequence[Limits],
    keys_B: jax.Array,
    prefix_length: int,
) -> tuple[_State, int]:
    """The initial state, and the capacity for START and the ids of a sentence."""
    if not isinstance(decoding, Decoding):
        raise InputError(
            f"decoding is {brief(decoding)}; expected a Decoding, such as Decoding('beam')"
        )
    model = start.reader.model
    row_R = np.repeat(np.arange(start.rows), decoding.width)
    longest = max(min(limit.max_sentence_words, limit.max_words) for limit in limits)
    if model.has_pieces:
        longest = prefix_length + PIECES_PER_WORD * longest + MAX_PIECES
    capacity = power_of_two(1 + longest)
    max_sentences_R, max_words_R, words_R = jnp.array(
        list(map(dataclasses.astuple, limits)), jnp.int32
    )[row_R].T
    # Initially a document has one partial hypothesis.
    exists_R = np.arange(len(row_R)) % decoding.width == 0
    partials = _Partials(
        log_prob_R=jnp.where(exists_R, 0.0, -jnp.inf),
        terms_R=jnp.zeros(len(row_R), jnp.int32),
        words_left_R=words_R,
        continues_R=jnp.array(exists_R),
        row_R=jnp.arange(len(row_R)),
        decision_R=jnp.full(len(row_R), jnp.nan),
        max_sentences_R=max_sentences_R,
        max_words_R=max_words_R,
        keys_R=keys_B[row_R],
    )
    # With one capacity, the contexts of all sentences have one shape.
    return _State(model.resize_context(start.take(row_R).context, capacity), partials), capacity


def _next_sentence(
    model: DocumentModel,
    decoding: Decoding,
    capacity: int,
    params: Params,
    state: _State,
    number: jax.Array,
    forced_N: jax.Array,
) -> tuple[_State, jax.Array, jax.Array]:
    """Generates sentence `number`, with the tokens of `forced_N` that are not `_FREE`; see `_end`
    for the results."""
    generated = jax.lax.while_loop(
        lambda sentence: jnp.any(sentence.token_R != END),
        functools.partial(_step, model, decoding, params, forced_N),
        _begin(model, decoding, capacity, params, state, number),
    )
    return _end(model, decoding, params, generated)


def _begin(
    model: DocumentModel,
    decoding: Decoding,
    capacity: int,
    params: Params,
    state: _State,
    number: jax.Array,
) -> _Sentence:
    """The beginning of sentence `number`, in rows whose document has not ended."""
    context, partials = state
    rows = len(partials.row_R)
    partials = partials._replace(
        continues_R=partials.continues_R & (number < partials.max_sentences_R),
        row_R=jnp.arange(rows),
        decision_R=jnp.full(rows, jnp.nan, partials.log_prob_R.dtype),
    )
    keys_R = _folded(partials.keys_R, number)
    log_odds_R = model.ending(params, context)
    if log_odds_R is not None:
        options_Rx2 = jax.nn.log_sigmoid(jnp.stack([log_odds_R, -log_odds_R], axis=-1))
        ended_2 = jnp.array([0.0, -jnp.inf])
        options_Rx2 = jnp.where(partials.continues_R[:, None], options_Rx2, ended_2)
        partials, row_R, continues_R, log_prob_R = _extended(
            decoding, partials, partials.continues_R, options_Rx2, _folded(keys_R, 0)
        )
        partials = partials._replace(
            continues_R=partials.continues_R & (continues_R == 1),
            decision_R=jnp.where(partials.continues_R, log_prob_R, jnp.nan),
        )
        context = incremental.take(model, params, context, row_R)
    return _Sentence(
        partials=partials,
        prefix=incremental.begin(model, params, context, rows, capacity),
        token_R=jnp.where(partials.continues_R, START, END).astype(jnp.int32),
        words_R=jnp.zeros(rows, jnp.int32),
        pieces_R=jnp.zeros(rows, jnp.int32),
        tokens_NxR=jnp.full((capacity, rows), END, jnp.int32),
        log_probs_NxR=jnp.zeros((capacity, rows), partials.log_prob_R.dtype),
        rows_NxR=jnp.tile(jnp.arange(rows, dtype=jnp.int32), (capacity, 1)),
        keys_R=keys_R,
    )


def _step(
    model: DocumentModel,
    decoding: Decoding,
    params: Params,
    forced_N: jax.Array,
    sentence: _Sentence,
) -> _Sentence:
    """Reads the last token and chooses the next token."""
    partials, position = sentence.partials, sentence.prefix.count
    is_open_R = sentence.token_R != END
    prefix, log_probs_RxV = incremental.advance(model, params, sentence.prefix, sentence.token_R)
    ids_V = jnp.arange(model.vocab_size)
    is_end_V = ids_V == END
    begins_R = sentence.pieces_R == 0
    may_follow_RxV = _may_follow(model, decoding, sentence)
    forced_token = forced_N[position]
    may_follow_RxV = jnp.where(forced_token == _FREE, may_follow_RxV, ids_V == forced_token)
    options_RxV = jnp.where(may_follow_RxV, log_probs_RxV, -jnp.inf)
    # A sentence that has ended has one extension, itself.
    options_RxV = jnp.where(is_open_R[:, None], options_RxV, jnp.where(is_end_V, 0.0, -jnp.inf))
    keys_R = _folded(sentence.keys_R, position + 1)
    partials, row_R, token_R, log_prob_R = _extended(
        decoding, partials, is_open_R & begins_R, options_RxV, keys_R
    )
    # With fewer extensions than the beam width, some rows have no extension.
    token_R = jnp.where(partials.log_prob_R == -jnp.inf, END, token_R).astype(jnp.int32)
    if decoding.width > 1:
        prefix = incremental.take_ahead(model, params, prefix, row_R)
    is_new_word_R = (token_R != END) & begins_R[row_R]
    ends_word_R = word_ends(token_R, model.first_word_end) | (token_R == END)
    return sentence._replace(
        partials=partials._replace(words_left_R=partials.words_left_R - is_new_word_R),
        prefix=prefix,
        token_R=token_R,
        words_R=sentence.words_R[row_R] + is_new_word_R,
        pieces_R=jnp.where(ends_word_R, 0, sentence.pieces_R[row_R] + 1),
        tokens_NxR=sentence.tokens_NxR.at[position].set(token_R),
        log_probs_NxR=sentence.log_probs_NxR.at[position].set(log_prob_R),
        rows_NxR=sentence.rows_NxR.at[position].set(row_R.astype(jnp.int32)),
    )


def _may_follow(model: DocumentModel, decoding: Decoding, sentence: _Sentence) -> jax.Array:
    """Whether each id may be the next token of each partial hypothesis, bool [R, V]."""
    partials, position = sentence.partials, sentence.prefix.count
    ids_V = jnp.arange(model.vocab_size)
    is_end_V = ids_V == END
    is_word_V = (ids_V != START) & ~is_end_V
    if not decoding.allow_unknown:
        is_word_V &= ids_V != UNKNOWN
    is_below_limit_R = (partials.words_left_R > 0) & (sentence.words_R < partials.max_words_R)
    if not model.has_pieces:
        return jnp.where(is_end_V, position > 0, is_word_V & is_below_limit_R[:, None])
    capacity, is_piece_V = len(sentence.tokens_NxR), ids_V >= FIRST_PIECE
    # The capacity suffices for a further piece and END, or only for END.
    has_capacity = position + 2 < capacity
    must_end_R = (sentence.pieces_R + 1 >= MAX_PIECES) | ~has_capacity
    may_add_RxV = is_piece_V & ((ids_V >= model.first_word_end) | ~must_end_R[:, None])
    begins_R = sentence.pieces_R == 0
    # A word does not begin with its end.
    may_begin_RxV = (is_below_limit_R & (position + 1 < capacity))[:, None]
    may_begin_RxV &= ids_V != model.first_word_end
    return jnp.where(
        is_end_V,
        (begins_R & (position > 0))[:, None],
        may_add_RxV & (~begins_R[:, None] | may_begin_RxV),
    )


def _extended(
    decoding: Decoding,
    partials: _Partials,
    is_open_R: jax.Array,
    options_RxC: jax.Array,
    keys_R: jax.Array,
) -> tuple[_Partials, jax.Array, jax.Array, jax.Array]:
    """The extended partial hypotheses, their previous rows, their options and the options' log P.
    An option counts as a term only where the hypothesis is open."""
    terms_R = partials.terms_R + is_open_R
    row_R, option_R = choose(decoding, partials.log_prob_R, terms_R, options_RxC, keys_R)
    log_prob_R = options_RxC[row_R, option_R]
    partials = _Partials(*(array[row_R] for array in partials._replace(terms_R=terms_R)))
    partials = partials._replace(log_prob_R=partials.log_prob_R + log_prob_R)
    return partials, row_R, option_R, log_prob_R


def _end(
    model: DocumentModel, decoding: Decoding, params: Params, sentence: _Sentence
) -> tuple[_State, jax.Array, jax.Array]:
    """The state after the sentence, its tokens [N, R] and their log P [N, R]."""
    partials, prefix = sentence.partials, sentence.prefix
    tokens_NxR, log_probs_NxR = sentence.tokens_NxR, sentence.log_probs_NxR
    if decoding.width > 1:
        # The rows of each final hypothesis before and after every step.
        def back(row_R: jax.Array, rows_R: jax.Array) -> tuple[jax.Array, Any]:
            return rows_R[row_R], (rows_R[row_R], row_R)

        last_R = jnp.arange(len(sentence.token_R), dtype=jnp.int32)
        _, (before_NxR, after_NxR) = jax.lax.scan(back, last_R, sentence.rows_NxR, reverse=True)
        prefix = incremental.trace(prefix, before_NxR)
        tokens_NxR, log_probs_NxR = (
            jnp.take_along_axis(array_NxR, after_NxR, axis=1)
            for array_NxR in (tokens_NxR, log_probs_NxR)
        )
    is_possible_R = partials.log_prob_R > -jnp.inf
    continues_R = partials.continues_R & (partials.words_left_R > 0) & is_possible_R
    partials = partials._replace(continues_R=continues_R)
    state = _State(incremental.close(model, params, prefix), partials)
    return state, tokens_NxR, log_probs_NxR


def _folded(keys_R: jax.Array, number: jax.Array | int) -> jax.Array:
    return jax.vmap(jax.random.fold_in, (0, None))(keys_R, number)


def _extended_texts(
    before: list[Generated], partials: _Partials, tokens_NxR: np.ndarray, log_probs_NxR: np.ndarray
) -> list[Generated]:
    """The texts extended by their new sentences."""
    row_R, decision_R = np.asarray(partials.row_R), np.asarray(partials.decision_R)
    after = []
    for row, origin in enumerate(row_R.tolist()):
        text, decision = before[origin], float(decision_R[row])
        length = int(np.argmax(tokens_NxR[:, row] == END))
        if not np.isnan(decision):
            decisions = (*text.decisions, decision)
            text = text._replace(decisions=decisions, has_ended=not length)
        if length:
            words_M = tokens_NxR[:length, row].copy()
            log_probs = log_probs_NxR[: length + 1, row].copy()
            text = text._replace(
                sentences=(*text.sentences, words_M), log_probs=(*text.log_probs, log_probs)
            )
        after.append(text)
    return after
