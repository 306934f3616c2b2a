"""Measures computed from the nats of every target, all in one pass over the documents.

A measure is a class in MEASURES. `add` takes each document with the nats of its targets, and
`value` returns the result. `LanguageModel.measure` returns all MEASURES. Their values on a split
are saved in RUN/results as one result, from which `launch.report` makes tables and figures.
"""

import abc
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dclm_jax.evaluation.scoring import Document


class Measure(abc.ABC):
    """A measure of one model; a new object has no documents.

    Attributes:
      name: key of the value in saved results, different from their other keys.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def add(self, sentences: Document, nll: Sequence[np.ndarray]) -> None:
        """Takes the next document.

        Args:
          sentences: word ids int [M] of each sentence, M >= 1, without START and END.
          nll: -log P in nats of the targets w1..wM END of each sentence, float [M + 1]; for models
            of bags of words float [M], without END.
        """

    @abc.abstractmethod
    def value(self) -> Any:
        """The result over all documents, at least one, made of Python numbers, lists and dicts."""


class ByDocument(Measure):
    """Nats of every document [D], to three decimals."""

    name = "by_document"

    def __init__(self) -> None:
        self._nats: list[float] = []

    def add(self, sentences: Document, nll: Sequence[np.ndarray]) -> None:
        del sentences
        self._nats.append(float(np.concatenate(nll).astype(np.float64).sum()))

    def value(self) -> list[float]:
        return np.array(self._nats).round(3).tolist()


class ByPosition(Measure):
    """Nats (to three decimals) and numbers of the targets by document and range of positions.

    Attributes:
      title: title of the table and of the figure of perplexities.
    """

    title: ClassVar[str]

    BOUNDS: ClassVar[Sequence[int]] = (0, 1, 2, 5, 10, 20)
    """First positions of the ranges, from 0. Range i ends at BOUNDS[i + 1] - 1; the last range has
    no end."""

    def __init__(self) -> None:
        self._sums: list[tuple[np.ndarray, np.ndarray]] = []

    @abc.abstractmethod
    def positions(self, lengths: Sequence[int]) -> np.ndarray:
        """The positions of the targets of sentences with these numbers of targets, int [T]."""

    def add(self, sentences: Document, nll: Sequence[np.ndarray]) -> None:
        del sentences
        positions = self.positions(list(map(len, nll)))
        ranges = np.searchsorted(self.BOUNDS, positions, side="right") - 1
        nats = np.bincount(ranges, np.concatenate(nll), len(self.BOUNDS))
        self._sums.append((nats, np.bincount(ranges, minlength=len(self.BOUNDS))))

    def value(self) -> dict[str, list[list[float]]]:
        nats, counts = map(np.stack, zip(*self._sums, strict=True))
        return {"nll": nats.round(3).tolist(), "count": counts.tolist()}

    @classmethod
    def ranges(cls) -> list[str]:
        """The ranges of positions as text, counted from 1."""
        closed = [
            str(end) if end == first + 1 else f"{first + 1}-{end}"
            for first, end in itertools.pairwise(cls.BOUNDS)
        ]
        return [*closed, f"{cls.BOUNDS[-1] + 1}+"]


class ByToken(ByPosition):
    """Nats by position in the sentence. w1 has position 0, and END has position M."""

    name = "by_token"
    title = "Perplexity by position in the sentence"

    def positions(self, lengths: Sequence[int]) -> np.ndarray:
        return np.concatenate(list(map(np.arange, lengths)))


class BySentence(ByPosition):
    """Nats by position of the sentence in its document."""

    name = "by_sentence"
    title = "Perplexity by position of the sentence in the document"

    def positions(self, lengths: Sequence[int]) -> np.ndarray:
        return np.repeat(np.arange(len(lengths)), lengths)


MEASURES: tuple[type[Measure], ...] = (ByToken, BySentence, ByDocument)
"""All measures, in the order of their tables."""


def by_position() -> list[type[ByPosition]]:
    """The measures that have a table and a figure of perplexities by position."""
    return [kind for kind in MEASURES if issubclass(kind, ByPosition)]
