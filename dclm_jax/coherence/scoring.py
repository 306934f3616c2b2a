"""log P of orders of a document's sentences; what orders share is scored once.

Under a model that reads the k sentences before, log P of an order is a sum over pieces of k + 1
sentences. Under one that reads all of them orders are scored whole, or by `Prefixes`.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dclm_jax.evaluation.permutations import numbered
from dclm_jax.evaluation.scoring import Document, SentenceScorer
from dclm_jax.reading.reader import MAX_POSITIONS, Place, Reader, padded_length, power_of_two

NEAR = 1e-4
"""Contexts whose numbers differ by no more count as one. What follows then has a log P that differs
by about as many nats, which decoding in other batches may make of rounding, too. Every sentence of
three documents of 16 to 26 sentences at every place takes 0.67 s so, and 1.96 s read to the end."""
_ROWS = (8, 32, 128)
"""Places that are read on at once: few numbers, for each of which programs are compiled."""
_READING = 1 / 4
"""The work of reading a sentence without scoring it, as a share of scoring it, about."""
_INDICES_AT_ONCE = 2**20
"""Indices of orders that are held at once, so that long documents do not fill the memory."""


class Orders(Protocol):
    """Orders of a document's S sentences, int [P, S]: an array, or what computes its rows."""

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
      scorer: of the model.
      documents: each of one sentence or more.
      orders: P orders of each document.
      reader: of the model, for orders that part from the document for a while: if the model reads
        all sentences before, they are scored by `Prefixes`.

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

    def requests() -> Iterator[_Request]:
        for document, document_orders in pairs:
            pieces = _Pieces(document, document_orders, scorer.context_order)
            for piece in pieces.distinct:
                yield _Request([document[i] for i in piece], pieces.only_last, pieces)

    scored = scorer.score(requests())
    for pieces, of_document in itertools.groupby(scored, lambda pair: pair[0].pieces):
        # `fsum` gives equal terms equal totals in any order: ties are exact.
        yield pieces.totals(
            [
                -math.fsum(float(np.sum(nll_M, dtype=np.float64)) for nll_M in nll)
                for _, nll in of_document
            ]
        )


def _parts(document: Document, orders: Orders) -> Iterator[np.ndarray]:
    """The document itself and its orders, some at a time: int [O, S], equal sentences alike."""
    original = numbered(document)
    yield original[None]
    size = max(1, _INDICES_AT_ONCE // len(document))
    for first in range(0, len(orders), size):
        yield original[orders[first : first + size]]


class _Pieces:
    """Orders of a document as sums over pieces, each of which is scored once.

    Where a score depends on the k sentences before, every order consists of n runs of k + 1
    sentences, or fewer at its start. There are 1 + n + ... + n^k times n runs at most for any
    number of orders, and few where orders are much alike; n sentences of each order scored whole.

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
        """log P of the document and of its orders, from that of the distinct pieces."""
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
        """A number for each run [O, S], whose digits are the sentences from 1, the last one first;
        0 stands before the document."""
        k, base = self._context_order, self._base
        digits = np.pad(orders + 1, ((0, 0), (k, 0)))
        if base ** (k + 1) >= 2**63:
            digits = digits.astype(object)
        shifted = [digits[:, k - j : k - j + orders.shape[1]] * base**j for j in range(k + 1)]
        return np.sum(shifted, axis=0)

    def _runs(self) -> list[tuple[int, ...]]:
        """The sentences of the distinct codes."""
        places = [self._base**j for j in reversed(range(self._context_order + 1))]
        digits = np.array([self._distinct_codes // place % self._base for place in places]).T
        return [tuple(digit - 1 for digit in run if digit) for run in digits.tolist()]


class _Request(NamedTuple):
    """Sentences to score, or the last of them, and the pieces that they are one of."""

    sentences: Document
    only_last: bool
    pieces: _Pieces


class Prefixes:
    """log P of many orders of one document under a model that reads all sentences before.

    As long as an order is like the document, it is scored no more than the document. Where it
    departs it is read, until its context has come as near to the one that the document has after
    the same sentence as rounding brings them: from there on it is as if the document had been read,
    up to the next departure. Orders that depart from the same place in the same way are one until
    they part. Recurrent models forget what was before within some sentences, so that a sentence
    that moves costs these at its old and its new place, whatever the length of the document.
    """

    def __init__(self, reader: Reader, document: Document):
        """Reads the document, of one sentence or more, each int [M] word ids without START, END."""
        self._reader, self._document = reader, document
        self._order_S = numbered(document)
        self._length = padded_length(max(map(len, document)))
        _, (nll,) = reader.read(reader.open(1), [document])
        log_probs_S = [-np.sum(nll_M, dtype=np.float64) for nll_M in nll]
        self._log_prob_before = np.concatenate([[0], np.cumsum(log_probs_S)])
        beginnings = [document[:end] for end in range(len(document) + 1)]
        rows = max(_ROWS[0], power_of_two(len(beginnings)))
        # Row e is after e sentences; others fill up.
        self._places: Place = reader.after(beginnings + [()] * (rows - len(beginnings)))

    def log_probs(self, orders: np.ndarray) -> np.ndarray:
        """log P in nats, float64 [O], of orders int [O, S] as `numbered` numbers sentences."""
        orders_OxS, rows_of = np.unique(orders, axis=0, return_inverse=True)
        totals_O = np.zeros(len(orders_OxS))
        # How many sentences have been read of each order, and after which of the document it is.
        num_read_O, after_O = np.zeros((2, len(orders_OxS)), np.int64)
        size = max(1, min(_ROWS[-1], MAX_POSITIONS // self._length))
        active = np.arange(len(orders_OxS))
        while active.size:
            for i in active:
                after = after_O[i]
                rest, rest_of_document = orders_OxS[i, num_read_O[i] :], self._order_S[after:]
                both = min(len(rest), len(rest_of_document))
                is_same = rest[:both] == rest_of_document[:both]
                alike = int(np.argmin(np.append(is_same, False)))
                before = self._log_prob_before
                totals_O[i] += before[after + alike] - before[after]
                num_read_O[i] += alike
                after_O[i] += alike
            active = active[num_read_O[active] < len(self._order_S)]
            active = active[np.argsort(after_O[active], kind="stable")]
            for first in range(0, len(active), size):
                some = active[first : first + size]
                self._read_departures(orders_OxS, some, num_read_O, after_O, totals_O)
        return totals_O[rows_of.reshape(-1)]

    def _read_departures(
        self,
        orders_OxS: np.ndarray,
        active: np.ndarray,
        num_read_O: np.ndarray,
        after_O: np.ndarray,
        totals_O: np.ndarray,
    ) -> None:
        """Reads the active orders on from places in the document until they are back in it."""
        place, rows = self._places, after_O[active]
        while active.size:
            ahead = orders_OxS[active, num_read_O[active]]
            (parents, sentences), nodes = np.unique([rows, ahead], axis=1, return_inverse=True)
            nodes = nodes.reshape(-1)
            place, log_probs, is_near = self._read(place, parents.tolist(), sentences.tolist())
            totals_O[active] += log_probs[nodes]
            num_read_O[active] += 1
            after_O[active] = ahead + 1
            is_away = ~is_near[nodes] & (num_read_O[active] < len(self._order_S))
            active, rows = active[is_away], nodes[is_away]

    def _read(
        self, place: Place, parents: list[int], sentences: list[int]
    ) -> tuple[Place, np.ndarray, np.ndarray]:
        """The places after sentences, each read on from its row, their log P, and whether each is
        near the place after it in the document."""
        empty = next((rows for rows in _ROWS if rows >= len(parents)), _ROWS[-1]) - len(parents)
        filled = sentences + sentences[-1:] * empty
        place, nll = self._reader.read(
            place.take(parents + parents[-1:] * empty),
            [[self._document[sentence]] for sentence in filled],
            # Rows that fill up are not scored.
            [0] * len(sentences) + [len(self._document[sentences[-1]]) + 1] * empty,
        )
        places_of_document = self._places.take([sentence + 1 for sentence in filled])
        is_near = self._reader.distances(place, places_of_document, self._length) <= NEAR
        log_probs = [-np.sum(nll_M, dtype=np.float64) for (nll_M,) in nll[: len(sentences)]]
        return place, np.array(log_probs), is_near
