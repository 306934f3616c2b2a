"""Confidence intervals over documents by bootstrap (Efron 1979), and tests of differences.

A resample is D documents, drawn with replacement from D documents. A 95% interval ends at the 2.5th
and the 97.5th percentile of a measure over resamples. Whole documents are drawn, because sentences
of a document depend on one another. An interval is about other documents of the same kind, not
about other training runs.

Shapes: D documents, X columns (positions, parts of speech or runs), R resamples.
"""

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.tables import aligned

RESAMPLES = 1000
"""R, the number of resamples."""
EXCHANGES = 9999
"""Number of random exchanges of the permutation test."""
_PERCENTILES = (2.5, 97.5)
_CHUNK = 100
_DOCUMENTS = 4096
"""Maximum number of documents whose exchanges are in memory at once."""


def resample(nats_DxX: np.ndarray, targets_DxX: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Nats per target in resampled test sets.

    Equal D and `seed` draw equal documents, so that results of several models on the same documents
    are paired.

    Args:
      nats_DxX: sums over the targets of each document.
      targets_DxX: numbers of targets; [D, 1] if they are equal for all X.

    Returns:
      float64 [R, X]: nan if the documents drawn have no target in a column, and for all resamples
      of a column if fewer than two documents have a target in it.
    """
    num_documents = len(nats_DxX)
    rng = np.random.default_rng(seed)
    means = np.empty((RESAMPLES, nats_DxX.shape[1]))
    for first in range(0, RESAMPLES, _CHUNK):
        chunk = means[first : first + _CHUNK]
        draws = rng.integers(num_documents, size=(len(chunk), num_documents))
        weights_RxD = np.stack([np.bincount(draw, minlength=num_documents) for draw in draws])
        with np.errstate(invalid="ignore"):
            chunk[:] = (weights_RxD @ nats_DxX) / (weights_RxD @ targets_DxX)
    has_two_X = np.count_nonzero(targets_DxX, axis=0) > 1
    return np.where(has_two_X, means, np.nan)


def interval(values_RxX: np.ndarray) -> np.ndarray:
    """The ends of the 95% interval of every column, float64 [2, X]; nan if a column is all nan."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        return np.nanpercentile(values_RxX, _PERCENTILES, axis=0)


def means(sums_DxX: np.ndarray, counts_DxX: np.ndarray) -> np.ndarray:
    """The mean of every column over all documents, and the low and high end of its 95% interval,
    float64 [3, X]; nan for a column without values, and for ends of fewer than two documents.

    Args:
      sums_DxX, counts_DxX: as for `resample`.
    """
    with np.errstate(invalid="ignore"):
        mean_X = sums_DxX.sum(axis=0) / counts_DxX.sum(axis=0)
    return np.stack([mean_X, *interval(resample(sums_DxX, counts_DxX))])


def means_to_json(names: Sequence[str], means_3xX: np.ndarray) -> dict[str, dict[str, float]]:
    """The result of `means` by the names of its columns."""
    return {
        name: dict(zip(("mean", "low", "high"), values.tolist(), strict=True))
        for name, values in zip(names, means_3xX.T, strict=True)
    }


def interval_text(mean_and_ends: Sequence[float] | np.ndarray, digits: int) -> str:
    """A mean, and the ends of its interval if there are ends; empty for nan."""
    # The sum with 0 writes -0.0 as 0.0.
    mean, low, high = (f"{round(float(x), digits) + 0:.{digits}f}" for x in mean_and_ends)
    if math.isnan(mean_and_ends[0]):
        return ""
    return mean if math.isnan(mean_and_ends[1]) else f"{mean} [{low}, {high}]"


class Sums(NamedTuple):
    """Sums of nats (or of another averaged value) and numbers of targets, per document and column
    (positions, parts of speech or runs), [D, X] each; the numbers are [D, 1] if they are equal for
    all columns."""

    nll: np.ndarray
    count: np.ndarray

    @property
    def total(self) -> "Sums":
        """The sums over all columns, [D, 1]."""
        return Sums(*(values.sum(axis=1, keepdims=True) for values in self))

    @property
    def perplexities(self) -> np.ndarray:
        """Perplexity of each column over all documents, float64 [X]; nan without targets."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.exp(self.nll.sum(axis=0) / self.count.sum(axis=0))

    def resampled(self) -> np.ndarray:
        """Perplexity of each column in resampled test sets [R, X], see `resample`."""
        with np.errstate(over="ignore"):
            return np.exp(resample(self.nll, self.count))


def of_ratio(sums: Sums, baseline: Sums) -> np.ndarray:
    """The ends of the intervals of ratios of perplexities, [2, X]; both sums are over the same
    targets."""
    differences = resample(sums.nll - baseline.nll, sums.count)
    with np.errstate(over="ignore"):
        return interval(np.exp(differences))


class Difference(NamedTuple):
    """A difference between the means of two runs, columns `a` and `b`, over the same documents.

    difference: mean of a minus mean of b.
    low, high: ends of its 95% interval; nan for fewer than two documents.
    p: two-sided p-value of the paired permutation test (Fisher), which exchanges the two results of
      each document at random.
    p_holm: p corrected for all pairs of runs after Holm (1979).
    """

    a: int
    b: int
    difference: float
    low: float
    high: float
    p: float
    p_holm: float

    def to_json(self, labels: Sequence[str]) -> dict[str, Any]:
        """The fields by name, with the labels of the runs; None for nan."""
        fields = {name: None if x != x else x for name, x in self._asdict().items()}
        return {**fields, "a": labels[self.a], "b": labels[self.b]}


def difference_table(
    groups: Mapping[str, Sequence[Difference]],
    labels: Sequence[str],
    *,
    group: str,
    unit: str,
    scale: float,
    digits: int,
) -> list[str]:
    """The lines of a table of differences; empty without differences.

    Args:
      groups: the differences by the name of a group, such as a test.
      group: heading of the names of groups.
      unit: unit of the printed differences.
      scale: number of these units in a difference of 1.
      digits: number of decimals of the printed differences.
    """
    rows = [[group, "runs", f"difference, {unit}", "95% interval", "p", "p (Holm)"]]
    for name, pairs in groups.items():
        for pair in pairs:
            # The sum with 0 writes -0.0 as 0.0.
            difference, low, high = (
                f"{round(scale * value, digits) + 0:+.{digits}f}"
                for value in (pair.difference, pair.low, pair.high)
            )
            runs = f"{labels[pair.a]} - {labels[pair.b]}"
            p_values = f"{pair.p:.4f}", f"{pair.p_holm:.4f}"
            rows.append([name, runs, difference, f"[{low}, {high}]", *p_values])
    return aligned(rows) if len(rows) > 1 else []


def differences(sums: Sums, *, seed: int = 0) -> list[Difference]:
    """The differences between all pairs of the X columns of a measure. Its numbers of values are
    [D, 1], equal for all runs."""
    means_RxX = resample(sums.nll, sums.count, seed=seed)
    columns = list(itertools.combinations(range(sums.nll.shape[1]), 2))
    if not columns:
        return []
    difference_DxP = np.stack([sums.nll[:, a] - sums.nll[:, b] for a, b in columns], axis=1)
    exchanged_ExP = _exchanged(difference_DxP, np.random.default_rng(seed))
    pairs = []
    for (a, b), difference_D, exchanged_E in zip(
        columns, difference_DxP.T, exchanged_ExP.T, strict=True
    ):
        total = difference_D.sum()
        ((low,), (high,)) = interval(means_RxX[:, [a]] - means_RxX[:, [b]])
        # The tolerance makes sums of equal numbers in another order count as equal.
        tolerance = 1e-9 * np.abs(difference_D).sum()
        as_large = np.abs(exchanged_E) >= abs(total) - tolerance
        p = (1 + int(as_large.sum())) / (1 + EXCHANGES)
        pairs.append(Difference(a, b, float(total / sums.count.sum()), low, high, p, 1.0))
    smallest = 0.0
    for rank, index in enumerate(np.argsort([pair.p for pair in pairs], kind="stable")):
        smallest = max(smallest, min(1.0, (len(pairs) - rank) * pairs[index].p))
        pairs[index] = pairs[index]._replace(p_holm=smallest)
    return pairs


def _exchanged(difference_DxP: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The sums of differences [E, P] after random exchanges, which give the P pairs of runs the
    same signs."""
    sums_ExP = np.zeros((EXCHANGES, difference_DxP.shape[1]))
    for first in range(0, len(difference_DxP), _DOCUMENTS):
        part_DxP = difference_DxP[first : first + _DOCUMENTS]
        signs_ExD = rng.integers(2, size=(EXCHANGES, len(part_DxP)), dtype=np.int8) * 2 - 1
        # One product per pair of runs: a product of matrices would round differently.
        sums_ExP += np.stack([signs_ExD @ part_D for part_D in part_DxP.T], axis=1)
    return sums_ExP


class ZTest(NamedTuple):
    """A one-sided z-test: the statistic, and P(z or more) if the means are equal."""

    z: float
    p: float


def z_test(difference: float, variance: float) -> ZTest | None:
    """A z-test of whether a difference of means, whose squared standard error is `variance`, is
    above 0. The result is None if the variance is 0, because the test is then undefined."""
    if not variance:
        return None
    z = difference / math.sqrt(variance)
    return ZTest(z, 0.5 * math.erfc(z / math.sqrt(2)))
