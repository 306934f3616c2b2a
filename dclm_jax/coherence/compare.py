"""Tests of local coherence: is a document likelier than its sentences in another order?

A test samples orders and summarizes their scores; `compare_orders` scores the orders of any test,
such as `Fixed(permutations=20)`, or `Fixed(Shuffle(swap=True))` for swaps.

The tests follow Barzilay and Lapata (2008) and Ji et al. (2015), section 4.2, without supervised
training: the order with the higher likelihood counts as coherent. A permutation is never the
document itself. Permutations are drawn with replacement, so that short documents have repeated
permutations: a document of two sentences has only one. A document whose sentences are all equal can
only tie.

Some texts have a recognizable beginning, such as a headline or an address to the reader. Accuracy
then depends on how well a model recognizes beginnings. `FirstSentence` measures only this, and
`fix_first` fixes the first sentences, so that only later sentences are permuted.
"""

import abc
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple

import numpy as np

from dclm_jax.coherence.results import Coherence, DocumentOutcome, Insertion, OrderResult
from dclm_jax.coherence.scoring import Orders, log_probs
from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import OnDocument
from dclm_jax.data.vocabulary import word_ends
from dclm_jax.errors import InputError, require_at_least
from dclm_jax.evaluation.permutations import Moves, Shuffle, first_moved
from dclm_jax.evaluation.results import Evaluation, ResultT
from dclm_jax.language_model import LanguageModel, require_no_source
from dclm_jax.reading.blocks import Sentences
from dclm_jax.scoring.scorer import Scorer

FIRST_POSITIONS = 5
"""Number of positions to which the first sentence of each document is moved."""

# First words of the seeds of independent random streams.
_ORDERS, _TEST_SETS, _FIRST = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class OrderTest(Evaluation[OrderResult[ResultT]], Generic[ResultT]):
    """A test: the orders that documents are compared with, and the summary of the outcomes.

    Attributes:
      shuffle: the movable sentences; documents with too few sentences are omitted.
      result_type: the type of the summary.
      test: name of the test in messages.
    """

    shuffle: Shuffle = Shuffle()
    name: ClassVar[str] = "coherence"
    version: ClassVar[int] = 5
    result_type: ClassVar[Any] = Coherence
    test: ClassVar[str]

    @property
    def title(self) -> str:
        """The test and the movable sentences, for messages."""
        parts = [self.name, self.test]
        if self.shuffle.block > 1 or self.shuffle.swap:
            parts.append(self.shuffle.name)
        if fixed := self.shuffle.fix_first:
            parts.append("first sentence fixed" if fixed == 1 else f"{fixed} sentences fixed")
        return ", ".join(parts)

    def num_documents(self, dataset: Dataset) -> int:
        """The number of documents that are long enough."""
        return sum(map(self.shuffle.fits, dataset.sentences))

    def measure(
        self, lm: LanguageModel, dataset: Dataset, on_document: OnDocument
    ) -> OrderResult[ResultT]:
        """The result of a model, see `compare_orders`."""
        require_no_source(lm)
        return compare_orders(lm.scorer, dataset.sentences, self, on_document=on_document)

    def to_json(self, result: OrderResult[ResultT]) -> dict[str, Any]:
        return dataclasses.asdict(result)

    def from_json(self, value: dict[str, Any]) -> OrderResult[ResultT]:
        return OrderResult.from_json(value, self.result_type)

    @abc.abstractmethod
    def orders(self, documents: Sequence[Sentences]) -> Iterator[Orders]:
        """The orders of each document that is not omitted."""

    @abc.abstractmethod
    def summary(self, compared: "Comparisons") -> ResultT:
        """The result for all documents."""

    def outcomes(self, log_probs: np.ndarray) -> np.ndarray:
        """The outcome for each order, float64: 1 if the document is likelier than the order, 0.5
        for a tie, 0 otherwise."""
        return np.sign(log_probs[0] - log_probs[1:]) / 2 + 0.5


class Comparisons(NamedTuple):
    """The D compared documents and their number of words, the number of documents with too few
    sentences, which are omitted, and for each compared document float64 in nats log P of the
    document and of its P orders [1 + P], and the outcomes of its orders [P]."""

    documents: list[Sentences]
    words: int
    omitted: int
    log_probs: list[np.ndarray]
    outcomes: list[np.ndarray]


def compare_orders(
    scorer: Scorer,
    documents: Sequence[Sentences],
    test: OrderTest[ResultT],
    *,
    on_document: OnDocument = lambda done: None,
) -> OrderResult[ResultT]:
    """The result of a test, and the outcome of every document.

    Args:
      documents: usually a split; documents that are too short for the test are omitted.
    """
    indices = [i for i, document in enumerate(documents) if test.shuffle.fits(document)]
    if not indices:
        fixed = test.shuffle.fix_first
        after = f" after the first {fixed:,}, which are fixed" if fixed else ""
        raise InputError(
            f"no document has {test.shuffle.minimum}{after}; choose longer documents, or another "
            "test of coherence"
        )
    fitting = [documents[i] for i in indices]
    ids = itertools.chain.from_iterable(fitting)
    words = sum(int(word_ends(np.asarray(words), scorer.first_word_end).sum()) for words in ids)
    compared = Comparisons(fitting, words, len(documents) - len(fitting), [], [])
    by_document = []
    if scorer.context_order == 0:
        # Without context all orders of a document are equally likely.
        scored = (np.zeros(1 + len(orders)) for orders in test.orders(fitting))
    else:
        scored = log_probs(scorer, fitting, test.orders(fitting))
    for index, scores in zip(indices, scored, strict=True):
        outcomes = test.outcomes(scores)
        compared.log_probs.append(scores)
        compared.outcomes.append(outcomes)
        by_document.append(DocumentOutcome(index, len(outcomes), float(outcomes.sum())))
        on_document(len(compared.log_probs))
    return OrderResult(test.summary(compared), by_document)


@dataclasses.dataclass(frozen=True)
class _Drawn(OrderTest[ResultT]):
    """A test whose orders are drawn with a seed, 0 or more, so that they are equal for every
    model."""

    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least("seed", self.seed, 0)

    def _draw(self, documents: Sequence[Sentences], counts: Sequence[int]) -> Iterator[Orders]:
        """`counts[i]` orders of document i."""
        for index, (document, count) in enumerate(zip(documents, counts, strict=True)):
            rng = np.random.default_rng([_ORDERS, self.seed, index])
            yield self.shuffle.draw(document, count, rng)

    def coherence(
        self,
        compared: "Comparisons",
        kind: Literal["fixed", "bootstrap"],
        accuracies: np.ndarray,
        **sampling: Any,
    ) -> Coherence:
        """The result for the accuracies of replicates; `sampling` has the attributes that describe
        how orders were drawn."""
        shuffle, replicates, documents = self.shuffle, len(accuracies), compared.documents
        return Coherence(
            kind=kind,
            mean=float(accuracies.mean()),
            sd=float(accuracies.std(ddof=1)) if replicates > 1 else None,
            replicates=replicates,
            documents=len(documents),
            words=compared.words,
            pairs=replicates * len(documents),
            seed=self.seed,
            fix_first=shuffle.fix_first,
            omitted=compared.omitted,
            block=shuffle.block,
            swap=shuffle.swap,
            unchanged=sum(not shuffle.changes(document) for document in documents),
            **sampling,
        )


@dataclasses.dataclass(frozen=True)
class Fixed(_Drawn[Coherence]):
    """A fixed number of permutations per document."""

    permutations: int = 20
    test = "fixed permutations"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("permutations", self.permutations, 1)

    def orders(self, documents: Sequence[Sentences]) -> Iterator[Orders]:
        return self._draw(documents, [self.permutations] * len(documents))

    def summary(self, compared: Comparisons) -> Coherence:
        accuracies = np.mean(compared.outcomes, axis=0)
        return self.coherence(compared, "fixed", accuracies, permutations=self.permutations)


@dataclasses.dataclass(frozen=True)
class Bootstrap(_Drawn[Coherence]):
    """The test of Ji et al. (2015): mean and sd of accuracy over resampled test sets.

    A test set has D documents, drawn with replacement from the D documents of the split, and each
    draw has its own permutation. All draws of a document are scored together.

    Attributes:
      replicates: R, the number of test sets.
      permutation_pool: number of permutations per document from which draws choose; 0 makes a new
        permutation for every draw, as in the paper. A pool takes R / permutation_pool times less
        work and adds sampling error to the mean, `Coherence.pool_error`: at most 0.6% for 50
        permutations of 155 documents.
    """

    replicates: int = 1000
    permutation_pool: int = 0
    test = "bootstrap"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("replicates", self.replicates, 1)
        if self.permutation_pool < 0 or self.permutation_pool == 1:
            raise InputError(
                f"permutation_pool is {self.permutation_pool}; expected 0, or at least 2"
            )

    def _test_sets(self, num_documents: int) -> tuple[np.ndarray, np.random.Generator]:
        """Indices of the documents of each test set, int [R, D], and the generator for the pool."""
        rng = np.random.default_rng([_TEST_SETS, self.seed])
        return rng.integers(num_documents, size=(self.replicates, num_documents)), rng

    def orders(self, documents: Sequence[Sentences]) -> Iterator[Orders]:
        draws_RxD, _ = self._test_sets(len(documents))
        counts = [self.permutation_pool] * len(documents)
        if not self.permutation_pool:
            counts = np.bincount(draws_RxD.reshape(-1), minlength=len(documents)).tolist()
        return self._draw(documents, counts)

    def summary(self, compared: Comparisons) -> Coherence:
        draws_RxD, rng = self._test_sets(len(compared.documents))
        pool, pool_error = self.permutation_pool, 0.0
        if pool:
            outcomes_DxP = np.array(compared.outcomes)
            outcomes_RxD = outcomes_DxP[draws_RxD, rng.integers(pool, size=draws_RxD.shape)]
            variance = np.sum(outcomes_DxP.var(axis=1, ddof=1)) / pool
            pool_error = math.sqrt(variance) / len(outcomes_DxP)
        else:
            outcomes_RxD = np.empty(draws_RxD.shape)
            # Both sides are ordered by document, and by draw within a document.
            order = np.argsort(draws_RxD, axis=None, kind="stable")
            outcomes_RxD.reshape(-1)[order] = np.concatenate(compared.outcomes)
        drawn = {"permutations": 1, "pool": pool, "pool_error": pool_error}
        return self.coherence(compared, "bootstrap", outcomes_RxD.mean(axis=1), **drawn)


@dataclasses.dataclass(frozen=True)
class FirstSentence(_Drawn[float]):
    """A test of the position of the first sentence.

    A document is compared with orders in which its first sentence is at a later position and all
    other sentences keep their order. Both texts have equal sentences, so that a short first
    sentence has no effect, and a model without context ties. The accuracy is the share of positions
    at which the document is likelier, averaged over documents; a tie counts half. The accuracy is
    close to the accuracy under all permutations if documents have two or three sentences.

    Attributes:
      positions: maximum number of positions, drawn without replacement from the positions that make
        a different text.
    """

    positions: int = FIRST_POSITIONS
    test = "first sentence moved"
    result_type = float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("positions", self.positions, 1)

    def orders(self, documents: Sequence[Sentences]) -> Iterator[Orders]:
        for index, document in enumerate(documents):
            rng = np.random.default_rng([_FIRST, self.seed, index])
            yield first_moved(document, self.positions, rng)

    def summary(self, compared: Comparisons) -> float:
        return float(np.mean([outcomes.mean() for outcomes in compared.outcomes]))


@dataclasses.dataclass(frozen=True)
class Insert(OrderTest[Insertion]):
    """The insertion test: each sentence at every position (Elsner and Charniak, 2011).

    A document of n sentences has (n - 1)^2 such orders, in which about n^3 sentences are scored.
    If m positions of a sentence are likelier than the original position, and t positions equally
    likely, including the original, the sentence counts 1 / t towards accuracy if m = 0, and the
    mean of 1 / (m + 1), ..., 1 / (m + t) towards the mean reciprocal rank: the expected values if
    ties are broken at random. Only `fix_first` of the shuffle is used.
    """

    test = "insertion"
    result_type = Insertion

    def orders(self, documents: Sequence[Sentences]) -> Iterator[Orders]:
        return (Moves(len(document), self.shuffle.fix_first) for document in documents)

    def outcomes(self, log_probs: np.ndarray) -> np.ndarray:
        """The contributions of P sentences to accuracy, float64 [P]."""
        return _ranked(log_probs)[0]

    def summary(self, compared: Comparisons) -> Insertion:
        counts = np.concatenate(list(map(_ranked, compared.log_probs)), axis=1)
        ties = [_ranked(np.zeros_like(scores)) for scores in compared.log_probs]
        return Insertion(
            *map(float, (*counts.mean(axis=1), *np.concatenate(ties, axis=1).mean(axis=1))),
            documents=len(compared.documents),
            sentences=counts.shape[1],
            words=compared.words,
            fix_first=self.shuffle.fix_first,
            omitted=compared.omitted,
        )


def _ranked(log_probs: np.ndarray) -> np.ndarray:
    """The contributions of P sentences to accuracy and reciprocal rank, float64 [2, P], from log P
    of the document and of its `Moves` [1 + P * P]."""
    size = math.isqrt(len(log_probs))
    gains_PxP = (log_probs[1:] - log_probs[0]).reshape(size, size)
    likelier_P, as_likely_P = np.sum(gains_PxP > 0, axis=1), np.sum(gains_PxP == 0, axis=1)
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, size + 1))])
    ranks_P = (harmonic[likelier_P + as_likely_P] - harmonic[likelier_P]) / as_likely_P
    return np.array([(likelier_P == 0) / as_likely_P, ranks_P])
