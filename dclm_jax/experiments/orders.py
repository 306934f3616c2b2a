"""Sentence ordering of documents by a model, and its agreement with the original order."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.coherence import kendall
from dclm_jax.coherence.kendall import OrderMeasures
from dclm_jax.data.documents import Document, OnDocument
from dclm_jax.decoding.ordering import Ordered
from dclm_jax.errors import InputError
from dclm_jax.language_model import LanguageModel


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
    lm: LanguageModel,
    documents: Sequence[Document],
    *,
    beam: int,
    shuffle_seed: int | None = None,
    on_document: OnDocument = lambda done: None,
) -> list[Reordered]:
    """Puts the sentences of documents into the order that a model finds most probable.

    Args:
      lm: a language model with context.
      documents: documents without empty sentences.
      beam: beam width, see `decoding.ordering`.
      shuffle_seed: random seed for shuffling the sentences first; None for no shuffling.
    """
    rng = np.random.default_rng(shuffle_seed)
    reordered = []
    for document in documents:
        count, tau = len(document.sentences), None
        before = np.arange(count) if shuffle_seed is None else rng.permutation(count)
        ordered = lm.order(Document(document.id, [document.sentences[i] for i in before]), beam)
        ordered = ordered._replace(order=before[ordered.order].tolist())
        if shuffle_seed is not None and count > 1:
            tau = kendall.order_measures([ordered.order], [_text(document)]).tau
        reordered.append(Reordered(document, ordered, tau))
        on_document(len(reordered))
    return reordered


def measure(reordered: Sequence[Reordered], seed: int) -> tuple[OrderMeasures, OrderMeasures]:
    """The measures of the orders, and the measures of random orders of these documents."""
    texts = [_text(document.document) for document in reordered]
    measures = kendall.order_measures([document.ordered.order for document in reordered], texts)
    if not measures.documents:
        raise InputError("no document has two or more sentences to order; choose another text")
    return measures, kendall.by_chance(texts, seed)


def _text(document: Document) -> list[tuple[str, ...]]:
    return list(map(tuple, document.sentences))
