"""log P of many orders of one document's sentences, what they share read once.

For models that read all sentences before. As long as an order goes on like the document, it is
scored no more than that. Where it departs it is read, until its context has come as near to the one
that the document has after the same sentence as rounding brings them: from there on it is as if the
document had been read, up to the next departure. Orders that depart from the same place in the same
way are one until they part. Recurrent models forget what was before within some sentences, so that
a sentence that moves costs these at its old and its new place, whatever the length of the document.
"""

from typing import NamedTuple

import numpy as np

from dclm_jax.evaluation.orders import numbered
from dclm_jax.evaluation.scoring import Document
from dclm_jax.reading.reader import MAX_POSITIONS, Place, Reader, padded_length, power_of_two

NEAR = 1e-4
"""Contexts whose numbers differ by no more count as one. What follows then has a log P that differs
by about as many nats, which decoding in other batches may make of rounding, too. Every sentence of
three documents of 16 to 26 sentences at every place takes 0.67 s so, and 1.96 s read to the end."""
_ROWS = (8, 32, 128)
"""Places that are read on at once: few numbers, for each of which programs are compiled."""


class _Departure(NamedTuple):
    """The point where an order departs from the document: after how many of the document's
    sentences, and the rest of the order from there on, as bytes of int32."""

    after: int
    rest: bytes


class _Return(NamedTuple):
    """The point where a departure is back in the document: how many sentences were read until then,
    their log P, and after how many of the document's sentences reading can go on."""

    num_read: int
    log_prob: float
    after: int


class Prefixes:
    """The sentences of a document, their log P in it, and the places between them.

    Attributes:
      own_S: log P of the sentences in nats, float64 [S].
    """

    def __init__(self, reader: Reader, document: Document):
        """Reads the document, of one sentence or more.

        Args:
          document: each sentence int [M] word ids without START and END.
        """
        self._reader, self._document = reader, document
        self._order = numbered(document)
        self._length = padded_length(max(map(len, document)))
        _, (nll,) = reader.read(reader.open(1), [document])
        self.own_S = np.array([-np.sum(one, dtype=np.float64) for one in nll])
        self._log_prob_before = np.concatenate([[0], np.cumsum(self.own_S)])
        beginnings = [document[:end] for end in range(len(document) + 1)]
        rows = max(_ROWS[0], power_of_two(len(beginnings)))
        # Row e is after e sentences; others fill up.
        self._places: Place = reader.after(beginnings + [()] * (rows - len(beginnings)))

    @property
    def log_prob(self) -> float:
        """log P of the document in nats."""
        return float(self._log_prob_before[-1])

    def log_probs(self, orders: np.ndarray) -> np.ndarray:
        """log P of orders in nats, float64 [O].

        Args:
          orders: int [O, S], of sentences as `orders.numbered` numbers them.
        """
        orders = orders.astype(np.int32)
        rows = max(1, min(_ROWS[-1], MAX_POSITIONS // self._length))
        returns: dict[_Departure, _Return] = {}
        while True:
            found = [self._follow(order, returns) for order in orders]
            missing = sorted({one for one in found if isinstance(one, _Departure)})
            if not missing:
                return np.array(found)
            for first in range(0, len(missing), rows):
                some = missing[first : first + rows]
                returns.update(zip(some, self._read_departures(some), strict=True))

    def _follow(self, order: np.ndarray, returns: dict[_Departure, _Return]) -> float | _Departure:
        """log P of an order, or the first of its departures that has not been read."""
        before, log_prob, after = self._log_prob_before, 0.0, 0
        while len(order):
            both = min(len(order), len(self._order) - after)
            is_own = order[:both] == self._order[after : after + both]
            alike = int(np.argmin(np.append(is_own, False)))
            log_prob += before[after + alike] - before[after]
            after, order = after + alike, order[alike:]
            if len(order):
                departure = _Departure(after, order.tobytes())
                if departure not in returns:
                    return departure
                num_read, of_read, after = returns[departure]
                log_prob, order = log_prob + of_read, order[num_read:]
        return float(log_prob)

    def _read_departures(self, departures: list[_Departure]) -> list[_Return]:
        rests = [np.frombuffer(one.rest, np.int32) for one in departures]
        rows = np.array([one.after for one in departures])
        log_probs, found = np.zeros(len(departures)), [_Return(0, 0.0, 0)] * len(departures)
        active, num_read, place = np.arange(len(departures)), 0, self._places
        while active.size:
            ahead = np.array([rests[one][num_read] for one in active])
            (parents, sentences), nodes = np.unique(
                [rows[active], ahead], axis=1, return_inverse=True
            )
            nodes = nodes.reshape(-1)
            place, of_nodes, is_near = self._read(place, parents.tolist(), sentences.tolist())
            rows[active] = nodes
            log_probs[active] += of_nodes[nodes]
            num_read += 1
            going_on = []
            for one, node, sentence in zip(active, nodes, ahead, strict=True):
                if is_near[node] or num_read == len(rests[one]):
                    found[one] = _Return(num_read, float(log_probs[one]), int(sentence) + 1)
                else:
                    going_on.append(one)
            active = np.array(going_on, np.int64)
        return found

    def _read(
        self, place: Place, parents: list[int], sentences: list[int]
    ) -> tuple[Place, np.ndarray, np.ndarray]:
        """The places after sentences, each read on from its row, their log P, and whether each is
        near the place after it in the document."""
        empty = next((rows for rows in _ROWS if rows >= len(parents)), _ROWS[-1]) - len(parents)
        filled = sentences + sentences[-1:] * empty
        place, nll = self._reader.read(
            place.take(parents + parents[-1:] * empty),
            [[self._document[sentence]] for sentence in filled],
            # Rows that fill up are not scored.
            [0] * len(sentences) + [len(self._document[sentences[-1]]) + 1] * empty,
        )
        own = self._places.take([sentence + 1 for sentence in filled])
        is_near = self._reader.distances(place, own, self._length) <= NEAR
        log_probs = [-np.sum(one, dtype=np.float64) for (one,) in nll[: len(sentences)]]
        return place, np.array(log_probs), is_near
