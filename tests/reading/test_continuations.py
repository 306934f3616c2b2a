"""Sentences scored after a state: their sums."""

from typing import Any

import numpy as np

from dclm_jax.reading.continuations import log_probs_after


class State:
    def take(self, rows):
        return self


class Reader:
    """Gives every sentence the same nats."""

    def read(self, state, documents, first):
        return state, [[np.array([2**24, 1, 1], np.float32)] for _ in documents]


def test_log_probs_of_sentences_are_summed_in_float64():
    """In float32 the sum is 2^24."""
    sentences = [np.array([5, 6]), np.array([7, 8])]
    reader: Any = Reader()
    assert log_probs_after(reader, State(), [0, 1], sentences).tolist() == [-(2**24) - 2] * 2
