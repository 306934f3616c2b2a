"""Scorers: the nats of the targets of documents, under any model.

A scorer takes documents of word ids. Scorers of the ids themselves (words, or pieces of words) are
`neural.NeuralScorer`, `ngrams.NGramScorer`, the neural cache and dynamic evaluation.
`SummedScorer` adds the nats of pieces, so that evaluations get the nats of words and END.
"""

import abc
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from dclm_jax.data.vocabulary import FIRST_WORD, UNKNOWN, word_ends
from dclm_jax.errors import InputError
from dclm_jax.models.base import Params
from dclm_jax.reading.blocks import Sentences
from dclm_jax.reading.continuations import SentenceReader

Scored = TypeVar("Scored")
"""A document to score: a sequence of sentences, or an object with the attribute `sentences`. If its
`num_scored` is not None, the sentences before the last `num_scored` are only read as context,
without the output layer, which is most of the work. If its `contexts` is not None, sentence t of
the document is scored given the first t - 1 sentences of `contexts` in place of its own context.
For a model that reads sources, a document is its own source."""


class Continuation(NamedTuple):
    """Sentences whose last sentences are scored given the others.

    Attributes:
      sentences: ids of each sentence, int [M].
      num_scored: number of last sentences to score; None for all.
      owner: the object that the score belongs to.
      contexts: other sentences as their context, see `Scored`.
    """

    sentences: Sentences
    num_scored: int | None = 1
    owner: Any = None
    contexts: Sentences | None = None


class Scorer(abc.ABC):
    """Negative log-likelihoods of documents.

    Attributes:
      vocab_size: V.
      first_word_end: the ids from this one on end a word (`vocabulary.word_ends`).
      objective: "words" (words and END), or "bags" (bags of words, without END).
      context_order: number of context sentences that a score depends on; None for all.
      params: parameters of the trained model; none for an n-gram model and a mixture.
    """

    vocab_size: int
    first_word_end: int
    objective: str = "words"
    context_order: int | None = None
    params: Params = {}

    @abc.abstractmethod
    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """Scores documents in their order, with a bounded window of documents in memory.

        Args:
          documents: sequences of sentences int [M], ids of words or of their pieces, without START
            and END; see `Scored`.

        Yields:
          Every document, and a list over its sentences of float [M + 1]: -log P(target) in nats
          for the targets w1..wM END, given all earlier words of the document. If the document's
          `num_scored` is not None, the list has only the arrays of the last sentences.
        """

    @property
    def reader(self) -> SentenceReader[Any]:
        """Reads and scores ids sentence by sentence, from any state."""
        raise InputError(
            "mixtures and models with test-time adaptation score only whole documents; choose a "
            "neural language model or an n-gram model"
        )


ScorerT = TypeVar("ScorerT", bound=Scorer)


class SummedScorer(Scorer, Generic[ScorerT]):
    """The scores of targets, words and END, from the scores of ids, whose nats `sum_pieces` adds. A
    word that is not predicted has 0 nats."""

    def __init__(self, ids: ScorerT):
        self.ids, self.params = ids, ids.params
        self.vocab_size, self.first_word_end = ids.vocab_size, ids.first_word_end
        self.objective, self.context_order = ids.objective, ids.context_order

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        for document, nll in self.ids.score(documents):
            sentences, first_scored = sentences_to_score(document)
            pairs = zip(sentences[first_scored:], nll, strict=True)
            yield document, [sum_pieces(ids, nats, self.first_word_end) for ids, nats in pairs]

    @property
    def reader(self) -> SentenceReader[Any]:
        return self.ids.reader


def sum_pieces(ids: np.ndarray, nats_N: np.ndarray, first_word_end: int) -> np.ndarray:
    """The nats [M + 1] of the targets w1..wM END of a sentence, from its ids [N - 1] and the nats
    [N] of its ids and END. A vocabulary of words, whose nats are returned, has one id per word."""
    if first_word_end == FIRST_WORD:
        return nats_N
    nats_N = np.where(np.append(np.equal(ids, UNKNOWN), False), 0, nats_N)
    return np.add.reduceat(nats_N, first_pieces(ids, first_word_end), dtype=np.float64)


def first_pieces(ids: np.ndarray, first_word_end: int) -> np.ndarray:
    """The positions of the first piece of every word, and of END, int [M + 1]."""
    (ends,) = np.nonzero(word_ends(np.asarray(ids), first_word_end))
    return np.append(0, ends + 1)


def known_targets(scorer: Scorer, document: Any) -> list[np.ndarray]:
    """For each scored sentence of a document, whether its targets are in the vocabulary, bool
    [M + 1]. Words that are not are predicted as UNKNOWN by a vocabulary of words, and not predicted
    by a vocabulary of subwords, which reads only the text's own spelling of OOV words as UNKNOWN.
    """
    sentences, first_scored = sentences_to_score(document)
    last_ids = (ids[word_ends(ids, scorer.first_word_end)] for ids in map(np.asarray, sentences))
    known = [np.append(ids != UNKNOWN, True) for ids in last_ids]
    return known[first_scored:]


def count_targets(scorer: Scorer, document: Any) -> int:
    """The number of targets, words and END, of the scored sentences of a document."""
    known = known_targets(scorer, document)
    is_counted = np.logical_or(np.concatenate([[], *known]), scorer.first_word_end == FIRST_WORD)
    return int(is_counted.sum())


def sentences_to_score(document: Any) -> tuple[Sentences, int]:
    """The sentences of a document, and the index of the first sentence to score."""
    sentences = getattr(document, "sentences", document)
    num_scored = getattr(document, "num_scored", None)
    return sentences, 0 if num_scored is None else max(len(sentences) - num_scored, 0)


def with_own_context(documents: Iterable[Scored]) -> Iterator[Scored]:
    """The documents, for a scorer that does not read other `contexts` (see `Scored`), with which
    a document is refused."""
    for document in documents:
        if getattr(document, "contexts", None) is not None:
            raise InputError(
                "autoencoders and models with test-time adaptation have no scores with the "
                "contexts of other documents; choose a language model without adaptation"
            )
        yield document


def with_no_context(
    scorer: Scorer, documents: Iterable[Scored]
) -> Iterator[tuple[Scored, list[np.ndarray], list[np.ndarray]]]:
    """Scores whole documents in their order, with and without context, with a bounded window of
    documents in memory.

    Scores that are equal by definition are computed once: the first sentence of a document has
    equal scores with and without context, and for a model without context every sentence has.

    Yields:
      Every document, its scores as from `Scorer.score`, and in the same shapes the scores of each
      sentence as the first sentence of a document.
    """
    if scorer.context_order == 0:
        for document, nll in scorer.score(documents):
            yield document, nll, nll
        return
    documents, again = itertools.tee(documents)
    no_context = scorer.score(_alone(again))
    for document, nll in scorer.score(documents):
        later = itertools.chain.from_iterable(
            scores for _, scores in itertools.islice(no_context, len(nll))
        )
        yield document, nll, [*nll[:1], *later]


def _alone(documents: Iterable[Any]) -> Iterator[Sentences]:
    """Each sentence as a document, with an empty document in place of the first sentence of a
    document."""
    # The empty documents have no scores and take no time. They count in the window of the scorer,
    # so that it does not read ahead through many documents of one sentence.
    for document in documents:
        for number, ids in enumerate(sentences_to_score(document)[0]):
            yield [ids] if number else []
