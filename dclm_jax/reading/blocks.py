"""Documents in batches of like size, and their sentences in blocks [B, S, N] of few shapes.

`NeuralScorer` and `Reader` compile one program per shape.
"""

import collections
import dataclasses
import math
import operator
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from dclm_jax.data.batches import Batch, pack_sentences

Sentences = Sequence[np.ndarray]

BLOCK_SENTENCES = 8
"""Maximum number of sentences read at once; a power of two."""
MAX_POSITIONS = 2**16
"""Maximum B*S*N of a block on a device, to bound memory; only a single sentence may be longer."""
_MIN_LENGTH = 8
MAX_ROWS = MAX_POSITIONS // _MIN_LENGTH
"""Maximum B of a block on one device: a sentence takes at least _MIN_LENGTH positions."""
# In a batch, the longest document has less than this many times the sentences of the shortest
# document. Otherwise a batch with a very long document would be mostly padding.
_LENGTH_RATIO = 4


def padded_length(num_words: int) -> int:
    """N for sentences of up to `num_words` words and END.

    These lengths are coarser than the buckets of training: a document is scored once, so that
    fewer shapes to compile save more time than the padding costs.
    """
    return max(_MIN_LENGTH, power_of_two(num_words + 1))


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def batches_of_like_size(
    sizes: Sequence[tuple[int, int, int]], max_rows: int, num_devices: int = 1
) -> Iterator[tuple[list[int], int]]:
    """Batches of documents with little padding, whose blocks do not exceed MAX_POSITIONS.

    Args:
      sizes: for each document its number of sentences, the number of words of its longest
        sentence, and the minimum number of positions read at once, a power of two.
      max_rows: maximum number of documents per device, a power of two.
      num_devices: number of devices that share the rows.

    Yields:
      Indices of documents, the longest first, and B, the number of rows per device, a power of
      two. Documents without a sentence are in no batch.
    """
    by_row_limit: dict[int, list[int]] = collections.defaultdict(list)
    for index, (num_sentences, _, positions) in enumerate(sizes):
        if num_sentences:
            # Both are powers of two.
            limit = min(max_rows, max(1, MAX_POSITIONS // positions))
            by_row_limit[limit].append(index)
    for limit, indices in sorted(by_row_limit.items(), reverse=True):
        indices.sort(key=lambda index: sizes[index], reverse=True)
        while indices:
            longest, *_ = sizes[indices[0]]
            rows = [
                index
                for index in indices[: limit * num_devices]
                if sizes[index][0] * _LENGTH_RATIO > longest
            ]
            indices = indices[len(rows) :]
            yield rows, power_of_two(-(-len(rows) // num_devices))


def next_block(
    documents: Sequence[Sentences],
    first: int,
    size: int,
    rows: int,
    contexts: Sequence[Sentences] | None = None,
) -> Batch:
    """Sentences [B, S, N] of documents from the sentence `first` on. S is a power of two, at most
    `size`, and less where a block of `rows` documents would exceed MAX_POSITIONS. `contexts` has
    for each document the sentences of the batch's `context`."""
    if contexts is not None:
        both = next_block([*documents, *contexts], first, size, 2 * rows)
        part, context = (
            jax.tree.map(operator.itemgetter(rows_of), both)
            for rows_of in (slice(len(documents)), slice(len(documents), None))
        )
        return dataclasses.replace(part, context=context)
    while True:
        block = [sentences[first : first + size] for sentences in documents]
        length = padded_length(max(len(words) for sentences in block for words in sentences))
        if size == 1 or rows * size * length <= MAX_POSITIONS:
            return pack_sentences(block, size, length)
        size //= 2


def source_shape(source: Sentences) -> tuple[int, int]:
    """S and N of a block that contains a whole source, powers of two."""
    longest = max(map(len, source), default=0)
    return power_of_two(max(1, len(source))), padded_length(longest)


def size_of(sentences: Sentences, *, reads_source: bool = False) -> tuple[int, int, int]:
    """The size of a document, which is its own source if the model reads one, for
    `batches_of_like_size`."""
    longest = max(map(len, sentences), default=0)
    positions = padded_length(longest)
    if reads_source:
        positions = max(positions, math.prod(source_shape(sentences)))
    return len(sentences), longest, positions


def pack_sources(sources: Sequence[Sentences]) -> Batch:
    """The sources of B documents as a batch [B, S, N]."""
    shapes = zip(*map(source_shape, sources), strict=True)
    return pack_sentences(sources, *map(max, shapes))
