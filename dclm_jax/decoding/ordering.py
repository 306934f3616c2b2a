"""Sentences put into the order that a model finds likeliest.

log P of an order is the sum of log P of its sentences, each given those before it. Where a model
reads one sentence before (context order 1), that is a sum over neighbours, and the best of all
orders is found by dynamic programming over sets of sentences and the last one of each set (Held and
Karp, 1962). Otherwise a beam of beginnings is followed: a beginning is read once, whatever goes on
from it, and of two beginnings of the same sentences that leave the model in the same place the
likelier one is kept.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.errors import InputError, require_at_least
from dclm_jax.reading.continuations import SentenceReader, log_probs_after, read_after

MOST_EXACT = 15
"""Sentences of a document whose best order is found exactly, at most: time doubles with each."""
DEFAULT_BEAM = 16

Document = Sequence[np.ndarray]


class Ordered(NamedTuple):
    """An order: indices into the given sentences, log P of it in nats, and whether it is known to
    be the likeliest of all."""

    order: list[int]
    log_prob: float
    is_exact: bool


class _Beginning(NamedTuple):
    """Sentences that have been chosen, and the row of the place where the last but one ends."""

    row: int
    log_prob: float
    order: tuple[int, ...]


def order_documents(
    reader: SentenceReader[Any],
    documents: Sequence[Document],
    *,
    context_order: int | None,
    beam: int = DEFAULT_BEAM,
    on_document: Callable[[int, int], None] = lambda done, total: None,
) -> list[Ordered]:
    """The likeliest order of the sentences of each document.

    Args:
      reader: of the model.
      documents: of at least one sentence, each int [M] word ids.
      context_order: of the model (`DocumentModel.context_order`).
      beam: beginnings that are kept where not all orders are looked at.
      on_document: called with the documents done and in all.
    """
    if context_order == 0:
        raise InputError(
            "the model reads every sentence by itself: all orders have one probability"
        )
    require_at_least("beam", beam, 1)
    ordered = []
    for number, sentences in enumerate(documents, start=1):
        if not len(sentences):
            raise InputError(f"document {number} has no sentence to put in order")
        if context_order == 1 and len(sentences) <= MOST_EXACT:
            ordered.append(_exact(reader, sentences))
        else:
            ordered.append(_by_beam(reader, sentences, context_order, beam))
        on_document(number, len(documents))
    return ordered


def _exact(reader: SentenceReader[Any], sentences: Document) -> Ordered:
    """The best order under a model that reads one sentence before."""
    count = len(sentences)
    start = reader.open(1)
    first_S = log_probs_after(reader, start, [0] * count, sentences)
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    after_SxS = np.full((count, count), -np.inf)
    if pairs:
        place = read_after(reader, start, [0] * count, sentences)
        rows, columns = map(list, zip(*pairs, strict=True))
        seconds = [sentences[j] for j in columns]
        after_SxS[rows, columns] = log_probs_after(reader, place, rows, seconds)
    # best[m, j]: of the sentences in the set m, whose bits they are, and j the last of them.
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
    return Ordered(order[::-1], log_prob, is_exact=True)


def _by_beam(
    reader: SentenceReader[Any], sentences: Document, context_order: int | None, beam: int
) -> Ordered:
    """The best order that a beam of beginnings finds."""
    spelled = [tuple(map(int, one)) for one in sentences]
    beginnings, place = [_Beginning(0, 0.0, ())], reader.open(1)
    for length in range(1, len(sentences) + 1):
        if length > 1:
            last = [sentences[one.order[-1]] for one in beginnings]
            place = read_after(reader, place, [one.row for one in beginnings], last)
            beginnings = [one._replace(row=row) for row, one in enumerate(beginnings)]
        extended = []
        for beginning in beginnings:
            # Of equal sentences that are left the first one stands for all.
            left = {
                spelled[i]: i for i in reversed(range(len(sentences))) if i not in beginning.order
            }
            extended += [(beginning, i) for i in sorted(left.values())]
        log_probs = log_probs_after(
            reader,
            place,
            [beginning.row for beginning, _ in extended],
            [sentences[i] for _, i in extended],
        )
        survivors: dict[Any, _Beginning] = {}
        for at in np.argsort(-(log_probs + [one.log_prob for one, _ in extended]), kind="stable"):
            beginning, i = extended[at]
            order = (*beginning.order, i)
            remembered = length if context_order is None else min(context_order, length)
            ending = tuple(spelled[one] for one in order[length - remembered :])
            key = tuple(sorted(spelled[one] for one in order)), ending
            log_prob = beginning.log_prob + log_probs[at]
            survivors.setdefault(key, _Beginning(beginning.row, log_prob, order))
            if len(survivors) == beam:
                break
        beginnings = list(survivors.values())
    best, *_ = beginnings
    return Ordered(list(best.order), float(best.log_prob), is_exact=False)
