"""Baselines of sentence ordering, which look at neighbours (Lin et al. 2015, 6.1).

A baseline judges windows of sentences that follow one another, and a document's score is the sum
over its windows. To `coherence` it is a `SentenceScorer` like a language model: in place of words,
the scores of a sentence are those of its window.
"""

import abc
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse
import scipy.special

from dclm_jax.data.corpus import Corpus
from dclm_jax.errors import InputError, importing
from dclm_jax.evaluation.permutations import Shuffle, numbered
from dclm_jax.evaluation.scoring import Document, Scored, sentences_to_score

Report = Callable[[str], None]
Window = tuple[np.ndarray | None, ...]
"""Sentences that follow one another; None where a document begins or ends."""

START, END = -2, -1
"""What stands for the start and the end of a document where sentences are numbers."""

_READ_AHEAD = 256
_REGULARIZATION = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


class OrderingBaseline(abc.ABC):
    """A score for every window of a document.

    Attributes:
      name: of the baseline.
      context_order: sentences before a sentence that its window holds; None where it holds later
        ones, so that documents are judged as a whole.
      num_parameters: how many numbers were trained.
    """

    name: ClassVar[str]
    context_order: int | None
    num_parameters: int

    @classmethod
    @abc.abstractmethod
    def train(cls, train: Corpus, valid: Corpus, *, seed: int, report: Report) -> Self:
        """The baseline, trained on one split and chosen on another.

        Args:
          train, valid: splits of a prepared corpus.
          seed: random seed for permutations, initial values and dropout, 0 or more.
          report: called with a line on the progress.
        """

    @abc.abstractmethod
    def windows(self, document: Document) -> list[list[Window]]:
        """The windows of every sentence."""

    @abc.abstractmethod
    def judge(self, windows: Sequence[Window]) -> np.ndarray:
        """The score of every window, float64 [W]; more is better."""

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """As `scoring.Scorer.score`; a sentence has a negated score for each of its windows."""
        remaining = iter(documents)
        while chunk := list(itertools.islice(remaining, _READ_AHEAD)):
            requests = [sentences_to_score(document) for document in chunk]
            of_documents = [self.windows(sentences)[first:] for sentences, first in requests]
            windows = list(itertools.chain(*itertools.chain(*of_documents)))
            scores = iter(self.judge(windows) if windows else ())
            for document, of_sentences in zip(chunk, of_documents, strict=True):
                negated = [np.array([-next(scores) for _ in each]) for each in of_sentences]
                yield document, negated


class MaximumEntropy(OrderingBaseline):
    """P(neighbours | s, s') = sigmoid(u . b(s) + v . b(s') + w . b(s) b(s') + c), b a binary bag.

    Real neighbours are told from neighbours in permutations of documents. The features are the
    words of the first sentence, those of the second and those of both.
    """

    name = "maximum_entropy"
    context_order = 1

    def __init__(self, weights_3V: np.ndarray, bias: float):
        """Takes u, v and w one after another, and c."""
        self.weights_3V, self.bias = weights_3V, bias
        self.num_parameters = len(weights_3V) + 1

    @classmethod
    def train(
        cls, train: Corpus, valid: Corpus, *, seed: int, report: Report, permutations: int = 4
    ) -> "MaximumEntropy":
        """See `OrderingBaseline.train`.

        Of several strengths of the squared penalty, the one with the lowest loss on `valid` is
        taken; both classes have the same weight.

        Args:
          permutations: of each document, from which pairs are taken that are no real neighbours.
        """
        with importing("the maximum-entropy baseline", "baselines"):
            from sklearn.linear_model import LogisticRegression
        features, is_real = _labelled_features(train, permutations, seed)
        valid_features, valid_is_real = _labelled_features(valid, permutations, seed)
        trained: list[tuple[float, MaximumEntropy]] = []
        for strength in _REGULARIZATION:
            fitted = LogisticRegression(C=strength, class_weight="balanced", max_iter=1000)
            fitted.fit(features, is_real)
            baseline = cls(np.ravel(fitted.coef_), float(np.ravel(fitted.intercept_)[0]))
            loss = _balanced_loss(baseline.logits(valid_features), valid_is_real)
            report(f"maximum_entropy: C {strength:g}, validation loss {loss:.4f} nats per pair")
            trained.append((loss, baseline))
        return min(trained, key=lambda pair: pair[0])[1]

    def logits(self, features: Any) -> np.ndarray:
        """The argument of the sigmoid for each row of `pair_features`."""
        return features @ self.weights_3V + self.bias

    def windows(self, document: Document) -> list[list[Window]]:
        """Each sentence with the sentence before it; the first one has no window."""
        return [[], *([pair] for pair in itertools.pairwise(document))][: len(document)]

    def judge(self, windows: Sequence[Window]) -> np.ndarray:
        vocab_size = len(self.weights_3V) // 3
        first, second = (bags(side, vocab_size) for side in zip(*windows, strict=True))
        return scipy.special.log_expit(self.logits(pair_features(first, second)))


def bags(sentences: Sequence[Any], vocab_size: int) -> scipy.sparse.csr_array:
    """Which words each sentence holds: 1 or 0, [sentences, V]."""
    ends = np.cumsum([0, *map(len, sentences)])
    words = np.concatenate(sentences)
    shape = (len(sentences), vocab_size)
    held = scipy.sparse.csr_array((np.ones(len(words)), words, ends), shape=shape)
    held.sum_duplicates()
    held.data[:] = 1
    return held


def pair_features(first: scipy.sparse.csr_array, second: scipy.sparse.csr_array) -> Any:
    """The words of the first sentence, those of the second and those of both, [pairs, 3V]."""
    return scipy.sparse.hstack([first, second, first.multiply(second)], format="csr")


class LabelledWindows(NamedTuple):
    """Windows of a document and of its permutations: numbers of sentences [M, width], the same for
    equal sentences, START and END; and which are the document's own [M]."""

    windows_MxW: np.ndarray
    is_real_M: np.ndarray


def labelled_windows(
    document: Document, permutations: int, rng: np.random.Generator, width: int, *, padded: bool
) -> LabelledWindows | None:
    """The windows to tell apart; those of a permutation that the document has as well are left out.

    Args:
      document: of one sentence or more.
      permutations: to draw.
      rng: the source of randomness.
      width: sentences of a window.
      padded: windows go beyond the start and the end of the document by one sentence.

    Returns:
      None if no permutation has another window than the document.
    """
    if len(document) < 2:
        return None
    orders = Shuffle().draw(document, permutations, rng)
    rows = np.concatenate([numbered(document)[None], orders])
    if padded:
        rows = np.pad(rows, ((0, 0), (1, 1)), constant_values=((0, 0), (START, END)))
    windows = np.lib.stride_tricks.sliding_window_view(rows, width, axis=1)
    real, false = windows[0], windows[1:].reshape(-1, width)
    codes = (windows - START) @ (len(document) + 2) ** np.arange(width)
    false = false[~np.isin(codes[1:].reshape(-1), codes[0])]
    is_real_M = np.arange(len(real) + len(false)) < len(real)
    return LabelledWindows(np.concatenate([real, false]), is_real_M) if len(false) else None


def all_labelled_windows(
    corpus: Corpus, permutations: int, rng: np.random.Generator, width: int, *, padded: bool
) -> dict[int, LabelledWindows]:
    """`labelled_windows` of every document that has them, by its number."""
    labelled = {
        number: windows
        for number in range(corpus.num_documents)
        if (
            windows := labelled_windows(
                corpus.document(number), permutations, rng, width, padded=padded
            )
        )
    }
    if not labelled:
        raise InputError(
            f"the split {corpus.split} of {corpus.directory} has no document of two different "
            "sentences; expected some to permute"
        )
    return labelled


def _labelled_features(corpus: Corpus, permutations: int, seed: int) -> tuple[Any, np.ndarray]:
    """Features and labels of the pairs of a split."""
    rng = np.random.default_rng(seed)
    labelled = all_labelled_windows(corpus, permutations, rng, 2, padded=False)
    pairs_Px2 = np.concatenate(
        [corpus.document_offsets[i] + windows.windows_MxW for i, windows in labelled.items()]
    )
    is_real_P = np.concatenate([windows.is_real_M for windows in labelled.values()])
    sentences = np.split(corpus.tokens, corpus.sentence_offsets[1:-1])
    held = bags(sentences, len(corpus.vocabulary))
    return pair_features(held[pairs_Px2[:, 0]], held[pairs_Px2[:, 1]]), is_real_P


def _balanced_loss(logits_P: np.ndarray, is_real_P: np.ndarray) -> float:
    """-log P of the labels in nats, the mean of the means of both classes."""
    nll_P = -scipy.special.log_expit(np.where(is_real_P, logits_P, -logits_P))
    return float(nll_P[is_real_P].mean() + nll_P[~is_real_P].mean()) / 2
