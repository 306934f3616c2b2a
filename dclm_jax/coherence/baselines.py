"""Sentence-ordering baselines that compare neighbouring sentences (Lin et al. 2015, section 6.1).

A baseline scores windows of consecutive sentences; the score of a document is the sum over its
windows. A baseline is a `SentenceScorer`, like a language model, but a sentence has one score per
window instead of one per word.
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
"""Consecutive sentences; None beyond the start or the end of a document."""

START, END = -2, -1
"""Numbers of the start and the end of a document, among numbers of sentences."""

_READ_AHEAD = 256
_REGULARIZATION = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


class OrderingBaseline(abc.ABC):
    """A score for every window of a document.

    Attributes:
      context_order: number of sentences before a sentence in its window; None if the window has
        later sentences, so that only whole documents can be scored.
    """

    name: ClassVar[str]
    context_order: int | None
    num_parameters: int

    @classmethod
    @abc.abstractmethod
    def train(cls, train: Corpus, valid: Corpus, *, seed: int, report: Report) -> Self:
        """The baseline, trained on one split of a prepared corpus and selected on another. `report`
        is called with lines about progress."""

    @abc.abstractmethod
    def windows(self, document: Document) -> list[list[Window]]:
        """The windows of every sentence."""

    @abc.abstractmethod
    def judge(self, windows: Sequence[Window]) -> np.ndarray:
        """The score of every window, float64 [W]; higher is better."""

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """Scores documents like `Scorer.score`; a sentence has the negated scores of its
        windows."""
        remaining = iter(documents)
        while chunk := list(itertools.islice(remaining, _READ_AHEAD)):
            requests = [sentences_to_score(document) for document in chunk]
            window_lists = [self.windows(sentences)[first:] for sentences, first in requests]
            windows = list(itertools.chain(*itertools.chain(*window_lists)))
            scores = iter(self.judge(windows) if windows else ())
            for document, windows_of_sentences in zip(chunk, window_lists, strict=True):
                negated = [np.array([-next(scores) for _ in ws]) for ws in windows_of_sentences]
                yield document, negated


class MaximumEntropy(OrderingBaseline):
    """P(neighbours | s, s') = sigmoid(u . b(s) + v . b(s') + w . b(s) b(s') + c).

    The model distinguishes neighbours in documents from neighbours in permutations. b(s) is the
    binary bag of words of sentence s.
    """

    name = "maximum_entropy"
    context_order = 1

    def __init__(self, weights_3V: np.ndarray, bias: float):
        """Takes the concatenation of u, v and w, and c."""
        self.weights_3V, self.bias = weights_3V, bias
        self.num_parameters = len(weights_3V) + 1

    @classmethod
    def train(
        cls, train: Corpus, valid: Corpus, *, seed: int, report: Report, permutations: int = 4
    ) -> "MaximumEntropy":
        """See `OrderingBaseline.train`. `permutations` is the number of permutations per document,
        the source of negative pairs. The strength of the squared penalty is selected by the loss on
        `valid`; both classes have equal weight."""
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
        """The arguments of the sigmoid for rows of `pair_features`."""
        return features @ self.weights_3V + self.bias

    def windows(self, document: Document) -> list[list[Window]]:
        """Each sentence with the sentence before it; the first sentence has no window."""
        return [[], *([pair] for pair in itertools.pairwise(document))][: len(document)]

    def judge(self, windows: Sequence[Window]) -> np.ndarray:
        vocab_size = len(self.weights_3V) // 3
        first, second = (bags(side, vocab_size) for side in zip(*windows, strict=True))
        return scipy.special.log_expit(self.logits(pair_features(first, second)))


def bags(sentences: Sequence[Any], vocab_size: int) -> scipy.sparse.csr_array:
    """Binary bags of words of sentences, [sentences, V]."""
    ends = np.cumsum([0, *map(len, sentences)])
    words = np.concatenate(sentences)
    shape = (len(sentences), vocab_size)
    bags_SxV = scipy.sparse.csr_array((np.ones(len(words)), words, ends), shape=shape)
    bags_SxV.sum_duplicates()
    bags_SxV.data[:] = 1
    return bags_SxV


def pair_features(first: scipy.sparse.csr_array, second: scipy.sparse.csr_array) -> Any:
    """The words of the first sentence, of the second sentence and of both, [pairs, 3V]."""
    return scipy.sparse.hstack([first, second, first.multiply(second)], format="csr")


class LabelledWindows(NamedTuple):
    """Windows of a document and of its permutations: numbers of sentences, START or END [M, width],
    equal for equal sentences; and whether each window is in the document [M]."""

    windows_MxW: np.ndarray
    is_real_M: np.ndarray


def labelled_windows(
    document: Document, permutations: int, rng: np.random.Generator, width: int, *, padded: bool
) -> LabelledWindows | None:
    """The windows of a document, and those windows of its permutations that it does not have.

    Args:
      permutations: number of permutations to draw.
      width: number of sentences per window.
      padded: whether windows extend by one sentence beyond the start and the end of the document.

    Returns:
      None if no permutation has a window that is not in the document.
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
    """`labelled_windows` by the number of the document; documents without windows are omitted."""
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
            f"{corpus.directory}: split {corpus.split} has no document with two different "
            "sentences to permute; choose another corpus"
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
    bags_SxV = bags(sentences, len(corpus.vocabulary))
    return pair_features(bags_SxV[pairs_Px2[:, 0]], bags_SxV[pairs_Px2[:, 1]]), is_real_P


def _balanced_loss(logits_P: np.ndarray, is_real_P: np.ndarray) -> float:
    """-log P of the labels in nats, averaged per class and then over both classes."""
    nll_P = -scipy.special.log_expit(np.where(is_real_P, logits_P, -logits_P))
    return float(nll_P[is_real_P].mean() + nll_P[~is_real_P].mean()) / 2
