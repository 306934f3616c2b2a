"""How near an order of sentences is to their own: Kendall's tau, places, perfect orders.

tau = 1 - 2 inversions / (n (n - 1) / 2) over the pairs of a document's n sentences (Lapata, 2006):
1 for its own order, -1 for the reverse, 0 by chance.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

RANDOM_ORDERS = 100
"""Of each document, for what chance gives."""


class OrderMeasures(NamedTuple):
    """Means over documents of two sentences and more.

    tau: Kendall's.
    places: share of a document's sentences that are where they were.
    perfect: share of the documents whose every sentence is.
    documents: how many.
    """

    tau: float
    places: float
    perfect: float
    documents: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def measure(orders: Sequence[Sequence[int]], texts: Sequence[Sequence[Hashable]]) -> OrderMeasures:
    """Orders of documents, each as indices into its sentences in their own order.

    Args:
      orders: of each document.
      texts: its sentences, by which equal ones are known: which of them comes first is no error.
    """
    found = [own for own in map(_without_ties, orders, texts) if len(own) > 1]
    in_place = [own == np.arange(len(own)) for own in found]
    if not found:
        return OrderMeasures(math.nan, math.nan, math.nan, 0)
    return OrderMeasures(
        tau=float(np.mean([kendall_tau(own) for own in found])),
        places=float(np.mean([np.mean(one) for one in in_place])),
        perfect=float(np.mean([np.all(one) for one in in_place])),
        documents=len(found),
    )


def by_chance(texts: Sequence[Sequence[Hashable]], seed: int) -> OrderMeasures:
    """What RANDOM_ORDERS of each document have."""
    rng = np.random.default_rng(seed)
    drawn = [(rng.permutation(len(text)), text) for text in texts for _ in range(RANDOM_ORDERS)]
    found = measure([order.tolist() for order, _ in drawn], [text for _, text in drawn])
    return found._replace(documents=found.documents // RANDOM_ORDERS)


def kendall_tau(order: Sequence[int] | np.ndarray) -> float:
    """Of an order of 0, 1, ..., n - 1 with n > 1."""
    order = np.asarray(order)
    pairs = len(order) * (len(order) - 1) / 2
    inversions = int(np.sum(np.triu(order[:, None] > order[None, :], 1)))
    return 1 - 2 * inversions / pairs


def _without_ties(order: Sequence[int], text: Sequence[Hashable]) -> np.ndarray:
    """The order, but that equal sentences come in their own."""
    waiting: dict[Hashable, list[int]] = {}
    for index in reversed(range(len(text))):
        waiting.setdefault(text[index], []).append(index)
    return np.array([waiting[text[index]].pop() for index in order], np.int64)
