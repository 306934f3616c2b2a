"""The best hypotheses of documents, each scored given those that are chosen before it.

Lin et al. (2015), 6.3.2: the best translation of the first sentence is chosen, then that of the
second given the first, and so on. A hypothesis e of segment t has the score

    sum_m w_m log P_m(e | chosen hypotheses before t) + sum_f w_f feature_f(e)

in a log-linear model with a feature for every language model m, then those of the list. The score
of a document is the sum over its segments. Greedy search keeps the best choice for every segment,
a beam some documents so far. Of documents so far that end in the same `context_order` hypotheses
only the best can be part of the best document, so that the others are dropped: for models of order
0 greedy search is exact, and for models of order 1 a beam without bound is Viterbi's algorithm,
which Ji et al. (2015), 2.2.1, hold to be the advantage of CODCLM.

The history is read once, by every document so far, and not once for every hypothesis.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.errors import InputError, require_at_least
from dclm_jax.reading.continuations import log_probs_after, read_after

_DOCUMENTS = 256
"""Documents that are read at once."""


class Segment(NamedTuple):
    """K hypotheses to choose from: word ids, each int [M] without START and END, and float64 [K, F]
    features of other models."""

    hypotheses: Sequence[np.ndarray]
    features_KxF: np.ndarray


class Decoded(NamedTuple):
    """A document that has been decided on.

    Attributes:
      chosen: for each segment the index of a hypothesis.
      features: for each segment float64 [K, L + F], those of all hypotheses given the chosen ones
        before it: log P in nats under each of L language models, then those of the segment.
      score: of the chosen hypotheses.
    """

    chosen: list[int]
    features: list[np.ndarray]
    score: float


class _Path(NamedTuple):
    """The first segments of a document decided on; `row` is where its history is being read."""

    row: int
    score: float
    chosen: tuple[int, ...]
    features: tuple[np.ndarray, ...]


def search(
    readers: Sequence[Any],
    documents: Sequence[Sequence[Segment]],
    weights: np.ndarray,
    *,
    context_order: int | None,
    beam: int | None = 1,
    on_document: Callable[[int, int], None] = lambda done, of: None,
) -> list[Decoded]:
    """Chooses a hypothesis of every segment of every document.

    Args:
      readers: of the language models, in the order of their weights.
      documents: of at least one segment, each of at least one hypothesis.
      weights: float [L + F].
      context_order: the largest of the models: the hypotheses before a segment that its scores
        depend on; None for all.
      beam: how many ways through a document are followed: 1 is greedy search; None for all that
        matter, which is Viterbi's algorithm.
      on_document: called with the documents done and in all, to show progress.

    Raises:
      InputError: `beam` is below 1, or None where scores depend on more than one hypothesis before.
    """
    require_at_least("beam", beam, 1)
    if beam is None and (context_order is None or context_order > 1):
        depends = "all sentences" if context_order is None else f"{context_order} sentences"
        raise InputError(
            "Viterbi's algorithm needs scores that depend on the sentence before at most; this "
            f"model reads {depends} before; expected a beam"
        )
    decoded: list[Decoded] = [Decoded([], [], 0.0)] * len(documents)
    # Those of like length together, so that few rows run out early.
    order = sorted(range(len(documents)), key=lambda index: len(documents[index]), reverse=True)
    for first in range(0, len(order), _DOCUMENTS):
        some = order[first : first + _DOCUMENTS]

        def ended(count: int, before: int = first) -> None:
            on_document(before + count, len(documents))

        texts = [documents[index] for index in some]
        paths = _search(readers, texts, weights, context_order, beam, ended)
        for index, path in zip(some, paths, strict=True):
            decoded[index] = Decoded(list(path.chosen), list(path.features), path.score)
    return decoded


def _search(
    readers: Sequence[Any],
    documents: Sequence[Sequence[Segment]],
    weights: np.ndarray,
    context_order: int | None,
    beam: int | None,
    ended: Callable[[int], None],
) -> list[_Path]:
    """The best path through each document; says after every position how many have ended."""
    paths = [[_Path(row, 0.0, (), ())] for row in range(len(documents))]
    places = [reader.open(len(documents)) for reader in readers]
    for position in range(max(map(len, documents))):
        going = [index for index, one in enumerate(documents) if position < len(one)]
        if position:
            places = _read_on(readers, places, documents, paths, going)
        rows, hypotheses = [], []
        for index in going:
            for path in paths[index]:
                hypotheses += documents[index][position].hypotheses
                rows += [path.row] * len(documents[index][position].hypotheses)
        log_probs_RxL = np.stack(
            [
                log_probs_after(reader, place, rows, hypotheses)
                for reader, place in zip(readers, places, strict=True)
            ],
            axis=-1,
        )
        first = 0
        for index in going:
            segment, extended = documents[index][position], []
            for path in paths[index]:
                last = first + len(segment.hypotheses)
                features = np.hstack([log_probs_RxL[first:last], segment.features_KxF])
                extended += _extensions(path, features, weights)
                first = last
            paths[index] = _survivors(extended, context_order, beam)
        ended(sum(len(one) <= position + 1 for one in documents))
    return [best for best, *_ in paths]


def _read_on(
    readers: Sequence[Any],
    places: Sequence[Any],
    documents: Sequence[Sequence[Segment]],
    paths: list[list[_Path]],
    going: Sequence[int],
) -> list[Any]:
    """The places after what each path has chosen last, whose rows these then are."""
    rows, sentences = [], []
    for index in going:
        for number, path in enumerate(paths[index]):
            paths[index][number] = path._replace(row=len(rows))
            segment = documents[index][len(path.chosen) - 1]
            rows.append(path.row)
            sentences.append(segment.hypotheses[path.chosen[-1]])
    return [
        read_after(reader, place, rows, sentences)
        for reader, place in zip(readers, places, strict=True)
    ]


def _extensions(path: _Path, features_KxE: np.ndarray, weights: np.ndarray) -> list[_Path]:
    features = (*path.features, features_KxE)
    return [
        _Path(path.row, path.score + score, (*path.chosen, choice), features)
        for choice, score in enumerate((features_KxE @ weights).tolist())
    ]


def _survivors(paths: list[_Path], context_order: int | None, beam: int | None) -> list[_Path]:
    """The best paths, the best one first; of equals the one with the earlier hypotheses."""
    best: dict[tuple[int, ...], _Path] = {}
    for path in sorted(paths, key=lambda path: path.score, reverse=True):
        length = len(path.chosen)
        remembered = length if context_order is None else min(context_order, length)
        best.setdefault(path.chosen[length - remembered :], path)
    return list(best.values())[:beam]
