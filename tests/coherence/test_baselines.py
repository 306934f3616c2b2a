"""Baselines of sentence ordering: by hand, as numpy loops, and on text whose order is known."""

import collections
import dataclasses
import functools
import math
import sys
from functools import partial

import jax
import numpy as np
import pytest

from dclm_jax.coherence import baselines, window_classifier
from dclm_jax.coherence.baselines import END, START, MaximumEntropy, labelled_windows
from dclm_jax.coherence.compare import Fixed, compare
from dclm_jax.coherence.window_classifier import Options, WindowBatch, WindowClassifier
from dclm_jax.data.batches import LENGTH_BOUNDARIES
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.prepare import prepare
from dclm_jax.errors import InputError
from dclm_jax.evaluation.permutations import Shuffle, numbered
from dclm_jax.evaluation.scoring import Continuation
from tests import oracles

SMALL = Options(
    embedding_dim=6,
    hidden_dim=5,
    window_dim=4,
    dropout=0.0,
    learning_rate=0.03,
    permutations=4,
    batch_sentences=32,
    max_epochs=12,
)


def document(*sentences):
    return [np.array(sentence, np.int32) for sentence in sentences]


def ignore(line):
    del line


def write_corpus(directory, documents_of):
    """A prepared corpus of what `documents_of(rng, count)` gives for each split."""
    rng = np.random.default_rng(1)
    for split, count in (("train", 60), ("valid", 30), ("test", 120)):
        text = "\n\n".join("\n".join(document) for document in documents_of(rng, count))
        (directory / f"{split}.txt").write_text(text + "\n")
    sources = {split: directory / f"{split}.txt" for split in ("train", "valid", "test")}
    prepare(sources, directory / "corpus")
    return [open_corpus(directory / "corpus", split) for split in sources]


def fillers(rng):
    return " ".join(f"f{i}" for i in rng.integers(8, size=rng.integers(1, 5)))


def ordered(rng, count):
    """A beginning, a middle and an end, which every order but one betrays."""
    return [[f"{fillers(rng)} {part} {fillers(rng)}" for part in "abc"] for _ in range(count)]


def exchangeable(rng, count):
    """Sentences of which none knows where it stands."""
    return [[fillers(rng) for _ in range(4)] for _ in range(count)]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Splits of text with an obvious order, and without any."""
    return {
        documents_of: write_corpus(tmp_path_factory.mktemp("corpus"), documents_of)
        for documents_of in (ordered, exchangeable)
    }


@pytest.fixture(scope="module")
def trained(corpora):
    """Trains a baseline on one of the corpora, once; what it reports as well."""

    @functools.cache
    def train(kind, documents_of):
        lines, (train, valid, _) = [], corpora[documents_of]
        options = {"options": SMALL} if kind is WindowClassifier else {}
        return kind.train(train, valid, seed=0, report=lines.append, **options), lines

    return train


def scores(baseline, *documents):
    """What coherence adds up for each document."""
    return [-sum(float(nll_M.sum()) for nll_M in nll) for _, nll in baseline.score(documents)]


# Windows.


def windows_by_loops(orders, width, padded):
    """The windows of each order, one after another."""
    rows = [[START, *order, END] if padded else list(order) for order in orders]
    return [
        tuple(row[first : first + width]) for row in rows for first in range(len(row) - width + 1)
    ]


@pytest.mark.parametrize(("width", "padded"), [(2, False), (3, True)])
def test_windows_of_permutations_that_the_document_has_as_well_are_left_out(width, padded):
    sentences = document([3], [4, 4], [5], [4, 4], [6])
    labelled = labelled_windows(sentences, 6, np.random.default_rng(4), width, padded=padded)
    assert labelled is not None
    orders = Shuffle().draw(sentences, 6, np.random.default_rng(4))
    real = windows_by_loops([numbered(sentences)], width, padded)
    false = [window for window in windows_by_loops(orders, width, padded) if window not in real]
    assert [tuple(window) for window in labelled.windows_MxW] == real + false
    assert labelled.is_real_M.tolist() == [True] * len(real) + [False] * len(false)


def test_a_corpus_without_an_order_is_refused(tmp_path):
    train, valid, _ = write_corpus(tmp_path, lambda rng, count: [["a b"], ["c", "c"]] * count)
    for kind in (MaximumEntropy, WindowClassifier):
        with pytest.raises(InputError, match=r"split \w+ has no document with two different s"):
            kind.train(train, valid, seed=0, report=ignore)


# The maximum-entropy classifier.


def test_maximum_entropy_against_loops():
    V = 9
    rng = np.random.default_rng(3)
    weights, bias = rng.normal(size=3 * V), -0.3
    documents = [
        [rng.integers(2, V, rng.integers(1, 6)) for _ in range(length)] for length in (1, 2, 7)
    ]
    expected = [[[]], [[]], [[]]]
    for sentences, pairs in zip(documents, expected, strict=True):
        for first, second in zip(sentences, sentences[1:], strict=False):
            logit = bias
            for word in range(V):
                logit += weights[word] * (word in first)
                logit += weights[V + word] * (word in second)
                logit += weights[2 * V + word] * (word in first and word in second)
            pairs.append([pytest.approx(math.log(1 + math.exp(-logit)), abs=1e-12)])
    baseline = MaximumEntropy(weights, bias)
    # So many documents that they are judged in several parts.
    judged = baseline.score(documents * 200)
    assert [[list(nll) for nll in of_document] for _, of_document in judged] == expected * 200
    ((request, (nll,)),) = baseline.score([Continuation(documents[2][:3])])
    assert request.only_last and list(nll) == expected[2][2]
    assert list(baseline.score([])) == []
    assert baseline.num_parameters == 3 * V + 1


def test_maximum_entropy_is_trained_to_the_optimum_of_its_objective(corpora, monkeypatch):
    monkeypatch.setattr(baselines, "_REGULARIZATION", (0.5,))
    train, valid, _ = corpora[ordered]
    trained = MaximumEntropy.train(train, valid, seed=2, report=ignore, permutations=3)
    V = len(train.vocabulary)
    rng = np.random.default_rng(2)
    rows, labels = [], []
    for index in range(train.num_documents):
        sentences = train.document(index)
        orders = Shuffle().draw(sentences, 3, rng)
        real = windows_by_loops([numbered(sentences)], 2, False)
        pairs = real + [pair for pair in windows_by_loops(orders, 2, False) if pair not in real]
        for number, (i, j) in enumerate(pairs):
            bags = [np.isin(np.arange(V), sentences[k]).astype(float) for k in (i, j)]
            rows.append(np.concatenate([*bags, bags[0] * bags[1], [1.0]]))
            labels.append(number < len(real))
    x, y = np.array(rows), np.array(labels)
    # Both classes have the weight of half of all pairs.
    weight = np.where(y, len(y) / (2 * y.sum()), len(y) / (2 * (~y).sum()))
    theta = np.append(trained.weights_3V, trained.bias)
    error = weight * (oracles.sigmoid(x @ theta) - y)
    gradient = error @ x + np.append(trained.weights_3V, 0) / 0.5
    assert np.abs(gradient).max() < 0.05 < np.abs(weight * (0.5 - y) @ x).max() / 100


def test_missing_scikit_learn_is_said_in_one_line(corpora, monkeypatch):
    train, valid, _ = corpora[ordered]
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(InputError, match=r"sklearn: pip install 'dclm_jax\[baselines\]'"):
        MaximumEntropy.train(train, valid, seed=0, report=ignore)


# The recurrent classifier.


def float64_params(options, vocab_size=11, seed=5):
    params = window_classifier.init(jax.random.key(seed), vocab_size, options)
    # Biases that are not zero are seen, too.
    leaves, treedef = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    return treedef.unflatten(
        [
            leaf + 0.3 * jax.random.normal(key, leaf.shape)
            for leaf, key in zip(leaves, keys, strict=True)
        ]
    )


def encoded_by_loops(params, cell, sentence):
    step, num_states = oracles.CELLS[cell]
    H = params["boundary"].shape[1]
    states = [(np.zeros(H),) * num_states for _ in params["encoder"]]
    for word in sentence:
        x = params["embedding"][word]
        for index, layer in enumerate(params["encoder"]):
            states[index] = step(layer, x, states[index])
            x = states[index][0]
    return states[-1][0]


def logit_by_loops(params, cell, window):
    """Of a window of sentences, START or END."""
    vectors = [
        params["boundary"][i + 2] if isinstance(i, int) else encoded_by_loops(params, cell, i)
        for i in window
    ]
    joined = np.concatenate(vectors)
    q = np.tanh(joined @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return q @ params["output"]["kernel"] + params["output"]["bias"]


def windows_of(sentences):
    padded = [START, *sentences, END]
    return [padded[i : i + 3] for i in range(len(sentences))]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("cell", "num_layers"), [("lstm", 1), ("gru", 2)])
def test_recurrent_classifier_against_loops(cell, num_layers):
    options = Options(5, 4, 3, num_layers, cell)
    params = float64_params(options)
    loops = jax.tree.map(np.asarray, params)
    rng = np.random.default_rng(6)
    # More different sentences than are encoded at once, and of lengths in several buckets.
    documents = [
        [rng.integers(2, 11, size) for size in rng.integers(1, 20, length)] for length in (1, 2, 70)
    ]
    expected = [
        sum(-math.log1p(math.exp(-logit_by_loops(loops, cell, w))) for w in windows_of(sentences))
        for sentences in documents
    ]
    baseline = WindowClassifier(params, cell)
    assert scores(baseline, *documents) == pytest.approx(expected, rel=1e-12)
    assert baseline.num_parameters == sum(leaf.size for leaf in jax.tree.leaves(params))
    ((_, nll),) = baseline.score(documents[1:2])
    assert [len(nll_M) for nll_M in nll] == [1, 1]


@pytest.fixture
def batch_of_corpus(corpora):
    train, *_ = corpora[ordered]
    return next(window_classifier.batches(train, SMALL, [3])), len(train.vocabulary)


def loss_by_loops(params, cell, batch):
    total, weights = 0.0, 0.0
    for window, is_real, weight in zip(
        batch.windows_Wx3, batch.is_real_W, batch.weight_W, strict=True
    ):
        if weight:
            sentences = [
                int(i) if i < 0 else batch.tokens_NxR[batch.mask_NxR[:, i], i] for i in window
            ]
            p = oracles.sigmoid(logit_by_loops(params, cell, sentences))
            total -= weight * np.log(p if is_real else 1 - p)
            weights += weight
    return total, weights


@pytest.mark.usefixtures("x64")
def test_loss_and_gradient_against_loops(batch_of_corpus):
    batch, V = batch_of_corpus
    # The first windows and the last, since loops are slow.
    indices = np.r_[0:10, np.flatnonzero(batch.weight_W)[-10:], -3:0]
    batch = WindowBatch(*batch[:2], *(array[indices] for array in batch[2:]))
    params = float64_params(SMALL, V)
    whole = jax.jit(
        jax.value_and_grad(
            lambda params: window_classifier.batch_loss(params, SMALL, batch), has_aux=True
        )
    )
    (total, weight), gradient = whole(params)
    loops = jax.tree.map(np.asarray, params)
    assert (total, weight) == pytest.approx(loss_by_loops(loops, "lstm", batch), rel=1e-12)
    oracles.assert_gradient(gradient, lambda moved: loss_by_loops(moved, "lstm", batch)[0], loops)


def test_batches_hold_every_window_once_in_few_shapes(tmp_path):
    def documents_of(rng, count):
        sizes = [2, 3, 40, 7, 33] * (count // 5)
        return [[fillers(rng) for _ in range(size)] for size in sizes]

    train, *_ = write_corpus(tmp_path, documents_of)
    batches = list(window_classifier.batches(train, SMALL, [1, 2]))
    shapes = {(batch.mask_NxR.shape, len(batch.weight_W)) for batch in batches}
    assert {(shape[0] in LENGTH_BOUNDARIES, shape[1], size) for shape, size in shapes} == {
        (True, 32, 32 * 5),
        (True, 64, 64 * 5),
    }
    seen = collections.Counter()
    for batch in batches:
        for window, is_real, weight in zip(
            batch.windows_Wx3, batch.is_real_W, batch.weight_W, strict=True
        ):
            texts = [
                int(i) if i < 0 else tuple(batch.tokens_NxR[batch.mask_NxR[:, i], i])
                for i in window
            ]
            if weight and is_real:
                assert weight == 1
                seen[tuple(texts)] += 1
    expected = collections.Counter(
        tuple(part if isinstance(part, int) else tuple(part) for part in window)
        for index in range(train.num_documents)
        for window in windows_of(train.document(index))
        # Two equal sentences, which no permutation changes.
        if len({tuple(sentence) for sentence in train.document(index)}) > 1
    )
    assert seen == expected
    # What permutations weigh is what documents weigh.
    false = sum(batch.weight_W[~batch.is_real_W].sum() for batch in batches)
    assert false == pytest.approx(seen.total(), rel=1e-5)


# Learning.


@pytest.mark.parametrize("kind", [MaximumEntropy, WindowClassifier])
def test_an_obvious_order_is_learned_and_no_other(corpora, trained, kind):
    means = []
    for documents_of in (ordered, exchangeable):
        test = corpora[documents_of][2]
        documents = [test.document(index) for index in range(test.num_documents)]
        baseline, _ = trained(kind, documents_of)
        means.append(compare(baseline, documents, Fixed()).result.mean)
    # The standard error of 120 documents, were all their permutations alike, is 0.046.
    assert means[0] > 0.98 and abs(means[1] - 0.5) < 0.14


def test_training_follows_its_seed(corpora):
    train, valid, _ = corpora[ordered]
    options = dataclasses.replace(SMALL, max_epochs=1, dropout=0.2)
    first, again, other = (
        WindowClassifier.train(train, valid, seed=seed, report=ignore, options=options)
        for seed in (1, 1, 2)
    )
    leaves = [jax.tree.leaves(baseline.params) for baseline in (first, again, other)]
    assert all(np.array_equal(a, b) for a, b in zip(leaves[0], leaves[1], strict=True))
    assert not np.array_equal(leaves[0][0], leaves[2][0])


def test_training_ends_early_and_keeps_the_best_epoch(corpora, trained):
    baseline, lines = trained(WindowClassifier, exchangeable)
    losses = [float(line.split("loss ")[1].split()[0]) for line in lines]
    assert len(losses) < SMALL.max_epochs
    assert min(losses[: -SMALL.patience]) <= min(losses[-SMALL.patience :])
    valid = corpora[exchangeable][1]
    batches = window_classifier.batches(valid, SMALL, [window_classifier._VALIDATION, 0])
    loss = jax.jit(partial(window_classifier.batch_loss, options=SMALL))
    sums = np.sum([loss(baseline.params, batch=batch) for batch in batches], axis=0)
    assert sums[0] / sums[1] == pytest.approx(min(losses), abs=1e-4)
