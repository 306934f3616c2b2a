"""Minimum error rate training (Och 2003): the weights at which the chosen hypotheses score best.

Along a line w + gamma d each hypothesis of a segment has the score a + gamma b, and the chosen one
is on the upper envelope of these lines. It changes at finitely many gamma; between two neighbouring
ones of all segments the chosen hypotheses are the same, and so is the metric, which is therefore
maximised exactly by trying every such interval.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.errors import InputError
from dclm_jax.rescoring.metrics import Metric, picked

# Of the scale of features: an interval this narrow could be an error of rounding.
_NARROWEST = 1e-9
_LEAST_GAIN = 1e-9
_MAX_ROUNDS = 10


class Lists(NamedTuple):
    """The N hypotheses of S segments of at most K.

    Attributes:
      features_NxF: float64.
      statistics_NxQ: sufficient statistics of the metric.
      rows_SxK: the hypotheses of each segment; the last one of shorter lists is repeated, which
        changes no choice.
    """

    features_NxF: np.ndarray
    statistics_NxQ: np.ndarray
    rows_SxK: np.ndarray


class Tuned(NamedTuple):
    """Weights [F] whose absolute values add up to 1, and the metric that they give."""

    weights: np.ndarray
    value: float


def tune(
    decode: Callable[[np.ndarray], tuple[Sequence[int], Sequence[np.ndarray]]],
    statistics: Sequence[np.ndarray],
    metric: Metric,
    start: np.ndarray,
    *,
    restarts: int = 10,
    seed: int = 0,
    on_round: Callable[[int, Tuned], None] = lambda number, tuned: None,
) -> Tuned:
    """Tunes weights of features that depend on what is chosen.

    The score of a hypothesis under a document model depends on the hypotheses chosen before it. So
    the lists are decoded, the weights tuned on the features of all hypotheses given the chosen
    ones, and the lists decoded again, until the same hypotheses are chosen, or ten times. The best
    weights are those with which decoding, not tuning, gave the best metric.

    Args:
      decode: with weights [F], gives for each segment the chosen hypothesis, and features [K, F] of
        all of them given the chosen ones before.
      statistics: of each segment, int [K, Q].
      metric: to improve.
      start: weights to begin with, float [F].
      restarts: random weights that tuning begins with as well.
      seed: of the restarts and of random directions.
      on_round: called with the number of a round from 1, the weights it decoded with and what they
        gave.
    """
    rounds: list[Tuned] = []
    weights, before = start / np.abs(start).sum(), None
    for number in range(1, _MAX_ROUNDS + 1):
        choices, features = decode(weights)
        rounds.append(Tuned(weights, metric.score(picked(statistics, choices).sum(axis=0))))
        on_round(number, rounds[-1])
        if list(choices) == before:
            break
        before = list(choices)
        rng = np.random.default_rng([seed, number])
        weights = maximize(
            features, statistics, metric, weights, restarts=restarts, rng=rng
        ).weights
    return max(rounds, key=lambda tuned: metric.sign * tuned.value)


def joined(features: Sequence[np.ndarray], statistics: Sequence[np.ndarray]) -> Lists:
    """The lists of segments, float [K, F] and int [K, Q], of different numbers of hypotheses."""
    ends = np.cumsum(list(map(len, features)))
    first_S = np.concatenate([[0], ends[:-1]])
    rows_SxK = first_S[:, None] + np.arange(max(map(len, features)))
    rows_SxK = np.minimum(rows_SxK, ends[:, None] - 1)
    return Lists(np.concatenate(features), np.concatenate(statistics), rows_SxK)


def maximize(
    features: Sequence[np.ndarray],
    statistics: Sequence[np.ndarray],
    metric: Metric,
    start: np.ndarray,
    *,
    restarts: int,
    rng: np.random.Generator,
) -> Tuned:
    """The best weights found for fixed features, from `start` and from random weights.

    From each it moves to the best point along every feature's axis and along one random direction
    per feature, until none of them leads to a better one. A feature that is the same in each list
    has weight 0.

    Args:
      features, statistics: of each segment, float [K, F] and int [K, Q].
      metric: to improve.
      start: weights [F].
      restarts: how many random weights.
      rng: of random weights and directions.
    """
    # In units in which all features vary alike, for random weights and directions.
    lists = joined([list_KxF - list_KxF.mean(axis=0) for list_KxF in features], statistics)
    spread_F = np.sqrt(np.mean(lists.features_NxF**2, axis=0))
    # What is the same in each list chooses nothing; it differs from its mean by rounding at most.
    varies_F = spread_F > 1e-9 * np.max(np.abs(np.concatenate(features)), axis=0)
    if not varies_F.any():
        raise InputError("no feature differs within a list; there is nothing to tune")
    spread_F = spread_F[varies_F]
    scaled = lists._replace(features_NxF=lists.features_NxF[:, varies_F] / spread_F)
    starts = [start[varies_F] * spread_F, *rng.uniform(-1, 1, (restarts, len(spread_F)))]
    climbed = [_climb(scaled, metric, weights, rng) for weights in starts]
    best = max(climbed, key=lambda tuned: metric.sign * tuned.value)
    weights = np.zeros(len(start))
    weights[varies_F] = best.weights / spread_F
    return Tuned(weights / np.abs(weights).sum(), best.value)


def _climb(lists: Lists, metric: Metric, weights: np.ndarray, rng: np.random.Generator) -> Tuned:
    value = -np.inf
    improved = True
    while improved:
        improved = False
        size = len(weights)
        for direction in [*np.eye(size), *rng.normal(size=(size, size))]:
            step, new_value = line_search(lists, metric, weights, direction)
            if new_value > value + _LEAST_GAIN:
                weights, value, improved = weights + step * direction, new_value, True
    return Tuned(weights, metric.sign * value)


def line_search(
    lists: Lists, metric: Metric, weights: np.ndarray, direction: np.ndarray
) -> tuple[float, float]:
    """gamma and `metric.sign` times the metric at the best point of the line w + gamma d."""
    offsets_SxK, slopes_SxK = (
        (lists.features_NxF @ vector_F)[lists.rows_SxK] for vector_F in (weights, direction)
    )
    gammas, totals_IxQ = _intervals(offsets_SxK, slopes_SxK, lists.statistics_NxQ[lists.rows_SxK])
    outer = gammas if len(gammas) else np.zeros(1)
    ends = np.array([outer[0] - 2, *gammas, outer[-1] + 2])
    values = [
        metric.sign * metric.score(totals_Q) if width > _NARROWEST else -np.inf
        for totals_Q, width in zip(totals_IxQ, np.diff(ends), strict=True)
    ]
    best = int(np.argmax(values))
    return float(ends[best] + ends[best + 1]) / 2, values[best]


def _intervals(
    offsets_SxK: np.ndarray, slopes_SxK: np.ndarray, statistics_SxKxQ: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the chosen hypotheses change, float [I - 1] in ascending order, and the statistics of
    all segments in each of the I intervals, [I, Q]."""
    segment = np.arange(len(offsets_SxK))
    # At gamma = -infinity the flattest line wins, of equally flat ones the highest.
    flattest = slopes_SxK == slopes_SxK.min(axis=1, keepdims=True)
    current = np.argmax(np.where(flattest, offsets_SxK, -np.inf), axis=1)
    total_Q = statistics_SxKxQ[segment, current].sum(axis=0)
    gammas, changes = [np.zeros(0)], [np.zeros((0, len(total_Q)), total_Q.dtype)]
    while True:
        rise = slopes_SxK - slopes_SxK[segment, current][:, None]
        fall = offsets_SxK[segment, current][:, None] - offsets_SxK
        is_steeper = rise > 0
        crossing_SxK = np.where(is_steeper, fall / np.where(is_steeper, rise, 1.0), np.inf)
        crossing = crossing_SxK.min(axis=1)
        crossed = np.flatnonzero(np.isfinite(crossing))
        if not crossed.size:
            break
        # Of lines that cross at one point the steepest is next, of equal ones the first.
        ties = is_steeper & (crossing_SxK == crossing[:, None])
        following = np.argmax(np.where(ties, slopes_SxK, -np.inf), axis=1)
        gammas.append(crossing[crossed])
        changes.append(
            statistics_SxKxQ[crossed, following[crossed]]
            - statistics_SxKxQ[crossed, current[crossed]]
        )
        current[crossed] = following[crossed]
    gamma = np.concatenate(gammas)
    order = np.argsort(gamma, kind="stable")
    change_IxQ = np.concatenate([total_Q[None], np.concatenate(changes)[order]])
    return gamma[order], np.cumsum(change_IxQ, axis=0)
