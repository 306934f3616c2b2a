"""Minimum error rate training (Och 2003): weights that maximize the metric of chosen hypotheses.

Along a line w + gamma d, each hypothesis of a segment has the score a + gamma b, and the chosen
hypothesis is on the upper envelope of these lines. The choice changes at finitely many gamma.
Between neighbouring gamma, over all segments, the chosen hypotheses and the metric are constant, so
that trying every such interval finds the exact maximum.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.errors import InputError
from dclm_jax.metrics.systems import Metric, picked

# In units of scaled features: narrower intervals could be rounding errors.
_NARROWEST = 1e-9
_LEAST_GAIN = 1e-9
_MAX_ROUNDS = 10
_RESTARTS = 10
"""Number of random weights from which tuning starts in addition."""


class Lists(NamedTuple):
    """The N hypotheses of S segments with at most K hypotheses each.

    Attributes:
      features_NxF: float64.
      statistics_NxQ: sufficient statistics of the metric.
      rows_SxK: the rows of each segment's hypotheses; shorter lists repeat their last hypothesis,
        which changes no choice.
    """

    features_NxF: np.ndarray
    statistics_NxQ: np.ndarray
    rows_SxK: np.ndarray


class Tuned(NamedTuple):
    """Weights [F] with absolute values that add up to 1, and their metric."""

    weights: np.ndarray
    value: float


def tune_weights(
    decode: Callable[[np.ndarray], tuple[Sequence[int], Sequence[np.ndarray]]],
    statistics: Sequence[np.ndarray],
    metric: Metric,
    start: np.ndarray,
    *,
    seed: int = 0,
    on_round: Callable[[int, Tuned], None] = lambda number, tuned: None,
) -> Tuned:
    """Tunes weights of features that depend on the chosen hypotheses.

    The score of a hypothesis under a document model depends on the hypotheses chosen before it. A
    round decodes the lists, and tunes the weights on the features of all hypotheses given the
    chosen hypotheses. Rounds end when the choices repeat, after ten rounds at most. The result is
    the weights with the best metric in decoding, not in tuning.

    Args:
      decode: takes weights [F]; returns for each segment the index of the chosen hypothesis, and
        the features [K, F] of all its hypotheses given the hypotheses chosen before.
      statistics: for each segment, int [K, Q].
      start: initial weights, float [F].
      on_round: called with the number of a round, from 1, its weights and their metric.
    """
    rounds: list[Tuned] = []
    weights, previous_choices = start / np.abs(start).sum(), None
    for number in range(1, _MAX_ROUNDS + 1):
        choices, features = decode(weights)
        rounds.append(Tuned(weights, metric.score(picked(statistics, choices).sum(axis=0))))
        on_round(number, rounds[-1])
        if list(choices) == previous_choices:
            break
        previous_choices = list(choices)
        rng = np.random.default_rng([seed, number])
        weights = maximize(
            features, statistics, metric, weights, restarts=_RESTARTS, rng=rng
        ).weights
    return max(rounds, key=lambda tuned: metric.sign * tuned.value)


def join_lists(features: Sequence[np.ndarray], statistics: Sequence[np.ndarray]) -> Lists:
    """`Lists` of segments, float [K, F] and int [K, Q], each with its own K."""
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
    """The best weights for fixed features by coordinate ascent from `start` and random weights.

    Each ascent moves to the best point along every feature's axis and along one random direction
    per feature, until no line has a better point. A feature that is constant in each list has
    weight 0.

    Args:
      features, statistics: for each segment, float [K, F] and int [K, Q].
      start: initial weights [F].
      restarts: number of random weights.
    """
    # Random weights and directions are in units of the standard deviation of each feature.
    lists = join_lists([list_KxF - list_KxF.mean(axis=0) for list_KxF in features], statistics)
    spread_F = np.sqrt(np.mean(lists.features_NxF**2, axis=0))
    # A feature that is constant in each list differs from its mean by rounding at most.
    varies_F = spread_F > 1e-9 * np.max(np.abs(np.concatenate(features)), axis=0)
    if not varies_F.any():
        raise InputError("no feature differs within a list; add features or hypotheses to tune")
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
    """The gammas at which chosen hypotheses change, float [I - 1] in ascending order, and the sums
    of statistics in each of the I intervals, [I, Q]."""
    segment = np.arange(len(offsets_SxK))
    # At gamma = -infinity the flattest line is chosen, and of several flattest lines the highest.
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
        # Of lines that cross at one point the steepest is next, and of equal lines the first.
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
