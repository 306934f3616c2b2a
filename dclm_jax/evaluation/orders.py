"""Orders of a document's sentences that are not its own: all kinds of shuffles, as pure functions.

An `Arrangement` says what of a document is shuffled: all of its sentences (Barzilay and Lapata,
2008); blocks of sentences that follow one another, inside of which nothing changes, so that what a
model knows of neighbours counts the less the longer they are; or the sentences of one window, two
of them for a swap of neighbours, so that all else stays as it is.

Orders are indices of sentences, int [S]. Equal sentences have one index, that of the first of them,
so that equal texts are equal orders.
"""

from typing import NamedTuple

import numpy as np

from dclm_jax.evaluation.scoring import Document

BLOCK_SIZES = (1, 2, 4, 8)
"""Sentences of a block, where documents are measured by the size of blocks."""


class Arrangement(NamedTuple):
    """What of a document is shuffled.

    Attributes:
      block: sentences of a block, from the first that moves on; the last block may have fewer.
        Whole blocks are put in another order.
      window: neighbours that are put in another order, wherever they stand in the document; 0 for
        all. Blocks are of one sentence there.
    """

    block: int = 1
    window: int = 0

    def __str__(self) -> str:
        if self.window:
            return "swaps" if self.window == 2 else f"windows of {self.window}"
        return "permutations" if self.block == 1 else f"blocks of {self.block}"

    @property
    def least(self) -> str:
        """The least that a document must have for this arrangement, for messages."""
        if self.window > 2:
            return f"{self.window} sentences"
        return "two sentences" if self.block == 1 else f"two blocks of {self.block} sentences"

    def fits(self, num_sentences: int) -> bool:
        """Whether `num_sentences` that may move are enough: two blocks, or one window."""
        return num_sentences > self.block and num_sentences >= self.window

    def changes(self, numbered: np.ndarray) -> bool:
        """Whether any such order of these sentences makes another text."""
        blocks = np.split(numbered, range(self.block, len(numbered), self.block))
        # If all blocks commute with the first one, they commute with one another.
        return any(
            not np.array_equal(np.concatenate([blocks[0], one]), np.concatenate([one, blocks[0]]))
            for one in blocks[1:]
        )

    def shuffles(self, num_sentences: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """Orders int [count, S] of so many sentences: each window is as likely as any other, and so
        is each order of what moves."""
        if self.window:
            starts = rng.integers(num_sentences - self.window + 1, size=(count, 1))
            inside = rng.permuted(np.tile(np.arange(self.window), (count, 1)), axis=1)
            orders = np.tile(np.arange(num_sentences), (count, 1))
            np.put_along_axis(orders, starts + np.arange(self.window), starts + inside, axis=1)
            return orders
        block_of = np.arange(num_sentences) // self.block
        drawn = np.tile(np.arange(-(-num_sentences // self.block)), (count, 1))
        rank_of_block = np.argsort(rng.permuted(drawn, axis=1), axis=1)
        return np.argsort(rank_of_block[:, block_of], axis=1, kind="stable")


PERMUTATION = Arrangement()
SWAP = Arrangement(window=2)
WINDOW = Arrangement(window=3)


def random_orders(
    document: Document,
    count: int,
    rng: np.random.Generator,
    *,
    arrangement: Arrangement = PERMUTATION,
    keep_first: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Orders of a document's sentences that are not the document.

    Args:
      document: of S sentences; the arrangement fits those that are not kept.
      count: orders to draw, with replacement.
      rng: the source of randomness.
      arrangement: what is shuffled.
      keep_first: sentences at the start that stay where they are.

    Returns:
      `original` int [S] and `orders` int [count, S]. No row is `original` unless no such order
      makes another text.
    """
    original = numbered(document)
    tail = original[keep_first:]
    orders = np.tile(original, (count, 1))
    same = np.ones(count, bool)
    while np.any(same):
        orders[same, keep_first:] = tail[arrangement.shuffles(len(tail), int(same.sum()), rng)]
        same = np.all(orders == original, axis=1) & arrangement.changes(tail)
    return original, orders


def first_moved(
    document: Document, places: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """As `random_orders`, the orders in which the first sentence alone has another place."""
    original = numbered(document)
    # Among equal sentences at the start it can move without making another text.
    nearest = max(1, int(np.argmax(original != original[0])))
    others = np.arange(nearest, len(original))
    drawn = rng.choice(others, min(places, len(others)), replace=False)
    return original, np.array([np.insert(original[1:], place, original[0]) for place in drawn])


def numbered(document: Document) -> np.ndarray:
    """For each sentence, the index of the first one that is equal to it, int [S]."""
    first_index: dict[bytes, int] = {}
    texts = [np.asarray(ids, np.int32).tobytes() for ids in document]
    return np.array([first_index.setdefault(text, at) for at, text in enumerate(texts)])
