"""Batches of segments: a pure function of (seed, step), in few different shapes.

Shapes: B rows (segments or documents), S sentences of a row, N token positions of a sentence.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from dclm_jax.allocation import require_memory
from dclm_jax.data.corpus import Corpus
from dclm_jax.data.vocabulary import END, START
from dclm_jax.errors import InputError, require_at_least

# Longer sentences continue by doubling the last one.
LENGTH_BOUNDARIES = (8, 16, 32, 48, 64, 96, 128, 192, 256, 512)
# Shorter segments are padded to it, or to L; longer ones to doubles of it.
SHORT_SEGMENT = 16


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Sentences START w1..wM as inputs and w1..wM END as targets, padded with 0.

    Attributes:
      tokens_BxSxN: int32 inputs.
      targets_BxSxN: int32 targets.
      mask_BxSxN: bool, True where there is a target.
      earlier: sentences [B, C, N] right before those, not to be scored; a row that has fewer begins
        with empty ones. None where nobody needs them.
      source: the sentences [B, S, N], of an S and N of their own, that the rows are made of; None
        where nobody needs them.
      most_words: how many different inputs the batch has at most, of which shapes are made; None
        where nobody needs it. All devices have that of the whole batch.
    """

    tokens_BxSxN: np.ndarray | jax.Array
    targets_BxSxN: np.ndarray | jax.Array
    mask_BxSxN: np.ndarray | jax.Array
    earlier: "Batch | None" = None
    source: "Batch | None" = None
    most_words: int | None = dataclasses.field(default=None, metadata={"static": True})

    @property
    def inputs(self) -> list[np.ndarray | jax.Array]:
        """The inputs, and those of the sentences before."""
        return [self.tokens_BxSxN, *([] if self.earlier is None else self.earlier.inputs)]

    def with_words_counted(self) -> "Batch":
        """The same with `most_words`, a power of two: few numbers make few shapes."""
        count = np.unique(np.concatenate([np.ravel(tokens) for tokens in self.inputs])).size
        return dataclasses.replace(self, most_words=1 << (count - 1).bit_length())


def length_bucket(length: int) -> int:
    """The smallest boundary that holds `length` positions (the words of a sentence and END)."""
    return int(_buckets(np.asarray([length]), LENGTH_BOUNDARIES)[0])


def pack_sentences(rows: Sequence[Sequence[np.ndarray]], num_sentences: int, length: int) -> Batch:
    """Packs rows of sentences, each an array of word ids without START and END.

    Args:
      rows: B rows of at most `num_sentences` sentences.
      num_sentences: S.
      length: N, at least the words of the longest sentence plus 1.

    Raises:
      ValueError: a row or a sentence does not fit.
    """
    lengths_BxS = np.full((len(rows), num_sentences), -1, np.int64)
    for index, row in enumerate(rows):
        if len(row) > num_sentences:
            raise ValueError(f"row {index} has {len(row)} sentences; S is {num_sentences}")
        lengths_BxS[index, : len(row)] = [len(sentence) for sentence in row]
    if lengths_BxS.max(initial=-1) >= length:
        raise ValueError(f"a sentence has {lengths_BxS.max()} words and END; N is {length}")
    sentences = [np.asarray(sentence, np.int32) for row in rows for sentence in row]
    words = np.concatenate(sentences) if sentences else np.zeros(0, np.int32)
    return _fill(words, lengths_BxS, length)


class TrainingBatches:
    """Segments of at most L consecutive sentences of a document, shuffled into batches.

    Within an epoch the segments are shuffled, sorted by the bucket of their number of sentences and
    then by that of their longest sentence (of those before it that come along, too), cut into
    batches, and the batches are shuffled. What is left over in a bucket goes into a batch of the
    next one, so at most one batch an epoch is partial (filled up with empty rows). The number of
    batches and their shapes are the same in every epoch. Segments of up to 16 sentences have one
    bucket, L; longer ones have 16, 32, 64 and so on, and last L or the longest document. What
    documents are made of is sorted in the same way among documents of one bucket.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        segment_length: int,
        batch_size: int,
        seed: int,
        max_sentence_length: int = 0,
        earlier_sentences: int = 0,
        source: Corpus | None = None,
    ):
        """Indexes the corpus; its words are read when a batch is asked for.

        Args:
          corpus: usually the training split.
          segment_length: L; 0 makes every document a segment.
          batch_size: B of every batch, over all devices and processes; a corpus of fewer segments
            has batches of all of them.
          seed: with the step it determines a batch; 0 or more.
          max_sentence_length: sentences of more words are left out, of contexts too, as if the text
            did not have them; 0 keeps all.
          earlier_sentences: C, sentences before each segment that its batch holds as `earlier`.
          source: what each document is made of, which its batch holds as `source`: as many
            documents, of which all sentences are kept. That of a document may be the document
            itself: `source` is `corpus` then, and the batch its own source.
        """
        require_at_least("segment_length", segment_length, 0)
        require_at_least("batch_size", batch_size, 1)
        require_at_least("seed", seed, 0)
        require_at_least("max_sentence_length", max_sentence_length, 0)
        if source is not None and segment_length:
            raise InputError(
                f"segment_length is {segment_length}; expected 0: a document that is made of a "
                "source is read whole"
            )
        self.seed = seed
        self.earlier_sentences = earlier_sentences
        self._text = text = _Sentences.of(corpus, max_sentence_length)
        counts = np.diff(text.document_offsets)
        max_sentences = segment_length or int(counts.max())
        num_segments = -(-counts // max_sentences)
        self.batch_size = min(batch_size, int(num_segments.sum()))
        # Ids, targets and mask of the shortest sentences.
        positions = self.batch_size * min(max_sentences, SHORT_SEGMENT) * length_bucket(1)
        require_memory(positions * (4 + 4 + 1), f"a batch of {self.batch_size:,} segments")
        # Of each segment: its document, where that one begins, and its own sentences.
        document = np.repeat(np.arange(len(counts)), num_segments)
        before = np.repeat(np.cumsum(num_segments) - num_segments, num_segments)
        self._document_first = text.document_offsets[document]
        first = self._document_first + max_sentences * (np.arange(len(before)) - before)
        count = np.minimum(max_sentences, text.document_offsets[document + 1] - first)
        # Segments follow one another without gaps, which is what reduceat needs.
        longest = np.maximum.reduceat(text.lengths, first)
        for distance in range(1, earlier_sentences + 1):
            sentence = first - distance
            exists = sentence >= self._document_first
            lengths = text.lengths[np.maximum(sentence, 0)]
            longest = np.maximum(longest, np.where(exists, lengths, 0))
        self._segments = _Segments.in_buckets(first, count, longest, max_sentences)
        self._is_its_source = source is corpus
        self._sources = None
        if source is not None and not self._is_its_source:
            self._source_text = text = _Sentences.of(source)
            first, count = text.document_offsets[:-1], np.diff(text.document_offsets)
            longest = np.maximum.reduceat(text.lengths, first)
            sources = _Segments.in_buckets(first, count, longest, int(count.max()))
            self._sources = sources.of(document)
        # Ordering an epoch costs a sort of all segments, and steps come in order.
        self._epoch_order = functools.lru_cache(maxsize=2)(self._shuffle)

    @property
    def num_segments(self) -> int:
        return len(self._segments.first)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_segments // self.batch_size)

    def shapes(self, steps: range) -> set[tuple[int, ...]]:
        """The sizes S and N of the batches of these steps, and those of their sources; no word is
        read. Batches of more than an epoch have about the shapes of its first steps."""
        steps = steps[: self.steps_per_epoch]
        kinds = [self._segments, *([] if self._sources is None else [self._sources])]
        begins = np.arange(0, self.num_segments, self.batch_size)
        shapes: set[tuple[int, ...]] = set()
        epochs, positions = np.divmod(np.asarray(steps), self.steps_per_epoch)
        for epoch in np.unique(epochs):
            order, batches = self._epoch_order(int(epoch))
            numbers = batches[positions[epochs == epoch]]
            sizes = [
                np.maximum.reduceat(bucket[order], begins)[numbers].tolist()
                for kind in kinds
                for bucket in (kind.sentences, kind.length)
            ]
            shapes |= set(zip(*sizes, strict=True))
        return shapes

    def __call__(self, step: int) -> Batch:
        """The batch of a step, B x S x N with S and N of the largest buckets in it.

        Raises:
          ValueError: `step` is negative.
        """
        if step < 0:
            raise ValueError(f"step is {step}; expected 0 or more")
        epoch, position = divmod(step, self.steps_per_epoch)
        order, batches = self._epoch_order(epoch)
        begin = int(batches[position]) * self.batch_size
        indices = order[begin : begin + self.batch_size]
        segments = self._segments.of(indices)
        batch = self._pack(self._text, segments)
        if self._is_its_source:
            return dataclasses.replace(batch, source=batch)
        if self._sources is not None:
            source = self._pack(self._source_text, self._sources.of(indices))
            return dataclasses.replace(batch, source=source)
        if not self.earlier_sentences:
            return batch
        earlier_BxC = segments.first[:, None] - np.arange(self.earlier_sentences, 0, -1)
        exists_BxC = earlier_BxC >= self._document_first[indices][:, None]
        length = batch.mask_BxSxN.shape[2]
        earlier = self._text.pack(earlier_BxC, exists_BxC, length, self.batch_size)
        return dataclasses.replace(batch, earlier=earlier)

    def _pack(self, text: "_Sentences", segments: "_Segments") -> Batch:
        position = np.arange(segments.sentences.max())
        sentence_RxS = segments.first[:, None] + position
        exists_RxS = position < segments.count[:, None]
        return text.pack(sentence_RxS, exists_RxS, int(segments.length.max()), self.batch_size)

    def _shuffle(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Order of the segments (sorted by buckets) and of the batches cut from them."""
        rng = np.random.default_rng([self.seed, epoch])
        shuffled = rng.permutation(self.num_segments)
        buckets = [self._segments.length, self._segments.sentences]
        if self._sources is not None:
            buckets = [self._sources.length, self._sources.sentences, *buckets]
        by_bucket = shuffled[np.lexsort([bucket[shuffled] for bucket in buckets])]
        return by_bucket, rng.permutation(self.steps_per_epoch)


class _Segments(NamedTuple):
    """Consecutive sentences: of each segment the first one and how many there are, and the buckets
    of that number and of the longest sentence."""

    first: np.ndarray
    count: np.ndarray
    sentences: np.ndarray
    length: np.ndarray

    @classmethod
    def in_buckets(
        cls, first: np.ndarray, count: np.ndarray, longest: np.ndarray, max_sentences: int
    ) -> "_Segments":
        # Segments of as many sentences as there can be need no more than that.
        sentences = np.minimum(_buckets(count, (SHORT_SEGMENT,)), max_sentences)
        return cls(first, count, sentences, _buckets(longest + 1, LENGTH_BOUNDARIES))

    def of(self, indices: np.ndarray) -> "_Segments":
        return _Segments(*(array[indices] for array in self))


@dataclasses.dataclass(frozen=True)
class _Sentences:
    """The sentences of a corpus that are short enough: where their words begin, how many these are,
    and where each document begins."""

    corpus: Corpus
    begins: np.ndarray
    lengths: np.ndarray
    document_offsets: np.ndarray

    @classmethod
    def of(cls, corpus: Corpus, most_words: int = 0) -> "_Sentences":
        """Those of at most so many words; 0 for all."""
        offsets, documents = map(np.asarray, (corpus.sentence_offsets, corpus.document_offsets))
        begins, lengths = offsets[:-1], np.diff(offsets)
        if not most_words:
            return cls(corpus, begins, lengths, documents)
        (kept,) = np.nonzero(lengths <= most_words)
        if not len(kept):
            raise InputError(
                f"max_sentence_length is {most_words}; every sentence of the training "
                f"text is longer, the shortest has {lengths.min()} words"
            )
        return cls(corpus, begins[kept], lengths[kept], np.searchsorted(kept, documents))

    def pack(
        self, sentence_RxS: np.ndarray, exists_RxS: np.ndarray, length: int, rows: int
    ) -> Batch:
        """The sentences of these numbers, those that exist, and empty rows up to B."""
        lengths_BxS = np.full((rows, sentence_RxS.shape[1]), -1, np.int64)
        lengths_BxS[: len(sentence_RxS)][exists_RxS] = self.lengths[sentence_RxS[exists_RxS]]
        begins = self.begins[sentence_RxS[exists_RxS]]
        lengths = lengths_BxS[lengths_BxS >= 0]
        # The places of all words in the corpus, without a loop over sentences.
        places = np.arange(lengths.sum()) + np.repeat(
            begins - np.cumsum(lengths) + lengths, lengths
        )
        return _fill(self.corpus.tokens[places], lengths_BxS, length)


def _buckets(sizes: np.ndarray, boundaries: tuple[int, ...]) -> np.ndarray:
    """The smallest boundary that holds each size, where the last one is doubled as needed."""
    while boundaries[-1] < sizes.max(initial=0):
        boundaries = (*boundaries, 2 * boundaries[-1])
    return np.asarray(boundaries)[np.searchsorted(boundaries, sizes)]


def _fill(words: np.ndarray, lengths_BxS: np.ndarray, length: int) -> Batch:
    """Spreads concatenated words over a batch; a length of -1 means there is no sentence."""
    position = np.arange(length)
    is_word_BxSxN = position < lengths_BxS[..., None]
    mask_BxSxN = position <= lengths_BxS[..., None]
    tokens_BxSxN = np.zeros(mask_BxSxN.shape, np.int32)
    targets_BxSxN = np.zeros(mask_BxSxN.shape, np.int32)
    # Boolean indexing walks rows, sentences and positions in the order of `words`.
    targets_BxSxN[is_word_BxSxN] = words
    targets_BxSxN[mask_BxSxN & ~is_word_BxSxN] = END
    tokens_BxSxN[..., 1:] = np.where(is_word_BxSxN[..., :-1], targets_BxSxN[..., :-1], 0)
    tokens_BxSxN[..., 0] = np.where(mask_BxSxN[..., 0], START, 0)
    return Batch(tokens_BxSxN=tokens_BxSxN, targets_BxSxN=targets_BxSxN, mask_BxSxN=mask_BxSxN)
