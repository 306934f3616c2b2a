"""What must hold for every model whatever its numbers: causality, initial values, dropout."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax import models
from dclm_jax.nn.cells import CELLS
from dclm_jax.reading.driver import cast_params, read_sentences
from dclm_jax.reading.dropout import draw_masks, draw_source_masks, drop_weights
from dclm_jax.reading.likelihoods import batch_likelihood
from dclm_jax.training.freezing import by_path
from tests.models.support import (
    DOCUMENTS,
    EACH_WORD_MODEL,
    LANGUAGE_MODELS,
    LIN,
    VOCAB,
    likelihood,
    model_jit,
    opened,
    pack,
    random_params,
    simple_model,
    small_model,
    time_major,
)

pytestmark = pytest.mark.usefixtures("x64")

BATCH = pack(DOCUMENTS)
close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)


@model_jit
def dropout_masks(model, keys_B, sentences, tokens):
    params = cast_params(model, random_params(model))
    return draw_masks(model, params, keys_B, (sentences.size, tokens.size))


@pytest.mark.parametrize(("H", "K", "V"), [(5, 3, 13), (48, 32, 103), (7, 16, 10_003)])
@pytest.mark.parametrize("name", ["ccdclm", "codclm"])
def test_parameter_counts_are_the_papers(name, H, K, V):
    model = models.create(
        name, vocab_size=V, embedding_dim=K, hidden_dim=H, cell="coupled_peephole_lstm"
    )
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    expected = {
        "ccdclm": H * (16 * H + 3 * K + 6) + V * (H + K + 1),
        "codclm": H * (13 * H + 3 * K + 6) + V * (2 * H + K + 1),
    }
    # The paper's formulas leave out c_0.
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == expected[name] + H


@EACH_WORD_MODEL
def test_predictions_depend_on_the_past_alone(name):
    """The gradient of every prediction with respect to every input word, one word id a position."""
    S, N = 4, 4
    # HTanh has no gradient where it is saturated.
    cell = {"cell": "rnn"} if name in LIN else {}
    model = dataclasses.replace(simple_model(name, **cell), vocab_size=S * N)
    tokens_SxNx1 = jnp.arange(S * N).reshape(S, N, 1)
    mask_SxN = jnp.arange(N) < jnp.array([4, 2, 3, 2])[:, None]
    params = random_params(model)
    # The document is made of another one.
    source = pack([()], sources=[((3, 4), (5,))])

    def outputs(tables):
        """For every position a sum of all that its prediction is computed from."""
        # Only inputs go through the tables: the output layer has a matrix of its own.
        changed, context = {**params, **tables}, opened(model, params, source)
        reading = read_sentences(model, changed, context, tokens_SxNx1, mask_SxN[..., None])
        sums_SxNx1 = reading.features.sum(axis=-1)
        if reading.context_features is not None:
            sums_SxNx1 += reading.context_features.sum(axis=-1)[:, None]
        if reading.pointer is not None:
            sums_SxNx1 += jnp.exp(reading.pointer.log_weights_NxBxM).sum(axis=-1)
            sums_SxNx1 += reading.pointer.log_share_NxB
        return sums_SxNx1.reshape(-1)

    def jacobian(_, tables):
        return jax.jacrev(outputs)(tables)

    # Of each table [S*N predictions, S*N input positions, K].
    tables = {name: params[name] for name in model.tables}
    derivatives = model_jit(jacobian)(model, tables)
    influence = sum(np.linalg.norm(table, axis=-1) for table in derivatives.values())
    influence = np.reshape(influence, (S, N, S, N))

    for s, n in np.argwhere(mask_SxN):
        for t, m in np.ndindex(S, N):
            if t == s:
                expected = m <= n
            else:
                order = model.context_order
                reached = t < s and (order is None or s - t <= order)
                # Bags of words are without START.
                has_bags = not model.contexts_read_states
                expected = reached and mask_SxN[t, m] and not (has_bags and m == 0)
            is_read = influence[s, n, t, m] > 0
            assert is_read == expected, (
                f"sentence {s}, position {n} {'depends' if is_read else 'does not depend'} on "
                f"sentence {t}, position {m}, but context_order is {model.context_order}"
            )


def test_more_memory_keeps_the_initial_values_and_offsets_begin_at_zero():
    params, plain = (small_model(n).init(jax.random.key(0)) for n in ("adclm_3", "adclm"))
    # Three distances, A = 2.
    np.testing.assert_array_equal(params["attention"].pop("offset"), np.zeros(6))
    jax.tree.map(np.testing.assert_array_equal, params, plain)


def test_a_pointer_keeps_the_initial_values_and_attends_to_states_like_its_own():
    params, plain = (small_model(n).init(jax.random.key(0)) for n in ("pointer_drnnlm", "drnnlm"))
    pointer = params.pop("pointer")
    jax.tree.map(np.testing.assert_array_equal, params, plain)
    np.testing.assert_array_equal(pointer["query"], pointer["key"])
    assert pointer["sentinel_bias"] == pytest.approx(np.log(6))
    assert not pointer["sentinel"].any()


def read_document(name, document, params=None):
    """The params of a small model, and the result of reading one document."""
    model, batch = small_model(name), pack([document])
    params = params or random_params(model)
    tokens, mask = time_major(batch.tokens_BxSxN), time_major(batch.mask_BxSxN)
    return params, read_sentences(model, params, model.open_document(params, 1), tokens, mask)


@pytest.mark.parametrize("name", ["drnnlm", "pointer_drnnlm"])
def test_the_vector_of_a_document_is_the_top_hidden_state(name):
    params, read = read_document(name, ((3, 4),))
    vector_1xH = small_model(name).vector(params, read.context)
    np.testing.assert_array_equal(vector_1xH, read.features[0, 2])


def test_a_pointer_never_copies_from_an_empty_position():
    params, _ = read_document("pointer_drnnlm", ((3, 4),))
    params["pointer"]["sentinel_bias"] = jnp.asarray(-200.0)
    _, read = read_document("pointer_drnnlm", ((3, 4), (5,), (6, 7, 8)), params)
    assert read.pointer is not None
    log_share_SxNx1, log_weights_SxNx1xM, targets_SxMx1 = read.pointer
    weights_SxNx1xM = jnp.exp(log_weights_SxNx1xM)
    # END is 1. Six targets are in memory at most.
    expected = [[-1] * 6, [-1, -1, -1, 3, 4, 1], [-1, 3, 4, 1, 5, 1]]
    np.testing.assert_array_equal(targets_SxMx1[..., 0], expected)
    assert not log_share_SxNx1[0].any()
    is_empty_Sx1x1xM = (targets_SxMx1 < 0).swapaxes(1, 2)[:, None]
    assert not np.any(np.where(is_empty_Sx1x1xM, weights_SxNx1xM, 0))
    assert np.all(log_share_SxNx1[1:] < -100)
    close(jnp.exp(log_share_SxNx1) + weights_SxNx1xM.sum(-1), np.ones((3, 4, 1)))


@pytest.mark.parametrize("name", ["codclm", "rnnslm", "hierarchical_autoencoder"])
def test_no_dropout_has_no_masks(name):
    keys_B = jax.random.split(jax.random.key(0), 2)
    model = small_model(name, num_layers=1, dropout=0.5, input_dropout=0.0, output_dropout=0.0)
    for without in (small_model(name), model):
        assert draw_masks(without, {}, keys_B, (2, 3)) is None
        assert not draw_source_masks(without, keys_B, (2, 3))


def drawn(sizes, rows, **options):
    """The masks of a training step, and those of sources; CODCLM has every kind."""
    model = small_model("codclm", **{"dropout": 0.4, "num_layers": 3, **options})
    keys_B = jax.random.split(jax.random.key(0), rows)
    masks = dropout_masks(model, keys_B, *map(np.zeros, sizes))
    return jax.tree.map(np.asarray, (masks, draw_source_masks(model, keys_B, sizes)))


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({}, (0.2, 0.2, 0.2)),
        ({"input_dropout": 0.5, "output_dropout": 0.4}, (0.5, 0.2, 0.4)),
        # One rate is enough for masks.
        ({"dropout": 0.0, "output_dropout": 0.5}, (0.0, 0.0, 0.5)),
    ],
)
def test_dropout_masks_keep_the_mean(options, rates):
    masks, of_source = drawn((5, 20), 16, **{"dropout": 0.2, **options})
    assert masks.embeddings.shape == (5, 20, 16, 4)
    assert [mask.shape for mask in masks.layers] == [(5, 20, 16, 5)] * 2
    assert masks.features.shape == (5, 20, 16, 5)
    assert masks.contexts.shape == (5, 1, 16, 5)
    of_inputs, of_layers, of_output = rates
    of_source = of_source or (masks.embeddings, *masks.layers)
    for rate, mask in (
        (of_inputs, masks.embeddings),
        *((of_layers, mask) for mask in masks.layers),
        *((of_output, mask) for mask in (masks.features, masks.contexts)),
        *zip((of_inputs, of_layers, of_layers), of_source, strict=True),
    ):
        np.testing.assert_allclose(np.unique(mask), [0, 1 / (1 - rate)] if rate else [1])
        # Five standard deviations of a mean of independent multipliers.
        assert abs(np.mean(mask) - 1) <= 5 * np.sqrt(rate / (1 - rate) / mask.size)
    first, second = masks.layers
    assert np.array_equal(first, second) == (not of_layers)
    for mask in (first, second, masks.features):
        assert not np.array_equal(mask[:, :1], masks.contexts)
        assert not np.array_equal(mask.ravel()[: masks.contexts.size], masks.contexts.ravel())


def test_a_rows_dropout_does_not_depend_on_other_rows():
    model = small_model("codclm", dropout=0.4)
    keys_B = jax.random.split(jax.random.key(3), 4)
    masks = dropout_masks(model, keys_B, np.zeros(3), np.zeros(6))
    alone = dropout_masks(model, keys_B[2:3], np.zeros(3), np.zeros(6))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:, :, 2:3], b), masks, alone)
    for mask in jax.tree.leaves(masks):
        assert not np.array_equal(mask[:, :, 0], mask[:, :, 1])


def test_variational_dropout_is_one_draw_a_sentence():
    masks, _ = drawn((5, 20), 16, variational_dropout=True)
    assert [mask.shape[:3] for mask in jax.tree.leaves(masks)] == [(5, 20, 16)] * 4 + [(5, 1, 16)]
    for mask in jax.tree.leaves(masks):
        np.testing.assert_array_equal(mask, np.broadcast_to(mask[:, :1], mask.shape))
        np.testing.assert_allclose(np.unique(mask), [0, 1 / 0.6])
        assert abs(np.mean(mask) - 1) < 5 * np.sqrt(0.4 / 0.6 / mask[:, 0].size)
        assert not np.array_equal(mask[0], mask[1])
        assert not np.array_equal(mask[:, :, 0], mask[:, :, 1])


@EACH_WORD_MODEL
def test_recurrent_dropout_is_of_the_weights_of_the_recurrences_alone(name):
    model = small_model(name, recurrent_dropout=0.25, num_layers=2, hidden_dim=40)
    params = random_params(model)
    dropped = drop_weights(model, params, jax.random.key(0))
    ratios = jax.tree.map(lambda a, b: np.asarray(a) / np.asarray(b), dropped, params)
    weights = CELLS[model.cell].weights
    taken = [layer.pop(name) for layer in ratios["stack"] for name in weights]
    assert all(np.all(ratio == 1) for ratio in jax.tree.leaves(ratios))
    for ratio in taken:
        np.testing.assert_allclose(np.unique(ratio.round(5)), [0, 1.33333])
        assert abs(ratio.mean() - 1) < 5 * np.sqrt(0.25 / 0.75 / ratio.size)
    kept = [ratio > 0 for ratio in taken]
    assert not np.array_equal(kept[0], kept[len(weights)])
    if len(weights) == 3:
        assert not np.array_equal(kept[1], kept[2])
    assert drop_weights(small_model(name), params, jax.random.key(0)) is params


def test_the_likelihood_of_a_training_step_drops_weights():
    model = small_model("ccdclm", recurrent_dropout=0.5)
    params, key = random_params(model), jax.random.key(1)
    got = batch_likelihood(model, params, BATCH, None, key).nll
    expected = batch_likelihood(model, drop_weights(model, params, key), BATCH).nll
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert not np.isclose(got, batch_likelihood(model, params, BATCH).nll, rtol=1e-3)


@pytest.mark.parametrize("name", [name for name in LANGUAGE_MODELS if name not in LIN])
def test_initial_embeddings_count_one_input_or_all(name):
    model = small_model(name, embedding_dim=5)
    embedding = np.abs(model.init(jax.random.key(0))["embedding"])
    fan_in = VOCAB if name.startswith("rlm") else 1
    assert 0.85 < embedding.max() / np.sqrt(6 / (fan_in + 5)) <= 1


@pytest.mark.parametrize("name", LIN)
def test_initial_values_of_lins_models_are_uniform_by_the_size_of_the_layer_before(name):
    model = small_model(name, hidden_dim=40, num_layers=2)
    for path, leaf in by_path(model.init(jax.random.key(0))).items():
        if leaf.ndim == 1:
            assert not np.any(leaf), path
            continue
        inputs = VOCAB if path.endswith("embedding") else 40
        assert leaf.shape[0] == inputs
        assert 0.9 < np.abs(leaf).max() * inputs <= 1, path
        assert abs(np.mean(leaf)) * inputs < 0.2, path


def test_documents_of_lins_models_begin_with_a_history_of_tenths_and_no_words():
    model = small_model("rnnslm", num_layers=2)
    context = model.open_document(cast_params(model, random_params(model)), 3)
    for array in jax.tree.leaves(context.state):
        np.testing.assert_array_equal(array, np.full((3, 5), 0.1))
    assert np.all(context.words_BxM == -1)


def test_without_hashed_features_there_are_none():
    model = small_model("hrnnlm_two_step", hash_size=0)
    assert not {"bigrams", "sentence_bigrams"} & random_params(model).keys()


@pytest.mark.parametrize("name", ["hrnnlm", "hrnnlm_two_step"])
def test_a_bag_has_no_unknown_word_of_the_text_if_the_vocabulary_has_pieces(name):
    """A bag is predicted from the sentences before; id 2 is UNKNOWN."""
    model = small_model(name, first_word_end=4)
    params = random_params(model)

    def auxiliary(*words: int, model=model) -> float:
        return likelihood(model, params, pack([[[4, 5], list(words)]])).auxiliary.item()

    assert auxiliary(5, 2, 6) == pytest.approx(auxiliary(5, 6), rel=1e-6)
    of_words = dataclasses.replace(model, first_word_end=3)
    assert auxiliary(5, 2, 6, model=of_words) != pytest.approx(auxiliary(5, 6), rel=1e-3)
