"""Insertion: is a sentence likeliest at the place that it was taken from?

Each sentence of a document is taken out and put back at every place (Elsner and Charniak, 2011). A
document of n sentences has (n - 1)^2 such orders beside its own, which scored one by one would be
n^3 sentences. Under a model that reads the k sentences before, only 2 k + 1 of each order have
others before them than in the document. Under one that reads all sentences before, `prefixes` reads
what follows the first change only, and no further than the change is felt.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.evaluation.coherence import Insertion, OfDocument, count_words, movable
from dclm_jax.evaluation.order_scores import Piece, Pieces, log_probs_of_pieces
from dclm_jax.evaluation.orders import numbered
from dclm_jax.evaluation.prefixes import Prefixes
from dclm_jax.evaluation.scoring import Document, Progress, SentenceScorer
from dclm_jax.evaluation.significance import Sums
from dclm_jax.reading.reader import Reader

_ORDERS_AT_ONCE = 2**20
"""Numbers of orders that are held at once, so that long documents do not fill the memory."""


class Insertions(NamedTuple):
    """Sentences that were put back.

    Attributes:
      indices: of the D documents among those that were given; the others have too few sentences.
      documents: these.
      gains: for each of them float64 [P, P], of its P sentences that are not kept: how many nats
        are gained where the sentence of a row is moved to the place of a column; 0 at its own.
      result: over all of them.
    """

    indices: list[int]
    documents: list[Document]
    gains: list[np.ndarray]
    result: Insertion

    @property
    def sums(self) -> Sums:
        """Sums of what sentences count towards accuracy [D, 1], and their numbers [D, 1]."""
        counted = [_counted(gains)[0] for gains in self.gains]
        return Sums(
            np.array([[one.sum()] for one in counted]), np.array([[len(one)] for one in counted])
        )

    @property
    def by_document(self) -> list[OfDocument]:
        """Each document, its sentences as pairs; nan for what there is of permutations alone."""
        return [
            OfDocument(
                *(len(document), count_words([document]), len(gains)),
                *(float(_counted(gains)[0].mean()), *[math.nan] * 4),
            )
            for document, gains in zip(self.documents, self.gains, strict=True)
        ]


def insert(
    scorer: SentenceScorer,
    documents: Sequence[Document],
    *,
    keep_first: int = 0,
    reader: Reader | None = None,
    on_document: Progress = lambda done, of: None,
) -> Insertions:
    """Every sentence of documents at every place.

    Args:
      scorer: of the model.
      documents: a split; those with fewer than two sentences that are not kept are left out.
      keep_first: sentences at the start of each document that stay where they are.
      reader: the `Reader` of the model, if it has one. Without it, what reads all sentences before
        scores every order by itself.
      on_document: called after every document.
    """
    chosen = movable(documents, keep_first)
    kept = list(chosen.values())
    if scorer.context_order is not None or reader is None:
        found = _by_pieces(scorer, kept, keep_first)
    else:
        found = (_by_prefixes(reader, document, keep_first) for document in kept)
    gains = []
    for of_document in found:
        gains.append(of_document)
        on_document(len(gains), len(kept))
    counted = np.concatenate([_counted(one) for one in gains], axis=1)
    chance = np.concatenate([_counted(np.zeros_like(one)) for one in gains], axis=1)
    result = Insertion(
        *map(float, (*counted.mean(axis=1), *chance.mean(axis=1))),
        documents=len(kept),
        sentences=counted.shape[1],
        words=count_words(kept),
        keep_first=keep_first,
        left_out=len(documents) - len(kept),
    )
    return Insertions(list(chosen), kept, gains, result)


def _counted(gains_PxP: np.ndarray) -> np.ndarray:
    """What each sentence counts towards accuracy and reciprocal rank, float64 [2, P]."""
    likelier_P = np.sum(gains_PxP > 0, axis=1)
    as_likely_P = np.sum(gains_PxP == 0, axis=1)
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, len(gains_PxP) + 1))])
    ranks_P = (harmonic[likelier_P + as_likely_P] - harmonic[likelier_P]) / as_likely_P
    return np.array([(likelier_P == 0) / as_likely_P, ranks_P])


def _moves(num_sentences: int, keep_first: int) -> list[tuple[int, int]]:
    """Sentences and their other places, those that part from the document at one place together."""
    moves = itertools.permutations(range(keep_first, num_sentences), 2)
    return sorted(moves, key=min)


def _moved(position: int, sentence: int, place: int) -> int:
    """Which sentence of the document stands at a position, once one is moved to a place."""
    if position == place:
        return sentence
    before = position - (position > place)
    return before + (before >= sentence)


def _by_pieces(
    scorer: SentenceScorer, documents: Sequence[Document], keep_first: int
) -> Iterator[np.ndarray]:
    """The gains in each document, as sums over the pieces that change."""
    k = scorer.context_order

    def changes(document: Document) -> Iterator[tuple[list[Piece], list[Piece]]]:
        """Of each move the pieces that come and those that go."""
        own, count = numbered(document).tolist(), len(document)
        for sentence, place in _moves(count, keep_first):
            if k is None:
                order = [own[_moved(one, sentence, place)] for one in range(count)]
                yield [tuple(order)], [tuple(own)]
                continue
            # The sentence, what follows it at its new place, and what followed it at its old one.
            after = sentence + (place < sentence)
            changed = {*range(place, place + k + 1), *range(after, after + k)}
            come, go = [], []
            for last in sorted(changed):
                if last < count:
                    at = [_moved(one, sentence, place) for one in range(max(0, last - k), last + 1)]
                    come.append(tuple(own[one] for one in at))
                    go.append(tuple(own[max(0, at[-1] - k) : at[-1] + 1]))
            yield come, go

    def requests() -> Iterator[Pieces]:
        for document in documents:
            of_moves = itertools.chain.from_iterable(changes(document))
            pieces = dict.fromkeys(itertools.chain.from_iterable(of_moves))
            yield Pieces(document, list(pieces), only_last=k is not None)

    found = log_probs_of_pieces(scorer, requests())
    for document, log_prob_of in zip(documents, found, strict=True):
        # `fsum` is exact: what changes nothing ties.
        yield _filled(
            len(document),
            keep_first,
            [
                math.fsum([log_prob_of[one] for one in come] + [-log_prob_of[one] for one in go])
                for come, go in changes(document)
            ],
        )


def _by_prefixes(reader: Reader, document: Document, keep_first: int) -> np.ndarray:
    """The gains in a document under a model that reads all sentences before."""
    own, count = numbered(document), len(document)
    prefixes = Prefixes(reader, document)
    moves, at_once = _moves(count, keep_first), max(1, _ORDERS_AT_ONCE // count)
    gains = []
    for first in range(0, len(moves), at_once):
        orders = [
            np.insert(np.delete(own, sentence), place, own[sentence])
            for sentence, place in moves[first : first + at_once]
        ]
        gains.append(prefixes.log_probs(np.array(orders)) - prefixes.log_prob)
    return _filled(count, keep_first, np.concatenate(gains))


def _filled(num_sentences: int, keep_first: int, gains: Sequence[float] | np.ndarray) -> np.ndarray:
    """The gains of `_moves` as float64 [P, P]."""
    filled = np.zeros((num_sentences - keep_first,) * 2)
    rows, columns = np.array(_moves(num_sentences, keep_first)).T - keep_first
    filled[rows, columns] = gains
    return filled
