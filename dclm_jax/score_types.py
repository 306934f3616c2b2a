"""Scores of sentences and documents, generated texts, vectors and attention, as a `LanguageModel`
returns them.

Log-probabilities are natural logarithms (nats); a surprisal is the negative of one.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.data.vocabulary import END_TOKEN, UNKNOWN


@dataclasses.dataclass(frozen=True)
class SentenceScore:
    """One sentence given the sentences before it.

    Attributes:
      log_prob: in nats, the sum of `log_probs`.
      tokens: the words as they were given, and the END that closes the sentence; none of a sentence
        without words.
      log_probs: log P(token | everything before it) in nats, one per token. A model of bags of
        words does not see the words before in the sentence, and END, which it does not predict, has
        0.
      known: whether each token is in the vocabulary; others have the probability of UNKNOWN.
      log_probs_no_context: the same without the sentences before, where it was asked for; else
        None.
    """

    log_prob: float
    tokens: list[str]
    log_probs: list[float]
    known: list[bool]
    log_probs_no_context: list[float] | None = None

    @property
    def text(self) -> str:
        """The words, separated by spaces."""
        return " ".join(self.tokens[:-1])

    @classmethod
    def of(
        cls,
        words: Sequence[str],
        ids: np.ndarray,
        nll: np.ndarray,
        no_context: np.ndarray | None = None,
    ) -> "SentenceScore":
        """A sentence with the nats of its words and END, [M + 1], with and without context."""
        log_probs, *others = (
            (-nats.astype(np.float64)).tolist() for nats in (nll, no_context) if nats is not None
        )
        known = [*(ids != UNKNOWN).tolist(), True]
        return cls(math.fsum(log_probs), [*words, END_TOKEN], log_probs, known, *others)

    def without_oov(self) -> "SentenceScore":
        """The score of the known tokens; the others have NaN."""

        def blanked(log_probs: Sequence[float]) -> list[float]:
            pairs = zip(log_probs, self.known, strict=True)
            return [log_prob if known else math.nan for log_prob, known in pairs]

        no_context = self.log_probs_no_context
        return dataclasses.replace(
            self,
            log_prob=math.fsum(itertools.compress(self.log_probs, self.known)),
            log_probs=blanked(self.log_probs),
            log_probs_no_context=None if no_context is None else blanked(no_context),
        )


class TokenScore(NamedTuple):
    """A row of a table of scores: sentence and position in it, both from 1; surprisals in nats,
    without context only if it was asked for."""

    document: str
    sentence: int
    position: int
    word: str
    surprisal: float
    surprisal_no_context: float | None
    known: bool


@dataclasses.dataclass(frozen=True)
class DocumentScore:
    """A document: its name, log P in nats, and its sentences."""

    id: str
    log_prob: float
    sentences: list[SentenceScore]

    @classmethod
    def of(cls, name: str, sentences: list[SentenceScore]) -> "DocumentScore":
        """The document of these sentences."""
        return cls(name, math.fsum(sentence.log_prob for sentence in sentences), sentences)

    def without_oov(self) -> "DocumentScore":
        """The score of the known tokens; the others have NaN."""
        return self.of(self.id, [sentence.without_oov() for sentence in self.sentences])

    def rows(self) -> Iterator[TokenScore]:
        """One row per token."""
        for number, score in enumerate(self.sentences, start=1):
            no_context = score.log_probs_no_context or [None] * len(score.tokens)
            columns = zip(score.tokens, score.log_probs, no_context, score.known, strict=True)
            for position, (token, log_prob, other, known) in enumerate(columns, start=1):
                surprisals = -log_prob, None if other is None else -other
                yield TokenScore(self.id, number, position, token, *surprisals, known)


class SentenceAttention(NamedTuple):
    """What the tokens of a sentence attend to: weights float32 [targets, positions] with which its
    words and END (`targets`) are predicted, over what came before (`positions`). Rows sum to 1.

    The positions of adclm are the inputs of the sentence before, <START> and its words, each the
    hidden state after it; of a document's first sentence "c_0" alone. Those of the attention models
    of Wang and Cho are the n sentences before, as texts, oldest first; of the first sentences of a
    document fewer, and of the very first none.
    """

    targets: list[str]
    positions: list[str]
    weights: np.ndarray


class DocumentVectors(NamedTuple):
    """A document: its name, its vector [X], and the vectors [S, X] after each of its sentences
    (`DocumentModel.vector`). The vector of the document is the last of these; of a model that reads
    a source it is the one before its first sentence. A sentence without words is not read: the
    vector after it is the one before."""

    id: str
    document: np.ndarray
    sentences: np.ndarray


@dataclasses.dataclass(frozen=True)
class GeneratedText:
    """A text that a model has generated.

    Attributes:
      log_prob: log P(text | what was read before) in nats, decisions to end the document among it.
      sentences: each scored as `LanguageModel.score` scores it.
      has_ended: whether the model has ended the document; otherwise the text is as long as allowed.
    """

    log_prob: float
    sentences: list[SentenceScore]
    has_ended: bool
