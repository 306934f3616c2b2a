"""Every model and cell against the plain loops of `tests/oracles.py`, in float64."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.nn.cells import CELLS
from dclm_jax.reading.driver import read_sentences, weighted
from dclm_jax.reading.dropout import draw_masks, draw_source_masks
from tests import oracles
from tests.exhaustive import also, pairs
from tests.models.support import (
    AUTOENCODERS,
    DOCUMENTS,
    EACH_MODEL,
    EACH_OF_FEW,
    LIN,
    MODELS,
    likelihood,
    model_jit,
    opened,
    pack,
    random_params,
    read_by_definition,
    scores,
    small_model,
    time_major,
)

pytestmark = pytest.mark.usefixtures("x64")

close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
SOURCES = (*DOCUMENTS[1:], ((7, 5, 3), (2,)))
# Padded in every direction, and sources further than documents; a document without sentences is a
# batch element that fills up.
SOURCE_BATCH = pack((*SOURCES, ()), S=6, N=9)
BATCH = dataclasses.replace(pack((*DOCUMENTS, ()), S=5, N=8), source=SOURCE_BATCH)
ROWS = len(BATCH.tokens_BxSxN)


def context_vectors(model, contexts, outputs) -> Any:
    """The numbers of contexts that `oracles.Reading.contexts` lists, of S*B sentences."""
    match model.name:
        case "rnnlm" | "rlm" | "rnn_lin":
            return np.zeros((BATCH.tokens_BxSxN.shape[1] * ROWS, 0))
        case "drnnlm" | "standard_autoencoder" | "hierarchical_autoencoder":
            return jnp.stack([array for layer in contexts for array in layer], axis=1)
        case "hierarchical_attention_autoencoder" | "pointer_drnnlm":
            return jnp.stack([array for layer in contexts.state for array in layer], axis=1)
        case "hrnnlm":
            return contexts.vector_BxH
        case "rnnslm" | "hrnnlm_two_step":
            return contexts.history_BxH
        case "adclm":
            return jnp.moveaxis(outputs[1], 1, 2).reshape(-1, *outputs[1].shape[1::2])
        case name if name.startswith("rlm_"):
            return contexts.sums_BxCxP
        case _:
            return contexts


def read_contexts(model, params) -> Any:
    """The contexts of all sentences [S, B, ...], by the functions of the model contract."""
    tokens_SxNxB, mask_SxNxB = time_major(BATCH.tokens_BxSxN), time_major(BATCH.mask_BxSxN)
    arguments = (opened(model, params, BATCH), tokens_SxNxB, mask_SxNxB)
    if model.objective == "bags":
        read, outputs = read_sentences(model, params, *arguments), None
    else:
        read, outputs = read_by_definition(model, weighted(model, params), *arguments, None)
    vectors = context_vectors(model, read.contexts, outputs)
    return vectors.reshape(len(tokens_SxNxB), ROWS, *vectors.shape[1:])


@model_jit
def read_batch(model, params):
    of_batch, nll_BxSxN = likelihood(model, params, BATCH), scores(model, params, BATCH)
    return of_batch, nll_BxSxN, read_contexts(model, params)


def read_all(model, params) -> list[oracles.Reading]:
    plain = jax.tree.map(np.asarray, params)
    return [
        oracles.read(model, plain, document, source=source)
        for document, source in zip(DOCUMENTS, SOURCES, strict=True)
    ]


def check(model):
    params = random_params(model)
    result, nll_BxSxN, contexts_SxB = read_batch(model, params)
    readings = read_all(model, params)

    for b, reading in enumerate(readings):
        for s, (nll, context) in enumerate(zip(reading.nll, reading.contexts, strict=True)):
            close(nll_BxSxN[b, s, : len(nll)], nll)
            close(contexts_SxB[s, b][: len(context)], context)
    assert not np.any(nll_BxSxN[~BATCH.mask_BxSxN])
    close(result.nll, sum(objective(model, reading) for reading in readings))
    close(result.extra, sum(reading.auxiliary for reading in readings))
    ends = sum(map(len, DOCUMENTS))
    words = sum(len(words) for doc in DOCUMENTS for words in doc)
    is_of_words = model.objective == "words"
    assert result.tokens == words + ends * is_of_words
    assert result.terms == (words + ends if is_of_words else ends)


@EACH_OF_FEW
def test_gradients_are_the_slopes_of_the_equations(name):
    # The slope of HTanh is not that of an analytic function.
    model = small_model(name, cell="rnn" if name in LIN else "coupled_peephole_lstm")
    params = random_params(model)

    def loss(params):
        result = likelihood(model, params, BATCH)
        return result.nll + result.extra

    def of_numpy(params):
        readings = read_all(model, params)
        return sum(objective(model, reading) + reading.auxiliary for reading in readings)

    oracles.assert_gradient(jax.grad(loss)(params), of_numpy, params)


def objective(model, reading) -> Any:
    """The sum over targets; of bags that of each sentence's mean over its words, END left out."""
    if model.objective == "words":
        return sum(nll.sum() for nll in reading.nll)
    return sum(nll[:-1].mean() for nll in reading.nll)


def cells_and_tying(name):
    """The cells that a model can have, each without tied embeddings and with them."""
    return [
        (cell, tied)
        for cell in oracles.CELLS
        if not name.endswith("_lf") or CELLS[cell].has_memory
        if name not in LIN or CELLS[cell].num_gates == 1
        for tied in (False, True)
        if not (tied and name == "rnnslm")
    ]


def one_per_model():
    """All models, cells and tying. One case of each model runs by default, all with --exhaustive.

    The case is the next one for the next model, so that every cell is there with tying and without.
    """
    marked = []
    for number, name in enumerate(MODELS):
        cases = [(name, *case) for case in cells_and_tying(name)]
        usual = cases[(number + 2) % len(cases)]
        marked += [usual, *also(case for case in cases if case != usual)]
    return marked


def each_nth(cases, n, first):
    """All cases; but for every n-th one they are left to --exhaustive."""
    marked = []
    for index, case in enumerate(cases):
        marked += [case] if index % n == first else also([case])
    return marked


LAYERS = [(name, num_layers) for name in MODELS for num_layers in (1, 3)]
SENTENCES = [(name, n) for name in MODELS if name.startswith("rlm_") for n in (1, 8)]
OTHER_REVERSALS = ["words", "sentences", "none"]


@pytest.mark.parametrize(("name", "cell", "tied"), one_per_model())
def test_cells_and_tying(name, cell, tied):
    check(small_model(name, cell=cell, hidden_dim=5, tie_embeddings=tied))


@pytest.mark.parametrize(("name", "num_layers"), also(LAYERS))
def test_layers(name, num_layers):
    check(small_model(name, num_layers=num_layers))


@pytest.mark.parametrize(
    ("name", "reverse"),
    pairs(
        AUTOENCODERS,
        OTHER_REVERSALS,
        usual=list(zip(AUTOENCODERS, OTHER_REVERSALS, strict=True)),
    ),
)
def test_sources_are_read_forwards_or_backwards(name, reverse):
    check(small_model(name, reverse=reverse, num_layers=1, cell="rnn"))


@pytest.mark.parametrize(("name", "context_sentences"), each_nth(SENTENCES, 3, 0))
def test_context_sentences(name, context_sentences):
    check(small_model(name, context_sentences=context_sentences))


@model_jit
def masks_of(model, params, keys_B):
    sentences, length = BATCH.tokens_BxSxN.shape[1:]
    shape_SxN = (sentences, 1 if model.objective == "bags" else length)
    of_source = draw_source_masks(model, keys_B, SOURCE_BATCH.tokens_BxSxN.shape[1:])
    return draw_masks(model, weighted(model, params), keys_B, shape_SxN), of_source


@EACH_MODEL
def test_dropout_multiplies_embeddings_layers_and_features(name):
    model = small_model(name, dropout=0.3, num_layers=3)
    params = random_params(model)
    keys_B = jax.random.split(jax.random.key(7), ROWS)
    result = likelihood(model, params, BATCH, keys_B)

    masks = jax.tree.map(np.asarray, masks_of(model, params, keys_B))
    plain_params = jax.tree.map(np.asarray, params)
    nll = auxiliary = 0.0
    for b, (document, source) in enumerate(zip(DOCUMENTS, SOURCES, strict=True)):
        of_document, of_source = jax.tree.map(lambda array, b=b: array[:, :, b], masks)
        dropout = oracles.Dropout(*of_document)._replace(source=of_source)
        reading = oracles.read(model, plain_params, document, dropout, source)
        nll += objective(model, reading)
        auxiliary += reading.auxiliary
    close(result.nll, nll)
    close(result.extra, auxiliary)
