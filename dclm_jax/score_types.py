"""Results of a `LanguageModel`: scores of sentences and documents, generated texts, vectors and
attention weights.

Log-probabilities are natural logarithms (nats); a surprisal is a negative log-probability.
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
    """The score of a sentence given the previous sentences.

    Attributes:
      log_prob: the sum of `log_probs`, in nats.
      tokens: the targets: the words as given, and END; empty for a sentence without words.
      log_probs: log P(target | all earlier words) in nats of each target. A model of bags of words
        does not read the earlier words of the sentence, and does not predict END, which has 0.
      known: whether each target is in the vocabulary; an OOV word has the probability of UNKNOWN.
      log_probs_no_context: `log_probs` without earlier sentences; None if not requested.
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
        """The score of a sentence from the nats [M + 1] of its words and END, with context and,
        optionally, without."""
        log_probs, *others = (
            (-nats.astype(np.float64)).tolist() for nats in (nll, no_context) if nats is not None
        )
        known = [*(ids != UNKNOWN).tolist(), True]
        return cls(math.fsum(log_probs), [*words, END_TOKEN], log_probs, known, *others)

    def without_oov(self) -> "SentenceScore":
        """The score of in-vocabulary targets; OOV words have NaN."""

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
    """A row of a table of scores: sentence and position, both from 1; surprisals in nats, without
    context only if requested."""

    document: str
    sentence: int
    position: int
    word: str
    surprisal: float
    surprisal_no_context: float | None
    known: bool


@dataclasses.dataclass(frozen=True)
class DocumentScore:
    """The score of a document: its name, log P in nats, and the scores of its sentences."""

    id: str
    log_prob: float
    sentences: list[SentenceScore]

    @classmethod
    def of(cls, name: str, sentences: list[SentenceScore]) -> "DocumentScore":
        """The score of a document from the scores of its sentences."""
        return cls(name, math.fsum(sentence.log_prob for sentence in sentences), sentences)

    def after(self, num_sentences: int) -> "DocumentScore":
        """The score of the sentences after the first `num_sentences`, given all earlier text."""
        return self.of(self.id, self.sentences[num_sentences:])

    def without_oov(self) -> "DocumentScore":
        """The score of in-vocabulary targets; OOV words have NaN."""
        return self.of(self.id, [sentence.without_oov() for sentence in self.sentences])

    def rows(self) -> Iterator[TokenScore]:
        """One row per target."""
        for number, score in enumerate(self.sentences, start=1):
            no_context = score.log_probs_no_context or [None] * len(score.tokens)
            columns = zip(score.tokens, score.log_probs, no_context, score.known, strict=True)
            for position, (token, log_prob, other, known) in enumerate(columns, start=1):
                surprisals = -log_prob, None if other is None else -other
                yield TokenScore(self.id, number, position, token, *surprisals, known)


class SentenceAttention(NamedTuple):
    """Attention weights of a sentence, float32 [targets, positions]: for each word and END
    (`targets`), the weights of earlier text (`positions`). Rows sum to 1.

    For adclm, positions are the inputs of the previous sentence, <START> and its words, each for
    the hidden state after it; a document's first sentence has the position "c_0". For the models of
    Wang and Cho (2015) with attention, positions are the n previous sentences as texts, oldest
    first; the first sentences of a document have fewer positions, its first sentence none.
    """

    targets: list[str]
    positions: list[str]
    weights: np.ndarray


class DocumentVectors(NamedTuple):
    """The vectors of a document: its name, its vector [X], and the vectors [S, X] after each of its
    sentences (`DocumentModel.vector`). The document's vector is the last sentence's vector; for a
    model that reads a source, it is the vector before the first sentence. A sentence without words
    is not read and repeats the previous vector."""

    id: str
    document: np.ndarray
    sentences: np.ndarray


@dataclasses.dataclass(frozen=True)
class GeneratedText:
    """A text generated by a model.

    Attributes:
      log_prob: log P(text | earlier text) in nats, including decisions to end the document.
      sentences: the sentences, scored as by `LanguageModel.score`.
      has_ended: whether the model has ended the document; otherwise a limit has ended the text.
    """

    log_prob: float
    sentences: list[SentenceScore]
    has_ended: bool
