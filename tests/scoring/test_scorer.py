"""Scores against plain computation, and everything that must not change them."""

import math
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax import models
from dclm_jax.data.batches import pack_sentences
from dclm_jax.errors import InputError
from dclm_jax.reading import blocks, likelihoods
from dclm_jax.reading.driver import cast_params
from dclm_jax.reading.likelihoods import block_nll, open_documents
from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.scoring.scorer import Continuation
from tests.compiling import TWO_DEVICES
from tests.exhaustive import also, some
from tests.models.support import AUTOENCODERS, FEW_MODELS, LIN, each_of, resolved

VOCAB_SIZE = 11
REPOSITORY = Path(__file__).parents[2]


def make_model(name, **options):
    # One layer of the simplest cell: these tests wait for compilation, and cells have their own.
    sizes = {"vocab_size": VOCAB_SIZE, "embedding_dim": 3, "hidden_dim": 4}
    # Late fusion needs a memory; the plain recurrence compiles faster.
    cell = "lstm" if name.endswith("_lf") else "rnn"
    if name in LIN:
        sizes |= {"embedding_dim": 4, "hash_size": 30}
    name, changed = resolved(name)
    sizes |= {"num_layers": 1, "cell": cell} | changed | options
    model = models.create(name, **sizes)
    # Larger than initial parameters, so that context changes scores by more than rounding.
    params = jax.tree.map(lambda array: 3 * array, model.init(jax.random.key(7)))
    return model, params


def make_document(rng, lengths):
    return [rng.integers(2, VOCAB_SIZE, length).astype(np.int32) for length in lengths]


def make_documents(seed=0):
    rng = np.random.default_rng(seed)
    lengths = [
        [3, 0, 5],
        [1],
        [],
        [4] * 9 + [12],
        [9, 2, 11, 1],
        rng.integers(0, 15, 17).tolist(),
        [5, 5, 5],
    ]
    return [make_document(rng, sentence_lengths) for sentence_lengths in lengths]


def make_requests(number=7):
    """Documents and continuations in turn, so that batches hold both."""
    documents = make_documents()[:number]
    return [request for document in documents for request in (Continuation(document), document)]


def score_alone(model, params, document, size=0, length=0):
    """One document in one block, without batching or streaming; of `size` sentences and `length`
    tokens at least, and padded no further. It is its own source."""
    length = max(length, *(len(sentence) + 1 for sentence in document))
    batch = pack_sentences([document], max(size, len(document)), length)

    @jax.jit
    def nll(params):
        params = cast_params(model, params)
        context = open_documents(model, params, 1, batch)
        return block_nll(model, params, context, batch)[1]

    return [
        np.asarray(nll)[: len(sentence) + 1]
        for nll, sentence in zip(nll(params)[0], document, strict=False)
    ]


def scored(scorer, documents):
    """The scores of documents, which come back in their order."""
    documents = list(documents)
    pairs = list(scorer.score(iter(documents)))
    assert [id(document) for document, _ in pairs] == list(map(id, documents))
    return [nll for _, nll in pairs]


def assert_same_scores(actual, expected, rtol=1e-5):
    assert [len(nll) for nll in actual] == [len(nll) for nll in expected]
    for actual_document, expected_document in zip(actual, expected, strict=True):
        for a, b in zip(actual_document, expected_document, strict=True):
            assert a.dtype == np.float32
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5)


@each_of([*FEW_MODELS, "rnnslm", "rlm_seqbow_lf"])
def test_scores_equal_a_document_read_alone_in_one_block(name):
    """Blocks of one shape, unless all shapes are asked for; a continuation has the last score."""
    model, params = make_model(name)
    shape = some((17, 16), all=(0, 0))
    expected = []
    for document in make_documents():
        scores = score_alone(model, params, document, *shape) if document else []
        expected += [scores[-1:], scores]
    assert_same_scores(scored(NeuralScorer(model, params, batch_size=4), make_requests()), expected)


@pytest.mark.parametrize("name", [AUTOENCODERS[-1], *also(AUTOENCODERS[:-1])])
def test_a_document_is_its_own_source(name, monkeypatch):
    """Read at once with other documents or not."""
    model, params = make_model(name)
    documents = [document for document in make_documents() if document]
    together = scored(NeuralScorer(model, params, batch_size=4), documents)
    alone = [score_alone(model, params, document, length=20) for document in documents[:3]]
    assert_same_scores(together[:3], alone)
    monkeypatch.setattr(blocks, "MAX_POSITIONS", 64)
    assert_same_scores(scored(NeuralScorer(model, params, batch_size=4), documents), together)


def test_sentences_that_are_not_scored_stay_out_of_the_output_layer(monkeypatch):
    model, params = make_model("codclm")
    params = cast_params(model, params)
    documents = make_documents()
    batch = pack_sentences([documents[0], documents[6], documents[1]], 4, 16)
    context = model.open_document(params, 3)
    masks = []
    token_nll = likelihoods.token_nll

    def spy(inputs, targets, mask, plan):
        masks.append(mask)
        return token_nll(inputs, targets, mask, plan)

    monkeypatch.setattr(likelihoods, "token_nll", spy)
    scored = np.array([[False, False, True, False], [True, False, True, True], [False] * 4])
    context_after, every = block_nll(model, params, context, batch)
    context_after_some, some = block_nll(
        model, params, context, batch, jnp.asarray(scored)[..., None]
    )
    # Words and END of each sentence: (3, 0, 5), (5, 5, 5) and (1) words.
    assert [int(mask.sum()) for mask in masks] == [(4 + 1 + 6) + (6 + 6 + 6) + 2, 6 + 6 + 6]
    np.testing.assert_array_equal(some != 0, batch.mask_BxSxN & scored[..., None])
    np.testing.assert_allclose(some, np.where(scored[..., None], every, 0), rtol=1e-6)
    np.testing.assert_array_equal(context_after_some, context_after)


@pytest.mark.parametrize(
    ("name", "make"),
    [("adclm", make_documents), ("ccdclm", make_requests), *also([("codclm", make_documents)])],
)
def test_scores_do_not_depend_on_blocks_and_windows(monkeypatch, name, make):
    model, params = make_model(name)
    expected = scored(NeuralScorer(model, params, batch_size=4), make())
    monkeypatch.setattr(blocks, "MAX_POSITIONS", 64)
    monkeypatch.setattr(blocks, "BLOCK_SENTENCES", 2)
    monkeypatch.setattr("dclm_jax.scoring.neural._WINDOW_TOKENS_PER_ROW", 10)
    assert_same_scores(scored(NeuralScorer(model, params, batch_size=4), make()), expected)


def test_scores_do_not_depend_on_the_number_of_devices(tmp_path):
    number = some(4, all=7)

    def flat(name):
        scores = scored(NeuralScorer(*make_model(name), batch_size=4), make_requests(number))
        return np.concatenate([nll for document in scores for nll in document])

    # The number of devices is fixed when jax starts, hence a process of its own.
    names = some(["adclm"], all=["adclm", "rnnlm"])
    script = (
        "import jax, sys\n"
        "from tests.scoring.test_scorer import *\n"
        "assert jax.local_device_count() == 2\n"
        "requests = make_requests(int(sys.argv[2]))\n"
        "for name in sys.argv[3:]:\n"
        "    scores = scored(NeuralScorer(*make_model(name), batch_size=5), requests)\n"
        "    flat = [nll for document in scores for nll in document]\n"
        "    np.save(f'{sys.argv[1]}/{name}.npy', np.concatenate(flat))\n"
    )
    subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path), str(number), *names],
        cwd=REPOSITORY,
        env=os.environ | TWO_DEVICES,
        check=True,
        timeout=300,
    )
    for name in names:
        actual = np.load(tmp_path / f"{name}.npy")
        np.testing.assert_allclose(actual, flat(name), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lengths", [[3, 50_000, 4], "many"], ids=["sentence", "document"])
def test_long_texts(lengths):
    """A very long sentence, past which the context goes, and a document of many sentences."""
    model, params = make_model("ccdclm", embedding_dim=2, hidden_dim=2)
    rng = np.random.default_rng(2)
    long = make_document(rng, rng.integers(0, 7, 10_000) if lengths == "many" else lengths)
    short = make_documents()
    *actual, scores = scored(NeuralScorer(model, params), [*short, long])
    assert_same_scores(actual, scored(NeuralScorer(model, params), short))
    assert_same_scores([scores], [score_alone(model, params, long)], rtol=1e-4)


def test_blocks_stay_within_the_bound(monkeypatch, shapes):
    monkeypatch.setattr(blocks, "MAX_POSITIONS", 512)
    rng = np.random.default_rng(4)
    documents = [make_document(rng, [rng.integers(1, 200)] * 3) for _ in range(20)]
    scored(NeuralScorer(*make_model("rnnlm"), batch_size=16), documents)
    assert all(math.prod(shape) <= 512 * jax.local_device_count() for shape in shapes)
    assert all(size in {1, 2, 4, 8} and rows & (rows - 1) == 0 for rows, size, _ in shapes)


def test_sentences_of_like_length_are_packed_together(shapes):
    rng = np.random.default_rng(6)
    num_rows = 4 * jax.local_device_count()
    short, long = ([make_document(rng, [1, words]) for _ in range(num_rows)] for words in (2, 40))
    requests = [
        Continuation(document) for pair in zip(short, long, strict=True) for document in pair
    ]
    scores = scored(NeuralScorer(*make_model("codclm"), batch_size=num_rows), requests)
    assert [length for _, _, length in shapes] == [64, 8]
    assert [nll.shape for (nll,) in scores] == [(3,), (41,)] * num_rows


@pytest.mark.parametrize(("batch_size", "ahead"), [(2, 16), (10**30, 8 * 4)])
def test_the_input_is_streamed(monkeypatch, batch_size, ahead):
    monkeypatch.setattr(blocks, "MAX_ROWS", 4 // jax.local_device_count())
    read = 0

    def documents():
        nonlocal read
        for _ in range(1000):
            read += 1
            yield [np.array([3, 4])]

    scores = NeuralScorer(*make_model("rnnlm"), batch_size=batch_size).score(documents())
    next(scores)
    assert read == ahead


@pytest.mark.parametrize("batch_size", [3, 10**12, *also([1, 64])])
def test_the_batch_size_changes_no_score_and_adds_no_empty_rows(batch_size, shapes):
    model, params = make_model("ccdclm")
    documents = make_documents()
    expected = scored(NeuralScorer(model, params, batch_size=8), documents)
    assert_same_scores(
        scored(NeuralScorer(model, params, batch_size=batch_size), documents), expected
    )
    assert max(rows for rows, _, _ in shapes) <= blocks.power_of_two(len(documents))


@pytest.mark.parametrize(
    "documents", [[], iter(()), [[]], [[], []], [Continuation([])], [[], Continuation(())]]
)
def test_nothing_to_score(documents):
    expected = [[] for _ in documents] if isinstance(documents, list) else []
    assert scored(NeuralScorer(*make_model("ccdclm")), documents) == expected


def test_wrong_batch_size():
    with pytest.raises(InputError, match="batch_size is 0; expected at least 1"):
        NeuralScorer(*make_model("rnnlm"), batch_size=0)
