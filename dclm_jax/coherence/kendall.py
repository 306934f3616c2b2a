"""How near an order of sentences is to the original: Kendall's tau, positions, perfect matches.

tau = 1 - 2 inversions / (n (n - 1) / 2) over the pairs of a document's n sentences (Lapata, 2006):
1 for the original order, -1 for the reverse, 0 by chance.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

RANDOM_ORDERS = 100
"""Number of random orders of each document by which chance is measured."""


class OrderMeasures(NamedTuple):
    """Means over documents of two sentences and more.

    Attributes:
      tau: Kendall's tau.
      places: share of a document's sentences that are at their original position.
      perfect: share of the documents of which every sentence is.
      documents: how many.
    """

    tau: float
    places: float
    perfect: float
    documents: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def order_measures(
    orders: Sequence[Sequence[int]], texts: Sequence[Sequence[Hashable]]
) -> OrderMeasures:
    """Measures of orders of documents.

    Args:
      orders: of each document, indices into its sentences in their original order.
      texts: its sentences, by which equal ones are known: which of them comes first is no error.
    """
    pairs = zip(orders, texts, strict=True)
    untied = [_without_ties(order, text) for order, text in pairs if len(order) > 1]
    if not untied:
        return OrderMeasures(math.nan, math.nan, math.nan, 0)
    in_place = [order == np.arange(len(order)) for order in untied]
    return OrderMeasures(
        tau=float(np.mean(list(map(kendall_tau, untied)))),
        places=float(np.mean(list(map(np.mean, in_place)))),
        perfect=float(np.mean(list(map(np.all, in_place)))),
        documents=len(untied),
    )


def by_chance(texts: Sequence[Sequence[Hashable]], seed: int) -> OrderMeasures:
    """The measures of RANDOM_ORDERS of each document."""
    rng = np.random.default_rng(seed)
    repeated = [text for text in texts for _ in range(RANDOM_ORDERS)]
    orders = [rng.permutation(len(text)).tolist() for text in repeated]
    measures = order_measures(orders, repeated)
    return measures._replace(documents=measures.documents // RANDOM_ORDERS)


def kendall_tau(order: Sequence[int] | np.ndarray) -> float:
    """Kendall's tau of an order of 0, 1, ..., n - 1 with n > 1."""
    order = np.asarray(order)
    pairs = len(order) * (len(order) - 1) / 2
    inversions = int(np.sum(np.triu(order[:, None] > order[None, :], 1)))
    return 1 - 2 * inversions / pairs


def _without_ties(order: Sequence[int], text: Sequence[Hashable]) -> np.ndarray:
    """The order with equal sentences in their original order."""
    waiting: dict[Hashable, list[int]] = {}
    for index in reversed(range(len(text))):
        waiting.setdefault(text[index], []).append(index)
    return np.array([waiting[text[index]].pop() for index in order], np.int64)
