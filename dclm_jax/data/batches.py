"""Batches of sentences: packed for scoring, and for training a pure function of (seed, step).

A batch is the same on any number of devices. Segments are shuffled, sorted by buckets of lengths
and cut into batches, and batches are shuffled. N is a bucket of lengths. S is L or, for segments of
more than 16 sentences, a power of two.

Shapes: B batch elements (segments or documents), S sentences, N token positions of a sentence.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import jax
import numpy as np

from dclm_jax.data.corpus import Corpus
from dclm_jax.data.vocabulary import END, START
from dclm_jax.errors import InputError

RowsT = TypeVar("RowsT")
# Buckets of longer sentences double the last boundary.
LENGTH_BOUNDARIES = (8, 16, 32, 48, 64, 96, 128, 192, 256, 512)
MICROBATCH_POSITIONS = 256
"""Maximum N at which a device reads all its segments of a training step at once; with longer
sentences it reads microbatches, so that few long sentences do not determine the memory of training
as long as N is at most this number times the segments of the device.
"""
# Shorter segments are padded to this length, longer segments to this length times 2^i. If L is
# less, segments are padded to L.
SHORT_SEGMENT = 16


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Sentences START w1..wM as inputs and w1..wM END as targets, padded with 0.

    Attributes:
      tokens_BxSxN: int32 inputs.
      targets_BxSxN: int32 targets.
      mask_BxSxN: bool, True where there is a target.
      earlier: the C previous sentences [B, C, N], not scored. If a segment has fewer than C
        previous sentences, empty sentences precede them. None if the model reads no earlier
        sentences.
      source: the documents that an autoencoder reads first, as the inputs of its encoder; None if
        the model reads no source.
      context: the sentences [B, S, N] that later sentences have as context in place of the batch's
        sentences, in scoring only; None for the batch's sentences.
    """

    tokens_BxSxN: np.ndarray | jax.Array
    targets_BxSxN: np.ndarray | jax.Array
    mask_BxSxN: np.ndarray | jax.Array
    earlier: "Batch | None" = None
    source: "Batch | None" = None
    context: "Batch | None" = None


class Shape(NamedTuple):
    """The shape of a global batch: B segments of S sentences of N token positions, C earlier
    sentences, and whether each segment is its own source."""

    segments: int
    sentences: int
    positions: int
    earlier: int = 0
    has_source: bool = False

    @property
    def microbatches(self) -> int:
        """The number of microbatches that one device reads one after another; missing segments are
        padding."""
        return min(-(-self.positions // MICROBATCH_POSITIONS), self.segments)

    @property
    def positions_at_once(self) -> int:
        """Positions of targets that one device reads at once, padding included."""
        segments = -(-self.segments // self.microbatches)
        return segments * self.sentences * self.positions

    def on_each(self, devices: int) -> "Shape":
        """The part of one device; missing segments are padding."""
        return self._replace(segments=-(-self.segments // devices))

    def batch(self, devices: int) -> Batch:
        """The batches of `devices` devices as shapes [D, B, ...]; each device has this shape."""

        def arrays(sentences: int, positions: int) -> Batch:
            size = (devices, self.segments, sentences, positions)
            ids, mask = (cast(Any, jax.ShapeDtypeStruct(size, kind)) for kind in (np.int32, bool))
            return Batch(tokens_BxSxN=ids, targets_BxSxN=ids, mask_BxSxN=mask)

        return dataclasses.replace(
            arrays(self.sentences, self.positions),
            earlier=arrays(self.earlier, self.positions) if self.earlier else None,
            source=arrays(self.sentences, self.positions) if self.has_source else None,
        )


def length_bucket(length: int) -> int:
    """The smallest boundary of at least `length` positions (the words of a sentence and END)."""
    return int(_buckets(np.asarray([length]), LENGTH_BOUNDARIES)[0])


def pack_sentences(rows: Sequence[Sequence[np.ndarray]], num_sentences: int, length: int) -> Batch:
    """Packs sentences, each an array of word ids without START and END, into a batch.

    Args:
      rows: for each of B batch elements at most `num_sentences` sentences.
      num_sentences: S.
      length: N, at least the words of the longest sentence plus 1.
    """
    lengths_BxS = np.full((len(rows), num_sentences), -1, np.int64)
    for index, row in enumerate(rows):
        lengths_BxS[index, : len(row)] = [len(sentence) for sentence in row]
    sentences = [np.asarray(sentence, np.int32) for row in rows for sentence in row]
    words = np.concatenate(sentences) if sentences else np.zeros(0, np.int32)
    return _fill(words, lengths_BxS, length)


def shard_rows(rows: RowsT, count: int, pad: Callable[..., Any] = np.pad) -> RowsT:
    """Splits batch elements evenly over devices or microbatches, [B, ...] -> [count,
    ceil(B / count), ...] for a `Batch` or any arrays; `pad` is the function of NumPy or of JAX.

    Empty batch elements, which have no token and change no sum, are added for an even split.
    """

    def split(array: Any) -> Any:
        if missing := -len(array) % count:
            array = pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
        return array.reshape(count, -1, *array.shape[1:])

    return jax.tree.map(split, rows)


class Earlier(NamedTuple):
    """The sentences before a segment, the batch's `earlier`.

    Attributes:
      sentences: C, their number.
      no_context_share: share of the segments with earlier sentences whose earlier sentences are
        left out; they are drawn anew in every epoch.
    """

    sentences: int = 0
    no_context_share: float = 0.0


NO_EARLIER = Earlier()


class TrainingBatches:
    """Segments of at most L consecutive sentences of a document, shuffled into batches.

    In each epoch the segments are shuffled, sorted by the bucket of their number of sentences and
    then by the bucket of their longest sentence (earlier sentences included), and cut into batches,
    which are shuffled. The remainder of a bucket goes into a batch of the next bucket, so that at
    most one batch per epoch is partial (filled with empty elements). The number of batches and
    their shapes are equal in all epochs. Segments of up to 16 sentences have one bucket, L; longer
    segments have buckets 16, 32, 64 and so on, and finally L or the longest document.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        segment_length: int,
        batch_size: int,
        seed: int,
        max_sentence_length: int = 0,
        earlier: Earlier = NO_EARLIER,
        has_source: bool = False,
    ):
        """Indexes the corpus. The words of a batch are read when the batch is requested.

        Args:
          corpus: usually the training split.
          segment_length: L; 0 makes every document a segment.
          batch_size: B of every batch, over all devices and processes; at most the number of
            segments.
          seed: random seed, 0 or more.
          max_sentence_length: maximum number of words, or of pieces of words, per sentence; longer
            sentences are omitted, also from contexts. 0 for no maximum.
          earlier: the sentences before each segment.
          has_source: whether each segment is its own source, the batch's `source`.
        """
        self.seed = seed
        self.earlier_sentences, self.has_source = earlier.sentences, has_source
        self._text = text = _Sentences.of(corpus, max_sentence_length)
        counts = np.diff(text.document_offsets)
        max_sentences = segment_length or int(counts.max())
        num_segments = -(-counts // max_sentences)
        self.batch_size = min(batch_size, int(num_segments.sum()))
        # For each segment its document, the document's first sentence, and the segment's sentences.
        document = np.repeat(np.arange(len(counts)), num_segments)
        before = np.repeat(np.cumsum(num_segments) - num_segments, num_segments)
        self._document_first = text.document_offsets[document]
        first = self._document_first + max_sentences * (np.arange(len(before)) - before)
        count = np.minimum(max_sentences, text.document_offsets[document + 1] - first)
        # reduceat needs segments without gaps.
        longest = np.maximum.reduceat(text.lengths, first)
        for distance in range(1, earlier.sentences + 1):
            sentence = first - distance
            exists = sentence >= self._document_first
            lengths = text.lengths[np.maximum(sentence, 0)]
            longest = np.maximum(longest, np.where(exists, lengths, 0))
        self._segments = _Segments.in_buckets(first, count, longest, max_sentences)
        self._no_context_share = earlier.no_context_share
        # An epoch's order costs a sort of all segments; steps are consecutive.
        self._epoch_order = functools.lru_cache(maxsize=2)(self._shuffle)
        self._has_no_context = functools.lru_cache(maxsize=2)(self._without_context)

    @property
    def num_segments(self) -> int:
        return len(self._segments.first)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_segments // self.batch_size)

    def shapes(self, steps: range) -> collections.Counter[Shape]:
        """The shapes of the batches of these steps, and the number of batches of each shape; no
        word is read. Only the steps of one epoch count, since epochs have about the same shapes."""
        return collections.Counter(map(self.shape, steps[: self.steps_per_epoch]))

    def shape(self, step: int) -> Shape:
        """The shape of the batch of a step; no word is read."""
        size = self._segments.of(self._indices(step)).size
        return Shape(self.batch_size, *size, self.earlier_sentences, self.has_source)

    def _indices(self, step: int) -> np.ndarray:
        """The indices of the segments of a step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        order, batches = self._epoch_order(epoch)
        begin = int(batches[position]) * self.batch_size
        return order[begin : begin + self.batch_size]

    def __call__(self, step: int) -> Batch:
        """The batch of a step, B x S x N with S and N of the largest buckets in it."""
        indices = self._indices(step)
        segments = self._segments.of(indices)
        max_sentences, length = segments.size
        position = np.arange(max_sentences)
        sentence_RxS = segments.first[:, None] + position
        exists_RxS = position < segments.count[:, None]
        batch = self._text.pack(sentence_RxS, exists_RxS, length, self.batch_size)
        if self.has_source:
            return dataclasses.replace(batch, source=batch)
        if not self.earlier_sentences:
            return batch
        earlier_BxC = segments.first[:, None] - np.arange(self.earlier_sentences, 0, -1)
        exists_BxC = earlier_BxC >= self._document_first[indices][:, None]
        exists_BxC &= ~self._has_no_context(step // self.steps_per_epoch)[indices][:, None]
        earlier = self._text.pack(earlier_BxC, exists_BxC, length, self.batch_size)
        return dataclasses.replace(batch, earlier=earlier)

    def _shuffle(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The order of segments (sorted by buckets) and of the batches."""
        rng = np.random.default_rng([self.seed, epoch])
        shuffled = rng.permutation(self.num_segments)
        buckets = [self._segments.length, self._segments.sentences]
        by_bucket = shuffled[np.lexsort([bucket[shuffled] for bucket in buckets])]
        return by_bucket, rng.permutation(self.steps_per_epoch)

    def _without_context(self, epoch: int) -> np.ndarray:
        """Whether each segment loses its earlier sentences in an epoch."""
        rng = np.random.default_rng([self.seed, epoch, 1])
        return rng.random(self.num_segments) < self._no_context_share


class _Segments(NamedTuple):
    """Segments and their buckets.

    Attributes:
      first: the first sentence of each segment.
      count: the number of sentences of each segment.
      sentences: the bucket of this number.
      length: the bucket of the longest sentence of each segment.
    """

    first: np.ndarray
    count: np.ndarray
    sentences: np.ndarray
    length: np.ndarray

    @classmethod
    def in_buckets(
        cls, first: np.ndarray, count: np.ndarray, longest: np.ndarray, max_sentences: int
    ) -> "_Segments":
        # The bucket of the longest segments is the maximum itself.
        sentences = np.minimum(_buckets(count, (SHORT_SEGMENT,)), max_sentences)
        return cls(first, count, sentences, _buckets(longest + 1, LENGTH_BOUNDARIES))

    @property
    def size(self) -> tuple[int, int]:
        """S and N of a batch of all these segments."""
        return int(self.sentences.max()), int(self.length.max())

    def of(self, indices: np.ndarray) -> "_Segments":
        return _Segments(*(array[indices] for array in self))


@dataclasses.dataclass(frozen=True)
class _Sentences:
    """The sentences of a corpus up to a maximum length: the index of their first word, their
    numbers of words, and the first sentence of each document."""

    corpus: Corpus
    begins: np.ndarray
    lengths: np.ndarray
    document_offsets: np.ndarray

    @classmethod
    def of(cls, corpus: Corpus, most_words: int = 0) -> "_Sentences":
        """The sentences of at most `most_words` words; 0 for all."""
        offsets, documents = map(np.asarray, (corpus.sentence_offsets, corpus.document_offsets))
        begins, lengths = offsets[:-1], np.diff(offsets)
        if not most_words:
            return cls(corpus, begins, lengths, documents)
        (indices,) = np.nonzero(lengths <= most_words)
        if not len(indices):
            raise InputError(
                f"max_sentence_length is {most_words}; the shortest sentence of the training text "
                f"has {lengths.min()} words, or pieces of words; choose at least this number"
            )
        return cls(corpus, begins[indices], lengths[indices], np.searchsorted(indices, documents))

    def pack(
        self, sentence_RxS: np.ndarray, exists_RxS: np.ndarray, length: int, rows: int
    ) -> Batch:
        """A batch of `rows` elements: the sentences at the indices `sentence_RxS` where
        `exists_RxS`, then empty elements."""
        lengths_BxS = np.full((rows, sentence_RxS.shape[1]), -1, np.int64)
        lengths_BxS[: len(sentence_RxS)][exists_RxS] = self.lengths[sentence_RxS[exists_RxS]]
        begins = self.begins[sentence_RxS[exists_RxS]]
        lengths = lengths_BxS[lengths_BxS >= 0]
        # Indices of all words in the corpus, without a loop over sentences.
        indices = np.arange(lengths.sum()) + np.repeat(
            begins - np.cumsum(lengths) + lengths, lengths
        )
        return _fill(self.corpus.tokens[indices], lengths_BxS, length)


def _buckets(sizes: np.ndarray, boundaries: tuple[int, ...]) -> np.ndarray:
    """The smallest boundary of at least each size; further boundaries double the last."""
    while boundaries[-1] < sizes.max(initial=0):
        boundaries = (*boundaries, 2 * boundaries[-1])
    return np.asarray(boundaries)[np.searchsorted(boundaries, sizes)]


def _fill(words: np.ndarray, lengths_BxS: np.ndarray, length: int) -> Batch:
    """A batch of concatenated words; a length of -1 means that there is no sentence."""
    position = np.arange(length)
    is_word_BxSxN = position < lengths_BxS[..., None]
    mask_BxSxN = position <= lengths_BxS[..., None]
    tokens_BxSxN = np.zeros(mask_BxSxN.shape, np.int32)
    targets_BxSxN = np.zeros(mask_BxSxN.shape, np.int32)
    # Boolean indexing visits batch elements, sentences and positions in the order of `words`.
    targets_BxSxN[is_word_BxSxN] = words
    targets_BxSxN[mask_BxSxN & ~is_word_BxSxN] = END
    tokens_BxSxN[..., 1:] = np.where(is_word_BxSxN[..., :-1], targets_BxSxN[..., :-1], 0)
    tokens_BxSxN[..., 0] = np.where(mask_BxSxN[..., 0], START, 0)
    return Batch(tokens_BxSxN=tokens_BxSxN, targets_BxSxN=targets_BxSxN, mask_BxSxN=mask_BxSxN)
