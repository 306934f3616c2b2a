"""Scores of whole documents, streamed: context is carried over their full length.

Shapes: B rows on a device (documents), S sentences of a block, N token positions of a sentence.
"""

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import flax.jax_utils
import jax
import numpy as np

from dclm_jax.data.batches import Batch, pack_sentences
from dclm_jax.errors import InputError
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.models.reading import block_nll

Document = Sequence[np.ndarray]

MAX_POSITIONS = 2**16
"""B*S*N of a block on one device, which bounds memory; only a single longer sentence exceeds it."""

BLOCK_SENTENCES = 8
"""S where `MAX_POSITIONS` allows it; a power of two."""

# Documents are read ahead to score those of like length together; a window is bounded in tokens
# too, so that long documents do not pile up.
_WINDOW_BATCHES = 8
_WINDOW_TOKENS_PER_ROW = 2**13
# In a batch, the longest document has less than this many times the sentences of the shortest one:
# otherwise a very long document would be read beside empty rows.
_LENGTH_RATIO = 4
_MIN_LENGTH = 8
# Blocks in flight: enough to keep the devices busy while results are unpacked.
_BLOCKS_AHEAD = 4


class _Block(NamedTuple):
    """Sentences first..first+S-1 of the documents `rows` (indices into the window)."""

    rows: list[int]
    first: int
    nll_DxBxSxN: jax.Array


class Scorer:
    """Negative log-likelihoods of documents under a model, on all local devices.

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
        self._num_devices = jax.local_device_count()
        self._params = flax.jax_utils.replicate(params, jax.local_devices())
        self._max_rows = _power_of_two(-(-batch_size // self._num_devices))

    @property
    def context_order(self) -> int | None:
        """Sentences before a sentence that its score depends on; None for all."""
        return self.model.context_order

    def score(self, documents: Iterable[Document]) -> Iterator[list[np.ndarray]]:
        """Scores documents in their order, holding a bounded window of them in memory.

        Args:
          documents: each a sequence of sentences, each int [M] word ids without START and END.

        Yields:
          For every document a list over its sentences of float32 [M + 1]: -log P(target) in nats of
          the targets w1..wM END, given all words before them in the document.
        """
        for window in self._windows(documents):
            scores: list[list[Any]] = [[None] * len(document) for document in window]
            pending: collections.deque[_Block] = collections.deque()
            for rows, num_rows in self._batches(window):
                for block in self._dispatch(window, rows, num_rows):
                    pending.append(block)
                    if len(pending) > _BLOCKS_AHEAD:
                        _collect(pending.popleft(), window, scores)
            while pending:
                _collect(pending.popleft(), window, scores)
            yield from scores

    def _windows(self, documents: Iterable[Document]) -> Iterator[list[Document]]:
        window: list[Document] = []
        tokens = 0
        for document in documents:
            window.append(document)
            tokens += sum(len(sentence) + 1 for sentence in document)
            if (
                len(window) >= _WINDOW_BATCHES * self.batch_size
                or tokens >= _WINDOW_TOKENS_PER_ROW * self.batch_size
            ):
                yield window
                window, tokens = [], 0
        if window:
            yield window

    def _batches(self, window: list[Document]) -> Iterator[tuple[list[int], int]]:
        """Indices of documents to score together, and B, the rows on each device."""
        by_row_limit: dict[int, list[int]] = collections.defaultdict(list)
        for index, document in enumerate(window):
            if document:
                by_row_limit[self._row_limit(document)].append(index)
        for limit, indices in sorted(by_row_limit.items(), reverse=True):
            indices.sort(key=lambda index: -len(window[index]))
            while indices:
                longest = len(window[indices[0]])
                rows = [
                    index
                    for index in indices[: limit * self._num_devices]
                    if len(window[index]) * _LENGTH_RATIO > longest
                ]
                indices = indices[len(rows) :]
                yield rows, _power_of_two(-(-len(rows) // self._num_devices))

    def _row_limit(self, document: Document) -> int:
        """The power of two of rows that fit on a device if all have sentences this long."""
        length = _padded_length(max(map(len, document)))
        rows = self._max_rows
        while rows > 1 and rows * length > MAX_POSITIONS:
            rows //= 2
        return rows

    def _dispatch(self, window: list[Document], rows: list[int], num_rows: int) -> Iterator[_Block]:
        """Starts the blocks of a batch one after another; does not wait for their results."""
        open_document, score_block = _pmapped(self.model)
        num_sentences = max(len(window[index]) for index in rows)
        empty: list[Document] = [()] * (num_rows * self._num_devices - len(rows))
        context = None
        first = 0
        while first < num_sentences:
            size, length = _block_shape(window, rows, num_rows, first, num_sentences)
            sentences = [window[index][first : first + size] for index in rows] + empty
            batch = _spread(pack_sentences(sentences, size, length), self._num_devices)
            if context is None:
                context = open_document(self._params, num_rows, length)
            context, nll_DxBxSxN = score_block(self._params, context, batch)
            yield _Block(rows, first, nll_DxBxSxN)
            first += size


def _block_shape(
    window: list[Document], rows: list[int], num_rows: int, first: int, num_sentences: int
) -> tuple[int, int]:
    """S and N of the block that begins at sentence `first`.

    S depends on the batch and not on what is left of it: a few empty sentences at its end cost less
    than compiling another shape.
    """
    size = min(BLOCK_SENTENCES, _power_of_two(num_sentences))
    while True:
        longest = max(
            len(sentence) for index in rows for sentence in window[index][first : first + size]
        )
        length = _padded_length(longest)
        if size == 1 or num_rows * size * length <= MAX_POSITIONS:
            return size, length
        size //= 2


def _padded_length(num_words: int) -> int:
    """N for sentences of up to `num_words` words and END.

    Coarser than the buckets of training: a document is scored once, so fewer shapes to compile save
    more than the padding costs.
    """
    return max(_MIN_LENGTH, _power_of_two(num_words + 1))


def _collect(block: _Block, window: list[Document], scores: list[list[Any]]) -> None:
    nll_DxBxSxN = jax.device_get(block.nll_DxBxSxN)
    nll_RxSxN = nll_DxBxSxN.reshape(-1, *nll_DxBxSxN.shape[2:])
    for nll_SxN, index in zip(nll_RxSxN, block.rows, strict=False):
        sentences = window[index][block.first : block.first + len(nll_SxN)]
        for offset, sentence in enumerate(sentences):
            # A copy, because a view would keep the padded block alive.
            nll = nll_SxN[offset, : len(sentence) + 1].astype(np.float32)
            scores[index][block.first + offset] = nll


@functools.cache
def _pmapped(model: DocumentModel) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`open_document` and `block_nll` over devices, compiled once for all scorers of a model."""
    open_document = jax.pmap(
        model.open_document, static_broadcasted_argnums=(1, 2), devices=jax.local_devices()
    )
    score_block = jax.pmap(functools.partial(block_nll, model), devices=jax.local_devices())
    return open_document, score_block


def _spread(batch: Batch, num_devices: int) -> Batch:
    """[R, ...] -> [D, R/D, ...]."""
    return jax.tree.map(lambda array: array.reshape(num_devices, -1, *array.shape[1:]), batch)


def _power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()
