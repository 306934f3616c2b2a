"""The likeliest order of sentences under a model.

log P of an order is the sum of log P of its sentences, each given the sentences before it. Under a
model that reads one previous sentence (context order 1) log P is a sum over neighbours. For such a
model, dynamic programming over sets of sentences and the last sentence of each set finds the best
order (Held and Karp, 1962). For other models, beam search extends beginnings of orders. Each
beginning is read once for all its extensions. Of two beginnings with the same sentences and the
same state of the model, only the likelier is retained.
"""

from typing import Any, NamedTuple

import numpy as np

from dclm_jax.errors import InputError, require_at_least
from dclm_jax.reading.blocks import Sentences
from dclm_jax.reading.continuations import SentenceReader, log_probs_after, read_after

MAX_OPTIMAL = 15
"""Maximum number of sentences for dynamic programming. Each further sentence doubles the time."""
DEFAULT_BEAM = 16


class Ordered(NamedTuple):
    """An order: indices of sentences, its log P in nats, and whether it is proven to be the
    likeliest order."""

    order: list[int]
    log_prob: float
    is_optimal: bool


class _Beginning(NamedTuple):
    """The first sentences of an order, and the row of the state before the last sentence."""

    row: int
    log_prob: float
    order: tuple[int, ...]


def order_sentences(
    reader: SentenceReader[Any], sentences: Sentences, beam: int = DEFAULT_BEAM
) -> Ordered:
    """The likeliest order of the sentences of a document.

    Args:
      reader: the model's reader.
      sentences: at least one sentence, each int [M] word ids.
      beam: beam width, for models without dynamic programming.
    """
    if reader.context_order == 0:
        raise InputError(
            "the model uses no context, so that all orders have the same probability; choose a "
            "model with context"
        )
    require_at_least("beam", beam, 1)
    if reader.context_order == 1 and len(sentences) <= MAX_OPTIMAL:
        return _optimal(reader, sentences)
    return _by_beam(reader, sentences, beam)


def _optimal(reader: SentenceReader[Any], sentences: Sentences) -> Ordered:
    """The best order under a model that reads one previous sentence."""
    count = len(sentences)
    start = reader.open(1)
    first_S = log_probs_after(reader, start, [0] * count, sentences)
    after_SxS = np.full((count, count), -np.inf)
    if count > 1:
        state = read_after(reader, start, [0] * count, sentences)
        rows, columns = np.nonzero(~np.eye(count, dtype=bool))
        following = [sentences[j] for j in columns.tolist()]
        after_SxS[rows, columns] = log_probs_after(reader, state, rows.tolist(), following)
    # best[m, j]: the best log P of the sentences in the bit set m, with sentence j last.
    best = np.full((1 << count, count), -np.inf)
    before = np.zeros(best.shape, np.int8)
    best[1 << np.arange(count), np.arange(count)] = first_S
    for members in range(1, 1 << count):
        reached_SxS = best[members][:, None] + after_SxS
        into_S, from_S = reached_SxS.max(axis=0), reached_SxS.argmax(axis=0)
        for j in range(count):
            if not members >> j & 1:
                best[members | 1 << j, j], before[members | 1 << j, j] = into_S[j], from_S[j]
    members, order = (1 << count) - 1, []
    last = int(best[members].argmax())
    log_prob = float(best[members, last])
    while members:
        order.append(last)
        members, last = members ^ 1 << last, int(before[members, last])
    return Ordered(order[::-1], log_prob, is_optimal=True)


def _by_beam(reader: SentenceReader[Any], sentences: Sentences, beam: int) -> Ordered:
    """The best order that beam search finds."""
    words = [tuple(map(int, ids)) for ids in sentences]
    beginnings, state = [_Beginning(0, 0.0, ())], reader.open(1)
    for length in range(1, len(sentences) + 1):
        if length > 1:
            last = [sentences[beginning.order[-1]] for beginning in beginnings]
            state = read_after(reader, state, [beginning.row for beginning in beginnings], last)
            beginnings = [beginning._replace(row=row) for row, beginning in enumerate(beginnings)]
        extended = []
        for beginning in beginnings:
            # The first of several equal sentences represents them.
            left = {
                words[i]: i for i in reversed(range(len(sentences))) if i not in beginning.order
            }
            extended += [(beginning, i) for i in sorted(left.values())]
        log_probs = log_probs_after(
            reader,
            state,
            [beginning.row for beginning, _ in extended],
            [sentences[i] for _, i in extended],
        )
        log_probs += [beginning.log_prob for beginning, _ in extended]
        survivors: dict[Any, _Beginning] = {}
        for best in np.argsort(-log_probs, kind="stable"):
            beginning, i = extended[best]
            order = (*beginning.order, i)
            context = length if reader.context_order is None else reader.context_order
            ending = tuple(words[i] for i in order[max(0, length - context) :])
            key = tuple(sorted(words[i] for i in order)), ending
            survivors.setdefault(key, _Beginning(beginning.row, float(log_probs[best]), order))
            if len(survivors) == beam:
                break
        beginnings = list(survivors.values())
    likeliest, *_ = beginnings
    return Ordered(list(likeliest.order), likeliest.log_prob, is_optimal=False)
