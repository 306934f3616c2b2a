"""Sentence ordering of documents by a model, and its agreement with the original order."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dclm_jax.coherence import kendall
from dclm_jax.coherence.kendall import OrderMeasures
from dclm_jax.data.documents import Document
from dclm_jax.errors import InputError
from dclm_jax.language_model import LanguageModel


@dataclasses.dataclass(frozen=True)
class Reordered:
    """A document in the order that a model finds most probable.

    Attributes:
      document: the document in its original order.
      order: positions of the sentences in the original order, from 0.
      log_prob: log P of the document in this order, in nats.
      is_optimal: whether the order is known to be the most probable order.
      tau: Kendall's tau if the document was shuffled and has at least two sentences; else None.
    """

    document: Document
    order: list[int]
    log_prob: float
    is_optimal: bool
    tau: float | None

    @property
    def sentences(self) -> list[str]:
        """The sentences in the order of the model."""
        return [" ".join(self.document.sentences[i]) for i in self.order]

    def to_json(self) -> dict[str, Any]:
        """The document for a file of JSON lines."""
        record = {
            "id": self.document.id,
            "order": self.order,
            "sentences": self.sentences,
            "unit": "nats",
            "log_prob": self.log_prob,
            "is_optimal": self.is_optimal,
        }
        return record if self.tau is None else {**record, "tau": self.tau}


def reorder(
    lm: LanguageModel,
    documents: Sequence[Document],
    *,
    beam: int,
    shuffle_seed: int | None = None,
    on_document: Callable[[int], None] = lambda done: None,
) -> list[Reordered]:
    """Puts the sentences of documents into the order that a model finds most probable.

    Args:
      lm: a language model with context.
      documents: documents without empty sentences.
      beam: beam width, see `decoding.ordering`.
      shuffle_seed: random seed for shuffling the sentences first; None for no shuffling.
      on_document: called after each document with the number of documents so far.
    """
    rng = np.random.default_rng(shuffle_seed)
    reordered = []
    for document in documents:
        count, tau = len(document.sentences), None
        before = np.arange(count) if shuffle_seed is None else rng.permutation(count)
        ordered = lm.order([document.sentences[i] for i in before], beam)
        order = before[ordered.order].tolist()
        if shuffle_seed is not None and count > 1:
            tau = kendall.order_measures([order], [_text(document)]).tau
        reordered.append(Reordered(document, order, ordered.log_prob, ordered.is_optimal, tau))
        on_document(len(reordered))
    return reordered


def measure(reordered: Sequence[Reordered], seed: int) -> tuple[OrderMeasures, OrderMeasures]:
    """The measures of the orders, and the measures of random orders of these documents."""
    texts = [_text(document.document) for document in reordered]
    measures = kendall.order_measures([document.order for document in reordered], texts)
    if not measures.documents:
        raise InputError("no document has two or more sentences to order; choose another text")
    return measures, kendall.by_chance(texts, seed)


def _text(document: Document) -> list[tuple[str, ...]]:
    return list(map(tuple, document.sentences))
