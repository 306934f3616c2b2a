"""Several models on the same documents in one pass, and two of them mixed token by token.

The mixture of A and B has p = w p_A + (1 - w) p_B for every token, with one weight w for all of
them, tuned on other text than is evaluated.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from dclm_jax.errors import InputError
from dclm_jax.evaluation.datasets import Dataset, Encoded
from dclm_jax.evaluation.measures import Measure
from dclm_jax.evaluation.parts_of_speech import TagSums
from dclm_jax.evaluation.perplexity import Perplexity
from dclm_jax.evaluation.scoring import Scored, WordScorer

# Tokens whose terms of a sum are formed at once.
_CHUNK = 2**20


class Mixture(NamedTuple):
    """A tuned weight and the documents that it was tuned on.

    Attributes:
      weight: w, of the first model.
      perplexities: of the first model, of the second one and of their mixture.
      tuned_on: the source of the documents.
    """

    weight: float
    perplexities: list[Perplexity]
    tuned_on: dict[str, Any]


class MixedScorer:
    """The mixture of two models as a `WordScorer`."""

    def __init__(self, first: WordScorer, second: WordScorer, weight: float):
        """The models share one vocabulary; the weight is the first one's."""
        if not 0 <= weight <= 1:
            raise InputError(f"the weight is {weight}; expected a number from 0 to 1")
        self._scorers, self._weight = (first, second), weight
        self.objective = no_document(self._scorers).objective
        self.vocab_size = first.vocab_size
        orders = first.context_order, second.context_order
        self.context_order = None if None in orders else max(order or 0 for order in orders)

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """As `Scorer.score`."""
        for document, scores in _score(self._scorers, documents):
            yield document, _mixed(self._weight, scores)


def measure(
    scorers: Sequence[WordScorer],
    documents: Iterable[Encoded],
    *,
    weight: float | None = None,
    by_tag: TagSums | None = None,
    measures: Sequence[Sequence[Measure]] = (),
    on_document: Callable[[int], None] = lambda done: None,
) -> list[Perplexity]:
    """The perplexities of models on the same documents, each scored whole; streams.

    Args:
      scorers: of the models, which share one vocabulary.
      documents: what to score, with tags if `by_tag` is given.
      weight: of the first of two models in their mixture, which is measured as a third one.
      by_tag: sums to add the documents to, for all models that are measured.
      measures: of each model that is measured, take every document as well.
      on_document: called with the number of documents so far.
    """
    totals = [no_document(scorers)] * (len(scorers) + (weight is not None))
    if by_tag is not None and totals[0].objective != "words":
        raise InputError(f"the models predict {totals[0].objective}; classes are of words and END")
    for document, scores in _score(scorers, documents):
        if weight is not None:
            scores = [*scores, _mixed(weight, scores)]
        totals = [
            total.add(document.sentences, nll, document.characters)
            for total, nll in zip(totals, scores, strict=True)
        ]
        for total, of_model, nll in zip(totals, measures, scores, strict=False):
            total.add_to(of_model, document.sentences, nll)
        if by_tag is not None:
            by_tag.add(document.tags or [], scores)
        on_document(totals[0].documents)
    totals[0].require_words("score")
    return totals


def tune(
    scorers: Sequence[WordScorer],
    dataset: Dataset,
    *,
    on_document: Callable[[int], None] = lambda done: None,
) -> Mixture:
    """The weight at which the mixture of two models makes documents most likely.

    Documents are read once; their words and the nats of every target under both models are
    retained.

    Args:
      scorers: of the two models, which share one vocabulary.
      dataset: what to tune on.
      on_document: called with the number of documents so far.
    """
    totals, scored = [no_document(scorers)] * 3, []
    for document, scores in _score(scorers, dataset.documents):
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
        totals = [
            total.add(document.sentences, nll, document.characters)
            for total, nll in zip(totals, [*scores, _mixed(weight, scores)], strict=True)
        ]
    totals[0].require_words("tune the weight on")
    return Mixture(weight, totals, dataset.source)


def no_document(scorers: Sequence[WordScorer]) -> Perplexity:
    """The sums over no document, of models whose perplexities compare."""
    objectives = sorted({scorer.objective for scorer in scorers})
    if len(objectives) > 1:
        raise InputError(
            f"the models predict {' and '.join(objectives)}; expected one kind, because their "
            "perplexities do not compare"
        )
    return Perplexity(vocabulary_size=scorers[0].vocab_size, objective=objectives[0])


def _mixed(weight: float, scores: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    return [mix(weight, *pair) for pair in zip(*scores, strict=True)]


def mix(weight: float, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """-log(weight exp(-a) + (1 - weight) exp(-b)) in float64, also where exp(-a) underflows."""
    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(weight), np.log1p(-weight)
    return -np.logaddexp(log_a - a.astype(np.float64), log_b - b.astype(np.float64))


def best_weight(a: np.ndarray, b: np.ndarray) -> float:
    """The weight from 0 to 1 at which `mix(weight, a, b)` has the least sum, within 2^-40.

    The log-likelihood is concave in the weight, so that its slope falls. The weight is at an end,
    exactly, where the likelihood still rises towards it. Two equal models have 0.5.
    """
    if np.isnan(a).any() or np.isnan(b).any():
        raise InputError("a score of the text to tune on is not a number")

    def slope(weight: float) -> float:
        return sum(_slope(weight, *pair) for pair in _chunks(a, b))

    first, last = slope(0.0), slope(1.0)
    if first == last == 0:
        return 0.5
    if first <= 0 or last >= 0:
        return 0.0 if first <= 0 else 1.0
    weight: Any = optimize.bisect(slope, 0.0, 1.0, xtol=2.0**-40)
    return weight


def _slope(weight: float, a: np.ndarray, b: np.ndarray) -> float:
    """The derivative of the log-likelihood: sum of (p_A - p_B) / (w p_A + (1 - w) p_B).

    Both sides of the fraction are divided by the larger probability, so that neither overflows.
    """
    with np.errstate(invalid="ignore"):
        ratio = b.astype(np.float64) - a.astype(np.float64)
    # Where both probabilities are 0 no weight makes a difference.
    ratio = np.where(np.isnan(ratio), 0.0, ratio)
    smaller, of_larger = np.exp(-np.abs(ratio)), np.where(ratio > 0, weight, 1 - weight)
    # At an end the only model that counts may have probability 0: the slope is infinite there.
    with np.errstate(divide="ignore", over="ignore"):
        terms = -np.expm1(-np.abs(ratio)) / (of_larger + (1 - of_larger) * smaller)
    return float(np.sum(np.copysign(terms, ratio)))


def _chunks(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for first in range(0, len(a), _CHUNK):
        yield a[first : first + _CHUNK], b[first : first + _CHUNK]


def _score(
    scorers: Sequence[WordScorer], documents: Iterable[Scored]
) -> Iterator[tuple[Scored, list[list[np.ndarray]]]]:
    """Documents with their scores by each model. What one scorer reads ahead waits for the others,
    so that the documents are read and tagged once."""
    ahead = itertools.tee(documents, len(scorers))
    scores = [scorer.score(stream) for scorer, stream in zip(scorers, ahead, strict=True)]
    for of_each in zip(*scores, strict=True):
        yield of_each[0][0], [nll for _, nll in of_each]
