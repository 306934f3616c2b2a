"""A scorer of words without context, whose scores are known."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dclm_jax.data.vocabulary import END
from dclm_jax.scoring.scorer import Scorer, sentences_to_score


class FakeScorer(Scorer):
    """-log P of a word, and of END, is that of a table; reads `window` documents ahead."""

    context_order = 0
    first_word_end = 3

    def __init__(self, table: Any, window: int = 1):
        self.table = np.asarray(table, np.float32)
        self.vocab_size = len(self.table)
        self.window = window

    def score(self, documents: Iterable[Any]) -> Iterator[tuple[Any, list[np.ndarray]]]:
        waiting = []
        for document in documents:
            sentences, first_scored = sentences_to_score(document)
            nll = [self.table[np.append(ids, END)] for ids in sentences[first_scored:]]
            waiting.append((document, nll))
            if len(waiting) == self.window:
                yield from waiting
                waiting = []
        yield from waiting
