"""Metrics of hypotheses against references: BLEU, word error rate, and tests of differences.

A metric is a function of sufficient statistics, which can be summed over any segments. BLEU is
computed by sacrebleu without tokenization.

Hypotheses and references may be empty. An empty hypothesis for an empty reference has no errors and
BLEU 100.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.errors import importing
from dclm_jax.tables import aligned

_ORDERS = 4
BOOTSTRAP_SETS = 1000
"""Number of resampled test sets of a bootstrap test."""

Statistics = Mapping[str, Sequence[np.ndarray]]
"""The statistics [K, Q] of the K hypotheses of each list, by metric and segment."""


class Metric(NamedTuple):
    """A metric of hypotheses.

    Attributes:
      name: the name in tables, with the unit.
      sign: 1 if higher is better, -1 if lower is better.
      statistics: computes int64 [K, Q] from K hypotheses of one segment and its reference.
      score: computes the metric from the sum [Q] of statistics over segments. The metric is from 0
        to 100; an error rate may exceed 100.
      segment_score: computes the metric of a single segment from its statistics [Q].
    """

    name: str
    sign: int
    statistics: Callable[[Sequence[Sequence[str]], Sequence[str]], np.ndarray]
    score: Callable[[np.ndarray], float]
    segment_score: Callable[[np.ndarray], float]


def bleu_statistics(hypotheses: Sequence[Sequence[str]], reference: Sequence[str]) -> np.ndarray:
    """Statistics of BLEU by sacrebleu, int64 [K, 10]: numbers of words of the hypothesis and of the
    reference, then for orders 1 to 4 numbers of correct n-grams and of n-grams.
    """
    # `effective_order` avoids a warning about single segments and changes no statistics.
    bleu = _sacrebleu()(tokenize="none", effective_order=True)
    results = [bleu.sentence_score(" ".join(words), [" ".join(reference)]) for words in hypotheses]
    return np.array([[r.sys_len, r.ref_len, *r.counts, *r.totals] for r in results])


def bleu(totals_Q: np.ndarray, *, effective_order: bool = False) -> float:
    """BLEU from sums of statistics, with sacrebleu's default smoothing of counts of 0."""
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
    """Statistics of the word error rate, int64 [K, 2]: the Levenshtein distance of hypothesis and
    reference in words, and the number of words of the reference."""
    with importing("word error rate", "metrics"):
        from rapidfuzz.distance.Levenshtein import distance
    return np.array([[distance(words, reference), len(reference)] for words in hypotheses])


def wer(totals_Q: np.ndarray) -> float:
    """Errors in percent of the words of the references.

    If all references are empty they count as one word, so that systems are compared by their
    numbers of errors.
    """
    errors, words = totals_Q.tolist()
    return 100 * errors / max(words, 1)


METRICS = {
    "bleu": Metric("BLEU", 1, bleu_statistics, bleu, functools.partial(bleu, effective_order=True)),
    "wer": Metric("WER %", -1, wer_statistics, wer, wer),
}


def list_statistics(
    lists: Iterable[Sequence[Sequence[str]]], references: Sequence[Sequence[str]]
) -> dict[str, list[np.ndarray]]:
    """The statistics [K, Q] of the K hypotheses of each list, by metric and segment."""
    pairs = list(zip(lists, references, strict=True))
    return {
        name: [metric.statistics(hypotheses, reference) for hypotheses, reference in pairs]
        for name, metric in METRICS.items()
    }


def oracle(metric: Metric, statistics: Sequence[np.ndarray]) -> list[int]:
    """For each segment the index of the hypothesis with the best metric, the first among equals.
    This is exact for the word error rate and the usual approximation for BLEU."""
    return [
        int(np.argmax([metric.sign * metric.segment_score(row_Q) for row_Q in segment_KxQ]))
        for segment_KxQ in statistics
    ]


def picked(statistics: Sequence[np.ndarray], choices: Sequence[int]) -> np.ndarray:
    """The statistics [S, Q] of the chosen hypotheses."""
    return np.array([rows[choice] for rows, choice in zip(statistics, choices, strict=True)])


def measure_systems(
    statistics: Statistics,
    choices: Sequence[int],
    baseline: Statistics,
    division: Sequence[range],
    *,
    seed: int,
) -> dict[str, Any]:
    """The metrics of the systems "first" (1-best), "random", "rescored" (the choices), "oracle"
    and, if given, "baseline" for a result file. They are compared as in `compare_systems` with
    "baseline", or with "first" without a baseline.

    Args:
      statistics: from `list_statistics`.
      choices: for each segment the index of the hypothesis chosen by rescoring.
      baseline: from `list_statistics` for another system, whose lists have one hypothesis; empty
        without another system.

    Returns:
      Under "rows" for each system the share of segments without word errors ("right"), and the
      result of `compare_systems` by metric. The system that others are compared with has only the
      "value".
    """
    sizes = list(map(len, statistics["wer"]))
    random = np.random.default_rng(seed).integers(sizes).tolist()
    systems = {
        name: {
            "first": picked(lists, [0] * len(lists)),
            "random": picked(lists, random),
            "rescored": picked(lists, choices),
            "oracle": picked(lists, oracle(METRICS[name], lists)),
        }
        for name, lists in statistics.items()
    }
    for name, lists in baseline.items():
        systems[name]["baseline"] = np.concatenate(lists)
    compared_with = "baseline" if baseline else "first"
    rows: dict[str, Any] = {}
    for row, errors_SxQ in systems["wer"].items():
        rows[row] = {"right": float(np.mean(errors_SxQ[:, 0] == 0))}
        for name, metric in METRICS.items():
            pair = systems[name][row], systems[name][compared_with]
            compared = compare_systems(metric, *pair, division, seed=seed)
            rows[row][name] = {"value": compared["value"]} if row == compared_with else compared
    return {"compared_with": compared_with, "bootstrap": BOOTSTRAP_SETS, "rows": rows}


def compare_systems(
    metric: Metric,
    ours_SxQ: np.ndarray,
    theirs_SxQ: np.ndarray,
    division: Sequence[range],
    *,
    seed: int,
) -> dict[str, float]:
    """Compares the hypotheses that two systems have chosen for the same segments, by a paired
    bootstrap test (Koehn 2004) with TEST_SETS test sets, drawn with replacement. A test set has
    documents, because the segments of a document depend on one another; if there is a single
    document, a test set has segments.

    Args:
      ours_SxQ, theirs_SxQ: statistics of the chosen hypotheses.
      division: for each document the range of its segments. The ranges are consecutive and cover
        all segments.

    Returns:
      Our metric ("value"), the share of documents on which we are better ("improved", Lin et al.
      2015, Table 4), and the one-sided "p" of "we are no better": (1 + test sets on which we are no
      better) / (1 + TEST_SETS).
    """
    starts = [segments.start for segments in division]
    ours_DxQ, theirs_DxQ = (np.add.reduceat(a, starts) for a in (ours_SxQ, theirs_SxQ))
    better = [
        metric.sign * metric.score(ours_Q) > metric.sign * metric.score(theirs_Q)
        for ours_Q, theirs_Q in zip(ours_DxQ, theirs_DxQ, strict=True)
    ]
    units = (ours_DxQ, theirs_DxQ) if len(division) > 1 else (ours_SxQ, theirs_SxQ)
    count = len(units[0])
    draws_RxU = np.random.default_rng(seed).multinomial(
        count, [1 / count] * count, size=BOOTSTRAP_SETS
    )
    pairs = zip(draws_RxU @ units[0], draws_RxU @ units[1], strict=True)
    worse = sum(metric.sign * (metric.score(a) - metric.score(b)) <= 0 for a, b in pairs)
    return {
        "value": metric.score(ours_SxQ.sum(axis=0)),
        "improved": float(np.mean(better)),
        "p": (1 + worse) / (1 + BOOTSTRAP_SETS),
    }


def systems_table(measured: Mapping[str, Any]) -> str:
    """Aligned text of a result of `measure_systems`, one row per system."""
    header = ["", "reference chosen"]
    for metric in METRICS.values():
        header += [metric.name, "documents better", "p"]
    lines = [header]
    for row, values in measured["rows"].items():
        cells = [row, f"{100 * values['right']:.2f}%"]
        for name in METRICS:
            cells.append(f"{values[name]['value']:.2f}")
            if row == measured["compared_with"]:
                cells += ["", ""]
            else:
                cells += [f"{100 * values[name]['improved']:.2f}%", f"{values[name]['p']:.4f}"]
        lines.append(cells)
    baseline = measured["compared_with"]
    return "\n".join([*aligned(lines), f"documents better, p: compared with {baseline}"])


def _sacrebleu() -> Any:
    with importing("BLEU", "metrics"):
        from sacrebleu.metrics.bleu import BLEU
    return BLEU
