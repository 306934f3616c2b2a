"""Orders of a document's sentences, as pure functions.

Orders are indices of sentences, int [S]. Equal sentences have the index of their first occurrence,
so that equal texts are equal orders.
"""

import dataclasses

import numpy as np

from dclm_jax.errors import require_at_least
from dclm_jax.reading.blocks import Sentences


@dataclasses.dataclass(frozen=True)
class Shuffle:
    """A way to shuffle sentences.

    By default all sentences are shuffled (Barzilay and Lapata, 2008). Blocks of consecutive
    sentences can be shuffled instead. The order of sentences in a block is retained, so that longer
    blocks test longer dependencies. A third way is to swap two neighbouring sentences.

    Attributes:
      block: number of sentences per block, from the first movable sentence; the last block may have
        fewer.
      swap: whether only two neighbouring sentences are swapped; `block` is then 1.
      fix_first: number of sentences at the start of each document that keep their position.
    """

    block: int = 1
    swap: bool = False
    fix_first: int = 0

    def __post_init__(self) -> None:
        require_at_least("fix_first", self.fix_first, 0)

    @property
    def name(self) -> str:
        """The name of the test with this shuffle, in tables and results."""
        if self.swap:
            return "swaps"
        return "permutations" if self.block == 1 else f"blocks of {self.block}"

    @property
    def minimum(self) -> str:
        """The minimum length of a document, for messages."""
        return "two sentences" if self.block == 1 else f"two blocks of {self.block} sentences"

    def fits(self, document: Sentences) -> bool:
        """Whether at least two blocks are movable."""
        return len(document) - self.fix_first > self.block

    def changes(self, document: Sentences) -> bool:
        """Whether any order is a different text; otherwise all movable sentences are equal."""
        movable = numbered(document)[self.fix_first :]
        blocks = np.split(movable, range(self.block, len(movable), self.block))
        # If all blocks commute with the first block, they commute with one another.
        return any(
            not np.array_equal(np.append(blocks[0], block), np.append(block, blocks[0]))
            for block in blocks[1:]
        )

    def draw(self, document: Sentences, count: int, rng: np.random.Generator) -> np.ndarray:
        """Orders int [count, S] of a document that `fits`, drawn with replacement. No order is the
        document itself, unless `changes` is false."""
        original, changes = numbered(document), self.changes(document)
        movable = original[self.fix_first :]
        orders = np.tile(original, (count, 1))
        is_original = np.ones(count, bool)
        while np.any(is_original):
            shuffled = self._shuffled(len(movable), int(is_original.sum()), rng)
            orders[is_original, self.fix_first :] = movable[shuffled]
            is_original = np.all(orders == original, axis=1) & changes
        return orders

    def _shuffled(self, num_sentences: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """Orders int [count, S]. All swaps are equally likely, and so are all orders of blocks."""
        if self.swap:
            starts = rng.integers(num_sentences - 1, size=(count, 1))
            inside = rng.permuted(np.tile(np.arange(2), (count, 1)), axis=1)
            orders = np.tile(np.arange(num_sentences), (count, 1))
            np.put_along_axis(orders, starts + np.arange(2), starts + inside, axis=1)
            return orders
        block_of = np.arange(num_sentences) // self.block
        blocks = np.tile(np.arange(-(-num_sentences // self.block)), (count, 1))
        rank_of_block = np.argsort(rng.permuted(blocks, axis=1), axis=1)
        return np.argsort(rank_of_block[:, block_of], axis=1, kind="stable")


class Moves:
    """Orders with one sentence at another position: int [P * P, S], computed slice by slice.

    Row i P + j moves sentence i of the P movable sentences to position j. A row with i = j is the
    document itself.
    """

    def __init__(self, num_sentences: int, fix_first: int = 0):
        self._num_sentences, self._fix_first = num_sentences, fix_first

    def __len__(self) -> int:
        return (self._num_sentences - self._fix_first) ** 2

    def __getitem__(self, rows: slice) -> np.ndarray:
        numbers = np.arange(*rows.indices(len(self)))[:, None]
        moved, target = np.divmod(numbers, self._num_sentences - self._fix_first)
        moved, target = moved + self._fix_first, target + self._fix_first
        position = np.arange(self._num_sentences)
        remaining = position - (position > target)
        return np.where(position == target, moved, remaining + (remaining >= moved))


def first_moved(document: Sentences, count: int, rng: np.random.Generator) -> np.ndarray:
    """Orders int [P, S], P at most `count`, with the first sentence at another position, drawn
    without replacement from the positions that make a different text."""
    original = numbered(document)
    # A move among equal sentences at the start makes no different text.
    nearest = max(1, int(np.argmax(original != original[0])))
    positions = np.arange(nearest, len(original))
    drawn = rng.choice(positions, min(count, len(positions)), replace=False)
    return np.array([np.insert(original[1:], position, original[0]) for position in drawn])


def numbered(document: Sentences) -> np.ndarray:
    """For each sentence the index of the first sentence equal to it, int [S]."""
    first_index: dict[bytes, int] = {}
    texts = [np.asarray(ids, np.int32).tobytes() for ids in document]
    return np.array([first_index.setdefault(text, i) for i, text in enumerate(texts)], np.int64)
