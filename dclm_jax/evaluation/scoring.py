"""Scores of whole documents, streamed: context is carried over their full length.

Shapes: B rows on a device (documents), S sentences of a block, N token positions of a sentence.
"""

import collections
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from dclm_jax import processes
from dclm_jax.data.batches import pack_sentences
from dclm_jax.errors import InputError
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.reading.reader import (
    BLOCK_SENTENCES,
    MAX_POSITIONS,
    Reader,
    padded_length,
    power_of_two,
)

Document = Sequence[np.ndarray]
Scored = TypeVar("Scored")
"""What has sentences to score: a sequence of them, or any object with one as `sentences`. If its
`only_last` is true, the sentences before the last one are read for their context and never enter
the output layer, which is most of the work."""


class Continuation(NamedTuple):
    """Sentences of which only the last is scored, given the ones before."""

    sentences: Document
    only_last: bool = True


class SentenceScorer(Protocol):
    """What perplexity, coherence and `LanguageModel` need of a model; see `Scorer`."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def context_order(self) -> int | None: ...

    @property
    def objective(self) -> str: ...

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]: ...


# Documents are read ahead to score those of like length together; a window is bounded in tokens
# too, so that long documents do not pile up.
_WINDOW_BATCHES = 8
_WINDOW_TOKENS_PER_ROW = 2**13
# In a batch, the longest document has less than this many times the sentences of the shortest one:
# otherwise a very long document would be read beside empty rows.
_LENGTH_RATIO = 4
# Blocks in flight: enough to keep the devices busy while results are unpacked.
_BLOCKS_AHEAD = 4


class _Request(NamedTuple):
    """Sentences to read, of which those from `first_scored` on are scored, and whose they are."""

    document: Any
    sentences: Document
    first_scored: int


class _Block(NamedTuple):
    """Sentences first..first+S-1 of the requests `rows` (indices into the window)."""

    rows: list[int]
    first: int
    nll_DxBxSxN: jax.Array


class Scorer:
    """Negative log-likelihoods of documents under a model, on all devices of all processes.

    Where a job has several processes, each of them scores the same documents, shares the work with
    the others, and gets all results: what follows from them is the same number as with one process.

    Scores do not depend on the batch size, on which documents are scored together or on the number
    of devices, but for the rounding of floating-point sums.
    """

    def __init__(self, model: DocumentModel, params: Params, *, batch_size: int = 32):
        """Copies the parameters to every local device.

        Args:
          model: any model of the registry.
          params: its parameters, not replicated.
          batch_size: documents scored together, over all devices; rounded up to a power of two
            times the devices. It changes speed and memory, not scores.

        Raises:
          InputError: `batch_size` is below 1.
        """
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; expected at least 1")
        self.model = model
        self.batch_size = batch_size
        self._reader = Reader(model, params, devices=jax.local_devices())
        self._num_devices = jax.local_device_count()
        self._max_rows = power_of_two(-(-batch_size // self._num_devices))

    @property
    def vocab_size(self) -> int:
        """V, the three special tokens included."""
        return self.model.vocab_size

    @property
    def context_order(self) -> int | None:
        """Sentences before a sentence that its score depends on; None for all."""
        return self.model.context_order

    @property
    def objective(self) -> str:
        """What the scores are of: words and END one after the other, or bags of words, whose END
        has no nats."""
        return self.model.objective

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """Scores documents in their order, holding a bounded window of them in memory.

        Args:
          documents: each a sequence of sentences, each int [M] word ids without START and END; or
            an object that has such `sentences`.

        Yields:
          Every document, and a list over its sentences of float32 [M + 1]: -log P(target) in nats
          of the targets w1..wM END, given all words before them in the document. If its `only_last`
          is true, the list has one such array, that of its last sentence.
        """
        for window in self._windows(documents):
            scores: list[list[Any]] = [[None] * _num_scored(request) for request in window]
            pending: collections.deque[_Block] = collections.deque()
            for number, (rows, num_rows) in enumerate(self._batches(window)):
                if number % processes.count() != processes.index():
                    continue
                for block in self._dispatch(window, rows, num_rows):
                    pending.append(block)
                    if len(pending) > _BLOCKS_AHEAD:
                        _collect(pending.popleft(), window, scores)
            while pending:
                _collect(pending.popleft(), window, scores)
            _exchange(window, scores)
            for request, nll in zip(window, scores, strict=True):
                yield request.document, nll

    def _windows(self, documents: Iterable[Any]) -> Iterator[list[_Request]]:
        # A batch at least for each process.
        batches = max(_WINDOW_BATCHES, processes.count())
        tokens_per_row = _WINDOW_TOKENS_PER_ROW * batches // _WINDOW_BATCHES
        window: list[_Request] = []
        tokens = 0
        for document in documents:
            request = _Request(document, *sentences_to_score(document))
            window.append(request)
            tokens += sum(len(sentence) + 1 for sentence in request.sentences)
            if (
                len(window) >= batches * self.batch_size
                or tokens >= tokens_per_row * self.batch_size
            ):
                yield window
                window, tokens = [], 0
        if window:
            yield window

    def _batches(self, window: list[_Request]) -> Iterator[tuple[list[int], int]]:
        """Indices of requests to score together, and B, the rows on each device."""
        by_row_limit: dict[int, list[int]] = collections.defaultdict(list)
        for index, request in enumerate(window):
            if request.sentences:
                by_row_limit[self._row_limit(request)].append(index)
        for limit, indices in sorted(by_row_limit.items(), reverse=True):
            indices.sort(key=lambda index: _size(window[index]), reverse=True)
            while indices:
                longest = len(window[indices[0]].sentences)
                rows = [
                    index
                    for index in indices[: limit * self._num_devices]
                    if len(window[index].sentences) * _LENGTH_RATIO > longest
                ]
                indices = indices[len(rows) :]
                yield rows, power_of_two(-(-len(rows) // self._num_devices))

    def _row_limit(self, request: _Request) -> int:
        """The power of two of rows that fit on a device if all have sentences this long."""
        length = padded_length(max(map(len, request.sentences)))
        rows = self._max_rows
        while rows > 1 and rows * length > MAX_POSITIONS:
            rows //= 2
        return rows

    def _dispatch(self, window: list[_Request], rows: list[int], num_rows: int) -> Iterator[_Block]:
        """Starts the blocks of a batch one after another; does not wait for their results."""
        num_sentences = max(len(window[index].sentences) for index in rows)
        num_empty = num_rows * self._num_devices - len(rows)
        empty: list[Document] = [()] * num_empty
        first_scored_R = np.array([window[index].first_scored for index in rows] + [0] * num_empty)
        place = self._reader.open(num_rows * self._num_devices)
        first = 0
        while first < num_sentences:
            size, length = _block_shape(window, rows, num_rows, first, num_sentences)
            sentences = [window[index].sentences[first : first + size] for index in rows] + empty
            scored_RxS = first + np.arange(size) >= first_scored_R[:, None]
            batch = pack_sentences(sentences, size, length)
            place, nll_DxBxSxN = self._reader.read_block(place, batch, scored_RxS)
            yield _Block(rows, first, nll_DxBxSxN)
            first += size


def sentences_to_score(document: Any) -> tuple[Document, int]:
    """All sentences of what `SentenceScorer.score` takes, and the first of them to score."""
    sentences = getattr(document, "sentences", document)
    only_last = getattr(document, "only_last", False)
    return sentences, max(len(sentences) - 1, 0) if only_last else 0


def _num_scored(request: _Request) -> int:
    return len(request.sentences) - request.first_scored


def _size(request: _Request) -> tuple[int, int]:
    """What requests of one batch should have in common, so that little of it is padding."""
    return len(request.sentences), max(map(len, request.sentences))


def _block_shape(
    window: list[_Request], rows: list[int], num_rows: int, first: int, num_sentences: int
) -> tuple[int, int]:
    """S and N of the block that begins at sentence `first`.

    S depends on the batch and not on what is left of it: a few empty sentences at its end cost less
    than compiling another shape.
    """
    size = min(BLOCK_SENTENCES, power_of_two(num_sentences))
    while True:
        longest = max(
            len(sentence)
            for index in rows
            for sentence in window[index].sentences[first : first + size]
        )
        length = padded_length(longest)
        if size == 1 or num_rows * size * length <= MAX_POSITIONS:
            return size, length
        size //= 2


def _collect(block: _Block, window: list[_Request], scores: list[list[Any]]) -> None:
    nll_DxBxSxN = jax.device_get(block.nll_DxBxSxN)
    nll_RxSxN = nll_DxBxSxN.reshape(-1, *nll_DxBxSxN.shape[2:])
    for nll_SxN, index in zip(nll_RxSxN, block.rows, strict=False):
        request = window[index]
        last = min(block.first + len(nll_SxN), len(request.sentences))
        for position in range(max(block.first, request.first_scored), last):
            length = len(request.sentences[position]) + 1
            # A copy, because a view would keep the padded block alive.
            nll = nll_SxN[position - block.first, :length].astype(np.float32)
            scores[index][position - request.first_scored] = nll


def _exchange(window: list[_Request], scores: list[list[Any]]) -> None:
    """Fills in what other processes have scored. A document is scored by one of them."""
    if processes.count() == 1:
        return
    mine = [index for index, nll in enumerate(scores) if nll and nll[0] is not None]
    numbers = np.concatenate([np.zeros(0, np.float32), *(one for i in mine for one in scores[i])])
    everyone = zip(
        processes.gather(np.array(mine, np.int32).tobytes()),
        processes.gather(numbers.tobytes()),
        strict=True,
    )
    for indices, content in everyone:
        nll = np.frombuffer(content, np.float32)
        first = 0
        for index in np.frombuffer(indices, np.int32):
            request = window[index]
            for position, sentence in enumerate(request.sentences[request.first_scored :]):
                last = first + len(sentence) + 1
                scores[index][position] = nll[first:last]
                first = last
