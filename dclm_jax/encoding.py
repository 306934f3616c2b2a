"""Documents as callers of the Python interface pass them, and their word ids.

A document is a list of sentences, each a string of words separated by spaces or a list of words, or
a `dclm_jax.data.documents.Document`. Sentences without words are omitted, as in files: models
neither score nor read such sentences. After the last document of a call, a warning counts the
omitted sentences. Indices in results are positions in the documents as they were passed.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from dclm_jax.data.documents import Document
from dclm_jax.data.vocabulary import UNKNOWN, Vocabulary
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation import datasets, perplexity
from dclm_jax.evaluation.datasets import Dataset
from dclm_jax.log import logger

SentenceText = str | Sequence[str]
"""Words separated by spaces, or a list of words."""
Documents = Iterable[Document | Sequence[SentenceText]]
AnyDocument = TypeVar("AnyDocument", bound=Document | Sequence[SentenceText])
OfSentence = TypeVar("OfSentence")

_EXAMPLES = 5
"""Maximum number of OOV words in a warning."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PassedDocument(datasets.Encoded, Generic[AnyDocument]):
    """A document as it was passed, and the words of all its sentences. Only sentences with words
    have ids and are read."""

    passed: AnyDocument
    words: list[list[str]]

    def aligned(self, results: Iterable[OfSentence], empty: OfSentence) -> list[OfSentence]:
        """The results of sentences with words, and `empty` for sentences without words."""
        remaining = iter(results)
        return [next(remaining) if sentence else empty for sentence in self.words]


class OovWords:
    """Counts the words outside a vocabulary (OOV), whose probability is the probability of UNKNOWN.

    Attributes:
      vocabulary: the vocabulary.
      usual_rate: OOV rate of the test split of the training text; None if it is unknown.
    """

    def __init__(self, vocabulary: Vocabulary, usual_rate: float | None):
        self.vocabulary, self.usual_rate = vocabulary, usual_rate
        self._words, self._oov = 0, collections.Counter[str]()

    def add(self, sentences: Iterable[Sequence[str]]) -> None:
        """Counts the words of sentences."""
        for words in sentences:
            self._words += len(words)
            ids = self.vocabulary.encode(words)
            self._oov.update(itertools.compress(words, np.equal(ids, UNKNOWN)))

    def warn(self) -> None:
        """Warns if the OOV rate is much above the usual rate, by more than chance in few words."""
        oov, expected = self._oov.total(), (self.usual_rate or 0) * self._words
        if oov <= expected + 2 * math.sqrt(expected):
            return
        if message := perplexity.warning(oov / self._words, self.usual_rate):
            examples = ", ".join(repr(word) for word, _ in self._oov.most_common(_EXAMPLES))
            logger.warning(f"{message}; OOV words: {examples} (for raw text: documents(text))")


def encoded(
    vocabulary: Vocabulary,
    documents: Iterable[AnyDocument],
    *,
    keep_empty: bool = False,
    oov: OovWords | None = None,
) -> Iterator[PassedDocument[AnyDocument]]:
    """Documents with word ids, streamed, with their ids or their positions from 0 as names.

    At the end a warning counts omitted sentences without words and, unless `keep_empty`, omitted
    documents. If no document remains there is no warning, because the caller raises an error.

    Args:
      oov: counts the OOV words of lists of sentences, for a warning at the end. The words of a
        `Document` are counted where its text is read.
    """
    if isinstance(documents, str) or not isinstance(documents, Iterable):
        raise InputError(
            f"documents are {brief(documents)}; expected a list of documents (for raw text: "
            "score(documents(text)))"
        )
    num_documents = empty_sentences = empty_documents = 0
    for index, document in enumerate(documents):
        words = words_of(document)
        with_words = [sentence for sentence in words if sentence]
        empty_sentences += len(words) - len(with_words)
        if not (with_words or keep_empty):
            empty_documents += 1
            continue
        num_documents += 1
        name = document.id if isinstance(document, Document) else str(index)
        if oov and not isinstance(document, Document):
            oov.add(with_words)
        ids = datasets.encode(vocabulary, with_words, name)
        yield PassedDocument(**vars(ids), passed=document, words=words)
    if oov:
        oov.warn()
    if num_documents and (empty_sentences or empty_documents):
        note = f"; documents without words: {empty_documents:,}" if empty_documents else ""
        logger.warning(f"sentences without words omitted: {empty_sentences:,}{note}")


def words_of(
    document: Document | Sequence[SentenceText], what: str = "a document is"
) -> list[list[str]]:
    """The words of the sentences of a document; messages begin with `what`."""
    sentences = document.sentences if isinstance(document, Document) else document
    if isinstance(sentences, str) or not isinstance(sentences, Iterable):
        raise InputError(
            f"{what} {brief(sentences)}; expected a list of sentences, such as "
            '["a sentence .", "another one ."] (for raw text: read_text, documents)'
        )
    return [
        sentence.split() if isinstance(sentence, str) else _checked(sentence)
        for sentence in sentences
    ]


def _checked(sentence: Any) -> list[str]:
    words = list(sentence) if isinstance(sentence, Iterable) else [sentence]
    for word in words:
        if not isinstance(word, str) or len(word.split()) != 1:
            raise InputError(f"a word is {brief(word)}; expected a string without white space")
    return words


def dataset_of(
    vocabulary: Vocabulary, documents: Documents | Dataset, oov: OovWords | None = None
) -> Dataset:
    """Documents as a dataset, which is read once; documents without words are omitted."""
    if isinstance(documents, Dataset):
        return documents
    passed = encoded(vocabulary, documents, oov=oov)
    return Dataset(lambda: passed, None, {"input": "documents"})
