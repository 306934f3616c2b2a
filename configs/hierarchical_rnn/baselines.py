"""Measures baselines of sentence ordering (Lin et al. 2015, section 6.1) with scikit-learn.

    pip install -e '.[baselines]'
    python -m configs.hierarchical_rnn.baselines data/ptb maximum_entropy
    python -m configs.hierarchical_rnn.baselines data/ptb neural

A baseline distinguishes windows of consecutive sentences of documents from windows of permuted
documents. The score of a document is the sum of log P(coherent) over its windows. The command
trains on the split train of a prepared corpus, selects on the split valid, and prints the accuracy
of launch.coherence on the split test: 20 fixed permutations per document, seed 0.

maximum_entropy: two sentences, logistic regression on the words of the first sentence, of the
second sentence, and of both.
neural: three sentences after Li and Hovy (2014), a network with one hidden layer of 64 units. Each
sentence is a vector of 100 dimensions by singular value decomposition of its bag of words; missing
neighbours are zero vectors.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import log_expit
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from dclm_jax.coherence.compare import Fixed, compare_orders
from dclm_jax.data.corpus import Corpus, open_corpus
from dclm_jax.data.vocabulary import FIRST_WORD
from dclm_jax.errors import InputError
from dclm_jax.evaluation.permutations import Shuffle, numbered
from dclm_jax.reading.blocks import Sentences
from dclm_jax.scoring.scorer import Scored, Scorer, sentences_to_score

PERMUTATIONS = 4
"""Number of permutations per training document, the source of incoherent windows."""
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Inverse strengths of the penalties among which the loss on the split valid selects."""
SEED = 0


def bags(sentences: Iterable[np.ndarray], vocab_size: int) -> Any:
    """Binary bags of words of sentences, [sentences, V]."""
    sentences = list(sentences)
    ends = np.cumsum([0, *map(len, sentences)])
    words = np.concatenate(sentences)
    shape = (len(sentences), vocab_size)
    bags_SxV = scipy.sparse.csr_array((np.ones(len(words)), words, ends), shape=shape)
    bags_SxV.sum_duplicates()
    bags_SxV.data[:] = 1
    return bags_SxV


def pair_windows(order: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(order, 2)


def pair_features(bags_SxV: Any, windows_Wx2: np.ndarray) -> Any:
    """The words of the first sentence, of the second sentence and of both, [W, 3V]."""
    first, second = bags_SxV[windows_Wx2[:, 0]], bags_SxV[windows_Wx2[:, 1]]
    return scipy.sparse.hstack([first, second, first.multiply(second)], format="csr")


def triple_windows(order: np.ndarray) -> np.ndarray:
    """Each sentence with its neighbours; -1 for a missing neighbour."""
    padded = np.pad(order, 1, constant_values=-1)
    return np.lib.stride_tricks.sliding_window_view(padded, 3)


def triple_features(vectors_SxD: np.ndarray, windows_Wx3: np.ndarray) -> np.ndarray:
    zero = np.zeros((1, vectors_SxD.shape[1]))
    return np.concatenate([vectors_SxD, zero])[windows_Wx3].reshape(len(windows_Wx3), -1)


def labelled(corpus: Corpus, windows_of: Callable[..., np.ndarray]) -> tuple[Any, np.ndarray]:
    """The windows of documents, and those of their permutations that the documents do not have,
    as numbers of sentences of the split; and whether each window is of a document."""
    rng = np.random.default_rng(SEED)
    windows, is_real = [], []
    for index in range(corpus.num_documents):
        document = corpus.document(index)
        if len(document) < 2:
            continue
        orders = Shuffle().draw(document, PERMUTATIONS, rng)
        real = windows_of(numbered(document))
        false = np.concatenate([windows_of(order) for order in orders])
        digits = (len(document) + 1) ** np.arange(real.shape[1])
        false = false[~np.isin((false + 1) @ digits, (real + 1) @ digits)]
        for part, label in ((real, True), (false, False)):
            windows.append(np.where(part < 0, part, part + corpus.document_offsets[index]))
            is_real.append(np.full(len(part), label))
    return np.concatenate(windows), np.concatenate(is_real)


class Baseline(Scorer):
    """A classifier of windows as a scorer of documents; all windows of a document count for its
    first sentence."""

    first_word_end = FIRST_WORD

    def __init__(
        self,
        vectors_of: Callable[[Sentences], Any],
        windows_of: Callable[..., np.ndarray],
        features_of: Callable[..., Any],
        classifier: Any,
    ):
        self.logits = lambda document: _logits(
            classifier, features_of(vectors_of(document), windows_of(np.arange(len(document))))
        )

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        for document in documents:
            sentences, _ = sentences_to_score(document)
            score = log_expit(self.logits(sentences)).sum() if len(sentences) > 1 else 0.0
            yield document, [np.array([-score]), *[np.zeros(1)] * (len(sentences) - 1)]


def _logits(classifier: Any, features: Any) -> np.ndarray:
    if isinstance(classifier, LogisticRegression):
        return classifier.decision_function(features)
    log_p_Wx2 = classifier.predict_log_proba(features)
    return log_p_Wx2[:, 1] - log_p_Wx2[:, 0]


def train(corpus: Corpus, valid: Corpus, kind: str) -> Baseline:
    vocab_size = len(corpus.vocabulary)
    if corpus.vocabulary.has_pieces:
        raise InputError(
            f"{corpus.directory}: has a vocabulary of subwords; prepare the corpus without "
            "--subwords"
        )

    def sentences(split: Corpus) -> list[np.ndarray]:
        return np.split(split.tokens, split.sentence_offsets[1:-1])

    def bags_of(document: Sentences) -> Any:
        return bags(document, vocab_size)

    if kind == "neural":
        svd = TruncatedSVD(100, random_state=SEED).fit(bags_of(sentences(corpus)))
        windows, is_real = labelled(corpus, triple_windows)
        classifier = MLPClassifier((64,), early_stopping=True, random_state=SEED)
        classifier.fit(triple_features(svd.transform(bags_of(sentences(corpus))), windows), is_real)
        return Baseline(
            lambda document: svd.transform(bags_of(document)),
            triple_windows,
            triple_features,
            classifier,
        )
    (features, is_real), (valid_features, valid_is_real) = (
        (pair_features(bags_of(sentences(split)), windows), labels)
        for split in (corpus, valid)
        for windows, labels in [labelled(split, pair_windows)]
    )
    trained = []
    for penalty in PENALTIES:
        classifier = LogisticRegression(C=penalty, class_weight="balanced", max_iter=1000)
        classifier.fit(features, is_real)
        logits = classifier.decision_function(valid_features)
        nll = -log_expit(np.where(valid_is_real, logits, -logits))
        loss = (nll[valid_is_real].mean() + nll[~valid_is_real].mean()) / 2
        print(f"C {penalty:g}: validation loss {loss:.4f} nats per pair", flush=True)
        trained.append((loss, penalty, classifier))
    return Baseline(bags_of, pair_windows, pair_features, min(trained)[2])


def main(directory: str, kind: str) -> None:
    corpus, valid, test = (open_corpus(directory, split) for split in ("train", "valid", "test"))
    baseline: Any = train(corpus, valid, kind)
    documents = [test.document(index) for index in range(test.num_documents)]
    result = compare_orders(baseline, documents, Fixed(Shuffle(), SEED, permutations=20)).result
    print(f"{kind}: accuracy {result.mean:.2%}, standard deviation {result.sd:.2%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", help="prepared corpus")
    parser.add_argument("baseline", choices=("maximum_entropy", "neural"))
    arguments = parser.parse_args()
    try:
        main(arguments.corpus, arguments.baseline)
    except InputError as error:
        parser.error(str(error))
