"""N-best lists without a decoder: sentences of a corpus among corruptions of themselves.

A corruption has one to `MAX_EDITS` edits, each of which swaps two neighbouring words, puts a word
of like frequency in the place of another, or deletes a word. A list holds the sentence itself and
different corruptions of it, ordered by a score that stands for a decoder's: minus the number of
edits, and normal noise. The best of a list is thus better than chance and worse than the oracle.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.errors import require_at_least

MAX_EDITS = 3
NOISE = 2.0
"""Standard deviation of the noise of a score, in edits."""
_LIKE = 1.25
"""Ranks of frequency within this ratio are alike, and the nearest `_NEAREST` ones."""
_NEAREST = 5
_TRIES_PER_CANDIDATE = 20


class Candidate(NamedTuple):
    """A sentence as word ids int32 [M], M >= 1, and a decoder's score of it; more is better."""

    words: np.ndarray
    score: float


class Corruption:
    """Makes lists of candidates for sentences under one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, candidates: int):
        """Args:
        vocabulary: whose counts say which words are alike.
        candidates: of a list, at most; a short sentence may have fewer corruptions.
        """
        require_at_least("candidates", candidates, 2)
        self._candidates = candidates
        first = len(SPECIAL_TOKENS)
        self._by_frequency = first + np.argsort(-np.array(vocabulary.counts[first:]), kind="stable")
        self._rank = np.full(len(vocabulary), -1)
        self._rank[self._by_frequency] = np.arange(len(self._by_frequency))

    def candidates(self, sentence: np.ndarray, rng: np.random.Generator) -> list[Candidate]:
        """The list of a sentence, int [M] with M >= 1, in the order of its scores."""
        found = {tuple(sentence.tolist()): 0}
        for _ in range(_TRIES_PER_CANDIDATE * self._candidates):
            if len(found) == self._candidates:
                break
            edits = int(rng.integers(1, MAX_EDITS + 1))
            words = sentence.tolist()
            for _ in range(edits):
                words = self._edited(words, rng)
            found.setdefault(tuple(words), edits)
        scores = -np.array(list(found.values())) + rng.normal(0, NOISE, len(found))
        listed = zip(found, scores.tolist(), strict=True)
        ranked = sorted(listed, key=lambda one: one[1], reverse=True)
        return [Candidate(np.array(words, np.int32), score) for words, score in ranked]

    def _edited(self, words: Sequence[int], rng: np.random.Generator) -> list[int]:
        """One edit more; a single word can only be exchanged, a word without frequency cannot."""
        words, place = list(words), int(rng.integers(len(words)))
        kind = rng.integers(3) if len(words) > 1 else 1
        if kind == 0:
            place = min(place, len(words) - 2)
            words[place : place + 2] = words[place + 1], words[place]
        elif kind == 1:
            words[place] = self._alike(words[place], rng)
        else:
            del words[place]
        return words

    def _alike(self, word: int, rng: np.random.Generator) -> int:
        rank = self._rank[word]
        if rank < 0:
            return word
        low = int(min(rank / _LIKE, rank - _NEAREST))
        high = int(max(rank * _LIKE, rank + _NEAREST))
        low, high = max(low, 0), min(high, len(self._by_frequency) - 1)
        return int(self._by_frequency[rng.integers(low, high + 1)])
