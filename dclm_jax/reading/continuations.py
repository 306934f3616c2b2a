"""Sentences as the next one after places, many at once: scored, or read on over."""

import itertools
from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from dclm_jax.reading.reader import batches_of_like_size, power_of_two, size_of

ROWS = 256
"""Sentences that are scored at once, at most; a power of two."""


class SentencePlace(Protocol):
    """A place between sentences in each of some documents."""

    def take(self, rows: Sequence[int]) -> Self:
        """The places of these rows, in this order; a row may come any number of times."""
        ...


PlaceT = TypeVar("PlaceT", bound=SentencePlace)


class SentenceReader(Protocol[PlaceT]):
    """Reads documents on from places with a model, as `Reader` and n-gram models do; see `Reader`
    for shapes."""

    @property
    def context_order(self) -> int | None: ...

    def open(self, rows: int) -> PlaceT: ...

    def read(
        self,
        place: PlaceT,
        sentences: Sequence[Sequence[np.ndarray]],
        unscored: Sequence[int] | None = None,
    ) -> tuple[PlaceT, list[list[np.ndarray]]]: ...

    def select(self, is_first_B: np.ndarray, first: PlaceT, second: PlaceT) -> PlaceT: ...

    def start(self, place: PlaceT) -> tuple[Any, Any]: ...

    def next(self, place: Any, tokens_B: Sequence[int]) -> tuple[Any, Any]: ...

    def vectors(self, place: PlaceT) -> np.ndarray | None: ...


def score_after(
    reader: SentenceReader[PlaceT],
    place: PlaceT,
    rows: Sequence[int],
    sentences: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Each sentence as the next one after the place of its row.

    What was read before is not read again, and a beginning that sentences after a row share is
    scored once. Sentences of like length are scored together, in few numbers of rows, so that
    little is padding and few programs are compiled.

    Args:
      place: of this reader.
      rows: R rows of the place, in any order and number.
      sentences: R of them, each int [M] word ids without START and END.

    Returns:
      For each sentence float32 [M + 1]: -log P in nats of w1..wM END.
    """
    # In this order a sentence shares its longest beginning with the one before it.
    order = sorted(range(len(sentences)), key=lambda i: (rows[i], *map(int, sentences[i])))
    shared = [0] * len(sentences)
    for before, index in itertools.pairwise(order):
        if rows[before] == rows[index]:
            shared[index] = _shared_targets(sentences[before], sentences[index])
    scores: list[Any] = [None] * len(sentences)
    sizes = [size_of([words]) for words in sentences]
    for batch, _ in batches_of_like_size(sizes, ROWS):
        filled = filled_up(batch)
        _, nll = reader.read(
            place.take([rows[index] for index in filled]),
            [[sentences[index]] for index in filled],
            [shared[index] for index in filled],
        )
        for index, of_row in zip(batch, nll, strict=False):
            (scores[index],) = of_row
    for before, index in itertools.pairwise(order):
        known = shared[index]
        scores[index] = np.concatenate([scores[before][:known], scores[index][known:]])
    return scores


def log_probs_after(
    reader: SentenceReader[PlaceT],
    place: PlaceT,
    rows: Sequence[int],
    sentences: Sequence[np.ndarray],
) -> np.ndarray:
    """log P in nats of each sentence as the next one after the place of its row, float64 [R]."""
    scores = score_after(reader, place, rows, sentences)
    return np.array([-np.sum(nll, dtype=np.float64) for nll in scores])


def read_after(
    reader: SentenceReader[PlaceT],
    place: PlaceT,
    rows: Sequence[int],
    sentences: Sequence[np.ndarray],
) -> PlaceT:
    """The places after sentences, each read on from the place of its row and not scored; rows that
    fill up a power of two follow."""
    filled = filled_up(range(len(rows)))
    texts = [[sentences[i]] for i in filled]
    unscored = [len(words) + 1 for (words,) in texts]
    return reader.read(place.take([rows[i] for i in filled]), texts, unscored)[0]


def _shared_targets(first: np.ndarray, second: np.ndarray) -> int:
    """How many targets, words and END, two sentences have alike from their beginning on."""
    both = min(len(first), len(second))
    (differ,) = np.nonzero(np.asarray(first[:both]) != np.asarray(second[:both]))
    if differ.size:
        return int(differ[0])
    return both + (len(first) == len(second))


def filled_up(rows: Sequence[int]) -> list[int]:
    """The rows, and the last one again up to a power of two of them."""
    return [*rows, *[rows[-1]] * (power_of_two(len(rows)) - len(rows))]
