"""The words of scored sentences and what they attend to, as elements of pages.

No number is in a colour alone: a word has its numbers as its title and below it. The colours of the
classes of numbers are in page.css, for both themes.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from dclm_jax.errors import printable
from dclm_jax.experiments.markup import Child, element, table
from dclm_jax.language_model import SentenceAttention, SentenceScore


class Scale(NamedTuple):
    """Classes of numbers by what lies between them, in nats."""

    name: str
    bounds: Sequence[float]

    def of(self, nats: float) -> str:
        """The CSS class of a number."""
        return f"{self.name}{np.searchsorted(self.bounds, nats, side='right')}"

    def legend(self) -> Element:
        """Every class with its numbers."""
        ends = [f"{bound:g}".replace("-", "−") for bound in self.bounds]
        middle = [f"{low} to {high}" for low, high in itertools.pairwise(ends)]
        texts = [f"below {ends[0]}", *middle, f"{ends[-1]} and more"]
        items = (element("li", text, class_=f"{self.name}{i}") for i, text in enumerate(texts))
        return element("ul", *items, class_="legend scale")


SURPRISAL = Scale("s", (1, 2, 4, 6, 8, 10))
SAVED = Scale("d", (-2, -1, -0.25, 0.25, 1, 2))


def words(score: SentenceScore, *, changes: bool = False) -> Iterator[Child]:
    """The tokens of a sentence, spaces between, in the colour of what the context saves, where that
    is compared, elsewhere of their surprisal. That number in nats is below the word.

    Args:
      score: of the sentence.
      changes: whether the surprisal is below the word in any case, and below it by how much the
        context changes it, if it does so in this sentence.
    """
    alone = score.log_probs_alone or [None] * len(score.tokens)
    is_changed = score.log_probs_alone not in (None, score.log_probs)
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
        below = (element("rt", number) for number in numbers)
        yield element("ruby", printable(token), *below, class_=classes, title=title)
        yield " "


def _signed(nats: float) -> str:
    return f"{round(nats, 1) + 0.0:+.1f}".replace("-", "−")


def saves(nats: float) -> str:
    """Whether the context saves nats or costs some, and how many, as text."""
    nats = round(nats, 2)
    return f"saves {nats:.2f}" if nats >= 0 else f"costs {-nats:.2f}"


def attention(name: str, attended: SentenceAttention) -> Element:
    """A table of weights in %, its cells coloured by their share of the largest weight.

    Args:
      name: of what it is.
      attended: what to, two positions or more.
    """
    largest = float(attended.weights.max())
    cells: list[list[Child]] = [["", *map(printable, attended.targets)]]
    for position, weights in zip(attended.positions, attended.weights.T.tolist(), strict=True):
        shares = (
            element("td", f"{100 * weight:.0f}", style=f"--a:{weight / largest:.2f}")
            for weight in weights
        )
        cells.append([printable(position), *shares])
    caption = f"{name} in %: what a word (column) attends to when predicted; a column sums to 100"
    return table(caption, cells, class_="attention")
