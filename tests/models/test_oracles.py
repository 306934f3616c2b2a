"""Every model and cell against the plain loops of `tests/oracles.py`, in float64."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.plan import CPU, GPU, TPU_V4
from dclm_jax.reading.driver import cast_params, read_sentences
from dclm_jax.reading.dropout import draw_masks, draw_source_masks
from tests import oracles
from tests.exhaustive import also, pairs, some
from tests.models.support import (
    AUTOENCODERS,
    DOCUMENTS,
    EACH_MODEL,
    EACH_OF_FEW,
    FEW_MODELS,
    LIN,
    MODELS,
    likelihood,
    model_jit,
    opened,
    pack,
    random_params,
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


def read_contexts(model, params) -> Any:
    """The contexts that `oracles.Reading.contexts` lists, of all sentences [S, B, ...]."""
    tokens_SxNxB, mask_SxNxB = time_major(BATCH.tokens_BxSxN), time_major(BATCH.mask_BxSxN)
    context = opened(model, params, BATCH)
    contexts: Any = read_sentences(model, params, context, tokens_SxNxB, mask_SxNxB).contexts
    match model.name:
        case "rnnlm" | "rlm" | "rnn_lin" | "adclm":
            vectors = np.zeros((len(tokens_SxNxB) * ROWS, 0))
        case "drnnlm" | "standard_autoencoder" | "hierarchical_autoencoder":
            vectors = jnp.stack([array for layer in contexts for array in layer], axis=1)
        case "hierarchical_attention_autoencoder" | "pointer_drnnlm":
            vectors = jnp.stack([array for layer in contexts.state for array in layer], axis=1)
        case "hrnnlm":
            vectors = contexts.vector_BxH
        case "rnnslm" | "hrnnlm_two_step":
            vectors = contexts.history_BxH
        case name if name.startswith("rlm_"):
            vectors = contexts.sums_BxCxP
        case _:
            vectors = model.vector(params, contexts)
    return vectors.reshape(len(tokens_SxNxB), ROWS, *vectors.shape[1:])


@model_jit
def read_batch(model, params):
    of_batch, nll_BxSxN = likelihood(model, params, BATCH), scores(model, params, BATCH)
    return of_batch, nll_BxSxN, read_contexts(model, params)


def read_all(model, params, masks=None) -> list[oracles.Reading]:
    """Every document by the equations, with the masks of `masks_of`, if any."""
    plain, dropout, readings = jax.tree.map(np.asarray, params), None, []
    for b, (document, source) in enumerate(zip(DOCUMENTS, SOURCES, strict=True)):
        if masks is not None:
            of_document, of_source = jax.tree.map(lambda array, b=b: array[:, :, b], masks)
            dropout = oracles.Dropout(*of_document)._replace(source=of_source)
        readings.append(oracles.read(model, plain, document, dropout, source))
    return readings


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
    close(result.auxiliary, sum(reading.auxiliary for reading in readings))
    ends = sum(map(len, DOCUMENTS))
    words = sum(len(words) for doc in DOCUMENTS for words in doc)
    is_of_words = model.objective == "words"
    targets = slice(None if is_of_words else -1)
    close(result.nats, sum(nll[targets].sum() for reading in readings for nll in reading.nll))
    assert result.tokens == words + ends * is_of_words
    assert result.terms == (words + ends if is_of_words else ends)


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


@pytest.mark.parametrize(("name", "context_sentences"), some(SENTENCES[::3], all=SENTENCES))
def test_context_sentences(name, context_sentences):
    check(small_model(name, context_sentences=context_sentences))


@model_jit
def masks_of(model, params, keys_B):
    sentences, length = BATCH.tokens_BxSxN.shape[1:]
    shape_SxN = (sentences, 1 if model.objective == "bags" else length)
    of_source = draw_source_masks(model, keys_B, SOURCE_BATCH.tokens_BxSxN.shape[1:])
    return draw_masks(model, cast_params(model, params), keys_B, shape_SxN), of_source


def check_gradient(name, ways, **options):
    """The gradients under all options in `ways`, by which a model is only computed otherwise."""
    # The slope of HTanh is not that of an analytic function.
    cell = "rnn" if name in LIN else "coupled_peephole_lstm"
    model = small_model(name, cell=cell, **options)
    params = random_params(model)
    keys_B = jax.random.split(jax.random.key(7), ROWS)
    masks = jax.tree.map(np.asarray, masks_of(model, params, keys_B)) if model.dropout else None

    def of_numpy(params):
        readings = read_all(model, params, masks)
        return sum(objective(model, reading) + reading.auxiliary for reading in readings)

    def loss(params, options):
        computed = dataclasses.replace(model, **options)
        result = likelihood(computed, params, BATCH, *([] if masks is None else [keys_B]))
        return result.nll + result.auxiliary

    first, *others = (jax.value_and_grad(loss)(params, options) for options in ways)
    value, gradient = first
    close(value, of_numpy(params))
    oracles.assert_gradient(gradient, of_numpy, params)
    for other in others:
        jax.tree.map(partial(close, rtol=1e-10, atol=1e-10), other, first)


@EACH_OF_FEW
def test_gradients_are_the_slopes_of_the_equations(name):
    check_gradient(name, [{}])


@EACH_MODEL
def test_dropout_multiplies_embeddings_layers_and_features_in_every_plan_and_with_remat(name):
    ways = [{"plan": CPU}, {"plan": GPU}, {"plan": TPU_V4}, {"remat": True}]
    ways = ways if name in FEW_MODELS else some(ways[:1], all=ways)
    if name == "codclm":
        # What contexts add to the logits is made once for a sentence, or for every token.
        ways = [*ways, {"plan": dataclasses.replace(CPU, shared_logits=0)}]
    check_gradient(name, ways, dropout=0.3, num_layers=3)
