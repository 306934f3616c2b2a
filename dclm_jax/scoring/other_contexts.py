"""Scores of sentences in the contexts of other documents: the effect that any context has.

Sentence t of a document is scored given the first t - 1 sentences of another text, which begins
with another document. If this document is shorter, the text continues with the documents after it
in the pool of documents, and after the last document with the first. Other documents have another
first sentence, because the context of every sentence begins with it, and another item, if
documents have items. The texts of a document begin with different sentences. A document's first
sentence has no context, own or other.

The effect of this context on a target is its surprisal with the contexts of other documents, the
mean over these contexts, minus its surprisal with its own context. The surprisal with no context
is no baseline for this effect: any context shows that a sentence is not the first of a document,
and the kind of text.
"""

import dataclasses
import itertools
import zlib
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dclm_jax.data.documents import Document, column_names, value_text
from dclm_jax.data.records import listed
from dclm_jax.errors import InputError, brief
from dclm_jax.files import Count, Size, require_valid
from dclm_jax.log import logger
from dclm_jax.reading.blocks import Sentences
from dclm_jax.scoring.distributions import OTHER_COLUMNS, Measured
from dclm_jax.scoring.scorer import Continuation, Scorer, sentences_to_score

Whole = TypeVar("Whole")
"""A document, all of whose sentences are scored."""


@dataclasses.dataclass(frozen=True)
class OtherContexts:
    """The contexts of other documents.

    Attributes:
      number: number of other contexts per document; fewer if there are fewer other documents.
      documents: the pool of documents, as `LanguageModel.score` takes documents; None for the
        scored documents.
      item: column of the documents' tables; documents with equal cells in it, such as the
        conditions of an item, give one another no context. Empty for no column.
      seed: random seed for the choice of other documents. Documents that differ only in their first
        sentence, such as conditions with one target sentence, have equal choices.
    """

    number: Size = 10
    documents: Any = None
    item: str = ""
    seed: Count = 0

    def __post_init__(self) -> None:
        require_valid(self)
        if isinstance(self.documents, Iterator):
            raise InputError(
                "documents is an iterator, which can be read only once; pass a list of documents"
            )


class InOtherContexts(NamedTuple):
    """The nats [M + 1] of the targets of a sentence in other contexts: the mean, and the standard
    deviation (of a sample) over contexts. The deviation is NaN for a single context, and 0 where
    contexts have no effect."""

    mean: np.ndarray
    deviation: np.ndarray

    def columns(self) -> Measured:
        """The mean and the deviation by the names of their columns."""
        return dict(zip(OTHER_COLUMNS, self, strict=True))


class _Pool:
    """Documents, each with its first sentence and its item as numbers."""

    def __init__(self, documents: Sequence[Any], item: str):
        pairs = [(sentences_to_score(document)[0], _cell(document, item)) for document in documents]
        self._numbers: dict[Hashable, int] = {}
        self._documents = [sentences for sentences, _ in pairs if sentences]
        self._firsts = self._numbered(_first(sentences) for sentences, _ in pairs if sentences)
        self._items = self._numbered(cell for sentences, cell in pairs if sentences)

    def _numbered(self, values: Iterator[Hashable]) -> np.ndarray:
        return np.array([self._numbers.setdefault(value, len(self._numbers)) for value in values])

    def is_other(self, sentences: Sentences, cell: str | None) -> np.ndarray:
        """Whether each document is another document than one with these sentences and this item."""
        is_other = self._firsts != self._numbers.get(_first(sentences), -1)
        return is_other if cell is None else is_other & (self._items != self._numbers.get(cell, -1))

    def draw(self, sentences: Sentences, is_other: np.ndarray, options: OtherContexts) -> list[int]:
        """The indices of up to `options.number` other documents, with different first sentences."""
        checksum = zlib.crc32(
            b"\n".join(np.asarray(ids, np.int32).tobytes() for ids in sentences[1:])
        )
        order = np.random.default_rng([options.seed, checksum]).permutation(len(is_other))
        drawn: dict[int, int] = {}
        for index in order[is_other[order]].tolist():
            drawn.setdefault(int(self._firsts[index]), index)
            if len(drawn) == options.number:
                break
        return list(drawn.values())

    def text(self, begin: int, is_other: np.ndarray, size: int) -> Sentences:
        """`size` sentences from the beginning of a document on, only of other documents."""
        indices = (index % len(is_other) for index in itertools.count(begin))
        others = (self._documents[index] for index in indices if is_other[index])
        return list(itertools.islice(itertools.chain.from_iterable(others), size))


def has_others(documents: Sequence[Sentences]) -> bool:
    """Whether documents of sentences are other documents of one another."""
    return len({_first(sentences) for sentences in documents if sentences}) > 1


def _first(sentences: Sentences) -> bytes:
    """The first sentence, with which the context of every later sentence begins."""
    return np.asarray(sentences[0], np.int32).tobytes()


def _cell(document: Any, item: str) -> str | None:
    """The cell of a document in the column `item`; None without a cell."""
    passed = getattr(document, "passed", None)
    if not item or not isinstance(passed, Document) or not passed.rows:
        return None
    return value_text(passed.rows[0].get(item)) or None


def in_other_contexts(
    scorer: Scorer,
    documents: Sequence[Whole],
    options: OtherContexts,
    pool: Sequence[Any] | None = None,
) -> Iterator[tuple[Whole, list[InOtherContexts]]]:
    """Scores every sentence of documents in the contexts of other documents.

    Args:
      scorer: a scorer without test-time adaptation.
      documents: documents, all in memory.
      options: the number of contexts, the column of items and the seed.
      pool: the documents of other contexts; None for `documents`.
    """
    sentences_of = [sentences_to_score(document)[0] for document in documents]
    has_context = scorer.context_order != 0
    others = _Pool(documents if pool is None else pool, options.item)
    texts: dict[int, list[Sentences]] = {}
    for index, sentences in enumerate(sentences_of):
        if has_context and len(sentences) > 1:
            is_other = others.is_other(sentences, _cell(documents[index], options.item))
            begins = others.draw(sentences, is_other, options)
            size = len(sentences) - 1
            texts[index] = [others.text(begin, is_other, size) for begin in begins]
    if has_context:
        _require_items(documents, options.item)
        _require_others(documents, texts)
        _log_counts(sentences_of, texts, options.number)

    def requests() -> Iterator[Continuation]:
        """Requests for all sentences, the first of a document once."""
        for index, sentences in enumerate(sentences_of):
            num_scored = None
            for context in texts.get(index, [None]):
                yield Continuation(sentences, num_scored, index, context)
                num_scored = len(sentences) - 1

    scores = itertools.groupby(scorer.score(requests()), lambda scored: scored[0].owner)
    for document, (_, of_contexts) in zip(documents, scores, strict=True):
        whole, *rest = (nll for _, nll in of_contexts)
        num_equal = 1 if has_context else len(whole)
        equal = [InOtherContexts(nats, np.zeros(len(nats))) for nats in whole[:num_equal]]
        differing = zip(whole[num_equal:], *rest, strict=True)
        yield document, [*equal, *(_summary(np.stack(nats)) for nats in differing)]


def _summary(nats_CxM: np.ndarray) -> InOtherContexts:
    nats_CxM = nats_CxM.astype(np.float64)
    if len(nats_CxM) == 1:
        return InOtherContexts(nats_CxM[0], np.full(nats_CxM.shape[1], np.nan))
    return InOtherContexts(nats_CxM.mean(axis=0), nats_CxM.std(axis=0, ddof=1))


def _require_items(documents: Sequence[Any], item: str) -> None:
    if item and documents and all(_cell(document, item) is None for document in documents):
        passed = [getattr(document, "passed", None) for document in documents]
        named = [column_names(document) for document in passed if isinstance(document, Document)]
        names = listed(list(dict.fromkeys(itertools.chain(*named))))
        raise InputError(
            f"no document has a cell in the column {brief(item)} of items; choose one of its "
            f"columns: {names}"
        )


def _require_others(documents: Sequence[Any], texts: dict[int, list[Sentences]]) -> None:
    for index, contexts in texts.items():
        if not contexts:
            name = getattr(documents[index], "id", "") or index
            raise InputError(
                f"document {brief(name)} has no other document, with another first sentence (and "
                "another item), whose context it could have; add documents, or take contexts from "
                "other text (--contexts_from; OtherContexts(documents=...))"
            )


def _log_counts(
    documents: Sequence[Sentences], texts: dict[int, list[Sentences]], number: int
) -> None:
    """Logs the documents whose other contexts are not as requested."""
    single = sum(len(sentences) == 1 for sentences in documents)
    if single:
        logger.info(
            f"documents of one sentence: {single:,} of {len(documents):,}; their surprisals are "
            "equal in every context"
        )
    sizes = [len(contexts) for contexts in texts.values()]
    if fewer := sum(size < number for size in sizes):
        logger.info(
            f"documents with fewer than {number:,} contexts of other documents: {fewer:,} of "
            f"{len(documents):,}, at least {min(sizes):,} each; there are no more documents with "
            "another first sentence (and another item)"
        )
