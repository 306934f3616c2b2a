"""Scores of streamed documents by models of the registry; the context is carried over the full
length of a document.

Shapes: D devices of this process, B documents per device, R = D B documents, S sentences of a
block, N token positions of a sentence.
"""

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from dclm_jax import processes
from dclm_jax.data.batches import Batch, shard_rows
from dclm_jax.errors import require_at_least
from dclm_jax.models.base import Context, DocumentModel, Params
from dclm_jax.nn.precision import at_precision
from dclm_jax.reading import blocks
from dclm_jax.reading.blocks import Sentences
from dclm_jax.reading.driver import cast_params
from dclm_jax.reading.likelihoods import block_nll, open_documents
from dclm_jax.reading.reader import Reader
from dclm_jax.scoring.scorer import Scored, Scorer, sentences_to_score, with_own_context

# A window of documents is read ahead to score documents of similar length together. The window is
# also bounded in tokens, for long documents.
_WINDOW_BATCHES = 8
_WINDOW_TOKENS_PER_ROW = 2**13
# Blocks in flight: enough to keep the devices busy while results are unpacked.
_BLOCKS_AHEAD = 4


class _Request(NamedTuple):
    """A document, its sentences to read, the sentences that are their context (`sentences` if it
    is the document's own), the index of the first sentence to score, and an entry in `nll` for each
    scored sentence."""

    document: Any
    sentences: Sentences
    contexts: Sentences
    first_scored: int
    nll: list[Any]

    def size(self, reads_source: bool) -> tuple[int, int, int]:
        size, other_size = (
            blocks.size_of(sentences, reads_source=reads_source)
            for sentences in (self.sentences, self.contexts)
        )
        return max(size[0], other_size[0]), max(size[1], other_size[1]), max(size[2], other_size[2])


class BlockFunctions(NamedTuple):
    """Pure functions, compiled by a `NeuralScorer`, that read documents block by block.

    Attributes:
      open: takes the model, its parameters, the number of documents and their sources; returns the
        values carried from block to block, at the start of the documents.
      read: takes the model, its parameters, the carried values, a block and its scored targets;
        returns the values carried after the block, and the values of its targets [B, S, N, ...].
      shape: the shape of the values per target.
    """

    open: Callable[..., Any] = open_documents
    read: Callable[..., tuple[Any, jax.Array]] = block_nll
    shape: tuple[int, ...] = ()


_NATS = BlockFunctions()


class NeuralScorer(Scorer):
    """Negative log-likelihoods of ids under a model of the registry, on all devices.

    The processes of a job score the same documents: each does a share of the work and receives all
    results, so that measures are equal in all processes and equal to measures with one process.

    Up to the rounding of floating-point sums, scores do not depend on the batch size, on the
    documents scored together, or on the number of devices.
    """

    def __init__(
        self,
        model: DocumentModel,
        params: Params,
        *,
        batch_size: int = 32,
        functions: BlockFunctions = _NATS,
    ):
        """Makes a scorer.

        Args:
          batch_size: documents scored together, over all local devices; rounded up to a power of
            two times the devices, and at most `blocks.MAX_ROWS` per device. It changes speed and
            memory, not scores.
          functions: functions that compute other values per target than its nats. Programs are
            compiled once for equal functions.
        """
        require_at_least("batch_size", batch_size, 1)
        self.model, self.params, self.batch_size = model, params, batch_size
        self.vocab_size, self.context_order = model.vocab_size, model.context_order
        self.objective, self.first_word_end = model.objective, model.first_word_end
        self._functions = functions

    def computing(self, functions: BlockFunctions) -> "NeuralScorer":
        """A scorer that computes other values of the same targets."""
        return NeuralScorer(
            self.model, self.params, batch_size=self.batch_size, functions=functions
        )

    def __getstate__(self) -> dict[str, Any]:
        # Copies on devices and compiled programs cannot be pickled, and are made again.
        made = ("_copies", "reader")
        return {name: value for name, value in vars(self).items() if name not in made}

    @functools.cached_property
    def _copies(self) -> Params:
        """The parameters on every local device."""
        return processes.on_local_devices(cast_params(self.model, self.params))

    @functools.cached_property
    def reader(self) -> Reader:
        """Reads and scores ids sentence by sentence, from any state."""
        return Reader(self.model, self.params)

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        num_devices = jax.local_device_count()
        batch_size = min(self.batch_size, blocks.MAX_ROWS * num_devices)
        max_rows = blocks.power_of_two(-(-batch_size // num_devices))
        for window in self._windows(documents, batch_size):
            sizes = [request.size(self.model.reads_source) for request in window]
            batches = list(blocks.batches_of_like_size(sizes, max_rows, num_devices))
            pending: collections.deque[Any] = collections.deque()
            for indices, num_rows in batches[processes.index() :: processes.count()]:
                for block in self._dispatch([window[index] for index in indices], num_rows):
                    pending.append(block)
                    if len(pending) > _BLOCKS_AHEAD:
                        _collect(*pending.popleft())
            while pending:
                _collect(*pending.popleft())
            if processes.count() > 1:
                _exchange(window, [indices for indices, _ in batches], self._functions.shape)
            for request in window:
                yield request.document, request.nll

    def _windows(self, documents: Iterable[Any], batch_size: int) -> Iterator[list[_Request]]:
        # At least one batch per process.
        batches = max(_WINDOW_BATCHES, processes.count())
        tokens_per_row = _WINDOW_TOKENS_PER_ROW * batches // _WINDOW_BATCHES
        window: list[_Request] = []
        tokens = 0
        for document in with_own_context(documents) if self.model.reads_source else documents:
            sentences, first_scored = sentences_to_score(document)
            unknown = [None] * (len(sentences) - first_scored)
            contexts = getattr(document, "contexts", None)
            contexts = sentences if contexts is None else contexts
            window.append(_Request(document, sentences, contexts, first_scored, unknown))
            tokens += sum(len(sentence) + 1 for sentence in sentences)
            if max(len(window) // batches, tokens // tokens_per_row) >= batch_size:
                yield window
                window, tokens = [], 0
        if window:
            yield window

    def _dispatch(
        self, requests: list[_Request], num_rows: int
    ) -> Iterator[tuple[list[_Request], int, jax.Array]]:
        """Starts the blocks of a batch in order, without waiting for their results. Yields the
        requests, the first sentence of a block, and the block's scores [D, B, S, N, ...]."""
        num_sentences = max(len(request.sentences) for request in requests)
        num_devices = jax.local_device_count()
        num_empty = num_rows * num_devices - len(requests)
        documents: list[Sentences] = [request.sentences for request in requests] + [()] * num_empty
        contexts: list[Sentences] | None = None
        if any(request.contexts is not request.sentences for request in requests):
            contexts = [request.contexts for request in requests] + [()] * num_empty
        first_scored_R = np.array([request.first_scored for request in requests] + [0] * num_empty)
        open_rows, read = _compiled(self.model, self._functions)
        source = blocks.pack_sources(documents) if self.model.reads_source else None
        opened_DxB = shard_rows((np.zeros(len(documents)), source), num_devices)
        (context, _), first = open_rows(self._copies, *opened_DxB), 0
        while first < num_sentences:
            # S depends on the whole batch: a few empty sentences at its end cost less than the
            # compilation of another shape.
            size = min(blocks.BLOCK_SENTENCES, blocks.power_of_two(num_sentences))
            batch = blocks.next_block(documents, first, size, num_rows, contexts)
            size = batch.mask_BxSxN.shape[1]
            scored_RxSx1 = (first + np.arange(size) >= first_scored_R[:, None])[..., None]
            block_DxB = shard_rows((batch, scored_RxSx1), num_devices)
            context, nll_DxBxSxN = read(self._copies, context, *block_DxB)
            yield requests, first, nll_DxBxSxN
            first += size


@functools.cache
def _compiled(model: DocumentModel, functions: BlockFunctions) -> tuple[Callable[..., Any], ...]:
    """The functions that open documents and read a block of them on all local devices; compiled
    once for all scorers of a model."""

    # Rows are returned, too, because pmap refuses empty outputs, and contexts may be empty.
    def open_rows(
        params: Params, row_B: jax.Array, source: Batch | None
    ) -> tuple[Context, jax.Array]:
        return functions.open(model, params, len(row_B), source), row_B

    open_rows, read = (
        at_precision(model.matmul_precision, function)
        for function in (open_rows, functools.partial(functions.read, model))
    )
    devices = jax.local_devices()
    return (
        jax.pmap(open_rows, in_axes=(None, 0, 0), devices=devices),
        jax.pmap(read, in_axes=(None, 0, 0, 0), devices=devices),
    )


def _collect(requests: list[_Request], first: int, nll_DxBxSxN: jax.Array) -> None:
    """Fills in the scores of a block."""
    nll_RxSxN = jax.device_get(nll_DxBxSxN).reshape(-1, *nll_DxBxSxN.shape[2:])
    for nll_SxN, request in zip(nll_RxSxN, requests, strict=False):
        last = min(first + len(nll_SxN), len(request.sentences))
        for position in range(max(first, request.first_scored), last):
            length = len(request.sentences[position]) + 1
            # A copy, because a view would keep the padded block alive.
            nll = nll_SxN[position - first, :length].astype(np.float32)
            request.nll[position - request.first_scored] = nll


def _exchange(window: list[_Request], batches: list[list[int]], shape: tuple[int, ...]) -> None:
    """Fills in the scores by other processes, which have scored their shares of the batches."""
    shares = [
        [window[index] for index in itertools.chain(*batches[process :: processes.count()])]
        for process in range(processes.count())
    ]
    mine = [nll for request in shares[processes.index()] for nll in request.nll]
    gathered = processes.gather(b"".join(nll.tobytes() for nll in mine))
    for requests, content in zip(shares, gathered, strict=True):
        nll = np.frombuffer(content, np.float32).reshape(-1, *shape)
        for request in requests:
            for position, sentence in enumerate(request.sentences[request.first_scored :]):
                request.nll[position], nll = np.split(nll, [len(sentence) + 1])
