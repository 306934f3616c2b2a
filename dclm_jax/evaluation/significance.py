"""Confidence intervals over documents, by bootstrap (Efron 1979).

Documents are drawn with replacement, as many as there are, and what is measured is computed from
each draw: its 2.5th and 97.5th percentile bound 95%. Sentences of a document depend on one another,
so that whole documents are drawn. An interval speaks of other documents of the same kind, and says
nothing of other training runs.

Shapes: D documents, X places or runs that have numbers of their own, R resamples.
"""

import itertools
import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.errors import InputError, require_at_least

RESAMPLES = 1000
EXCHANGES = 9999
"""Of the permutation test: random choices of the documents whose runs change places."""
_PERCENTILES = (2.5, 97.5)
_CHUNK = 100


def resample(
    nats_DxX: np.ndarray, targets_DxX: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Nats a target in resampled test sets.

    The same documents are drawn for the same D, `resamples` and `seed`: results of several models
    on the same documents are paired.

    Args:
      nats_DxX: sums over the targets of each document.
      targets_DxX: their numbers; [D, 1] serves all X.
      resamples: R.
      seed: of what is drawn.

    Returns:
      float64 [R, X]: nan where nothing was drawn that has a target, and in all of a column where
      fewer than two documents have one.
    """
    num_documents = len(nats_DxX)
    rng = np.random.default_rng(seed)
    means = np.empty((resamples, nats_DxX.shape[1]))
    for first in range(0, resamples, _CHUNK):
        chunk = means[first : first + _CHUNK]
        draws = rng.integers(num_documents, size=(len(chunk), num_documents))
        weights_RxD = np.stack([np.bincount(draw, minlength=num_documents) for draw in draws])
        with np.errstate(invalid="ignore"):
            chunk[:] = (weights_RxD @ nats_DxX) / (weights_RxD @ targets_DxX)
    has_two_X = np.count_nonzero(targets_DxX, axis=0) > 1
    return np.where(has_two_X, means, np.nan)


def interval(values_RxX: np.ndarray) -> np.ndarray:
    """The two ends of the 95% interval of every column, float64 [2, X]; nan where it is all nan."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        return np.nanpercentile(values_RxX, _PERCENTILES, axis=0)


class Sums(NamedTuple):
    """For every document and each of X places (positions, parts of speech, or runs): a sum over its
    targets [D, X], of nats or of what else is averaged, and how many targets there are [D, X]."""

    nll: np.ndarray
    count: np.ndarray

    @property
    def perplexities(self) -> np.ndarray:
        """Those of every place over all documents, float64 [X]; nan where there is no target."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.exp(self.nll.sum(axis=0) / self.count.sum(axis=0))

    def resampled(self) -> np.ndarray:
        """Those of every place in resampled test sets [R, X], see `resample`."""
        with np.errstate(over="ignore"):
            return np.exp(resample(self.nll, self.count))

    def to_json(self) -> dict[str, list[list[float]]]:
        """Lists by document; nats to three decimals."""
        return {"nll": self.nll.round(3).tolist(), "count": self.count.tolist()}


def of_ratio(sums: Sums, others: Sums) -> np.ndarray:
    """The ends of the intervals of ratios of perplexities, [2, X]; `others` are sums over the same
    targets."""
    differences = resample(sums.nll - others.nll, sums.count)
    with np.errstate(over="ignore"):
        return interval(np.exp(differences))


class Difference(NamedTuple):
    """Between the means of two runs, the columns `a` and `b`, over the same documents.

    difference: mean of a less that of b.
    low, high: ends of its 95% interval; nan where there are no two documents.
    p: of the paired permutation test (Fisher): how often the difference is as large, in size, if
      the two results of each document are given to the runs by chance.
    p_holm: the same, corrected for all pairs of runs after Holm (1979).
    """

    a: int
    b: int
    difference: float
    low: float
    high: float
    p: float
    p_holm: float

    def to_json(self) -> dict[str, Any]:
        """The fields by name; None for nan."""
        return {name: None if x != x else x for name, x in self._asdict().items()}


def differences(sums: Sums, *, seed: int = 0) -> list[Difference]:
    """Between any two of the X columns.

    Args:
      sums: of the measure [D, X], and the number of its values [D, 1], the same for all runs.
      seed: of what is drawn.
    """
    means_RxX = resample(sums.nll, sums.count, seed=seed)
    rng = np.random.default_rng(seed)
    signs_ExD = rng.integers(2, size=(EXCHANGES, len(sums.nll)), dtype=np.int8) * 2 - 1
    pairs = []
    for a, b in itertools.combinations(range(sums.nll.shape[1]), 2):
        apart_D = sums.nll[:, a] - sums.nll[:, b]
        total = apart_D.sum()
        ((low,), (high,)) = interval(means_RxX[:, [a]] - means_RxX[:, [b]])
        # Sums of the same numbers in another order are no less.
        as_large = np.abs(signs_ExD @ apart_D) >= abs(total) - 1e-9 * np.abs(apart_D).sum()
        p = (1 + int(as_large.sum())) / (1 + EXCHANGES)
        pairs.append(Difference(a, b, float(total / sums.count.sum()), low, high, p, 1.0))
    smallest = 0.0
    for rank, index in enumerate(np.argsort([pair.p for pair in pairs], kind="stable")):
        smallest = max(smallest, min(1.0, (len(pairs) - rank) * pairs[index].p))
        pairs[index] = pairs[index]._replace(p_holm=smallest)
    return pairs


class ZTest(NamedTuple):
    """A one-sided two-sample z-test: the statistic, and P(z or more) if the means are equal."""

    z: float
    p: float


def z_test(
    mean_a: float, sd_a: float, n_a: int, mean_b: float, sd_b: float, n_b: int, error: float = 0.0
) -> ZTest:
    """Whether A's mean is above B's.

    z = (mean_a - mean_b) / sqrt(sd_a^2 / n_a + sd_b^2 / n_b + error^2), where `error` is a standard
    error of the difference that n does not lessen.

    On bootstrap results n is the number of test sets, so the test speaks of this split and grows
    with R: it says nothing of other documents or other training runs. The paper tests bootstrap
    results as well, by a formula that it does not give: on its Table 3 this one has z = 43.22 and
    34.68, where it prints 36.55 and 31.26.
    """
    require_at_least("n", min(n_a, n_b), 1)
    variance = sd_a**2 / n_a + sd_b**2 / n_b + error**2
    if variance <= 0:
        raise InputError("a z-test needs a standard deviation above 0")
    z = (mean_a - mean_b) / math.sqrt(variance)
    return ZTest(z, 0.5 * math.erfc(z / math.sqrt(2)))
