"""Synthetic documents, the batches made of them, and the FLOPs that they need."""

import numpy as np
import pytest

from dclm_jax.benchmark import workloads
from dclm_jax.benchmark.workloads import Size
from dclm_jax.data.vocabulary import SPECIAL_TOKENS

V, K, H, A = 50, 8, 16, 48
SIZE = Size(V, K, H, num_documents=40)


@pytest.fixture
def corpus(tmp_path):
    return workloads.synthetic_corpus(0, V, SIZE.num_documents, tmp_path)


def test_sentence_lengths_are_those_asked_for():
    lengths = workloads.sentence_lengths(np.random.default_rng(0), 100_000)
    assert lengths.min() == workloads.LENGTH_LEAST and lengths.max() == workloads.LENGTH_MOST
    assert lengths.mean() == pytest.approx(24, abs=0.2)
    assert lengths.std() == pytest.approx(9, abs=0.2)


def test_documents_follow_from_the_seed():
    first, same, other = (workloads.synthetic_documents(seed, V, [3, 1, 2]) for seed in (1, 1, 2))
    assert [len(document) for document in first] == [3, 1, 2]
    np.testing.assert_equal(first, same)
    words = np.concatenate([sentence for document in first for sentence in document])
    assert words.dtype == np.int32
    assert words.min() >= len(SPECIAL_TOKENS) and words.max() < V
    assert not np.array_equal(first[0][0], other[0][0])


def test_corpus_and_documents_of_batches_hold_the_same_words(corpus):
    documents = workloads.synthetic_documents(
        0, V, np.random.default_rng(0).integers(8, 15, size=SIZE.num_documents)
    )
    assert corpus.num_documents == len(documents)
    for index, document in enumerate(documents):
        np.testing.assert_equal(corpus.document(index), document)
    batches = workloads.training_batches(corpus, 5, 4, 1_000, seed=0)
    segments = [segment for batch in batches for segment in workloads.documents_of(batch)]
    assert all(1 <= len(segment) <= 5 for segment in segments)
    first_words = {tuple(document[0]) for document in documents}
    assert sum(tuple(segment[0]) in first_words for segment in segments) > 30
    tokens = sum(int(batch.mask_BxSxN.sum()) for batch in batches)
    assert tokens == workloads.count_targets(segments)
    assert 0 <= corpus.num_tokens + corpus.num_sentences - tokens < 4 * 5 * 61


def test_batches_are_full_and_of_training(corpus):
    batches = workloads.training_batches(corpus, 5, 4, 3, seed=0)
    assert len(batches) == 3
    for batch in batches:
        assert batch.mask_BxSxN.shape[:2] == (4, 5)
        assert batch.mask_BxSxN[:, 0, 0].all()


# Two documents, of sentences with 3 and 5, and with 2 targets.
DOCUMENTS = [[np.arange(3, 5), np.arange(3, 7)], [np.arange(3, 4)]]
TOKENS, SENTENCES = 10, 3
LSTM = 4 * (K * H + H * H + 2 * H * H)
SENTENCE_LSTM = 4 * (4 * H * H)
OUTPUT = H * V


@pytest.mark.parametrize(
    ("name", "cell", "multiply_adds"),
    [
        ("rnnlm", "lstm", TOKENS * (LSTM + OUTPUT)),
        ("ccdclm", "lstm", TOKENS * (LSTM + OUTPUT) + SENTENCES * 4 * H * H),
        ("codclm", "lstm", TOKENS * (LSTM + OUTPUT) + SENTENCES * OUTPUT),
        (
            "ccdclm",
            "coupled_peephole_lstm",
            TOKENS * (3 * LSTM / 4 + 4 * H * H + OUTPUT) + SENTENCES * 3 * H * H,
        ),
        (
            # Contexts, and the two matrices before the output layer, at every token; queries, keys
            # of c_0 or of the sentence before; a score and a weighted sum for each pair.
            "adclm",
            "lstm",
            TOKENS * (LSTM + 4 * H * H + 2 * H * H + OUTPUT)
            + (TOKENS + 1 + 3 + 1) * H * A
            + (3 * 1 + 5 * 3 + 2 * 1) * (A + H),
        ),
        (
            # Encoder and decoder, of words and of sentences, whose decoder reads two vectors, and a
            # decision before each sentence; two sentences attend to two, and one to one.
            "hierarchical_attention_autoencoder",
            "lstm",
            TOKENS * (2 * LSTM + OUTPUT)
            + SENTENCES * (2 * SENTENCE_LSTM + 4 * H * H + H)
            + 2 * SENTENCES * H * H
            + (2 * 2 + 1 * 1) * 2 * H,
        ),
    ],
)
def test_useful_flops_are_those_of_a_hand_computation(name, cell, multiply_adds):
    model = SIZE.model(name, cell)
    assert workloads.useful_flops(model, DOCUMENTS) == 3 * 2 * multiply_adds
