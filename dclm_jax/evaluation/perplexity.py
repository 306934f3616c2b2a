"""Corpus perplexity, with everything that is needed to compare it with another one."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from dclm_jax.data.vocabulary import UNKNOWN
from dclm_jax.errors import InputError
from dclm_jax.evaluation.scoring import Document, WordScorer, sentences_to_score

COUNTING_RULE = "END is predicted and counted, START never is"
COUNTING_RULES = {
    "words": COUNTING_RULE,
    "bags": "bags of words: the words are predicted without their order, END is not",
}
"""By the objective of a model. Perplexities of different objectives do not compare."""


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """Sums over documents, from which perplexity follows.

    Attributes:
      vocabulary_size: V, the three special tokens included.
      nll: sum of -log P(target), in nats.
      tokens: targets, the words of every sentence and its END; of bags without END.
      words: targets without the ENDs.
      oov_words: words outside the vocabulary, predicted as UNKNOWN.
      sentences: how many.
      documents: how many.
      objective: of the model, what a target is: one of COUNTING_RULES.
    """

    vocabulary_size: int
    nll: float = 0.0
    tokens: int = 0
    words: int = 0
    oov_words: int = 0
    sentences: int = 0
    documents: int = 0
    objective: str = "words"

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens), never clipped: infinite where that overflows, nan without tokens."""
        if not self.tokens:
            return math.nan
        try:
            return math.exp(self.nll / self.tokens)
        except OverflowError:
            return math.inf

    @property
    def oov_rate(self) -> float:
        """Share of the words that are outside the vocabulary, 0 to 1."""
        return self.oov_words / self.words if self.words else 0.0

    def add(self, document: Document, nll: list[np.ndarray]) -> "Perplexity":
        """These sums and those of one more document, scored by `Scorer.score`."""
        words = sum(len(sentence) for sentence in document)
        unknown = sum(int(np.count_nonzero(np.equal(ids, UNKNOWN))) for ids in document)
        ends = len(document) if self.objective == "words" else 0
        return dataclasses.replace(
            self,
            nll=self.nll + math.fsum(float(np.sum(one, dtype=np.float64)) for one in nll),
            tokens=self.tokens + words + ends,
            words=self.words + words,
            oov_words=self.oov_words + unknown,
            sentences=self.sentences + len(document),
            documents=self.documents + 1,
        )

    def to_json(self) -> dict[str, Any]:
        """Everything above as a JSON object, with the counting rule."""
        return {
            "perplexity": self.perplexity,
            **dataclasses.asdict(self),
            "nll_unit": "nats",
            "oov_rate": self.oov_rate,
            "counting_rule": COUNTING_RULES[self.objective],
        }

    def __str__(self) -> str:
        return (
            f"perplexity {self.perplexity:.4f} "
            f"= exp({self.nll:.2f} nats / {self.tokens:,} targets)\n"
            f"{self.documents:,} documents, {self.sentences:,} sentences, {self.words:,} words, "
            f"{100 * self.oov_rate:.2f}% out of vocabulary; vocabulary {self.vocabulary_size:,}\n"
            f"counting: {COUNTING_RULES[self.objective]}"
        )


def measure(scorer: WordScorer, documents: Iterable[Any]) -> Perplexity:
    """The perplexity of documents (word ids, as `Scorer.score` takes them), each scored whole.

    Documents are streamed.

    Raises:
      InputError: there is no sentence to score.
    """
    total = Perplexity(vocabulary_size=scorer.vocab_size, objective=scorer.objective)
    for document, nll in scorer.score(documents):
        total = total.add(sentences_to_score(document)[0], nll)
    if not total.tokens:
        raise InputError("there is no sentence to score")
    return total
