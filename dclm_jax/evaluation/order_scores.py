"""log P of orders of sentences, each thing that orders share scored once.

Under a model that reads the k sentences before, log P of an order is a sum over pieces of k + 1
sentences. Under one that reads all of them orders are scored whole, or by `prefixes`.
"""

import collections
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.evaluation.prefixes import Prefixes
from dclm_jax.evaluation.scoring import Document, Progress, SentenceScorer
from dclm_jax.reading.reader import Reader

Piece = tuple[int, ...]
"""Indices of sentences of a document that follow one another."""


class Pieces(NamedTuple):
    """Different pieces of a document to score, or only the last sentence of each of them."""

    document: Document
    pieces: list[Piece]
    only_last: bool


def log_probs_of_pieces(
    scorer: SentenceScorer, documents: Iterable[Pieces]
) -> Iterator[dict[Piece, float]]:
    """log P in nats of the pieces of each document, which are scored together."""
    counts: collections.deque[int] = collections.deque()

    def requests() -> Iterator[_Request]:
        for document, pieces, only_last in documents:
            counts.append(len(pieces))
            for piece in pieces:
                yield _Request([document[place] for place in piece], only_last, piece)

    scored = scorer.score(requests())
    for request, nll in scored:
        of_document = itertools.chain(
            [(request, nll)], itertools.islice(scored, counts.popleft() - 1)
        )
        # `fsum` gives equal terms equal totals in any order: ties are exact.
        yield {
            one.piece: -math.fsum(
                float(np.sum(of_sentence, dtype=np.float64)) for of_sentence in nll
            )
            for one, nll in of_document
        }


class _Request(NamedTuple):
    """Sentences to score, or the last of them, and which piece they are."""

    sentences: Document
    only_last: bool
    piece: Piece


def log_probs(
    scorer: SentenceScorer,
    documents: Sequence[Document],
    orders_of_documents: Iterable[tuple[np.ndarray, np.ndarray]],
    *,
    reader: Reader | None = None,
    on_document: Progress = lambda done, of: None,
) -> Iterator[np.ndarray]:
    """log P of documents and orders of their sentences.

    Args:
      scorer: of the model.
      documents: each of one sentence or more.
      orders_of_documents: of each document itself int [S] and P orders int [P, S], as of
        `orders.random_orders`.
      reader: where orders that part from the document for a while are to be read by `prefixes`, the
        `Reader` of a model that reads all sentences before.
      on_document: called after every document.

    Yields:
      For each document float64 [1 + P] in nats: log P of the document, then of its orders.
    """
    distinct = (
        np.unique(np.concatenate([original[None], drawn]), axis=0, return_inverse=True)
        for original, drawn in orders_of_documents
    )
    if reader is None:
        found = _by_pieces(scorer, documents, distinct)
    else:
        found = (
            Prefixes(reader, document).log_probs(orders)[rows.reshape(-1)]
            for document, (orders, rows) in zip(documents, distinct, strict=True)
        )
    for done, of_document in enumerate(found, start=1):
        yield of_document
        on_document(done, len(documents))


def _by_pieces(
    scorer: SentenceScorer,
    documents: Sequence[Document],
    distinct_orders: Iterable[tuple[np.ndarray, np.ndarray]],
) -> Iterator[np.ndarray]:
    # Of documents whose scores are still to come: the pieces of every order, and where among the
    # orders the original is, then each draw.
    waiting: collections.deque[tuple[list[list[Piece]], np.ndarray]] = collections.deque()

    def requests() -> Iterator[Pieces]:
        for document, (orders, rows) in zip(documents, distinct_orders, strict=True):
            pieces, only_last = pieces_of(orders, scorer.context_order)
            waiting.append((pieces, rows.reshape(-1)))
            yield Pieces(document, list(dict.fromkeys(itertools.chain(*pieces))), only_last)

    for log_prob_of in log_probs_of_pieces(scorer, requests()):
        pieces, rows = waiting.popleft()
        totals = np.array([math.fsum(map(log_prob_of.__getitem__, order)) for order in pieces])
        yield totals[rows]


def pieces_of(orders: np.ndarray, context_order: int | None) -> tuple[list[list[Piece]], bool]:
    """What the log P of each order is a sum over, and whether a piece is scored for its last
    sentence alone.

    Where a score depends on the k sentences before, every order consists of runs of k + 1
    sentences, of which there are 1 + n + ... + n^k times n at most for any number of orders, and
    few where orders are much alike. Each order scored by itself takes n.
    """
    num_orders, num_sentences = orders.shape
    whole = [[tuple(order)] for order in orders.tolist()]
    if context_order is None:
        return whole, False
    pieces = [
        [tuple(order[max(0, last - context_order) : last + 1]) for last in range(num_sentences)]
        for order in orders.tolist()
    ]
    most_pieces = sum(num_sentences**k for k in range(context_order + 1)) * num_sentences
    num_read = (context_order + 1) * len(set(itertools.chain(*pieces)))
    if min(most_pieces, num_read) < orders.size:
        return pieces, True
    return whole, False
