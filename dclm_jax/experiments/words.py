"""The words of scored sentences and what they attend to, for the templates of pages.

No number is in a colour alone: a word has its numbers as its title and below it. The colours of the
classes of numbers are in page.css, for both themes.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.language_model import SentenceAttention, SentenceScore


class Scale(NamedTuple):
    """Classes of numbers by what lies between them, in nats."""

    name: str
    bounds: Sequence[float]

    def of(self, nats: float) -> str:
        """The CSS class of a number."""
        return f"{self.name}{np.searchsorted(self.bounds, nats, side='right')}"

    def legend(self) -> list[str]:
        """The numbers of every class."""
        ends = [f"{bound:g}".replace("-", "−") for bound in self.bounds]
        middle = [f"{low} to {high}" for low, high in itertools.pairwise(ends)]
        return [f"below {ends[0]}", *middle, f"{ends[-1]} and more"]


SURPRISAL = Scale("s", (1, 2, 4, 6, 8, 10))
SAVED = Scale("d", (-2, -1, -0.25, 0.25, 1, 2))


class Word(NamedTuple):
    """A token with its CSS classes, its title and the numbers below it."""

    text: str
    classes: str
    title: str
    numbers: list[str]


class Weight(NamedTuple):
    """A weight of attention in %, and its share of the largest one in the table."""

    percent: str
    share: float


def words(score: SentenceScore, *, changes: bool = False) -> list[Word]:
    """The tokens of a sentence in the colour of what the context saves, where that is compared,
    elsewhere of their surprisal. That number in nats is below the word.

    Args:
      score: of the sentence.
      changes: whether the surprisal is below the word in any case, and below it by how much the
        context changes it, if it does so in this sentence.
    """
    alone = score.log_probs_no_context or [None] * len(score.tokens)
    is_changed = score.log_probs_no_context not in (None, score.log_probs)
    tokens = []
    for token, log_prob, by_itself, known in zip(
        score.tokens, score.log_probs, alone, score.known, strict=True
    ):
        classes, numbers, title = "unscored", ["–"], "not scored"
        if not math.isnan(log_prob):
            classes, numbers = SURPRISAL.of(-log_prob), [f"{-log_prob:.1f}"]
            title = f"{-log_prob:.2f} nats"
            if by_itself is not None:
                saved = log_prob - by_itself
                classes = SAVED.of(saved)
                title += f", alone {-by_itself:.2f}: the context {saves(saved)} nats"
                if not changes:
                    numbers = [_signed(saved)]
                elif is_changed:
                    numbers.append(_signed(-saved))
        if not known:
            classes, title = f"{classes} unknown", f"{title}; not in the vocabulary"
        tokens.append(Word(token, classes, title, numbers))
    return tokens


def _signed(nats: float) -> str:
    return f"{round(nats, 1) + 0.0:+.1f}".replace("-", "−")


def saves(nats: float) -> str:
    """Whether the context saves nats or costs some, and how many, as text."""
    nats = round(nats, 2)
    return f"saves {nats:.2f}" if nats >= 0 else f"costs {-nats:.2f}"


def weights(attended: SentenceAttention) -> list[list[str | Weight]]:
    """The cells of a table: targets as columns, and a row for each of two positions or more."""
    largest = float(attended.weights.max())
    rows = zip(attended.positions, attended.weights.T.tolist(), strict=True)
    return [
        ["", *attended.targets],
        *([name, *(Weight(f"{100 * w:.0f}", w / largest) for w in row)] for name, row in rows),
    ]
