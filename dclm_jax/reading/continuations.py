"""Scoring and reading of many candidate next sentences at once."""

import itertools
from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from dclm_jax.reading.blocks import batches_of_like_size, power_of_two, size_of

SENTENCES_AT_ONCE = 256
"""Maximum number of sentences scored at once; a power of two."""


class RowState(Protocol):
    """The state between two sentences in each of several documents, called rows."""

    def take(self, rows: Sequence[int]) -> Self:
        """The states of these rows in this order; rows may repeat."""
        ...


StateT = TypeVar("StateT", bound=RowState)


class SentenceReader(Protocol[StateT]):
    """Reads documents incrementally, as `Reader` and n-gram models do; `Reader` has the shapes."""

    @property
    def context_order(self) -> int | None: ...

    def open(self, rows: int) -> StateT: ...

    def read(
        self,
        state: StateT,
        sentences: Sequence[Sequence[np.ndarray]],
        unscored: Sequence[int] | None = None,
    ) -> tuple[StateT, list[list[np.ndarray]]]: ...

    def select(self, is_first_B: np.ndarray, first: StateT, second: StateT) -> StateT: ...

    def next(self, state: StateT, prefixes: Sequence[np.ndarray]) -> np.ndarray: ...

    def vectors(self, state: StateT) -> np.ndarray | None: ...


def score_after(
    reader: SentenceReader[StateT],
    state: StateT,
    rows: Sequence[int],
    sentences: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Scores each sentence as the next sentence after its row of the state.

    Sentences after the same row share the scores of their common beginning. Sentences of similar
    length are scored together, and row counts are powers of two, so that there is little padding
    and few programs are compiled.

    Args:
      state: a state of this reader.
      rows: R rows of the state, in any order and number.
      sentences: R sentences, each int [M] word ids without START and END.

    Returns:
      For each sentence float32 [M + 1]: -log P in nats of w1..wM END.
    """
    # In this order a sentence shares its longest beginning with its predecessor.
    order = sorted(range(len(sentences)), key=lambda i: (rows[i], *map(int, sentences[i])))
    shared = [0] * len(sentences)
    for before, index in itertools.pairwise(order):
        if rows[before] == rows[index]:
            shared[index] = _shared_targets(sentences[before], sentences[index])
    scores: list[Any] = [None] * len(sentences)
    sizes = [size_of([words]) for words in sentences]
    for batch, _ in batches_of_like_size(sizes, SENTENCES_AT_ONCE):
        filled = filled_up(batch)
        _, nll = reader.read(
            state.take([rows[index] for index in filled]),
            [[sentences[index]] for index in filled],
            [shared[index] for index in filled],
        )
        for index, row_scores in zip(batch, nll, strict=False):
            (scores[index],) = row_scores
    for before, index in itertools.pairwise(order):
        known = shared[index]
        scores[index] = np.concatenate([scores[before][:known], scores[index][known:]])
    return scores


def log_probs_after(
    reader: SentenceReader[StateT],
    state: StateT,
    rows: Sequence[int],
    sentences: Sequence[np.ndarray],
) -> np.ndarray:
    """log P in nats of each sentence as the next sentence after its row, float64 [R]."""
    scores = score_after(reader, state, rows, sentences)
    return np.array([-np.sum(nll, dtype=np.float64) for nll in scores])


def read_after(
    reader: SentenceReader[StateT],
    state: StateT,
    rows: Sequence[int],
    sentences: Sequence[np.ndarray],
) -> StateT:
    """The states after sentences, each read after its row and not scored. Further rows fill the
    batch to a power of two."""
    filled = filled_up(range(len(rows)))
    texts = [[sentences[i]] for i in filled]
    unscored = [len(words) + 1 for (words,) in texts]
    return reader.read(state.take([rows[i] for i in filled]), texts, unscored)[0]


def _shared_targets(first: np.ndarray, second: np.ndarray) -> int:
    """The number of leading targets, words and END, that two sentences share."""
    length = min(len(first), len(second))
    (differ,) = np.nonzero(np.asarray(first[:length]) != np.asarray(second[:length]))
    if differ.size:
        return int(differ[0])
    return length + (len(first) == len(second))


def filled_up(rows: Sequence[int]) -> list[int]:
    """The rows, with the last row repeated up to a power of two."""
    return [*rows, *[rows[-1]] * (power_of_two(len(rows)) - len(rows))]
