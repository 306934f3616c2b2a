"""Scores of sentences in the contexts of other documents: what any context of this kind gives.

Sentence t of a document is scored given the first t - 1 sentences of another text, which begins
with another document. If this document is shorter, the documents that follow it in the pool of
documents continue the text, and after the last document the first. No text contains the scored
document, or a document with the same first sentence, because such a document has the same context.
A document's first sentence has no context, own or other.

The effect of this context on a target is its surprisal with the contexts of other documents, the
mean over these contexts, minus its surprisal with its own context. The surprisal with no context
is no baseline for this effect: any context tells that a sentence is not the first of a document,
and of which kind the text is.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dclm_jax.errors import InputError
from dclm_jax.evaluation.scoring import Continuation, SentenceScorer, sentences_to_score
from dclm_jax.files import Count, Size, require_valid
from dclm_jax.log import logger
from dclm_jax.reading.blocks import Sentences

Whole = TypeVar("Whole")
"""A document, all of whose sentences are scored."""


@dataclasses.dataclass(frozen=True)
class OtherContexts:
    """The contexts of other documents.

    Attributes:
      number: number of other contexts per document; fewer if there are fewer other documents.
      documents: the pool of documents, as `LanguageModel.score` takes documents; None for the
        scored documents.
      seed: random seed for the choice of other documents.
    """

    number: Size = 10
    documents: Any = None
    seed: Count = 0

    def __post_init__(self) -> None:
        require_valid(self)


class InOtherContexts(NamedTuple):
    """The nats [M + 1] of the targets of a sentence in other contexts: the mean, and the standard
    deviation (of a sample) over contexts. The deviation is NaN for a single context, and 0 where
    contexts have no effect."""

    mean: np.ndarray
    deviation: np.ndarray


class _Pool:
    """Documents, and what their contexts begin with."""

    def __init__(self, documents: Sequence[Sentences]):
        self._documents = [document for document in documents if document]
        self._firsts = [_first(document) for document in self._documents]
        self.counts = collections.Counter(self._firsts)

    def __len__(self) -> int:
        return len(self._documents)

    def num_others(self, document: Sentences) -> int:
        """The number of documents with another first sentence."""
        return len(self) - self.counts[_first(document)]

    def contexts(
        self, document: Sentences, number: int, rng: np.random.Generator
    ) -> Iterator[Sentences]:
        """Up to `number` other contexts of a document, as long as the document's own."""
        first = _first(document)
        # So many that enough remain without the documents of the same first sentence.
        size = min(number + self.counts[first], len(self))
        drawn = rng.choice(len(self), size, replace=False).tolist()
        for begin in [index for index in drawn if self._firsts[index] != first][:number]:
            order = itertools.chain(range(begin, len(self)), itertools.count())
            others = (
                self._documents[index % len(self)]
                for index in order
                if self._firsts[index % len(self)] != first
            )
            sentences = itertools.chain.from_iterable(others)
            yield list(itertools.islice(sentences, len(document) - 1))


def has_others(documents: Sequence[Sentences]) -> bool:
    """Whether documents are other documents of one another."""
    return len({_first(document) for document in documents if document}) > 1


def _first(document: Sentences) -> bytes:
    """What all contexts in a document begin with."""
    return np.asarray(document[0], np.int32).tobytes()


def in_other_contexts(
    scorer: SentenceScorer,
    documents: Sequence[Whole],
    options: OtherContexts,
    pool: Sequence[Sentences] | None = None,
) -> Iterator[tuple[Whole, list[InOtherContexts]]]:
    """Scores every sentence of documents in the contexts of other documents.

    Args:
      scorer: a scorer without test-time adaptation.
      documents: documents, all in memory.
      options: the number of contexts and the seed.
      pool: the documents of other contexts; None for `documents`.
    """
    sentences_of = [sentences_to_score(document)[0] for document in documents]
    others = _Pool(sentences_of if pool is None else pool)
    later = [sentences for sentences in sentences_of if len(sentences) > 1]
    _require_others(later, others)
    if scorer.context_order != 0:
        _log_counts(sentences_of, later, others, options.number)

    def requests() -> Iterator[Continuation]:
        """Requests for all sentences, the first of a document once."""
        for index, sentences in enumerate(sentences_of):
            if len(sentences) < 2 or scorer.context_order == 0:
                yield Continuation(sentences, None, index)
                continue
            rng = np.random.default_rng([options.seed, index])
            num_scored = None
            for context in others.contexts(sentences, options.number, rng):
                yield Continuation(sentences, num_scored, index, context)
                num_scored = len(sentences) - 1

    scores = itertools.groupby(scorer.score(requests()), lambda scored: scored[0].owner)
    for document, (_, of_contexts) in zip(documents, scores, strict=True):
        whole, *rest = (nll for _, nll in of_contexts)
        num_equal = len(whole) if scorer.context_order == 0 else 1
        equal = [InOtherContexts(nats, np.zeros(len(nats))) for nats in whole[:num_equal]]
        differing = zip(whole[num_equal:], *rest, strict=True)
        yield document, [*equal, *(_summary(np.stack(nats)) for nats in differing)]


def _summary(nats_CxM: np.ndarray) -> InOtherContexts:
    nats_CxM = nats_CxM.astype(np.float64)
    if len(nats_CxM) == 1:
        return InOtherContexts(nats_CxM[0], np.full(nats_CxM.shape[1], np.nan))
    return InOtherContexts(nats_CxM.mean(axis=0), nats_CxM.std(axis=0, ddof=1))


def _require_others(later: Sequence[Sentences], others: _Pool) -> None:
    for sentences in later:
        if not others.num_others(sentences):
            raise InputError(
                "the contexts of other documents need a document with another first sentence; add "
                "such documents, or choose other text for the contexts"
            )


def _log_counts(
    documents: Sequence[Sentences], later: Sequence[Sentences], others: _Pool, number: int
) -> None:
    """Logs the documents whose other contexts are not as requested."""
    single = sum(len(sentences) == 1 for sentences in documents)
    if single:
        logger.info(
            f"documents of one sentence: {single:,} of {len(documents):,}; their surprisals are "
            "equal in every context"
        )
    fewest = min(map(others.num_others, later), default=number)
    if fewest < number:
        logger.info(
            f"contexts of other documents: {fewest:,} per document, because there are no more "
            f"other documents ({number:,} requested)"
        )
    shared = sum(others.counts[_first(sentences)] > 1 for sentences in later)
    if shared:
        logger.info(
            f"documents that share their first sentence: {shared:,} of {len(documents):,}; they "
            "give one another no other context"
        )
