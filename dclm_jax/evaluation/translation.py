"""Hypotheses against references: BLEU, word error rate, and whether a difference is chance.

A metric is a function of sufficient statistics that add up over segments, so that documents,
resampled test sets and choices of hypotheses are sums of them. BLEU is sacrebleu's, of words as
they are given.

Hypotheses and references may be empty. An empty hypothesis of an empty reference has no errors and
a BLEU of 100.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.errors import InputError

INSTALL = "pip install 'dclm_jax[metrics]'"
_ORDERS = 4


class Metric(NamedTuple):
    """How hypotheses are measured.

    Attributes:
      name: for tables, with its unit.
      sign: 1 where more is better, -1 where less is.
      statistics: int64 [K, Q] of K hypotheses of one segment and its reference.
      score: of the sum [Q] of statistics over segments, from 0 to 100 and for error rates beyond.
      segment_score: of the statistics of a single segment.
    """

    name: str
    sign: int
    statistics: Callable[[Sequence[Sequence[str]], Sequence[str]], np.ndarray]
    score: Callable[[np.ndarray], float]
    segment_score: Callable[[np.ndarray], float]


def bleu_statistics(hypotheses: Sequence[Sequence[str]], reference: Sequence[str]) -> np.ndarray:
    """sacrebleu's: words of the hypothesis and of the reference, then of n-grams of orders 1 to 4
    those that are correct and all.
    """
    # Of a single segment: without it sacrebleu warns, and the statistics are the same.
    bleu = _sacrebleu()(tokenize="none", effective_order=True)
    results = [bleu.sentence_score(" ".join(one), [" ".join(reference)]) for one in hypotheses]
    return np.array([[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in results])


def bleu(totals_Q: np.ndarray, *, effective_order: bool = False) -> float:
    """BLEU of summed statistics, smoothed as sacrebleu does by default where a count is 0."""
    sys_len, ref_len, *counts = totals_Q.tolist()
    if not sys_len and not ref_len:
        return 100.0
    result = _sacrebleu().compute_bleu(
        counts[:_ORDERS],
        counts[_ORDERS:],
        sys_len,
        ref_len,
        smooth_method="exp",
        effective_order=effective_order,
    )
    return result.score


def wer_statistics(hypotheses: Sequence[Sequence[str]], reference: Sequence[str]) -> np.ndarray:
    """The fewest insertions, deletions and substitutions that make the reference of each
    hypothesis, and the words of the reference."""
    try:
        from rapidfuzz.distance.Levenshtein import distance
    except ImportError as error:
        raise InputError(f"word error rates need the package rapidfuzz: {INSTALL}") from error
    return np.array([[distance(one, reference), len(reference)] for one in hypotheses])


def wer(totals_Q: np.ndarray) -> float:
    """Errors in percent of the words of the references.

    Segments, documents and resampled test sets whose references are all empty count as one word:
    systems are compared there by their errors.
    """
    errors, words = totals_Q.tolist()
    return 100 * errors / max(words, 1)


METRICS = {
    "bleu": Metric("BLEU", 1, bleu_statistics, bleu, functools.partial(bleu, effective_order=True)),
    "wer": Metric("WER %", -1, wer_statistics, wer, wer),
}


class Comparison(NamedTuple):
    """A system beside another one.

    Attributes:
      value: its metric.
      improved: the share of documents on which it is better (Lin et al. 2015, Table 4).
      p: one-sided, of a paired bootstrap; see `bootstrap_p`.
    """

    value: float
    improved: float
    p: float


def compare(
    metric: Metric,
    ours_SxQ: np.ndarray,
    theirs_SxQ: np.ndarray,
    documents: Sequence[range],
    *,
    samples: int,
    seed: int,
) -> Comparison:
    """Compares what two systems have chosen for the same segments.

    Args:
      metric: to compare by.
      ours_SxQ, theirs_SxQ: statistics of the chosen hypotheses.
      documents: which segments make which document; together they are all segments in their order.
      samples, seed: see `bootstrap_p`. Documents are resampled, because the segments of a document
        depend on one another; segments where there is a single document.
    """
    starts = [segments.start for segments in documents]
    ours_DxQ, theirs_DxQ = (np.add.reduceat(one, starts) for one in (ours_SxQ, theirs_SxQ))
    better = [
        metric.sign * metric.score(a) > metric.sign * metric.score(b)
        for a, b in zip(ours_DxQ, theirs_DxQ, strict=True)
    ]
    units = (ours_DxQ, theirs_DxQ) if len(documents) > 1 else (ours_SxQ, theirs_SxQ)
    return Comparison(
        metric.score(ours_SxQ.sum(axis=0)),
        float(np.mean(better)),
        bootstrap_p(metric, *units, samples=samples, seed=seed),
    )


def bootstrap_p(
    metric: Metric, ours_UxQ: np.ndarray, theirs_UxQ: np.ndarray, *, samples: int, seed: int
) -> float:
    """Paired bootstrap (Koehn 2004): how often we are no better on units that are resampled.

    Args:
      metric: to compare by.
      ours_UxQ, theirs_UxQ: summed statistics of the same U units.
      samples: test sets of U units each, drawn with replacement.
      seed: of the test sets.

    Returns:
      (1 + test sets on which we are no better) / (1 + samples), a one-sided p-value.
    """
    units = len(ours_UxQ)
    draws_RxU = np.random.default_rng(seed).multinomial(units, [1 / units] * units, size=samples)
    pairs = zip(draws_RxU @ ours_UxQ, draws_RxU @ theirs_UxQ, strict=True)
    worse = sum(metric.sign * (metric.score(a) - metric.score(b)) <= 0 for a, b in pairs)
    return (1 + worse) / (1 + samples)


def oracle(metric: Metric, statistics: Sequence[np.ndarray]) -> list[int]:
    """For each segment the hypothesis that is best by itself, the first of equals; exact for the
    word error rate, and the usual approximation for BLEU."""
    return [
        int(np.argmax([metric.sign * metric.segment_score(one) for one in of_segment]))
        for of_segment in statistics
    ]


def picked(statistics: Sequence[np.ndarray], chosen: Sequence[int]) -> np.ndarray:
    """The statistics [S, Q] of the chosen hypotheses."""
    return np.array([one[choice] for one, choice in zip(statistics, chosen, strict=True)])


@functools.cache
def _sacrebleu() -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise InputError(f"BLEU needs the package sacrebleu: {INSTALL}") from error
    return BLEU
