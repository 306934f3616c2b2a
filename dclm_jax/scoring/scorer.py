"""Scores of streamed documents, whose context is carried over their full length.

Shapes: B documents per device, S sentences of a block, N token positions of a sentence.
"""

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from dclm_jax import processes
from dclm_jax.data.batches import Batch
from dclm_jax.data.vocabulary import FIRST_WORD, UNKNOWN, word_ends
from dclm_jax.errors import InputError, require_at_least
from dclm_jax.models.base import Context, DocumentModel, Params
from dclm_jax.nn.precision import at_precision
from dclm_jax.reading import blocks
from dclm_jax.reading.blocks import Sentences
from dclm_jax.reading.driver import weighted
from dclm_jax.reading.likelihoods import block_nll, open_documents

Scored = TypeVar("Scored")
"""A document to score: a sequence of sentences, or an object with the attribute `sentences`. If its
`num_scored` is not None, the sentences before the last `num_scored` are only read as context,
without the output layer, which is most of the work. If its `contexts` is not None, sentence t of
the document is scored given the first t - 1 sentences of `contexts` in place of its own context.
For a model that reads sources, a document is its own source."""


class Continuation(NamedTuple):
    """Sentences: the last `num_scored` are scored given the others, or all if it is None; the
    object that the score is for; and other sentences as their context, see `Scored`."""

    sentences: Sentences
    num_scored: int | None = 1
    owner: Any = None
    contexts: Sentences | None = None


class SentenceScorer(Protocol):
    """The part of `Scorer` that tests of coherence use; `first_word_end` (`vocabulary.word_ends`)
    finds the words of the ids."""

    @property
    def context_order(self) -> int | None: ...

    @property
    def first_word_end(self) -> int: ...

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]: ...


class TargetScorer(SentenceScorer, Protocol):
    """A scorer whose scores are of targets, words and END, under every vocabulary: also V, and the
    objective, "words" (words and END) or "bags" (bags of words, without END)."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def objective(self) -> str: ...


class IdScorer(Protocol):
    """A scorer of ids: words, or pieces of words."""

    @property
    def context_order(self) -> int | None: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def objective(self) -> str: ...

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]: ...


def known_targets(scorer: TargetScorer, document: Any) -> list[np.ndarray]:
    """For each scored sentence of a document, whether its targets are in the vocabulary, bool
    [M + 1]. Words that are not are predicted as UNKNOWN by a vocabulary of words, and not predicted
    by a vocabulary of subwords, which reads only the text's own spelling of OOV words as UNKNOWN.
    """
    sentences, first_scored = sentences_to_score(document)
    last_ids = (ids[word_ends(ids, scorer.first_word_end)] for ids in map(np.asarray, sentences))
    known = [np.append(ids != UNKNOWN, True) for ids in last_ids]
    return known[first_scored:]


def count_targets(scorer: TargetScorer, document: Any) -> int:
    """The number of targets, words and END, of the scored sentences of a document."""
    known = known_targets(scorer, document)
    is_counted = np.logical_or(np.concatenate([[], *known]), scorer.first_word_end == FIRST_WORD)
    return int(is_counted.sum())


class SummedScorer:
    """The scores of targets from the scores of ids, whose nats `sum_pieces` adds. A word that is
    not predicted has 0 nats."""

    def __init__(self, scorer: IdScorer, first_word_end: int):
        self._scorer, self.first_word_end = scorer, first_word_end
        self.vocab_size, self.objective = scorer.vocab_size, scorer.objective

    @property
    def context_order(self) -> int | None:
        """The number of context sentences that a score depends on; None for all."""
        return self._scorer.context_order

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """Scores documents of ids like `Scorer.score`, with the nats float [M + 1] of the targets
        w1..wM END of each sentence."""
        for document, nll in self._scorer.score(documents):
            sentences, first_scored = sentences_to_score(document)
            pairs = zip(sentences[first_scored:], nll, strict=True)
            yield document, [sum_pieces(ids, nats, self.first_word_end) for ids, nats in pairs]


def sum_pieces(ids: np.ndarray, nats_N: np.ndarray, first_word_end: int) -> np.ndarray:
    """The nats [M + 1] of the targets w1..wM END of a sentence from the nats of its ids and END. A
    vocabulary of words, whose nats are returned, has one id per word."""
    if first_word_end == FIRST_WORD:
        return nats_N
    nats_N = np.where(np.append(np.equal(ids, UNKNOWN), False), 0, nats_N)
    return np.add.reduceat(nats_N, first_pieces(ids, first_word_end), dtype=np.float64)


def first_pieces(ids: np.ndarray, first_word_end: int) -> np.ndarray:
    """The positions of the first piece of every word, and of END, int [M + 1]."""
    (ends,) = np.nonzero(word_ends(np.asarray(ids), first_word_end))
    return np.append(0, ends + 1)


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
    """Pure functions, compiled by a `Scorer`, that read documents block by block.

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


class Scorer:
    """Negative log-likelihoods of documents under a model, on all devices of all processes.

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
        """Copies the parameters to every local device.

        Args:
          batch_size: documents scored together, over all local devices; rounded up to a power of
            two times the devices, and at most `blocks.MAX_ROWS` per device. It changes speed and
            memory, not scores.
          functions: functions that compute other values per target than its nats. Programs are
            compiled once for equal functions.
        """
        require_at_least("batch_size", batch_size, 1)
        self.vocab_size, self.context_order = model.vocab_size, model.context_order
        self.objective, self.first_word_end = model.objective, model.first_word_end
        self._reads_source = model.reads_source
        self._num_devices = jax.local_device_count()
        self._batch_size = min(batch_size, blocks.MAX_ROWS * self._num_devices)
        self._params = processes.on_local_devices(weighted(model, params))
        self._shape = functions.shape
        self._open, self._read = _compiled(model, functions)
        self._max_rows = blocks.power_of_two(-(-self._batch_size // self._num_devices))

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """Scores documents in their order, with a bounded window of documents in memory.

        Args:
          documents: sequences of sentences int [M], ids of words or of their pieces, without START
            and END; see `Scored`.

        Yields:
          Every document, and a list over its sentences of float32 [M + 1]: -log P(target) in nats
          for the targets w1..wM END, given all earlier words of the document. If the document's
          `num_scored` is not None, the list has only the arrays of the last sentences.
        """
        for window in self._windows(documents):
            sizes = [request.size(self._reads_source) for request in window]
            batches = list(blocks.batches_of_like_size(sizes, self._max_rows, self._num_devices))
            pending: collections.deque[Any] = collections.deque()
            for indices, num_rows in batches[processes.index() :: processes.count()]:
                for block in self._dispatch([window[index] for index in indices], num_rows):
                    pending.append(block)
                    if len(pending) > _BLOCKS_AHEAD:
                        _collect(*pending.popleft())
            while pending:
                _collect(*pending.popleft())
            if processes.count() > 1:
                _exchange(window, [indices for indices, _ in batches], self._shape)
            for request in window:
                yield request.document, request.nll

    def _windows(self, documents: Iterable[Any]) -> Iterator[list[_Request]]:
        # At least one batch per process.
        batches = max(_WINDOW_BATCHES, processes.count())
        tokens_per_row = _WINDOW_TOKENS_PER_ROW * batches // _WINDOW_BATCHES
        window: list[_Request] = []
        tokens = 0
        for document in with_own_context(documents) if self._reads_source else documents:
            sentences, first_scored = sentences_to_score(document)
            unknown = [None] * (len(sentences) - first_scored)
            contexts = getattr(document, "contexts", None)
            contexts = sentences if contexts is None else contexts
            window.append(_Request(document, sentences, contexts, first_scored, unknown))
            tokens += sum(len(sentence) + 1 for sentence in sentences)
            if max(len(window) // batches, tokens // tokens_per_row) >= self._batch_size:
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
        num_empty = num_rows * self._num_devices - len(requests)
        documents: list[Sentences] = [request.sentences for request in requests] + [()] * num_empty
        contexts: list[Sentences] | None = None
        if any(request.contexts is not request.sentences for request in requests):
            contexts = [request.contexts for request in requests] + [()] * num_empty
        first_scored_R = np.array([request.first_scored for request in requests] + [0] * num_empty)
        row_DxB = np.zeros((self._num_devices, num_rows))

        def by_device(rows: Any) -> Any:
            return jax.tree.map(lambda a: a.reshape(*row_DxB.shape, *a.shape[1:]), rows)

        source = blocks.pack_sources(documents) if self._reads_source else None
        (context, _), first = self._open(self._params, row_DxB, by_device(source)), 0
        while first < num_sentences:
            # S depends on the whole batch: a few empty sentences at its end cost less than the
            # compilation of another shape.
            size = min(blocks.BLOCK_SENTENCES, blocks.power_of_two(num_sentences))
            batch = blocks.next_block(documents, first, size, num_rows, contexts)
            size = batch.mask_BxSxN.shape[1]
            scored_RxSx1 = (first + np.arange(size) >= first_scored_R[:, None])[..., None]
            block_DxB = by_device((batch, scored_RxSx1))
            context, nll_DxBxSxN = self._read(self._params, context, *block_DxB)
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


def sentences_to_score(document: Any) -> tuple[Sentences, int]:
    """The sentences of a document, and the index of the first sentence to score."""
    sentences = getattr(document, "sentences", document)
    num_scored = getattr(document, "num_scored", None)
    return sentences, 0 if num_scored is None else max(len(sentences) - num_scored, 0)


def with_own_context(documents: Iterable[Scored]) -> Iterator[Scored]:
    """The documents, for a scorer that does not read other `contexts` (see `Scored`), with which
    a document is refused."""
    for document in documents:
        if getattr(document, "contexts", None) is not None:
            raise InputError(
                "autoencoders and models with test-time adaptation have no scores with the "
                "contexts of other documents; choose a language model without adaptation"
            )
        yield document


def with_no_context(
    scorer: SentenceScorer, documents: Iterable[Scored]
) -> Iterator[tuple[Scored, list[np.ndarray], list[np.ndarray]]]:
    """Scores whole documents in their order, with and without context, with a bounded window of
    documents in memory.

    Scores that are equal by definition are computed once: the first sentence of a document has
    equal scores with and without context, and for a model without context every sentence has.

    Yields:
      Every document, its scores as from `Scorer.score`, and in the same shapes the scores of each
      sentence as the first sentence of a document.
    """
    if scorer.context_order == 0:
        for document, nll in scorer.score(documents):
            yield document, nll, nll
        return
    documents, again = itertools.tee(documents)
    no_context = scorer.score(_alone(again))
    for document, nll in scorer.score(documents):
        later = itertools.chain.from_iterable(
            scores for _, scores in itertools.islice(no_context, len(nll))
        )
        yield document, nll, [*nll[:1], *later]


def _alone(documents: Iterable[Any]) -> Iterator[Sentences]:
    """Each sentence as a document, with an empty document in place of the first sentence of a
    document."""
    # The empty documents have no scores and take no time. They count in the window of the scorer,
    # so that it does not read ahead through many documents of one sentence.
    for document in documents:
        for number, ids in enumerate(sentences_to_score(document)[0]):
            yield [ids] if number else []


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
