"""Sentence ordering of documents, and the similarity of the orders to the original.

tau = 1 - 2 inversions / (n (n - 1) / 2) over the pairs of a document's n sentences (Lapata 2006).
Kendall's tau is 1 for the original order, -1 for the reverse order, and 0 on average for random
orders.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data.documents import Document, OnDocument
from dclm_jax.decoding.ordering import Ordered
from dclm_jax.errors import InputError

RANDOM_ORDERS = 100
"""Number of random orders per document for the random-order baseline."""


class OrderMeasures(NamedTuple):
    """Means over documents of at least two sentences.

    Attributes:
      tau: Kendall's tau.
      position_accuracy: share of a document's sentences at their original position.
      perfect_match: share of documents with all sentences at their original position.
      documents: number of documents.
    """

    tau: float
    position_accuracy: float
    perfect_match: float
    documents: int


def order_measures(
    orders: Sequence[Sequence[int]], texts: Sequence[Sequence[Hashable]]
) -> OrderMeasures:
    """Mean measures of one order per document.

    Args:
      orders: for each document, the indices of its sentences in the measured order.
      texts: for each document, its sentences in the original order. An exchange of equal sentences
        is not an error.
    """
    pairs = zip(orders, texts, strict=True)
    untied = [_untied(order, text) for order, text in pairs if len(order) > 1]
    if not untied:
        return OrderMeasures(math.nan, math.nan, math.nan, 0)
    is_original = [order == np.arange(len(order)) for order in untied]
    return OrderMeasures(
        tau=float(np.mean(list(map(kendall_tau, untied)))),
        position_accuracy=float(np.mean(list(map(np.mean, is_original)))),
        perfect_match=float(np.mean(list(map(np.all, is_original)))),
        documents=len(untied),
    )


def chance_measures(texts: Sequence[Sequence[Hashable]], seed: int) -> OrderMeasures:
    """The measures of RANDOM_ORDERS random orders per document."""
    rng = np.random.default_rng(seed)
    repeated = [text for text in texts for _ in range(RANDOM_ORDERS)]
    orders = [rng.permutation(len(text)).tolist() for text in repeated]
    measures = order_measures(orders, repeated)
    return measures._replace(documents=measures.documents // RANDOM_ORDERS)


def measures_table(measures: Mapping[str, OrderMeasures]) -> list[list[str]]:
    """The cells of a table of measures, one row per name."""
    rows = [["", "Kendall's tau", "position accuracy", "perfect matches"]]
    for name, row in measures.items():
        shares = [f"{100 * share:.2f}%" for share in (row.position_accuracy, row.perfect_match)]
        rows.append([name, f"{row.tau:.4f}", *shares])
    return rows


def kendall_tau(order: Sequence[int] | np.ndarray) -> float:
    """Kendall's tau of an order of 0, 1, ..., n - 1 with n > 1."""
    order = np.asarray(order)
    pairs = len(order) * (len(order) - 1) / 2
    inversions = int(np.sum(np.triu(order[:, None] > order[None, :], 1)))
    return 1 - 2 * inversions / pairs


def _untied(order: Sequence[int], text: Sequence[Hashable]) -> np.ndarray:
    """The order in which the indices of equal sentences ascend."""
    indices: dict[Hashable, list[int]] = {}
    for index in reversed(range(len(text))):
        indices.setdefault(text[index], []).append(index)
    return np.array([indices[text[i]].pop() for i in order])


class Reordered(NamedTuple):
    """A document, its most probable order (positions in the original order) under a model, and
    Kendall's tau of this order if the document was shuffled and has at least two sentences."""

    document: Document
    ordered: Ordered
    tau: float | None

    @property
    def sentences(self) -> list[str]:
        """The sentences in the order of the model."""
        return [" ".join(self.document.sentences[i]) for i in self.ordered.order]

    def to_json(self) -> dict[str, Any]:
        """The document for a file of JSON lines."""
        order, log_prob, is_optimal = self.ordered
        record = {"id": self.document.id, "order": order, "sentences": self.sentences}
        record |= {"unit": "nats", "log_prob": log_prob, "is_optimal": is_optimal}
        return record if self.tau is None else {**record, "tau": self.tau}


def reorder(
    order: Callable[[Document], Ordered],
    documents: Sequence[Document],
    *,
    shuffle_seed: int | None = None,
    on_document: OnDocument = lambda done: None,
) -> list[Reordered]:
    """Puts the sentences of documents into the order that a model finds most probable.

    Args:
      order: returns the most probable order of a document's sentences.
      documents: documents without empty sentences.
      shuffle_seed: random seed for shuffling the sentences first; None for no shuffling.
    """
    rng = np.random.default_rng(shuffle_seed)
    reordered = []
    for document in documents:
        count, tau = len(document.sentences), None
        before = np.arange(count) if shuffle_seed is None else rng.permutation(count)
        ordered = order(Document(document.id, [document.sentences[i] for i in before]))
        ordered = ordered._replace(order=before[ordered.order].tolist())
        if shuffle_seed is not None and count > 1:
            tau = order_measures([ordered.order], [_text(document)]).tau
        reordered.append(Reordered(document, ordered, tau))
        on_document(len(reordered))
    return reordered


def measure_orders(
    reordered: Sequence[Reordered], seed: int
) -> tuple[OrderMeasures, OrderMeasures]:
    """The measures of the orders, and the measures of random orders of these documents."""
    texts = [_text(document.document) for document in reordered]
    measures = order_measures([document.ordered.order for document in reordered], texts)
    if not measures.documents:
        raise InputError("no document has two or more sentences to order; choose another text")
    return measures, chance_measures(texts, seed)


def _text(document: Document) -> list[tuple[str, ...]]:
    return list(map(tuple, document.sentences))
