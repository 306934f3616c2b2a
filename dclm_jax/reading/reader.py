"""Documents being read: a place after a sentence or within one, from which reading goes on.

    place = reader.open(rows, sources)                          B = rows documents, nothing read yet
    place, nll = reader.read(place, sentences)                  whole sentences
    word_place, log_probs = reader.start(place)                 a sentence is begun,
    word_place, log_probs = reader.next(word_place, tokens)     read on word by word
    place = reader.finish(word_place)                           and closed
    place = place.take(rows)                                    rows repeated, dropped, reordered
    place = reader.select(is_first, place, other)               some rows of each
    place = reader.after(documents)                             documents of any lengths, read whole

Places never change: reading on gives a new one, and any number of ways may lead on from one. Rows
are documents of their own. All work is compiled once for each number of rows and room for words,
and done on the first device.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from dclm_jax.data.batches import Batch, pack_sentences
from dclm_jax.data.vocabulary import START
from dclm_jax.errors import InputError, brief, require_at_least
from dclm_jax.models import MODELS
from dclm_jax.models.base import Context, DocumentModel, Params
from dclm_jax.reading import batch_elements, incremental
from dclm_jax.reading.attention import block_attention
from dclm_jax.reading.driver import weighted
from dclm_jax.reading.incremental import SentencePrefix
from dclm_jax.reading.likelihoods import block_nll, open_documents

Sentences = Sequence[np.ndarray]

BLOCK_SENTENCES = 8
"""Sentences that are read at once, at most; a power of two."""
MAX_POSITIONS = 2**16
"""B*S*N of a block on one device, which bounds memory; only a single longer sentence exceeds it."""
_MIN_LENGTH = 8
MAX_ROWS = MAX_POSITIONS // _MIN_LENGTH
"""Maximum B of a block on one device: a sentence takes at least _MIN_LENGTH positions."""
_MIN_ROOM = 16
# In a batch, the longest document has less than this many times the sentences of the shortest one:
# otherwise a very long document would be read beside empty rows.
_LENGTH_RATIO = 4


def padded_length(num_words: int) -> int:
    """N for sentences of up to `num_words` words and END.

    Coarser than the buckets of training: a document is scored once, so fewer shapes to compile save
    more than the padding costs.
    """
    return max(_MIN_LENGTH, power_of_two(num_words + 1))


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def batches_of_like_size(
    sizes: Sequence[tuple[int, int, int]], max_rows: int, num_devices: int = 1
) -> Iterator[tuple[list[int], int]]:
    """Documents to read together, so that little is padding and no block exceeds MAX_POSITIONS.

    Args:
      sizes: of each document, its sentences, the words of the longest one, and how many of its
        positions at least are read at once, a power of two.
      max_rows: a power of two of documents on a device, at most.
      num_devices: that share the rows.

    Yields:
      Indices of documents, the longest first, and B, the power of two of rows on each device. What
      has no sentence is in no batch.
    """
    by_row_limit: dict[int, list[int]] = collections.defaultdict(list)
    for index, (num_sentences, _, positions) in enumerate(sizes):
        if num_sentences:
            # Both are powers of two.
            limit = min(max_rows, max(1, MAX_POSITIONS // positions))
            by_row_limit[limit].append(index)
    for limit, indices in sorted(by_row_limit.items(), reverse=True):
        indices.sort(key=lambda index: sizes[index], reverse=True)
        while indices:
            longest, *_ = sizes[indices[0]]
            rows = [
                index
                for index in indices[: limit * num_devices]
                if sizes[index][0] * _LENGTH_RATIO > longest
            ]
            indices = indices[len(rows) :]
            yield rows, power_of_two(-(-len(rows) // num_devices))


def next_block(documents: Sequence[Sentences], first: int, size: int, rows: int) -> Batch:
    """Sentences [B, S, N] of documents from the sentence `first` on, S at most `size`, a power of
    two; fewer where so many `rows` on a device would exceed MAX_POSITIONS."""
    while True:
        block = [sentences[first : first + size] for sentences in documents]
        length = padded_length(max(len(words) for sentences in block for words in sentences))
        if size == 1 or rows * size * length <= MAX_POSITIONS:
            return pack_sentences(block, size, length)
        size //= 2


def source_shape(source: Sentences) -> tuple[int, int]:
    """S and N that hold a source, powers of two: a source is read at once."""
    longest = max(map(len, source), default=0)
    return power_of_two(max(1, len(source))), padded_length(longest)


def size_of(sentences: Sentences, source: Sentences | None = None) -> tuple[int, int, int]:
    """The size of a document, made of that source, for `batches_of_like_size`."""
    longest = max(map(len, sentences), default=0)
    positions = padded_length(longest)
    if source is not None:
        positions = max(positions, math.prod(source_shape(source)))
    return len(sentences), longest, positions


def pack_sources(sources: Sequence[Sentences]) -> Batch:
    """The documents [B, S, N] that B documents are made of."""
    shapes = zip(*map(source_shape, sources), strict=True)
    return pack_sentences(sources, *map(max, shapes))


@dataclasses.dataclass(frozen=True)
class Place:
    """The end of a sentence, or the start of the document, in each of B = `rows` documents."""

    reader: "Reader"
    rows: int
    context: Context

    def take(self, rows: Sequence[int] | np.ndarray) -> "Place":
        """The places of these rows, in this order; a row may come any number of times."""
        row_B = _checked_rows(rows, self.rows)
        return Place(self.reader, len(row_B), self.reader.take(self.context, row_B))


@dataclasses.dataclass(frozen=True)
class WordPlace:
    """A place within a sentence in each of `rows` documents, `length` tokens after its start.

    A row that has been given END is at the end of its sentence, and stays there.
    """

    reader: "Reader"
    rows: int
    length: int
    prefix: SentencePrefix

    def take(self, rows: Sequence[int] | np.ndarray) -> "WordPlace":
        """As `Place.take`."""
        row_B = _checked_rows(rows, self.rows)
        return WordPlace(self.reader, len(row_B), self.length, self.reader.take(self.prefix, row_B))


class Reader:
    """Reads documents with one model, from any place on.

    Attributes:
      model: any model of the registry.
      params: its parameters, on the device.
      context_order: of the model.
    """

    def __init__(self, model: DocumentModel, params: Params):
        self.model, self.context_order = model, model.context_order
        self.params = jax.device_put(params, jax.local_devices()[0])

    def open(self, rows: int, sources: Sequence[Sentences] | None = None) -> Place:
        """The start of so many documents.

        Args:
          rows: B.
          sources: of a model that reads sources, what each document is made of: sentences as `read`
            takes them, of any number.
        """
        require_at_least("rows", rows, 1)
        if (sources is not None) != self.model.reads_source:
            expected = "one for each row" if self.model.reads_source else "none"
            count = "none" if sources is None else len(sources)
            raise InputError(f"sources are {count}; {self.model.name} expects {expected}")
        source = None
        if sources is not None:
            if len(sources) != rows:
                raise InputError(
                    f"sources are {len(sources)}; expected one for each of {rows} rows"
                )
            for number, sentences in enumerate(sources, 1):
                if not len(sentences):
                    raise InputError(f"source {number} has no sentence; expected at least one")
            self._require_documents(sources)
            source = pack_sources(sources)
        return Place(self, rows, self._run(open_documents, rows, source, static=(1,)))

    def read(
        self,
        place: Place,
        sentences: Sequence[Sentences],
        unscored: Sequence[int] | None = None,
    ) -> tuple[Place, list[list[np.ndarray]]]:
        """Reads whole sentences on from a place.

        Args:
          place: of this reader.
          sentences: for each row equally many sentences, each int [M] word ids without START, END.
          unscored: for each row how many of the first targets of each sentence are not asked for,
            which spares the work of the output layer; None for none.

        Returns:
          The place after them, and for each row and sentence float32 [M + 1]: -log P(target) in
          nats of the targets w1..wM END, given all words before them in the document. It is 0 for
          a target that is not asked for.
        """
        self._require_own(place)
        counts = {len(row) for row in sentences}
        if len(sentences) != place.rows or len(counts) != 1:
            raise InputError(
                f"{len(sentences)} rows of {sorted(counts)} sentences; expected one number of "
                f"sentences for each of {place.rows} rows"
            )
        self._require_documents(sentences)
        (left,), context = counts, place.context
        scores: list[list[np.ndarray]] = [[] for _ in sentences]
        while left:
            first = len(scores[0])
            # An empty sentence to fill up a block would be one more in the document.
            size = min(BLOCK_SENTENCES, 1 << (left.bit_length() - 1))
            batch = next_block(sentences, first, size, place.rows)
            scored = None
            if unscored is not None:
                position_N = np.arange(batch.mask_BxSxN.shape[2])
                scored = (position_N >= np.asarray(unscored)[:, None])[:, None]
            context, nll_BxSxN = self._run(block_nll, context, batch, scored)
            for row, nll_SxN in enumerate(np.asarray(nll_BxSxN)):
                block = zip(sentences[row][first:], nll_SxN, strict=False)
                scores[row] += [nll[: len(words) + 1] for words, nll in block]
            left -= batch.mask_BxSxN.shape[1]
        return Place(self, place.rows, context), scores

    def after(self, documents: Sequence[Sentences]) -> Place:
        """The place after each of these documents, which may have any number of sentences.

        Args:
          documents: each a sequence of sentences as `read` takes them; none is an empty document.
        """
        place = self.open(len(documents))
        self._require_documents(documents)
        # Rows whose document has ended are read on beside the others, and then left.
        longest = max((len(words) for document in documents for words in document), default=0)
        length, first = padded_length(longest), 0
        context = ended = self.model.resize_context(place.context, length)
        counts_B = np.array([len(document) for document in documents])
        for last in sorted(set(counts_B.tolist())):
            while first < last:
                size = min(BLOCK_SENTENCES, 1 << ((last - first).bit_length() - 1))
                batch = next_block(documents, first, size, place.rows)
                context = self._run(_context_after, context, batch)
                first += batch.mask_BxSxN.shape[1]
            context = self.model.resize_context(context, length)
            ended = self._run(batch_elements.select, counts_B == last, context, ended)
        return Place(self, place.rows, ended)

    def select(self, is_first_B: np.ndarray, first: Place, second: Place) -> Place:
        """The rows of the first place where `is_first_B`, those of the second elsewhere."""
        for place in (first, second):
            self._require_own(place)
        if not len(is_first_B) == first.rows == second.rows:
            raise InputError(
                f"places have {first.rows} and {second.rows} rows, of which {len(is_first_B)} are "
                "selected; expected equal numbers"
            )
        context = self._run(batch_elements.select, is_first_B, first.context, second.context)
        return Place(self, first.rows, context)

    def _require_documents(self, documents: Sequence[Sentences]) -> None:
        for document in documents:
            for words in document:
                self._require_words(words)

    def _require_words(self, ids: Any) -> None:
        ids = np.asarray(ids)
        if ids.size and not (
            ids.dtype.kind in "iu" and 0 <= ids.min() and ids.max() < self.model.vocab_size
        ):
            raise InputError(
                f"words are {brief(ids.tolist())}; expected ids from 0 to "
                f"{self.model.vocab_size - 1}"
            )

    def start(self, place: Place) -> tuple[WordPlace, jax.Array]:
        """Begins a sentence: the place after START, and log P [B, V] of its first word in nats."""
        self._require_own(place)
        if self.model.objective == "bags":
            raise InputError(f"{self.model.name} predicts bags of words: none of them is the next")
        begun = self._run(incremental.begin, place.context, place.rows, _MIN_ROOM, static=(2, 3))
        return self.next(WordPlace(self, place.rows, 0, begun), np.full(place.rows, START))

    def next(self, place: WordPlace, tokens_B: Any) -> tuple[WordPlace, jax.Array]:
        """Reads a word in each row; END ends a row's sentence, and nothing more is read there.

        Args:
          place: of this reader.
          tokens_B: int, word ids.

        Returns:
          The place after it, and log P [B, V] of the word that follows, END among them, in nats;
          where a sentence has ended they mean nothing.
        """
        self._require_own(place)
        self._require_words(tokens_B)
        tokens_B = np.asarray(tokens_B, np.int32)
        if tokens_B.shape != (place.rows,):
            raise InputError(f"words have shape {tokens_B.shape}; expected ({place.rows},)")
        before, room = place.prefix, len(place.prefix.steps.tokens_RxB)
        if place.length == room:
            before = incremental.with_room(before, 2 * room)
        after, log_probs_BxV = self._run(incremental.advance, before, tokens_B)
        return WordPlace(self, place.rows, place.length + 1, after), log_probs_BxV

    def finish(self, place: WordPlace) -> Place:
        """Closes the sentence: the place after it, as `read` gives it."""
        self._require_own(place)
        return Place(self, place.rows, self._run(incremental.close, place.prefix))

    def vectors(self, place: Place) -> np.ndarray | None:
        """The contexts as vectors [B, X] (`DocumentModel.vector`); None of a model without any."""
        self._require_own(place)
        vectors = self._run(_vector, place.context)
        return None if vectors is None else np.asarray(vectors)

    def vectors_along(self, documents: Sequence[Sentences]) -> list[np.ndarray] | None:
        """The contexts of whole documents before and after every sentence, without scoring any.

        Args:
          documents: B of them, of one sentence or more each, see `read`. They are read together
            from their starts to the end of the longest one; of a model that reads sources each is
            its own.

        Returns:
          For each document the vectors [1 + S, X]; None of a model without any (see `vectors`).
        """
        self._require_documents(documents)
        rows = power_of_two(len(documents)) if documents else 0
        # What fills up the batch is read like a document.
        filled = [*documents, *([*documents[:1]] * (rows - len(documents)))]
        context = self.open(rows, filled if self.model.reads_source else None).context
        vectors_SxBxX = [self._run(_vector, context)]
        if vectors_SxBxX[0] is None:
            return None
        for first in range(max(map(len, documents))):
            batch = next_block(filled, first, 1, rows)
            context = self._run(_context_after, context, batch)
            vectors_SxBxX.append(self._run(_vector, context))
        vectors_BxSxX = np.stack(jax.device_get(vectors_SxBxX), axis=1)
        return [
            vectors_SxX[: 1 + len(document)]
            for vectors_SxX, document in zip(vectors_BxSxX, documents, strict=False)
        ]

    def attention(self, document: Sentences) -> list[np.ndarray]:
        """What the tokens of a document attend to, which is read from its start.

        Args:
          document: sentences as `read` takes them.

        Returns:
          For each sentence the weights float32 [targets, positions] with which w1..wM END are
          predicted; rows sum to 1. Positions are, of a model that attends to "words", the inputs
          START w1..wM of the sentence before, and c_0 alone of the first one; to "sentences", the n
          before, as far as there are so many: the first sentence has none of them.
        """
        kind, room = self.model.attends_to, self.model.context_order or 0
        if kind is None:
            expected = ", ".join(name for name, model in MODELS.items() if model.attends_to)
            raise InputError(
                f"{self.model.name} has no attention to sentences before; expected one of "
                f"{expected}"
            )
        self._require_documents([document])
        context, weights = self.open(1).context, []
        while len(weights) < len(document):
            first = len(weights)
            batch = next_block([document], first, BLOCK_SENTENCES, 1)
            context, weights_1xSxNxM = self._run(block_attention, context, batch)
            for t, weights_NxM in enumerate(np.asarray(weights_1xSxNxM)[0], start=first):
                if t == len(document):
                    break
                if kind == "words":
                    positions = slice(len(document[t - 1]) + 1 if t else 1)
                else:
                    positions = slice(room - min(t, room), room)
                weights.append(weights_NxM[: len(document[t]) + 1, positions])
        return weights

    def distances(self, place: Place, other: Place, length: int) -> np.ndarray:
        """How far the rows of two places are apart, [B]: the largest difference of any number of
        their contexts.

        Args:
          place, other: of as many rows, after sentences of no more than `length` - 1 words.
          length: of padded sentences.
        """
        for either in (place, other):
            self._require_own(either)
        resized = (self.model.resize_context(either.context, length) for either in (place, other))
        return np.asarray(self._run(batch_elements.distances, *resized))

    def take(self, tree: Any, row_B: np.ndarray) -> Any:
        """Rows of the context of a place, or of the words of one within a sentence."""
        return self._run(incremental.take, tree, row_B)

    def _run(
        self, function: Callable[..., Any], *arguments: Any, static: tuple[int, ...] = ()
    ) -> Any:
        return _compiled(function, self.model, static)(self.params, *arguments)

    def _require_own(self, place: Place | WordPlace) -> None:
        if place.reader is not self:
            raise InputError("the place belongs to another reader; expected one of this reader's")


def _checked_rows(rows: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    row_B = np.asarray(rows)
    are_indices = row_B.ndim == 1 and row_B.size and row_B.dtype.kind in "iu"
    if not are_indices or row_B.min() < 0 or row_B.max() >= count:
        raise InputError(f"rows are {brief(row_B.tolist())}; expected some of 0 to {count - 1}")
    return row_B


@functools.cache
def _compiled(function: Callable[..., Any], model: DocumentModel, static: tuple[int, ...]) -> Any:
    """Compiled once for all readers of a model."""
    return jax.jit(functools.partial(function, model), static_argnums=static)


def _context_after(model: DocumentModel, params: Params, context: Context, batch: Batch) -> Context:
    # Nothing that is only scored is computed.
    return block_nll(model, params, context, batch)[0]


def _vector(model: DocumentModel, params: Params, context: Context) -> jax.Array | None:
    return model.vector(weighted(model, params), context)
