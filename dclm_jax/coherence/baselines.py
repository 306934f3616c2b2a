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
from dclm_jax.data.vocabulary import UNKNOWN
from dclm_jax.errors import InputError
from dclm_jax.evaluation.permutations import Shuffle, numbered
from dclm_jax.evaluation.scoring import Document, Scored, sentences_to_score

Report = Callable[[str], None]
Window = tuple[np.ndarray | None, ...]
"""Sentences that follow one another; None where a document begins or ends."""

START, END = -2, -1
"""What stands for the start and the end of a document where sentences are numbers."""

_READ_AHEAD = 256
_FREQUENT_WORDS = 100
_REGULARIZATION = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


class OrderingBaseline(abc.ABC):
    """A score for every window of a document.

    Attributes:
      name: of the baseline.
      context_order: sentences before a sentence that its window holds; None where it holds later
        ones, so that documents are judged as a whole.
      vocab_size: V of the corpus that it was trained on.
      num_parameters: how many numbers were trained.
    """

    name: ClassVar[str]
    context_order: int | None
    vocab_size: int
    num_parameters: int

    @classmethod
    @abc.abstractmethod
    def train(cls, train: Corpus, valid: Corpus, *, seed: int, report: Report) -> Self:
        """The baseline, trained on one split and chosen on another.

        Args:
          train, valid: splits of a prepared corpus.
          seed: of all that is drawn, 0 or more.
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
        rest = iter(documents)
        while chunk := list(itertools.islice(rest, _READ_AHEAD)):
            asked = [sentences_to_score(document) for document in chunk]
            of_sentences = [self.windows(sentences)[first:] for sentences, first in asked]
            windows = [one for windows in of_sentences for own in windows for one in own]
            scores = iter(self.judge(windows) if windows else ())
            for document, windows in zip(chunk, of_sentences, strict=True):
                yield document, [np.array([-next(scores) for _ in own]) for own in windows]


class _OfPairs(OrderingBaseline):
    """The window of a sentence is the sentence before and itself; the first one has none."""

    context_order = 1

    def windows(self, document: Document) -> list[list[Window]]:
        return [[], *([pair] for pair in itertools.pairwise(document))][: len(document)]


class Overlap(_OfPairs):
    """How many different content words two neighbours share. Such a score is no probability.

    Content words are those of the vocabulary that are not among the 100 most frequent words of the
    training split, which are function words and punctuation.
    """

    name = "overlap"

    def __init__(self, is_content_V: np.ndarray):
        """Takes 1 for each content word, and 0 for the others."""
        self._is_content_V = np.asarray(is_content_V, np.float64)
        self.vocab_size, self.num_parameters = len(is_content_V), 0

    @classmethod
    def train(cls, train: Corpus, valid: Corpus, *, seed: int, report: Report) -> "Overlap":
        first_word = UNKNOWN + 1
        counts = np.bincount(train.tokens, minlength=len(train.vocabulary))[first_word:]
        by_frequency = first_word + np.argsort(-counts, kind="stable")
        is_content_V = np.zeros(len(train.vocabulary))
        is_content_V[by_frequency[_FREQUENT_WORDS:]] = 1
        return cls(is_content_V)

    def judge(self, windows: Sequence[Window]) -> np.ndarray:
        first, second = (bags(side, self.vocab_size) for side in zip(*windows, strict=True))
        return first.multiply(second) @ self._is_content_V


class MaximumEntropy(_OfPairs):
    """P(neighbours | s, s') = sigmoid(u . b(s) + v . b(s') + w . b(s) b(s') + c), b a binary bag.

    Real neighbours are told from neighbours in permutations of documents. The features are the
    words of the first sentence, those of the second and those of both.
    """

    name = "maximum_entropy"

    def __init__(self, weights_3V: np.ndarray, bias: float):
        """Takes u, v and w one after another, and c."""
        self.weights_3V, self.bias = weights_3V, bias
        self.vocab_size, self.num_parameters = len(weights_3V) // 3, len(weights_3V) + 1

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
        try:
            from sklearn.linear_model import LogisticRegression
        except ImportError as error:
            raise InputError(
                "the maximum-entropy baseline needs scikit-learn: pip install 'dclm_jax[baselines]'"
            ) from error
        features, is_real = _labelled_features(train, permutations, seed)
        held_out, held_out_is_real = _labelled_features(valid, permutations, seed)
        trained: list[tuple[float, MaximumEntropy]] = []
        for strength in _REGULARIZATION:
            fitted = LogisticRegression(C=strength, class_weight="balanced", max_iter=1000)
            fitted.fit(features, is_real)
            one = cls(np.ravel(fitted.coef_), float(np.ravel(fitted.intercept_)[0]))
            loss = _balanced_loss(one.logits(held_out), held_out_is_real)
            report(f"maximum_entropy: C {strength:g}, development loss {loss:.4f} a pair")
            trained.append((loss, one))
        return min(trained, key=lambda pair: pair[0])[1]

    def logits(self, features: Any) -> np.ndarray:
        """The argument of the sigmoid for each row of `pair_features`."""
        return features @ self.weights_3V + self.bias

    def judge(self, windows: Sequence[Window]) -> np.ndarray:
        first, second = (bags(side, self.vocab_size) for side in zip(*windows, strict=True))
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
      document: of two sentences or more.
      permutations: to draw.
      rng: the source of randomness.
      width: sentences of a window.
      padded: windows go beyond the start and the end of the document by one sentence.

    Returns:
      None if no permutation has another window than the document.
    """
    orders = Shuffle().draw(document, permutations, rng)
    rows = np.concatenate([numbered(document)[None], orders])
    if padded:
        rows = np.pad(rows, ((0, 0), (1, 1)), constant_values=((0, 0), (START, END)))
    if rows.shape[1] < width:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(rows, width, axis=1)
    real, false = windows[0], windows[1:].reshape(-1, width)
    codes = (windows - START) @ (len(document) + 2) ** np.arange(width)
    false = false[~np.isin(codes[1:].reshape(-1), codes[0])]
    if not len(false):
        return None
    return LabelledWindows(
        np.concatenate([real, false]), np.arange(len(real) + len(false)) < len(real)
    )


def all_labelled_windows(
    corpus: Corpus, permutations: int, rng: np.random.Generator, width: int, *, padded: bool
) -> list[tuple[int, LabelledWindows]]:
    """`labelled_windows` of every document that has them, with its number."""
    documents = ((i, corpus.document(i)) for i in range(corpus.num_documents))
    found = [
        (i, labelled_windows(document, permutations, rng, width, padded=padded))
        for i, document in documents
        if len(document) > 1
    ]
    found = [(i, labelled) for i, labelled in found if labelled is not None]
    if not found:
        raise InputError(
            f"the split {corpus.split} of {corpus.directory} has no document of two different "
            "sentences; expected some to permute"
        )
    return found


def _labelled_features(corpus: Corpus, permutations: int, seed: int) -> tuple[Any, np.ndarray]:
    """Features and labels of the pairs of a split."""
    rng = np.random.default_rng(seed)
    labelled = all_labelled_windows(corpus, permutations, rng, 2, padded=False)
    pairs_Px2 = np.concatenate(
        [corpus.document_offsets[i] + one.windows_MxW for i, one in labelled]
    )
    is_real_P = np.concatenate([one.is_real_M for _, one in labelled])
    sentences = np.split(corpus.tokens, corpus.sentence_offsets[1:-1])
    held = bags(sentences, len(corpus.vocabulary))
    return pair_features(held[pairs_Px2[:, 0]], held[pairs_Px2[:, 1]]), is_real_P


def _balanced_loss(logits_P: np.ndarray, is_real_P: np.ndarray) -> float:
    """-log P of the labels in nats, the mean of the means of both classes."""
    nll_P = -scipy.special.log_expit(np.where(is_real_P, logits_P, -logits_P))
    return float(nll_P[is_real_P].mean() + nll_P[~is_real_P].mean()) / 2
