"""Texts that a model goes on with, or begins: documents of one batch sentence by sentence.

A text so far goes on with every word that it may, and the W best of a document are kept:

    score = log P(text so far) / terms^a        its words, ENDs and decisions that it has not ended

Texts of a document meet at the ends of sentences. One whose sentence has ended waits as it is for
the others, and one whose document has ended waits to the very end; both compete with what the
others become. Greedy search is the beam of one. A model that tells the end of its document
(`ending`) decides before every sentence. A text that has as many words or sentences as it may have
stops there, without a decision; a sentence that has as many words as it may have goes on with END.

R = B * W rows are the texts so far, those of a document next to each other. A sentence is one
program: a loop over its words in the whole batch, without the host.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.data.vocabulary import END, SPECIAL_TOKENS, START, UNKNOWN
from dclm_jax.decoding.choices import Decoding, choose
from dclm_jax.errors import InputError, shown
from dclm_jax.models.base import Context, DocumentModel, Params
from dclm_jax.reading import incremental
from dclm_jax.reading.continuations import SentenceReader, filled_up
from dclm_jax.reading.driver import weighted
from dclm_jax.reading.incremental import SentencePrefix
from dclm_jax.reading.reader import (
    Place,
    Reader,
    batches_of_like_size,
    power_of_two,
)

ROWS = 64
"""Documents that are generated at once, at most; a power of two."""
MAX_LOGITS = 2**26
"""R*V of a batch, which bounds memory; only a single document exceeds it."""


class Limits(NamedTuple):
    """How long a text may become: sentences, words of a sentence, and words in all, without END."""

    sentences: int
    sentence_words: int
    words: int = 2**31 - 1


# What is counted is an int32; a sentence has room for as many words as it may have.
_MOST = Limits(sentences=2**31 - 1, sentence_words=2**20)


class Text(NamedTuple):
    """What has been generated.

    Attributes:
      sentences: each int32 [M] word ids without END.
      log_probs: for each sentence float32 [M + 1]: log P in nats of w1..wM END, under the model and
        given all before; what `reader.read` gives of the same text, but for the sign.
      decisions: of a model that tells the end of a document log P in nats of each decision, that it
        goes on before every sentence, and that it has ended if it has; otherwise empty.
      has_ended: whether the model has ended the document, rather than a limit the text.
    """

    sentences: tuple[np.ndarray, ...] = ()
    log_probs: tuple[np.ndarray, ...] = ()
    decisions: tuple[float, ...] = ()
    has_ended: bool = False


class _Texts(NamedTuple):
    """The texts so far: log P and how many terms it is the sum of, words that may still come, and
    whether the document goes on; the row of each before this sentence, and log P of the decision
    then, NaN where none was made."""

    log_prob_R: jax.Array
    terms_R: jax.Array
    words_left_R: jax.Array
    goes_on_R: jax.Array
    row_R: jax.Array
    decision_R: jax.Array

    def take(self, row_R: jax.Array) -> "_Texts":
        return _Texts(*(array[row_R] for array in self))


class _State(NamedTuple):
    """Between two sentences; the limits of sentences and of their words, and the keys, stay."""

    context: Context
    texts: _Texts
    most_sentences_R: jax.Array
    most_words_R: jax.Array
    keys_R: jax.Array


class _Sentence(NamedTuple):
    """A sentence of every text so far while it is generated: the token to read next; of every step
    what was chosen, its log P and the row that chose it; and its keys."""

    texts: _Texts
    prefix: SentencePrefix
    token_R: jax.Array
    tokens_NxR: jax.Array
    log_probs_NxR: jax.Array
    rows_NxR: jax.Array
    most_words_R: jax.Array
    keys_R: jax.Array


class _Told(NamedTuple):
    """What the host learns of a sentence: the row of each text before it, and the rest as above."""

    row_R: jax.Array
    decision_R: jax.Array
    tokens_NxR: jax.Array
    log_probs_NxR: jax.Array


def generate(
    place: Place, decoding: Decoding, limits: Sequence[Limits], keys_B: jax.Array
) -> list[Text]:
    """The best text found after each of B places.

    Args:
      place: of the reader of a model of words.
      limits: one a row.
      keys_B: one a row, of `random_keys`; only sampling draws.
    """
    reader = require_words(place.reader)
    state, room = _opened(place, decoding, limits, keys_B)
    run = _compiled(reader.model, decoding)
    texts = [Text()] * len(state.texts.row_R)
    for number in range(max(one.sentences for one in limits)):
        state, told = run.sentence(reader.params, state, number, room)
        texts = _told(texts, told)
        if not np.any(state.texts.goes_on_R):
            break
    scores_R = decoding.normalized(state.texts.log_prob_R, state.texts.terms_R)
    best_B = np.argmax(np.asarray(scores_R).reshape(place.rows, -1), axis=-1)
    return [texts[decoding.width * row + best] for row, best in enumerate(best_B.tolist())]


def stream(
    place: Place, decoding: Decoding, limits: Limits, key: jax.Array
) -> Iterator[tuple[int, float]]:
    """The text after a place of one row, as `generate` gives it, word by word.

    A beam decides on the first word last: its words all come at the end.

    Yields:
      Word ids, END among them, each with its log P in nats.
    """
    if decoding.width > 1:
        (text,) = generate(place, decoding, [limits], key[None])
        for ids, log_probs in zip(text.sentences, text.log_probs, strict=True):
            yield from zip([*ids.tolist(), END], log_probs.tolist(), strict=True)
        return
    reader = require_words(place.reader)
    state, room = _opened(place, decoding, [limits], key[None])
    run = _compiled(reader.model, decoding)
    for number in range(limits.sentences):
        sentence = run.begin(reader.params, state, number, room)
        for position in range(room):
            if sentence.token_R[0] == END:
                break
            sentence = run.step(reader.params, sentence)
            yield int(sentence.token_R[0]), float(sentence.log_probs_NxR[position, 0])
        state, _ = run.end(reader.params, state, sentence)
        if not state.texts.goes_on_R[0]:
            break


def generate_many(
    reader: Reader,
    sizes: Sequence[tuple[int, int, int]],
    place_of: Callable[[list[int]], Place],
    decoding: Decoding,
    limits: Sequence[Limits],
    keys: jax.Array,
) -> list[Text]:
    """A text for each of many documents, those of like size at once.

    Args:
      reader: of a model of words.
      sizes: of what is read of each document before (`reader.size_of`).
      place_of: gives the places of some documents, of which the last one may come several times.
      limits: one a document.
      keys: one a document, of `random_keys`.
    """
    texts = [Text()] * len(sizes)
    at_least_one = [(max(count, 1), longest, positions) for count, longest, positions in sizes]
    fitting = max(1, MAX_LOGITS // (decoding.width * reader.model.vocab_size))
    max_rows = min(ROWS, 1 << (fitting.bit_length() - 1))
    for batch, _ in batches_of_like_size(at_least_one, max_rows):
        rows = filled_up(batch)
        found = generate(
            place_of(rows), decoding, [limits[row] for row in rows], keys[np.array(rows)]
        )
        for index, text in zip(batch, found, strict=False):
            texts[index] = text
    return texts


def random_keys(seeds: Sequence[int], numbers: Sequence[int]) -> jax.Array:
    """Keys of sampling, each of a seed and the number of a document: what is drawn for a document
    does not depend on the others.
    """
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise InputError(f"seed is {seed}; expected a whole number from 0 to 2^32 - 1")

    def key(seed: jax.Array, number: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.key(seed), number)

    return jax.vmap(key)(jnp.array(seeds, jnp.uint32), jnp.array(numbers, jnp.uint32))


def require_words(reader: SentenceReader[Any]) -> Reader:
    """The reader, if its model generates sentences word by word."""
    if not isinstance(reader, Reader):
        raise InputError("n-gram models score text and generate none; expected a neural model")
    if reader.model.objective != "words":
        raise InputError(f"{reader.model.name} predicts bags of words: it generates no sentences")
    return reader


def _opened(
    place: Place, decoding: Decoding, limits: Sequence[Limits], keys_B: jax.Array
) -> tuple[_State, int]:
    """The state before anything is generated; and room for START and the words of a sentence."""
    if not isinstance(decoding, Decoding):
        raise InputError(f"decoding is {shown(decoding)}; expected one such as Decoding('beam')")
    for one in limits:
        for name, value, most in zip(Limits._fields, one, _MOST, strict=True):
            if not isinstance(value, int | np.integer):
                raise InputError(f"the limit of {name} is {shown(value)}; expected a whole number")
            if not 1 <= value <= most:
                expected = "at least 1" if value < 1 else f"at most {most}"
                raise InputError(f"the limit of {name} is {value}; expected {expected}")
    model = place.reader.model
    if model.vocab_size - len(SPECIAL_TOKENS) + (not decoding.suppress_unknown) < 1:
        raise InputError("the vocabulary has no words; expected some to generate")
    row_R = np.repeat(np.arange(place.rows), decoding.width)
    room = power_of_two(1 + max(min(one.sentence_words, one.words) for one in limits))
    sentences_R, sentence_words_R, words_R = jnp.array(limits, jnp.int32)[row_R].T
    # At first a document has one text.
    exists_R = np.arange(len(row_R)) % decoding.width == 0
    texts = _Texts(
        log_prob_R=jnp.where(exists_R, 0.0, -jnp.inf),
        terms_R=jnp.zeros(len(row_R), jnp.int32),
        words_left_R=words_R,
        goes_on_R=jnp.array(exists_R),
        row_R=jnp.arange(len(row_R)),
        decision_R=jnp.full(len(row_R), jnp.nan),
    )
    # So that contexts of all sentences have one shape.
    context = model.resize_context(place.take(row_R).context, room)
    return _State(context, texts, sentences_R, sentence_words_R, keys_B[row_R]), room


class _Programs(NamedTuple):
    """What is compiled; all take the parameters first. A whole sentence, and its parts."""

    sentence: Callable[..., tuple[_State, _Told]]
    begin: Callable[..., _Sentence]
    step: Callable[..., _Sentence]
    end: Callable[..., tuple[_State, _Told]]


@functools.cache
def _compiled(model: DocumentModel, decoding: Decoding) -> _Programs:
    begin = functools.partial(_begin, model, decoding)
    step = functools.partial(_step, model, decoding)
    end = functools.partial(_end, model, decoding)

    def sentence(
        params: Params, state: _State, number: jax.Array, room: int
    ) -> tuple[_State, _Told]:
        params = weighted(model, params)
        done = jax.lax.while_loop(
            lambda sentence: jnp.any(sentence.token_R != END),
            functools.partial(step, params),
            begin(params, state, number, room),
        )
        return end(params, state, done)

    return _Programs(
        sentence=jax.jit(sentence, static_argnums=3),
        begin=jax.jit(begin, static_argnums=3),
        step=jax.jit(step),
        end=jax.jit(end),
    )


def _begin(
    model: DocumentModel,
    decoding: Decoding,
    params: Params,
    state: _State,
    number: jax.Array,
    room: int,
) -> _Sentence:
    """Decides which documents go on, if the model tells, and begins the sentence of this number."""
    params = weighted(model, params)
    texts, context, rows = state.texts, state.context, len(state.texts.row_R)
    texts = texts._replace(
        goes_on_R=texts.goes_on_R & (number < state.most_sentences_R),
        row_R=jnp.arange(rows),
        decision_R=jnp.full(rows, jnp.nan, texts.log_prob_R.dtype),
    )
    keys_R = _folded(state.keys_R, number)
    log_odds_R = model.ending(params, context)
    if log_odds_R is not None:
        options_Rx2 = jax.nn.log_sigmoid(jnp.stack([log_odds_R, -log_odds_R], axis=-1))
        options_Rx2 = jnp.where(texts.goes_on_R[:, None], options_Rx2, jnp.array([0.0, -jnp.inf]))
        texts, row_R, goes_on_R, log_prob_R = _extended(
            decoding, texts, texts.goes_on_R, options_Rx2, _folded(keys_R, 0)
        )
        texts = texts._replace(
            goes_on_R=texts.goes_on_R & (goes_on_R == 1),
            decision_R=jnp.where(texts.goes_on_R, log_prob_R, jnp.nan),
        )
        context = incremental.take(model, params, context, row_R)
    return _Sentence(
        texts=texts,
        prefix=incremental.begin(model, params, context, rows, room),
        token_R=jnp.where(texts.goes_on_R, START, END).astype(jnp.int32),
        tokens_NxR=jnp.full((room, rows), END, jnp.int32),
        log_probs_NxR=jnp.zeros((room, rows), texts.log_prob_R.dtype),
        rows_NxR=jnp.tile(jnp.arange(rows, dtype=jnp.int32), (room, 1)),
        most_words_R=state.most_words_R,
        keys_R=keys_R,
    )


def _step(
    model: DocumentModel, decoding: Decoding, params: Params, sentence: _Sentence
) -> _Sentence:
    """Reads what was chosen last, and chooses what comes after it."""
    texts, position = sentence.texts, sentence.prefix.count
    is_going_R = sentence.token_R != END
    prefix, log_probs_RxV = incremental.advance(model, params, sentence.prefix, sentence.token_R)
    ids_V = jnp.arange(model.vocab_size)
    is_end_V = ids_V == END
    is_word_V = (ids_V != START) & ~is_end_V
    if decoding.suppress_unknown:
        is_word_V &= ids_V != UNKNOWN
    has_room_R = (texts.words_left_R > 0) & (position < sentence.most_words_R)
    may_follow_RxV = jnp.where(is_end_V, position > 0, is_word_V & has_room_R[:, None])
    options_RxV = jnp.where(may_follow_RxV, log_probs_RxV, -jnp.inf)
    # A sentence that has ended goes on in one way, as it is.
    options_RxV = jnp.where(is_going_R[:, None], options_RxV, jnp.where(is_end_V, 0.0, -jnp.inf))
    keys_R = _folded(sentence.keys_R, position + 1)
    texts, row_R, token_R, log_prob_R = _extended(decoding, texts, is_going_R, options_RxV, keys_R)
    # Where there are fewer ways on than texts to keep, some are none.
    token_R = jnp.where(texts.log_prob_R == -jnp.inf, END, token_R).astype(jnp.int32)
    if decoding.width > 1:
        prefix = incremental.take_ahead(model, params, prefix, row_R)
    return sentence._replace(
        texts=texts._replace(words_left_R=texts.words_left_R - (token_R != END)),
        prefix=prefix,
        token_R=token_R,
        tokens_NxR=sentence.tokens_NxR.at[position].set(token_R),
        log_probs_NxR=sentence.log_probs_NxR.at[position].set(log_prob_R),
        rows_NxR=sentence.rows_NxR.at[position].set(row_R.astype(jnp.int32)),
    )


def _extended(
    decoding: Decoding,
    texts: _Texts,
    is_going_R: jax.Array,
    options_RxC: jax.Array,
    keys_R: jax.Array,
) -> tuple[_Texts, jax.Array, jax.Array, jax.Array]:
    """The texts with what they go on with: these, the rows they were in, the options and their log
    P; for those that do not go on the option is no term."""
    terms_R = texts.terms_R + is_going_R
    row_R, option_R = choose(decoding, texts.log_prob_R, terms_R, options_RxC, keys_R)
    log_prob_R = options_RxC[row_R, option_R]
    texts = texts._replace(terms_R=terms_R).take(row_R)
    return (
        texts._replace(log_prob_R=texts.log_prob_R + log_prob_R),
        row_R,
        option_R,
        log_prob_R,
    )


def _end(
    model: DocumentModel, decoding: Decoding, params: Params, state: _State, sentence: _Sentence
) -> tuple[_State, _Told]:
    """Closes the sentence."""
    texts, prefix = sentence.texts, sentence.prefix
    tokens_NxR, log_probs_NxR = sentence.tokens_NxR, sentence.log_probs_NxR
    if decoding.width > 1:
        # Where each text was before and after every step.
        def back(row_R: jax.Array, rows_R: jax.Array) -> tuple[jax.Array, Any]:
            return rows_R[row_R], (rows_R[row_R], row_R)

        own_R = jnp.arange(len(sentence.token_R), dtype=jnp.int32)
        _, (before_NxR, after_NxR) = jax.lax.scan(back, own_R, sentence.rows_NxR, reverse=True)
        prefix = incremental.trace(prefix, before_NxR)
        tokens_NxR, log_probs_NxR = (
            jnp.take_along_axis(array_NxR, after_NxR, axis=1)
            for array_NxR in (tokens_NxR, log_probs_NxR)
        )
    goes_on_R = texts.goes_on_R & (texts.words_left_R > 0) & (texts.log_prob_R > -jnp.inf)
    context = incremental.close(model, params, prefix)
    state = state._replace(context=context, texts=texts._replace(goes_on_R=goes_on_R))
    return state, _Told(texts.row_R, texts.decision_R, tokens_NxR, log_probs_NxR)


def _folded(keys_R: jax.Array, number: jax.Array | int) -> jax.Array:
    return jax.vmap(jax.random.fold_in, (0, None))(keys_R, number)


def _told(before: list[Text], told: _Told) -> list[Text]:
    """The texts with the sentence that each has got, if any."""
    row_R, decision_R, tokens_NxR, log_probs_NxR = map(np.asarray, told)
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
