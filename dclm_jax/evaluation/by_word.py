"""Surprisal of every word, with earlier sentences and without context."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.evaluation.scoring import SentenceScorer, sentences_to_score

_WINDOW_TOKENS = 2**16


class Compared(NamedTuple):
    """The nats of a document's sentences.

    Attributes:
      document: the document.
      nll: for each sentence in its document, float32 [M + 1] of w1..wM END.
      no_context: for each sentence as the first sentence of a document, in the same shapes.
    """

    document: Any
    nll: list[np.ndarray]
    no_context: list[np.ndarray]


def with_no_context(scorer: SentenceScorer, documents: Iterable[Any]) -> Iterator[Compared]:
    """Scores documents, as `Scorer.score` takes them, in their order, with and without context.
    Memory has a bounded window of documents.

    Scores that are equal by definition are computed once. The score without context of a sentence
    is computed once per window. The first sentence of a document has equal scores with and without
    context. For a model without context, every sentence has equal scores.
    """
    for window in _windows(scorer.score(documents)):
        later = {
            ids.tobytes(): ids
            for document, _ in window
            for ids in (_sentences(document)[1:] if scorer.context_order != 0 else ())
        }
        later_nll = (nll for _, (nll,) in scorer.score([ids] for ids in later.values()))
        no_context = dict(zip(later, later_nll, strict=True))
        for document, nll in window:
            firsts = len(nll) if scorer.context_order == 0 else 1
            others = [no_context[ids.tobytes()] for ids in _sentences(document)[firsts:]]
            yield Compared(document, nll, [*nll[:firsts], *others])


def _sentences(document: Any) -> Sequence[np.ndarray]:
    return sentences_to_score(document)[0]


def _windows(
    scored: Iterable[tuple[Any, list[np.ndarray]]],
) -> Iterator[list[tuple[Any, list[np.ndarray]]]]:
    window, tokens = [], 0
    for document, nll in scored:
        window.append((document, nll))
        tokens += 1 + sum(map(len, nll))
        if tokens >= _WINDOW_TOKENS:
            yield window
            window, tokens = [], 0
    if window:
        yield window
