"""log P of orders of a document's sentences; parts that orders share are scored once.

Under a model that reads the k previous sentences, log P of an order is a sum over pieces of k + 1
sentences. Under a model that reads all previous sentences, orders are scored whole.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from dclm_jax.evaluation.permutations import numbered
from dclm_jax.reading.blocks import Sentences
from dclm_jax.scoring.scorer import Continuation, Scorer

_READING = 1 / 4
"""Approximate cost of reading a sentence without scoring it, relative to scoring it."""
_INDICES_AT_ONCE = 2**20
"""Maximum number of indices of orders in memory at once."""


class Orders(Protocol):
    """Orders of a document's S sentences, int [P, S]: an array, or an object that computes rows."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


def log_probs(
    scorer: Scorer,
    documents: Sequence[Sentences],
    orders: Iterable[Orders],
) -> Iterator[np.ndarray]:
    """log P of documents and orders of their sentences.

    Args:
      documents: documents of at least one sentence.
      orders: P orders of each document.

    Yields:
      For each document float64 [1 + P] in nats: log P of the document, then of its orders.
    """

    def requests() -> Iterator[Continuation]:
        for document, document_orders in zip(documents, orders, strict=True):
            pieces = _Pieces(document, document_orders, scorer.context_order)
            for piece in pieces.distinct:
                num_scored = 1 if pieces.only_last else None
                yield Continuation([document[i] for i in piece], num_scored, pieces)

    scored = scorer.score(requests())
    for pieces, scored_pieces in itertools.groupby(scored, lambda pair: pair[0].owner):
        # The result of `fsum` does not depend on the order of its terms, so that ties are exact.
        yield pieces.totals(
            [
                -math.fsum(float(np.sum(nll_M, dtype=np.float64)) for nll_M in nll)
                for _, nll in scored_pieces
            ]
        )


def _parts(document: Sentences, orders: Orders) -> Iterator[np.ndarray]:
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

    def __init__(self, document: Sentences, orders: Orders, context_order: int | None):
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
