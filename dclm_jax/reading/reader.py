"""Documents being read: a place after a sentence or within one, from which reading goes on.

    place = reader.open(rows)                                   B = rows documents, nothing read yet
    place, nll = reader.read(place, sentences)                  whole sentences
    word_place, log_probs = reader.start(place)                 a sentence is begun,
    word_place, log_probs = reader.next(word_place, tokens)     read on word by word
    place = reader.finish(word_place)                           and closed
    place = place.take(rows)                                    rows repeated, dropped, reordered

Places never change: reading on gives a new one, and any number of ways may lead on from one. Rows
are documents of their own. All work is compiled once for each number of rows and room for words.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.jax_utils
import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.data.batches import Batch, pack_sentences
from dclm_jax.data.vocabulary import END, START
from dclm_jax.errors import InputError, shown
from dclm_jax.models.base import Conditioning, Context, DocumentModel, Params, Sentence
from dclm_jax.nn import stack
from dclm_jax.nn.backend import Tuning, default_tuning
from dclm_jax.nn.stack import StackInput, StackState, keep_at_padding
from dclm_jax.reading.driver import weighted
from dclm_jax.reading.likelihoods import block_nll, word_log_probs

BLOCK_SENTENCES = 8
"""Sentences that are read at once, at most; a power of two."""
MAX_POSITIONS = 2**16
"""B*S*N of a block on one device, which bounds memory; only a single longer sentence exceeds it."""
_MIN_LENGTH = 8
_MIN_ROOM = 16


def padded_length(num_words: int) -> int:
    """N for sentences of up to `num_words` words and END.

    Coarser than the buckets of training: a document is scored once, so fewer shapes to compile save
    more than the padding costs.
    """
    return max(_MIN_LENGTH, power_of_two(num_words + 1))


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


class _Words(NamedTuple):
    """A sentence as far as it has been read, `count` words with room for R, and whether it goes on;
    `context` and `conditioning` are those it is read with."""

    count: jax.Array
    goes_on_B: jax.Array
    context: Context
    conditioning: Conditioning
    state: StackState
    tokens_RxB: jax.Array
    mask_RxB: jax.Array
    outputs_R: Any


@dataclasses.dataclass(frozen=True)
class Place:
    """The end of a sentence, or the start of the document, in each of B = `rows` documents.

    The arrays of `context` have a first axis more, over the reader's devices.
    """

    reader: "Reader"
    rows: int
    context: Context

    def take(self, rows: Sequence[int] | np.ndarray) -> "Place":
        """The places of these rows, in this order; a row may come any number of times.

        Raises:
          InputError: there is no row, or not that one.
        """
        chosen = _chosen(rows, self.rows)
        take = _taker(self.reader.model, of_words=False)
        return Place(self.reader, len(chosen), take(self.context, self.reader.spread(chosen)))


@dataclasses.dataclass(frozen=True)
class WordPlace:
    """A place within a sentence in each of `rows` documents, `length` tokens after its start.

    A row that has been given END is at the end of its sentence, and stays there.
    """

    reader: "Reader"
    rows: int
    length: int
    words: _Words

    def take(self, rows: Sequence[int] | np.ndarray) -> "WordPlace":
        """As `Place.take`."""
        chosen = _chosen(rows, self.rows)
        take = _taker(self.reader.model, of_words=True)
        words = take(self.words, self.reader.spread(chosen))
        return dataclasses.replace(self, rows=len(chosen), words=words)


class Reader:
    """Reads documents with one model, from any place on."""

    def __init__(
        self,
        model: DocumentModel,
        params: Params,
        *,
        tuning: Tuning | None = None,
        devices: Sequence[Any] | None = None,
    ):
        """Copies the parameters to the devices.

        Args:
          model: any model of the registry.
          params: its parameters, not replicated.
          tuning: how it is computed; default: as the platform likes it.
          devices: local devices that share the rows; default: the first one.
        """
        self.model = model
        self.devices = tuple(devices or jax.local_devices()[:1])
        self._run = _functions(model, tuning or default_tuning(), self.devices)
        self._params = flax.jax_utils.replicate(params, self.devices)

    def open(self, rows: int) -> Place:
        """The start of so many documents.

        Raises:
          InputError: `rows` is below 1.
        """
        if rows < 1:
            raise InputError(f"rows is {rows}; expected at least 1")
        return Place(self, rows, self._run.open(self._params, self.spread(np.zeros(rows))))

    def read(
        self, place: Place, sentences: Sequence[Sequence[np.ndarray]]
    ) -> tuple[Place, list[list[np.ndarray]]]:
        """Reads whole sentences on from a place.

        Args:
          place: of this reader.
          sentences: for each row equally many sentences, each int [M] word ids without START, END.

        Returns:
          The place after them, and for each row and sentence float32 [M + 1]: -log P(target) in
          nats of the targets w1..wM END, given all words before them in the document.

        Raises:
          InputError: the place is another reader's, the sentences are not as many, or words are no
            ids.
        """
        self._require_own(place)
        counts = {len(row) for row in sentences}
        if len(sentences) != place.rows or len(counts) != 1:
            raise InputError(
                f"{len(sentences)} rows of {sorted(counts)} sentences; expected one number of "
                f"sentences for each of {place.rows} rows"
            )
        (left,) = counts
        scores: list[list[np.ndarray]] = [[] for _ in sentences]
        while left:
            # An empty sentence to fill up a block would be one more in the document.
            size, first = min(BLOCK_SENTENCES, 1 << (left.bit_length() - 1)), len(scores[0])
            block, length = self._block(sentences, first, size)
            while size > 1 and place.rows * size * length > MAX_POSITIONS * len(self.devices):
                size //= 2
                block, length = self._block(sentences, first, size)
            place, nll_DxBxSxN = self.read_block(place, pack_sentences(block, size, length))
            nll_BxSxN = np.asarray(nll_DxBxSxN, np.float32).reshape(-1, size, length)
            for row, own, nll_SxN in zip(scores, block, nll_BxSxN, strict=False):
                row += [nll[: len(words) + 1] for words, nll in zip(own, nll_SxN, strict=True)]
            left -= size
        return place, scores

    def _block(
        self, sentences: Sequence[Sequence[np.ndarray]], first: int, size: int
    ) -> tuple[list[Sequence[np.ndarray]], int]:
        """So many sentences of each row, and the length to pad them to."""
        block = [row[first : first + size] for row in sentences]
        for row in block:
            for words in row:
                self._require_words(words)
        return block, padded_length(max(len(words) for row in block for words in row))

    def _require_words(self, ids: Any) -> None:
        ids = np.asarray(ids)
        if ids.size and not (
            ids.dtype.kind in "iu" and 0 <= ids.min() and ids.max() < self.model.vocab_size
        ):
            raise InputError(
                f"words are {shown(ids.tolist())}; expected ids from 0 to "
                f"{self.model.vocab_size - 1}"
            )

    def read_block(
        self, place: Place, batch: Batch, scored_BxS: np.ndarray | None = None
    ) -> tuple[Place, jax.Array]:
        """Starts reading a block of sentences, and does not wait for the result.

        Args:
          place: of this reader.
          batch: sentences [B, S, N]. A row may end in empty ones; nothing can be read on from there
            in that row.
          scored_BxS: bool, the sentences to score; None for all.

        Returns:
          The place after them and the nats [D, B / D, S, N] of all targets, 0 where there is none;
          D is the number of devices, and B is filled up to a multiple of it.
        """
        if scored_BxS is None:
            scored_BxS = np.ones(batch.mask_BxSxN.shape[:2], bool)
        block = jax.tree.map(self.spread, (batch, scored_BxS))
        context, nll_DxBxSxN = self._run.read(self._params, place.context, *block)
        return Place(self, place.rows, context), nll_DxBxSxN

    def start(self, place: Place) -> tuple[WordPlace, jax.Array]:
        """Begins a sentence: the place after START, and log P [B, V] of its first word in nats.

        Raises:
          InputError: the place is another reader's, or the model predicts bags of words.
        """
        self._require_own(place)
        if self.model.objective == "bags":
            raise InputError(f"{self.model.name} predicts bags of words: none of them is the next")
        words = self._run.start(self._params, place.context, self.spread(np.zeros(place.rows)))
        return self.next(WordPlace(self, place.rows, 0, words), np.full(place.rows, START))

    def next(self, place: WordPlace, tokens_B: Any) -> tuple[WordPlace, jax.Array]:
        """Reads a word in each row; END ends a row's sentence, and nothing more is read there.

        Args:
          place: of this reader.
          tokens_B: int, word ids.

        Returns:
          The place after it, and log P [B, V] of the word that follows, END among them, in nats;
          where a sentence has ended they mean nothing.

        Raises:
          InputError: the place is another reader's, there is another number of words, or they are
            no ids.
        """
        self._require_own(place)
        self._require_words(tokens_B)
        tokens_B = np.asarray(tokens_B, np.int32)
        if tokens_B.shape != (place.rows,):
            raise InputError(f"words have shape {tokens_B.shape}; expected ({place.rows},)")
        words = place.words
        if place.length == words.tokens_RxB.shape[1]:
            words = _with_double_room(words)
        words, log_probs_DxBxV = self._run.next(self._params, words, self.spread(tokens_B))
        log_probs_BxV = log_probs_DxBxV.reshape(-1, log_probs_DxBxV.shape[-1])[: place.rows]
        return WordPlace(self, place.rows, place.length + 1, words), log_probs_BxV

    def finish(self, place: WordPlace) -> Place:
        """Closes the sentence: the place after it, as `read` gives it.

        Raises:
          InputError: the place is another reader's.
        """
        self._require_own(place)
        return Place(self, place.rows, self._run.finish(self._params, place.words))

    def vectors(self, place: Place) -> np.ndarray | None:
        """The contexts as vectors [B, X] (`DocumentModel.vector`); None of a model without any.

        Raises:
          InputError: the place is another reader's.
        """
        self._require_own(place)
        vectors = self._run.vector(self._params, place.context)
        if vectors is None:
            return None
        return np.asarray(vectors).reshape(-1, vectors.shape[-1])[: place.rows]

    def spread(self, array_B: Any) -> np.ndarray:
        """[B, ...] -> [D, B / D, ...]; rows that are missing are the last one again."""
        missing = -len(array_B) % len(self.devices)
        padding = [(0, missing)] + [(0, 0)] * (array_B.ndim - 1)
        filled = np.pad(array_B, padding, mode="edge") if missing else np.asarray(array_B)
        return filled.reshape(len(self.devices), -1, *array_B.shape[1:])

    def _require_own(self, place: Place | WordPlace) -> None:
        if place.reader is not self:
            raise InputError("the place belongs to another reader; expected one of this reader's")


def _chosen(rows: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    chosen = np.asarray(rows)
    are_indices = chosen.ndim == 1 and chosen.size and chosen.dtype.kind in "iu"
    if not are_indices or chosen.min() < 0 or chosen.max() >= count:
        raise InputError(f"rows are {shown(chosen.tolist())}; expected some of 0 to {count - 1}")
    return chosen


class _Functions(NamedTuple):
    """What a reader runs; all take the parameters first, and rows along a second axis."""

    open: Callable[..., Context]
    read: Callable[..., tuple[Context, jax.Array]]
    start: Callable[..., _Words]
    next: Callable[..., tuple[_Words, jax.Array]]
    finish: Callable[..., Context]
    vector: Callable[..., jax.Array | None]


@functools.cache
def _functions(model: DocumentModel, tuning: Tuning, devices: tuple[Any, ...]) -> _Functions:
    """Compiled once for all readers of a model."""
    functions = (
        functools.partial(_open, model),
        functools.partial(block_nll, model, tuning),
        functools.partial(_start, model),
        functools.partial(_next, model, tuning),
        functools.partial(_finish, model),
        functools.partial(_vector, model),
    )
    if len(devices) > 1:
        return _Functions(*(jax.pmap(one, devices=devices) for one in functions))
    return _Functions(*(jax.jit(_on_one_device(one)) for one in functions))


def _on_one_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of arrays with an axis of one device, without pmap, which takes its time."""

    def run(*arrays_1: Any) -> Any:
        result = function(*jax.tree.map(lambda array: array[0], arrays_1))
        return jax.tree.map(lambda array: array[None], result)

    return run


def _open(model: DocumentModel, params: Params, row_B: jax.Array) -> Context:
    return model.open_document(weighted(model, params), len(row_B))


def _start(model: DocumentModel, params: Params, context: Context, row_B: jax.Array) -> _Words:
    params, rows = weighted(model, params), len(row_B)
    conditioning = model.condition(params, context)
    state = model.open_sentence(params, context, rows)

    def output() -> Any:
        x = _stack_input(model, params, conditioning, jnp.zeros(rows, jnp.int32))
        return model.step(params, conditioning, state, x)[1]

    return _Words(
        count=jnp.zeros((), jnp.int32),
        goes_on_B=jnp.ones(rows, bool),
        context=context,
        conditioning=conditioning,
        state=state,
        tokens_RxB=jnp.zeros((_MIN_ROOM, rows), jnp.int32),
        mask_RxB=jnp.zeros((_MIN_ROOM, rows), bool),
        outputs_R=jax.tree.map(
            lambda one: jnp.zeros((_MIN_ROOM, *one.shape), one.dtype), jax.eval_shape(output)
        ),
    )


def _next(
    model: DocumentModel, tuning: Tuning, params: Params, words: _Words, tokens_B: jax.Array
) -> tuple[_Words, jax.Array]:
    params = weighted(model, params)
    is_real_B = words.goes_on_B & (tokens_B != END)
    x = _stack_input(model, params, words.conditioning, tokens_B)
    state, output = model.step(params, words.conditioning, words.state, x)

    def put(all_R: jax.Array, one: jax.Array) -> jax.Array:
        return all_R.at[words.count].set(one)

    words = words._replace(
        count=words.count + 1,
        goes_on_B=is_real_B,
        state=keep_at_padding(is_real_B, state, words.state),
        tokens_RxB=put(words.tokens_RxB, tokens_B),
        mask_RxB=put(words.mask_RxB, is_real_B),
        outputs_R=jax.tree.map(put, words.outputs_R, output),
    )
    return words, word_log_probs(model, params, words.conditioning, tokens_B, output, tuning)


def _stack_input(
    model: DocumentModel, params: Params, conditioning: Conditioning, tokens_B: jax.Array
) -> StackInput:
    x_BxK = model.embed(params, tokens_B)
    return StackInput(stack.first_gates(params["stack"], x_BxK, conditioning.gates))


def _finish(model: DocumentModel, params: Params, words: _Words) -> Context:
    params = weighted(model, params)
    tokens, mask = words.tokens_RxB, words.mask_RxB
    summary = model.summarize(params, tokens, mask)
    context = model.resize_context(words.context, len(tokens))
    sentence = Sentence(tokens, mask, summary, words.outputs_R)
    context = model.close_sentence(params, context, words.state, sentence)
    return model.resize_context(context, len(tokens), cut=True)


def _vector(model: DocumentModel, params: Params, context: Context) -> jax.Array | None:
    return model.vector(weighted(model, params), context)


def _with_double_room(words: _Words) -> _Words:
    """The same words, with room for as many more."""

    def double(array_DxR: jax.Array) -> jax.Array:
        doubled = jnp.concatenate([array_DxR, jnp.zeros_like(array_DxR)], axis=1)
        return jax.device_put(doubled, array_DxR.sharding)

    return words._replace(
        tokens_RxB=double(words.tokens_RxB),
        mask_RxB=double(words.mask_RxB),
        outputs_R=jax.tree.map(double, words.outputs_R),
    )


@functools.cache
def _taker(model: DocumentModel, *, of_words: bool) -> Callable[[Any, np.ndarray], Any]:
    """Takes rows [D, B / D] of the contexts of a model, or of what is begun of its sentences."""
    params = jax.eval_shape(model.init, jax.random.key(0))

    def shapes(rows: int) -> Any:
        row_B = jax.ShapeDtypeStruct((rows,), jnp.float32)
        context = jax.eval_shape(functools.partial(_open, model), params, row_B)
        if not of_words:
            return context
        return jax.eval_shape(functools.partial(_start, model), params, context, row_B)

    def axis(two: jax.ShapeDtypeStruct, three: jax.ShapeDtypeStruct) -> int:
        sizes = zip(two.shape, three.shape, strict=True)
        return next((axis for axis, (a, b) in enumerate(sizes) if a != b), -1)

    axes = jax.tree.map(axis, shapes(2), shapes(3))

    def taken(array_D: jax.Array, axis: int, row_DxB: jax.Array) -> jax.Array:
        if axis < 0:
            return array_D
        devices, rows = row_DxB.shape
        # Of all devices, [D, ..., B / D, ...] -> [..., B, ...], and back.
        whole = jnp.moveaxis(array_D, 0, axis)
        whole = whole.reshape(*whole.shape[:axis], -1, *whole.shape[axis + 2 :])
        whole = jnp.take(whole, row_DxB.reshape(-1), axis)
        whole = whole.reshape(*whole.shape[:axis], devices, rows, *whole.shape[axis + 1 :])
        return jnp.moveaxis(whole, axis, 0)

    taken_of = jax.jit(
        lambda tree, row_DxB: jax.tree.map(lambda a, axis: taken(a, axis, row_DxB), tree, axes)
    )

    def take(tree: Any, row_DxB: np.ndarray) -> Any:
        # On the devices again that the rows were on: pmap takes them from no others.
        result = taken_of(tree, row_DxB)
        return jax.tree.map(lambda new, old: jax.device_put(new, old.sharding), result, tree)

    return take
