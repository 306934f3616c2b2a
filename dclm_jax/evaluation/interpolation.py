"""Several models on the same documents in one pass, and two of them mixed token by token.

The mixture of A and B has p = w p_A + (1 - w) p_B for every token, with one weight w for all of
them, tuned on other text than is evaluated.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.data.vocabulary import UNKNOWN
from dclm_jax.errors import InputError
from dclm_jax.evaluation.datasets import Encoded
from dclm_jax.evaluation.parts_of_speech import TagSums
from dclm_jax.evaluation.perplexity import Perplexity
from dclm_jax.evaluation.scoring import Scored, WordScorer

# Halvings of the interval that holds the weight: 2^-40 is far below what any text can tell.
_HALVINGS = 40
# Tokens whose terms of a sum are formed at once.
_CHUNK = 2**20


class Mixture(NamedTuple):
    """A tuned weight and what was measured on the text that it was tuned on.

    Attributes:
      weight: w, of the first model.
      perplexities: of the first model, of the second one and of their mixture.
    """

    weight: float
    perplexities: list[Perplexity]


class MixedScorer:
    """The mixture of two models as a `WordScorer`."""

    def __init__(self, first: WordScorer, second: WordScorer, weight: float):
        """Of models that share one vocabulary; the weight is the first one's."""
        if not (isinstance(weight, int | float | np.floating) and 0 <= weight <= 1):
            raise InputError(f"the weight is {weight!r}; expected a number from 0 to 1")
        self._scorers, self._weight = (first, second), weight
        self.objective = _nothing(self._scorers).objective
        self.vocab_size = first.vocab_size
        orders = first.context_order, second.context_order
        self.context_order = None if None in orders else max(order or 0 for order in orders)

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """As `Scorer.score`."""
        for document, scores in _score(self._scorers, documents):
            yield document, [mix(self._weight, *pair) for pair in zip(*scores, strict=True)]


def measure(
    scorers: Sequence[WordScorer],
    documents: Iterable[Encoded],
    *,
    weight: float | None = None,
    by_tag: TagSums | None = None,
    on_document: Callable[[Perplexity], None] = lambda sums: None,
) -> list[Perplexity]:
    """The perplexities of models on the same documents, each scored whole; streams.

    Args:
      scorers: of the models, which share one vocabulary.
      documents: what to score, with tags if `by_tag` is given.
      weight: of the first of two models in their mixture, which is measured as a third one.
      by_tag: to which the documents are added, for as many models as are measured.
      on_document: called with the sums so far after every document, to show progress.
    """
    num_models = len(scorers) + (weight is not None)
    totals = [_nothing(scorers)] * num_models
    if by_tag is not None and totals[0].objective != "words":
        raise InputError(f"the models predict {totals[0].objective}; classes are of words and END")
    for document, scores in _score(scorers, documents):
        if weight is not None:
            scores.append([mix(weight, *pair) for pair in zip(*scores, strict=True)])
        totals = [
            total.add(document.sentences, nll, document.characters)
            for total, nll in zip(totals, scores, strict=True)
        ]
        if by_tag is not None:
            by_tag.add(document.tags or [], scores)
        on_document(totals[0])
    totals[0].require_words("score")
    return totals


def tune(
    scorers: Sequence[WordScorer],
    documents: Iterable[Encoded],
    *,
    on_document: Callable[[Perplexity], None] = lambda sums: None,
) -> Mixture:
    """The weight at which the mixture of two models makes documents most likely.

    The documents stream; what is kept of them are the nats of every token under both models.

    Args:
      scorers: of the two models, which share one vocabulary.
      documents: what to tune on.
      on_document: called with the sums so far after every document, to show progress.
    """
    first = second = _nothing(scorers)
    kept: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    known: list[np.ndarray] = []
    for document, (nll_a, nll_b) in _score(scorers, documents):
        first = first.add(document.sentences, nll_a, document.characters)
        second = second.add(document.sentences, nll_b, document.characters)
        known += [np.append(np.not_equal(ids, UNKNOWN), True) for ids in document.sentences]
        for nats, nll in zip(kept, (nll_a, nll_b), strict=True):
            nats.extend(nll)
        on_document(first)
    first.require_words("tune the weight on")
    a, b = (np.concatenate(nats, dtype=np.float32) for nats in kept)
    weight = best_weight(a, b)
    is_known = np.concatenate(known)
    nll, known_nll = (
        sum(float(mix(weight, *pair).sum()) for pair in _chunks(*of))
        for of in ((a, b), (a[is_known], b[is_known]))
    )
    mixture = dataclasses.replace(first, nll=nll, known_nll=known_nll)
    return Mixture(weight, [first, second, mixture])


def _nothing(scorers: Sequence[WordScorer]) -> Perplexity:
    """The sums over no document, of models whose perplexities compare."""
    objectives = sorted({scorer.objective for scorer in scorers})
    if len(objectives) > 1:
        raise InputError(
            f"the models predict {' and '.join(objectives)}; expected one kind, because their "
            "perplexities do not compare"
        )
    return Perplexity(vocabulary_size=scorers[0].vocab_size, objective=objectives[0])


def mix(weight: float, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """-log(weight exp(-a) + (1 - weight) exp(-b)) in float64, also where exp(-a) underflows."""
    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(weight), np.log1p(-weight)
    return -np.logaddexp(log_a - a.astype(np.float64), log_b - b.astype(np.float64))


def best_weight(a: np.ndarray, b: np.ndarray) -> float:
    """The weight from 0 to 1 at which `mix(weight, a, b)` has the least sum.

    The log-likelihood is concave in the weight: its slope falls, and is halved in on. It is at an
    end, exactly, where it still rises towards it. Two equal models have 0.5.
    """
    if np.isnan(a).any() or np.isnan(b).any():
        raise InputError("a score of the text to tune on is not a number")

    def slope(weight: float) -> float:
        return sum(_slope(weight, *pair) for pair in _chunks(a, b))

    low, high = 0.0, 1.0
    if slope(low) < 0:
        return low
    if slope(high) > 0:
        return high
    for _ in range(_HALVINGS):
        weight = (low + high) / 2
        rises = slope(weight)
        if rises == 0:
            return weight
        low, high = (weight, high) if rises > 0 else (low, weight)
    return (low + high) / 2


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
    scores = [scorer.score(one) for scorer, one in zip(scorers, ahead, strict=True)]
    for of_each in zip(*scores, strict=True):
        yield of_each[0][0], [nll for _, nll in of_each]
