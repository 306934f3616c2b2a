"""Mixtures of two models.

The mixture of A and B has p = w p_A + (1 - w) p_B for every target, with one weight w that is tuned
on text that is not evaluated.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import OnDocument
from dclm_jax.errors import InputError
from dclm_jax.scoring.perplexity import Perplexity, empty_sums
from dclm_jax.scoring.scorer import Scored, Scorer, known_targets


class Mixture(NamedTuple):
    """A tuned weight and the documents that it was tuned on.

    Attributes:
      weight: w, the weight of the first model.
      perplexities: perplexities of the first model, the second model and their mixture.
      tuned_on: the source of the documents.
    """

    weight: float
    perplexities: list[Perplexity]
    tuned_on: dict[str, Any]


class MixedScorer(Scorer):
    """The mixture of two models as a scorer of targets."""

    def __init__(self, first: Scorer, second: Scorer, weight: float):
        """The models share one vocabulary; `weight` is the weight of the first model."""
        if not 0 <= weight <= 1:
            raise InputError(f"the weight of a mixture is {weight}; expected a number from 0 to 1")
        self._scorers, self._mixture = (first, second), functools.partial(mixed_nll, weight)
        self.objective = empty_sums(self._scorers).objective
        self.vocab_size, self.first_word_end = first.vocab_size, first.first_word_end
        orders = first.context_order, second.context_order
        self.context_order = None if None in orders else max(order or 0 for order in orders)

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        for document, scores in _score_together(self._scorers, documents):
            yield document, list(map(self._mixture, *scores))


def tune(
    scorers: Sequence[Scorer],
    dataset: Dataset,
    *,
    on_document: OnDocument = lambda done: None,
) -> Mixture:
    """The weight with the highest likelihood of documents under the mixture of two models that
    share one vocabulary.

    Documents are read once; memory has their words and the nats of every target under both models.
    """
    totals, scored = [empty_sums(scorers)] * 3, []
    for document, scores in _score_together(scorers, dataset.documents):
        scored.append((document, scores))
        on_document(len(scored))
    a, b = (
        np.concatenate(
            [np.zeros(0, np.float32), *(nll for _, pair in scored for nll in pair[model])]
        )
        for model in range(2)
    )
    weight = best_weight(a, b)
    for document, scores in scored:
        scores = [*scores, list(map(functools.partial(mixed_nll, weight), *scores))]
        known = known_targets(scorers[0], document)
        pairs = zip(totals, scores, strict=True)
        totals = [total.add(document, nll, known) for total, nll in pairs]
    totals[0].require_words("tune the weight on")
    return Mixture(weight, totals, dataset.source)


def mixed_nll(weight: float, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """-log(weight exp(-a) + (1 - weight) exp(-b)) in float64, also where exp(-a) underflows."""
    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(weight), np.log1p(-weight)
    return -np.logaddexp(log_a - a.astype(np.float64), log_b - b.astype(np.float64))


def best_weight(a: np.ndarray, b: np.ndarray) -> float:
    """The weight from 0 to 1 that minimizes the sum of `mixed_nll(weight, a, b)`, within 2^-40.

    The log-likelihood is concave in the weight, so that its slope decreases. If the maximum is at 0
    or 1, the returned weight is exactly 0 or 1. The weight is 0.5 for two equal models.
    """
    if np.isnan(a).any() or np.isnan(b).any():
        raise InputError("a score of the text to tune on is NaN; check the models' checkpoints")

    with np.errstate(invalid="ignore"):
        ratio = b.astype(np.float64) - a.astype(np.float64)
    # If both probabilities are 0, the weight makes no difference.
    ratio = np.where(np.isnan(ratio), 0.0, ratio)
    smaller, gain = np.exp(-np.abs(ratio)), -np.expm1(-np.abs(ratio))

    def slope(weight: float) -> float:
        """The derivative of the log-likelihood: sum of (p_A - p_B) / (w p_A + (1 - w) p_B), with
        both sides of the fraction divided by the larger probability, so that neither overflows."""
        larger_weight = np.where(ratio > 0, weight, 1 - weight)
        # The slope is infinite if the model with weight 1 has probability 0.
        with np.errstate(divide="ignore", over="ignore"):
            terms = gain / (larger_weight + (1 - larger_weight) * smaller)
        return float(np.sum(np.copysign(terms, ratio)))

    first, last = slope(0.0), slope(1.0)
    if first == last == 0:
        return 0.5
    if first <= 0 or last >= 0:
        return 0.0 if first <= 0 else 1.0
    weight: Any = optimize.bisect(slope, 0.0, 1.0, xtol=2.0**-40)
    return weight


def _score_together(
    scorers: Sequence[Scorer], documents: Iterable[Scored]
) -> Iterator[tuple[Scored, list[list[np.ndarray]]]]:
    """Documents with their scores by each model. Documents that a scorer reads ahead are buffered
    for the other scorers, so that documents are read once."""
    ahead = itertools.tee(documents, len(scorers))
    scores = [scorer.score(stream) for scorer, stream in zip(scorers, ahead, strict=True)]
    for pairs in zip(*scores, strict=True):
        yield pairs[0][0], [nll for _, nll in pairs]
