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
from dclm_jax.evaluation.translation import Metric, picked

# Of the scale of features: an interval this narrow could be an error of rounding.
_NARROWEST = 1e-9
_LEAST_GAIN = 1e-9


class Lists(NamedTuple):
    """What is tuned on: S segments of K hypotheses, those that are missing marked.

    Attributes:
      features_SxKxF: float64.
      is_real_SxK: whether there is such a hypothesis.
      statistics_SxKxQ: sufficient statistics of the metric.
    """

    features_SxKxF: np.ndarray
    is_real_SxK: np.ndarray
    statistics_SxKxQ: np.ndarray


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
    rounds: int = 10,
    seed: int = 0,
    on_round: Callable[[int, Tuned], None] = lambda number, tuned: None,
) -> Tuned:
    """Tunes weights of features that depend on what is chosen.

    The score of a hypothesis under a document model depends on the hypotheses chosen before it. So
    the lists are decoded, the weights tuned on the features of all hypotheses given the chosen
    ones, and the lists decoded again, until the same hypotheses are chosen. The best weights are
    those with which decoding, not tuning, gave the best metric.

    Args:
      decode: with weights [F], gives for each segment the chosen hypothesis, and features [K, F] of
        all of them given the chosen ones before.
      statistics: of each segment, int [K, Q].
      metric: to improve.
      start: weights to begin with, float [F].
      restarts: random weights that tuning begins with as well.
      rounds: of decoding, at most.
      seed: of the restarts and of random directions.
      on_round: called with the number of a round from 1, the weights it decoded with and what they
        gave.
    """
    weights = start / np.abs(start).sum()
    best: Tuned | None = None
    before: list[int] | None = None
    for number in range(1, rounds + 1):
        chosen, features = decode(weights)
        now = Tuned(weights, metric.score(picked(statistics, chosen).sum(axis=0)))
        on_round(number, now)
        if best is None or metric.sign * now.value > metric.sign * best.value:
            best = now
        if list(chosen) == before:
            break
        before = list(chosen)
        rng = np.random.default_rng([seed, number])
        weights = maximise(
            padded(features, statistics), metric, weights, restarts=restarts, rng=rng
        ).weights
    assert best is not None
    return best


def padded(features: Sequence[np.ndarray], statistics: Sequence[np.ndarray]) -> Lists:
    """Lists of segments [K, F] and [K, Q] with different numbers of hypotheses."""
    most = max(map(len, features))

    def filled(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([np.pad(one, ((0, most - len(one)), (0, 0))) for one in arrays])

    is_real_SxK = np.arange(most) < np.array([[len(one)] for one in features])
    return Lists(filled(features), is_real_SxK, filled(statistics))


def maximise(
    lists: Lists, metric: Metric, start: np.ndarray, *, restarts: int, rng: np.random.Generator
) -> Tuned:
    """The best weights found for fixed features, from `start` and from random weights.

    From each it goes along every feature's axis and as many random directions, to the best point of
    each, until none of them leads to a better one. A feature that is the same in each list has
    weight 0.
    """
    # In units in which all features vary alike, for random weights and directions.
    count_Sx1x1 = lists.is_real_SxK.sum(axis=1)[:, None, None]
    is_real = lists.is_real_SxK[:, :, None]
    mean_Sx1xF = np.sum(lists.features_SxKxF * is_real, axis=1, keepdims=True) / count_Sx1x1
    deviation = np.where(is_real, lists.features_SxKxF - mean_Sx1xF, 0.0)
    spread_F = np.sqrt(np.sum(deviation**2, axis=(0, 1)) / lists.is_real_SxK.sum())
    # What is the same in each list chooses nothing; it differs from its mean by rounding at most.
    largest_F = np.max(np.abs(lists.features_SxKxF) * is_real, axis=(0, 1))
    varies_F = spread_F > 1e-9 * largest_F
    if not varies_F.any():
        raise InputError("no feature differs within a list; there is nothing to tune")
    spread_F = spread_F[varies_F]
    scaled = lists._replace(features_SxKxF=deviation[..., varies_F] / spread_F)
    starts = [start[varies_F] * spread_F, *rng.uniform(-1, 1, (restarts, len(spread_F)))]
    found = [_climb(scaled, metric, weights, rng) for weights in starts]
    best = max(found, key=lambda one: metric.sign * one.value)
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
    gammas, totals_IxQ = _intervals(
        lists.features_SxKxF @ weights,
        lists.features_SxKxF @ direction,
        lists.is_real_SxK,
        lists.statistics_SxKxQ,
    )
    outer = gammas if len(gammas) else np.zeros(1)
    ends = np.array([outer[0] - 2, *gammas, outer[-1] + 2])
    values = [
        metric.sign * metric.score(totals) if width > _NARROWEST else -np.inf
        for totals, width in zip(totals_IxQ, np.diff(ends), strict=True)
    ]
    best = int(np.argmax(values))
    return float(ends[best] + ends[best + 1]) / 2, values[best]


def _intervals(
    offsets_SxK: np.ndarray,
    slopes_SxK: np.ndarray,
    is_real_SxK: np.ndarray,
    statistics_SxKxQ: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Where the chosen hypotheses change, float [I - 1] in ascending order, and the statistics of
    all segments in each of the I intervals, [I, Q]."""
    segment = np.arange(len(offsets_SxK))
    # At gamma = -infinity the flattest line wins, of equally flat ones the highest.
    slopes_SxK = np.where(is_real_SxK, slopes_SxK, np.inf)
    flattest = slopes_SxK == slopes_SxK.min(axis=1, keepdims=True)
    current = np.argmax(np.where(flattest, offsets_SxK, -np.inf), axis=1)
    total_Q = statistics_SxKxQ[segment, current].sum(axis=0)
    gammas, changes = [], []
    while True:
        slope = slopes_SxK[segment, current][:, None]
        is_steeper = (slopes_SxK > slope) & is_real_SxK
        rise = np.where(is_steeper, slopes_SxK - slope, 1.0)
        crossing_SxK = np.where(
            is_steeper, (offsets_SxK[segment, current][:, None] - offsets_SxK) / rise, np.inf
        )
        crossing = crossing_SxK.min(axis=1)
        crossed = np.flatnonzero(np.isfinite(crossing))
        if not crossed.size:
            break
        # Of lines that cross at one point the steepest goes on, of equal ones the first.
        ties = crossing_SxK == crossing[:, None]
        following = np.argmax(np.where(ties & is_steeper, slopes_SxK, -np.inf), axis=1)
        gammas.append(crossing[crossed])
        changes.append(
            statistics_SxKxQ[crossed, following[crossed]]
            - statistics_SxKxQ[crossed, current[crossed]]
        )
        current[crossed] = following[crossed]
    if not gammas:
        return np.zeros(0), total_Q[None]
    gamma = np.concatenate(gammas)
    order = np.argsort(gamma, kind="stable")
    change_IxQ = np.concatenate([total_Q[None], np.concatenate(changes)[order]])
    return gamma[order], np.cumsum(change_IxQ, axis=0)
