"""Batches of segments: a pure function of (seed, step), in few different shapes.

Shapes: B rows (segments or documents), S sentences of a row, N token positions of a sentence.
"""

import functools
from collections.abc import Sequence

import flax.struct
import jax
import numpy as np

from dclm_jax.data.corpus import Corpus
from dclm_jax.data.vocabulary import END, START
from dclm_jax.errors import InputError

# Longer sentences continue by doubling the last one.
LENGTH_BOUNDARIES = (8, 16, 32, 48, 64, 96, 128, 192, 256, 512)


@flax.struct.dataclass
class Batch:
    """Sentences START w1..wM as inputs and w1..wM END as targets, padded with 0.

    Attributes:
      tokens_BxSxN: int32 inputs.
      targets_BxSxN: int32 targets.
      mask_BxSxN: bool, True where there is a target.
    """

    tokens_BxSxN: np.ndarray | jax.Array
    targets_BxSxN: np.ndarray | jax.Array
    mask_BxSxN: np.ndarray | jax.Array


def length_bucket(length: int) -> int:
    """The smallest boundary that holds `length` positions (the words of a sentence and END)."""
    return int(_length_buckets(np.asarray([length]))[0])


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

    Within an epoch the segments are shuffled, sorted by the length bucket of their longest
    sentence, cut into batches, and the batches are shuffled. What is left over in a bucket goes
    into a batch of the next larger one, so at most one batch an epoch is partial (filled up with
    empty rows). The number of batches and their shapes are the same in every epoch.
    """

    def __init__(self, corpus: Corpus, *, segment_length: int, batch_size: int, seed: int):
        """Indexes the corpus; its words are read when a batch is asked for.

        Args:
          corpus: usually the training split.
          segment_length: L, which is also S of every batch.
          batch_size: B of every batch, over all devices and processes.
          seed: with the step it determines a batch; 0 or more.

        Raises:
          InputError: an argument is too small.
        """
        for name, value, least in (
            ("segment_length", segment_length, 1),
            ("batch_size", batch_size, 1),
            ("seed", seed, 0),
        ):
            if value < least:
                raise InputError(f"{name} is {value}; expected at least {least}")
        self.segment_length = segment_length
        self.batch_size = batch_size
        self.seed = seed
        self._tokens = corpus.tokens
        self._sentence_offsets = np.asarray(corpus.sentence_offsets)
        self._first, self._count = _cut_segments(
            np.asarray(corpus.document_offsets), segment_length
        )
        lengths = np.diff(self._sentence_offsets)
        # Segments follow one another without gaps, which is what reduceat needs.
        self._bucket = _length_buckets(np.maximum.reduceat(lengths, self._first) + 1)
        # Ordering an epoch costs a sort of all segments, and steps come in order.
        self._epoch_order = functools.lru_cache(maxsize=2)(self._shuffle)

    @property
    def num_segments(self) -> int:
        return len(self._first)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_segments // self.batch_size)

    @property
    def lengths(self) -> list[int]:
        """Every N that occurs: a step is compiled once for each."""
        last = np.arange(1, self.steps_per_epoch + 1) * self.batch_size - 1
        ordered = np.sort(self._bucket)
        return np.unique(ordered[np.minimum(last, len(ordered) - 1)]).tolist()

    def __call__(self, step: int) -> Batch:
        """The batch of a step, B x L x N with N one of `lengths`.

        Raises:
          ValueError: `step` is negative.
        """
        if step < 0:
            raise ValueError(f"step is {step}; expected 0 or more")
        epoch, position = divmod(step, self.steps_per_epoch)
        segments, batches = self._epoch_order(epoch)
        begin = int(batches[position]) * self.batch_size
        chosen = segments[begin : begin + self.batch_size]
        first, count = self._first[chosen], self._count[chosen]

        sentence_BxS = first[:, None] + np.arange(self.segment_length)
        exists_BxS = np.arange(self.segment_length) < count[:, None]
        sentence_BxS = np.where(exists_BxS, sentence_BxS, 0)
        offsets = self._sentence_offsets
        lengths_BxS = np.full((self.batch_size, self.segment_length), -1, np.int64)
        lengths_BxS[: len(chosen)] = np.where(
            exists_BxS, offsets[sentence_BxS + 1] - offsets[sentence_BxS], -1
        )
        words = np.concatenate(
            [
                self._tokens[begin:end]
                for begin, end in zip(offsets[first], offsets[first + count], strict=True)
            ]
        )
        return _fill(words, lengths_BxS, int(self._bucket[chosen[-1]]))

    def _shuffle(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Order of the segments (sorted by bucket) and of the batches cut from them."""
        rng = np.random.default_rng([self.seed, epoch])
        shuffled = rng.permutation(self.num_segments)
        by_bucket = shuffled[np.argsort(self._bucket[shuffled], kind="stable")]
        return by_bucket, rng.permutation(self.steps_per_epoch)


def process_rows(batch: Batch, process_index: int, process_count: int) -> Batch:
    """The contiguous, equal share of a global batch's rows that belongs to one process.

    Raises:
      InputError: the rows cannot be shared equally.
    """
    num_rows = batch.tokens_BxSxN.shape[0]
    if num_rows % process_count:
        raise InputError(
            f"batch_size {num_rows} cannot be shared equally by {process_count} processes"
        )
    share = num_rows // process_count
    rows = slice(process_index * share, (process_index + 1) * share)
    return Batch(
        tokens_BxSxN=batch.tokens_BxSxN[rows],
        targets_BxSxN=batch.targets_BxSxN[rows],
        mask_BxSxN=batch.mask_BxSxN[rows],
    )


def _length_buckets(lengths: np.ndarray) -> np.ndarray:
    boundaries: list[int] = list(LENGTH_BOUNDARIES)
    while boundaries[-1] < lengths.max(initial=0):
        boundaries.append(2 * boundaries[-1])
    return np.asarray(boundaries)[np.searchsorted(boundaries, lengths)]


def _cut_segments(document_offsets: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """First sentence and number of sentences of each segment, in the order of the corpus."""
    num_segments = -(-np.diff(document_offsets) // length)
    document = np.repeat(np.arange(len(num_segments)), num_segments)
    before = np.cumsum(num_segments) - num_segments
    within = np.arange(len(document)) - before[document]
    first = document_offsets[document] + length * within
    return first, np.minimum(length, document_offsets[document + 1] - first)


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
