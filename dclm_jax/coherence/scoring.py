"""log P of orders of a document's sentences; parts that orders share are scored once.

Under a model that reads the k previous sentences, log P of an order is a sum over pieces of k + 1
sentences. Under a model that reads all previous sentences, orders are scored whole, or by
`Prefixes`.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from dclm_jax.evaluation.permutations import numbered
from dclm_jax.evaluation.scoring import Continuation, Document, SentenceScorer
from dclm_jax.reading.blocks import MAX_POSITIONS, padded_length, power_of_two
from dclm_jax.reading.reader import Reader, ReaderState

NEAR = 1e-4
"""Maximum difference of contexts that count as equal. The log P of later sentences then differs by
about this number of nats, as it does by rounding in batches of other sizes. Insertion of every
sentence at every position of three documents of 16 to 26 sentences takes 0.67 s with this rule, and
1.96 s if orders are read to the end."""
_ROWS = (8, 32, 128)
"""Numbers of states read at once; programs are compiled for each number."""
_READING = 1 / 4
"""Approximate cost of reading a sentence without scoring it, relative to scoring it."""
_INDICES_AT_ONCE = 2**20
"""Maximum number of indices of orders in memory at once."""


class Orders(Protocol):
    """Orders of a document's S sentences, int [P, S]: an array, or an object that computes rows."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


def log_probs(
    scorer: SentenceScorer,
    documents: Sequence[Document],
    orders: Iterable[Orders],
    reader: Reader | None = None,
) -> Iterator[np.ndarray]:
    """log P of documents and orders of their sentences.

    Args:
      documents: documents of at least one sentence.
      orders: P orders of each document.
      reader: the model's reader, for orders that differ from the document in few sentences. If the
        model reads all previous sentences, `Prefixes` scores them.

    Yields:
      For each document float64 [1 + P] in nats: log P of the document, then of its orders.
    """
    pairs = zip(documents, orders, strict=True)
    if reader is not None and scorer.context_order is None:
        for document, document_orders in pairs:
            prefixes = Prefixes(reader, document)
            yield np.concatenate(
                [prefixes.log_probs(part) for part in _parts(document, document_orders)]
            )
        return

    def requests() -> Iterator[Continuation]:
        for document, document_orders in pairs:
            pieces = _Pieces(document, document_orders, scorer.context_order)
            for piece in pieces.distinct:
                yield Continuation([document[i] for i in piece], pieces.only_last, pieces)

    scored = scorer.score(requests())
    for pieces, scored_pieces in itertools.groupby(scored, lambda pair: pair[0].owner):
        # The result of `fsum` does not depend on the order of its terms, so that ties are exact.
        yield pieces.totals(
            [
                -math.fsum(float(np.sum(nll_M, dtype=np.float64)) for nll_M in nll)
                for _, nll in scored_pieces
            ]
        )


def _parts(document: Document, orders: Orders) -> Iterator[np.ndarray]:
    """The document and its orders in parts, int [O, S]; equal sentences have equal numbers."""
    original = numbered(document)
    yield original[None]
    size = max(1, _INDICES_AT_ONCE // len(document))
    for first in range(0, len(orders), size):
        yield original[orders[first : first + size]]


class _Pieces:
    """Orders of a document as sums over pieces; each piece is scored once.

    If a score depends on the k previous sentences, an order of n sentences consists of n runs of
    k + 1 sentences (fewer at its start). Any number of orders has at most (1 + n + ... + n^k) n
    distinct runs, and similar orders have few. Whole orders cost n sentences each.

    Attributes:
      only_last: pieces are runs, scored for their last sentence; otherwise they are whole orders.
      distinct: the pieces, as indices of sentences.
    """

    def __init__(self, document: Document, orders: Orders, context_order: int | None):
        self._document, self._orders = document, orders
        self.only_last, count = False, len(document)
        if context_order is not None:
            self._context_order, self._base = context_order, count + 1
            parts = map(self._codes, _parts(document, orders))
            self._distinct_codes = np.unique(np.concatenate(list(map(np.unique, parts))))
            most_orders = min(1 + len(orders), math.factorial(count))
            work = len(self._distinct_codes) * (1 + _READING * context_order)
            self.only_last = work < most_orders * count
        self.distinct = self._runs() if self.only_last else list(dict.fromkeys(self._whole()))

    def totals(self, scores: Sequence[float]) -> np.ndarray:
        """log P of the document and of its orders, from log P of the distinct pieces."""
        if not self.only_last:
            score_of = dict(zip(self.distinct, scores, strict=True))
            return np.array([score_of[order] for order in self._whole()])
        terms = (
            np.array(scores)[np.searchsorted(self._distinct_codes, self._codes(part))]
            for part in _parts(self._document, self._orders)
        )
        return np.array([math.fsum(order) for part in terms for order in part.tolist()])

    def _whole(self) -> Iterator[tuple[int, ...]]:
        for part in _parts(self._document, self._orders):
            yield from map(tuple, part.tolist())

    def _codes(self, orders: np.ndarray) -> np.ndarray:
        """A number for each run [O, S]. Its digits are the sentences, counted from 1, the last
        sentence first; the digit 0 is the start of the document."""
        k, base = self._context_order, self._base
        digits = np.pad(orders + 1, ((0, 0), (k, 0)))
        if base ** (k + 1) >= 2**63:
            digits = digits.astype(object)
        shifted = [digits[:, k - j : k - j + orders.shape[1]] * base**j for j in range(k + 1)]
        return np.sum(shifted, axis=0)

    def _runs(self) -> list[tuple[int, ...]]:
        """The sentences of the distinct codes."""
        powers = [self._base**j for j in reversed(range(self._context_order + 1))]
        digits = np.array([self._distinct_codes // power % self._base for power in powers]).T
        return [tuple(digit - 1 for digit in run if digit) for run in digits.tolist()]


class Prefixes:
    """log P of many orders of one document under a model that reads all previous sentences.

    While an order agrees with the document, the document's scores are used. Where the order
    departs, it is read until its context differs from the document's context after the same
    sentence by at most `NEAR`. The document's scores then apply again, up to the next departure.
    Orders that depart at the same position in the same way are read together until they differ.
    Recurrent models forget earlier text within a few sentences, so that a moved sentence costs a
    few sentences at its old and its new position, whatever the length of the document. A model with
    a memory of words reads on until the memory is full of later words.
    """

    def __init__(self, reader: Reader, document: Document):
        """Reads a document of at least one sentence int [M], word ids without START and END."""
        self._reader, self._document = reader, document
        self._order_S = numbered(document)
        self._length = padded_length(max(map(len, document)))
        _, (nll,) = reader.read(reader.open(1), [document])
        log_probs_S = [-np.sum(nll_M, dtype=np.float64) for nll_M in nll]
        self._log_prob_before = np.concatenate([[0], np.cumsum(log_probs_S)])
        beginnings = [document[:end] for end in range(len(document) + 1)]
        rows = max(_ROWS[0], power_of_two(len(beginnings)))
        # Row e is the state after e sentences; the remaining rows are padding.
        self._states: ReaderState = reader.after(beginnings + [()] * (rows - len(beginnings)))

    def log_probs(self, orders: np.ndarray) -> np.ndarray:
        """log P in nats, float64 [O], of orders int [O, S] as `numbered` numbers sentences."""
        orders_OxS, rows_of = np.unique(orders, axis=0, return_inverse=True)
        totals_O = np.zeros(len(orders_OxS))
        # For each order the number of sentences read, and the position in the document.
        num_read_O, after_O = np.zeros((2, len(orders_OxS)), np.int64)
        size = max(1, min(_ROWS[-1], MAX_POSITIONS // self._length))
        active = np.arange(len(orders_OxS))
        while active.size:
            for i in active:
                after = after_O[i]
                rest, rest_of_document = orders_OxS[i, num_read_O[i] :], self._order_S[after:]
                length = min(len(rest), len(rest_of_document))
                is_same = rest[:length] == rest_of_document[:length]
                num_equal = int(np.argmin(np.append(is_same, False)))
                log_prob_before = self._log_prob_before
                totals_O[i] += log_prob_before[after + num_equal] - log_prob_before[after]
                num_read_O[i] += num_equal
                after_O[i] += num_equal
            active = active[num_read_O[active] < len(self._order_S)]
            active = active[np.argsort(after_O[active], kind="stable")]
            for first in range(0, len(active), size):
                batch = active[first : first + size]
                self._read_departures(orders_OxS, batch, num_read_O, after_O, totals_O)
        return totals_O[rows_of.reshape(-1)]

    def _read_departures(
        self,
        orders_OxS: np.ndarray,
        active: np.ndarray,
        num_read_O: np.ndarray,
        after_O: np.ndarray,
        totals_O: np.ndarray,
    ) -> None:
        """Reads the active orders from their departures until they agree with the document."""
        state, rows = self._states, after_O[active]
        while active.size:
            ahead = orders_OxS[active, num_read_O[active]]
            (parents, sentences), nodes = np.unique([rows, ahead], axis=1, return_inverse=True)
            nodes = nodes.reshape(-1)
            state, log_probs, is_near = self._read(state, parents.tolist(), sentences.tolist())
            totals_O[active] += log_probs[nodes]
            num_read_O[active] += 1
            after_O[active] = ahead + 1
            is_away = ~is_near[nodes] & (num_read_O[active] < len(self._order_S))
            active, rows = active[is_away], nodes[is_away]

    def _read(
        self, state: ReaderState, parents: list[int], sentences: list[int]
    ) -> tuple[ReaderState, np.ndarray, np.ndarray]:
        """The states after sentences, each read after its row; the sentences' log P; and whether
        each state is near the document's state after the same sentence."""
        empty = next((rows for rows in _ROWS if rows >= len(parents)), _ROWS[-1]) - len(parents)
        filled = sentences + sentences[-1:] * empty
        state, nll = self._reader.read(
            state.take(parents + parents[-1:] * empty),
            [[self._document[sentence]] for sentence in filled],
            # Rows of padding are not scored.
            [0] * len(sentences) + [len(self._document[sentences[-1]]) + 1] * empty,
        )
        document_states = self._states.take([sentence + 1 for sentence in filled])
        is_near = self._reader.distances(state, document_states, self._length) <= NEAR
        log_probs = [-np.sum(nll_M, dtype=np.float64) for (nll_M,) in nll[: len(sentences)]]
        return state, np.array(log_probs), is_near
