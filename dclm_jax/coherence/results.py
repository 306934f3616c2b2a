"""Results of tests of coherence, for files and for people."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Self

import numpy as np

from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.results import ResultT

FIRST_DECIDES = 0.75
"""Minimum accuracy of `compare.FirstSentence` at which `Coherence.warning` warns."""


@dataclasses.dataclass(frozen=True)
class Coherence:
    """Accuracy in distinguishing documents from permutations of their sentences; 50% is chance.

    Attributes:
      kind: "fixed" or "bootstrap".
      mean: mean accuracy, 0 to 1.
      sd: sample standard deviation of accuracy over `replicates`; None for one replicate.
      replicates: number of rounds of one permutation per document (fixed), or of resampled test
        sets (bootstrap).
      permutations: number of permutations per document (fixed), or per draw of a document into a
        test set (bootstrap).
      documents: number of documents with at least two sentences to permute, and size of a test set.
      words: number of words of these documents, which identifies a text under any vocabulary.
      pairs: number of comparisons.
      seed: random seed for permutations and test sets, which are equal for every model.
      pool: number of permutations per document from which a bootstrap draws; 0 for no pool.
      pool_error: standard error of the mean due to the pool, which more test sets do not reduce.
      fix_first: number of sentences at the start of each document that are not permuted.
      omitted: number of documents with too few sentences to permute.
      first_sentence: accuracy if only the first sentence is moved, see `FirstSentence`; None if not
        measured.
      block, swap: as in `Shuffle`.
      unchanged: number of documents whose orders are all the same text, which can only tie.
    """

    kind: Literal["fixed", "bootstrap"]
    mean: float
    sd: float | None
    replicates: int
    permutations: int
    documents: int
    words: int
    pairs: int
    seed: int
    pool: int = 0
    pool_error: float = 0.0
    fix_first: int = 0
    omitted: int = 0
    first_sentence: float | None = None
    block: int = 1
    swap: bool = False
    unchanged: int = 0

    @property
    def warning(self) -> str:
        """A warning about the interpretation of the accuracy; empty if there is none."""
        if self.fix_first or self.first_sentence is None or self.first_sentence < FIRST_DECIDES:
            return ""
        return (
            "warning: the first sentence identifies documents: if only the first sentence is "
            f"moved, accuracy is {100 * self.first_sentence:.2f}%; add --fix_first=1 to measure "
            "the order of all other sentences"
        )

    def __str__(self) -> str:
        shuffle = Shuffle(self.block, self.swap)
        name = "" if shuffle == Shuffle() else f", {shuffle.name}"
        spread = "" if self.sd is None else f", standard deviation {100 * self.sd:.2f}%"
        over = "permutations" if self.kind == "fixed" else "test sets"
        text = (
            f"order-discrimination accuracy ({self.kind}{name}): {100 * self.mean:.2f}%{spread} "
            f"over {self.replicates:,} {over} of {self.documents:,} documents; 50% is chance, ties "
            "count half"
        )
        if self.fix_first:
            text += f"; sentences fixed at the start of each document: {self.fix_first:,}"
        if self.omitted:
            text += f"; documents omitted (under {shuffle.minimum} that move): {self.omitted:,}"
        if self.unchanged:
            text += f"; documents that can only tie (equal sentences): {self.unchanged:,}"
        return text


@dataclasses.dataclass(frozen=True)
class Insertion:
    """Accuracy in finding the original position of a removed sentence.

    Attributes:
      accuracy: mean over sentences, 0 to 1.
      reciprocal_rank: mean reciprocal rank of the sentences' original positions.
      chance_accuracy: accuracy of a model without context, the mean of 1 / n.
      chance_reciprocal_rank: the mean of (1 + 1/2 + ... + 1/n) / n.
      documents: number of documents with at least two sentences that move.
      sentences: number of removed sentences.
      words: number of words of these documents.
      fix_first: number of sentences at the start of each document that are not moved.
      omitted: number of documents with fewer than two sentences that move.
    """

    accuracy: float
    reciprocal_rank: float
    chance_accuracy: float
    chance_reciprocal_rank: float
    documents: int
    sentences: int
    words: int
    fix_first: int
    omitted: int


@dataclasses.dataclass(frozen=True)
class DocumentOutcome:
    """The outcome of a test for a document.

    Attributes:
      index: index of the document in the split.
      pairs: number of its orders, or of removed sentences.
      correct: sum of the outcomes of its pairs, see `OrderTest.outcomes`.
    """

    index: int
    pairs: int
    correct: float


@dataclasses.dataclass(frozen=True)
class OrderResult(Generic[ResultT]):
    """The result of a test, and the outcome of each tested document."""

    result: ResultT
    documents: Sequence[DocumentOutcome]

    @property
    def accuracies(self) -> np.ndarray:
        """The accuracy on each tested document, float64 [D]; NaN for a document that no test set
        draws."""
        return np.array([o.correct / o.pairs if o.pairs else math.nan for o in self.documents])

    @classmethod
    def from_json(cls, value: Mapping[str, Any], kind: Callable[..., ResultT]) -> Self:
        """The inverse of `dataclasses.asdict`, with a result of type `kind`."""
        result: Any = value["result"]
        documents = [DocumentOutcome(**row) for row in value["documents"]]
        return cls(kind(**result) if isinstance(result, dict) else kind(result), documents)
