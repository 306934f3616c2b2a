"""The likeliest next words of a sentence: a best-first search over the pieces of words.

A word is a sequence of pieces, and its log P is the sum over its pieces. The log P of the first
pieces of a word is at least the log P of the word, so that the search ends, with an exact result,
when k words are at least as probable as the first pieces that were not extended. With a vocabulary
of words every word has one piece, and the search has one step.
"""

import heapq
from typing import Any

import numpy as np

from dclm_jax.data.vocabulary import END, END_TOKEN, FIRST_WORD, START, UNKNOWN, Vocabulary
from dclm_jax.reading.continuations import SentenceReader, StateT

_PREFIXES_AT_ONCE = 32
"""Maximum number of first pieces that are extended together."""


def likeliest_words(
    reader: SentenceReader[StateT], state: StateT, vocabulary: Vocabulary, sentence: Any, k: int
) -> list[tuple[str, float]]:
    """The k likeliest next words, or END, with their log P in nats, likeliest first.

    Args:
      reader: the reader of a model that predicts words.
      state: the state of one document between two sentences.
      vocabulary: the vocabulary of the model.
      sentence: int [M], ids of the first words of a sentence.
      k: number of words.
    """
    words: list[tuple[float, int, str]] = []
    prefixes: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    while batch := _best(prefixes, _least(words, k)):
        # Copies of the first prefix fill the batch.
        num_rows = _PREFIXES_AT_ONCE if len(batch) > 1 else 1
        filled = [*batch, *[batch[0]] * (num_rows - len(batch))]
        texts = [np.append(sentence, pieces).astype(np.int32) for _, pieces in filled]
        log_probs_RxV = reader.next(state.take([0] * num_rows), texts).astype(np.float64)
        for (nats, pieces), log_probs_V in zip(batch, log_probs_RxV, strict=False):
            log_probs_V -= nats
            words += _words(vocabulary, pieces, log_probs_V, k, _least(words, k))
            words = heapq.nsmallest(k, words)
            inner_V = log_probs_V[FIRST_WORD : vocabulary.first_word_end]
            for index in np.flatnonzero(inner_V > _least(words, k)).tolist():
                heapq.heappush(prefixes, (-float(inner_V[index]), (*pieces, FIRST_WORD + index)))
    return [(word, -nats) for nats, _, word in words]


def _least(words: list[tuple[float, int, str]], k: int) -> float:
    """The log P that a further word must exceed."""
    return -words[-1][0] if len(words) == k else -np.inf


def _best(
    prefixes: list[tuple[float, tuple[int, ...]]], least: float
) -> list[tuple[float, tuple[int, ...]]]:
    """Takes the likeliest prefixes whose log P exceeds `least` from the heap."""
    batch = []
    while prefixes and -prefixes[0][0] > least and len(batch) < _PREFIXES_AT_ONCE:
        batch.append(heapq.heappop(prefixes))
    return batch


def _words(
    vocabulary: Vocabulary,
    pieces: tuple[int, ...],
    log_probs_V: np.ndarray,
    k: int,
    least: float,
) -> list[tuple[float, int, str]]:
    """The k likeliest words that begin with `pieces` and have one further piece: nats, last id and
    spelling."""
    last_V = np.arange(len(vocabulary)) >= vocabulary.first_word_end
    if not pieces:
        last_V[[START, END, UNKNOWN]] = not vocabulary.has_pieces, True, not vocabulary.has_pieces
    (ids,) = np.nonzero(last_V & (log_probs_V > least))
    words = []
    for index in ids[np.argsort(-log_probs_V[ids], kind="stable")].tolist():
        word = END_TOKEN if index == END else vocabulary.decode([*pieces, index])[0]
        if not word or (
            # Other pieces of the same word have another log P.
            vocabulary.has_pieces
            and index != END
            and vocabulary.pieces_of(word) != [*pieces, index]
        ):
            continue
        words.append((-float(log_probs_V[index]), index, word))
        if len(words) == k:
            break
    return words
