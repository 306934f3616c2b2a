"""Sources, decisions whether a document has ended, initial values and memory of autoencoders."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax import models
from dclm_jax.data.batches import Batch
from dclm_jax.models.autoencoder import in_reading_order, joined_sentences
from dclm_jax.models.base import Source
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import first_state, parallel_step
from tests.exhaustive import also
from tests.models.support import (
    AUTOENCODERS,
    likelihood,
    pack,
    random_params,
    simple_model,
    small_model,
    time_major,
)

SOURCES = (((5, 3, 7), (6,)), ((4, 2),), ())


def source_of(documents, S, N):
    batch = pack(documents, S, N)
    return Source(time_major(batch.tokens_BxSxN), time_major(batch.mask_BxSxN))


@pytest.mark.parametrize(
    ("reverse", "expected"),
    [
        ("none", [[5, 3, 7, 1], [6, 1]]),
        ("words", [[7, 3, 5, 1], [6, 1]]),
        ("sentences", [[6, 1], [5, 3, 7, 1]]),
        ("documents", [[6, 1], [7, 3, 5, 1]]),
    ],
)
def test_every_word_is_read_and_then_end(reverse, expected):
    words = in_reading_order(source_of(SOURCES, S=4, N=6), reverse)
    tokens, mask = (np.moveaxis(np.asarray(array), 2, 0) for array in words[:2])
    of_first = [row[real].tolist() for row, real in zip(tokens[0], mask[0], strict=True)]
    assert of_first == [*expected, [], []]
    joined = joined_sentences(words)
    tokens, mask = np.asarray(joined.tokens_SxNxB).T, np.asarray(joined.mask_SxNxB).T
    assert mask.sum(axis=1).tolist() == [6, 3, 0]
    assert tokens[0, :6].tolist() == sum(expected, [])
    assert mask[:, :6].tolist() == [[True] * 6, [True] * 3 + [False] * 3, [False] * 6]


@pytest.mark.parametrize("name", AUTOENCODERS)
def test_endings_are_told_before_every_sentence_and_after_the_last(name, x64):
    """With a bias alone: one decision more than sentences, of which the last is that it ends."""
    model = simple_model(name)
    params = random_params(model)
    params["ending"] = {"kernel": jnp.zeros((5, 1)), "bias": jnp.array([0.3])}
    ends = 1 / (1 + np.exp(-0.3))
    result = likelihood(model, params, pack([((5, 3), (4,), (6, 2)), ((7,),), ()]))
    expected = -(4 * np.log(1 - ends) + 2 * np.log(ends))
    np.testing.assert_allclose(result.auxiliary, expected, rtol=1e-12)


def test_a_source_is_asked_for():
    model = small_model("hierarchical_autoencoder")
    with pytest.raises(ValueError, match="hierarchical_autoencoder reads a source"):
        model.open_document(random_params(model), 2)


@pytest.mark.parametrize(
    ("name", "sentence_layers", "attention"),
    [
        ("standard_autoencoder", 0, 0),
        ("hierarchical_autoencoder", 2, 0),
        ("hierarchical_attention_autoencoder", 2, 1),
    ],
)
def test_parameter_counts_and_initial_values(name, sentence_layers, attention):
    """By the paper: W of 4K x 2K a layer, of 4K x 3K where it reads m_t, W_1, W_2 and U."""
    K, V, L = 30, 50, 4
    model = models.create(name, vocab_size=V, embedding_dim=K, hidden_dim=K, num_layers=L)
    params = model.init(jax.random.key(0))
    of_words = 2 * V * K + V
    of_layer = 8 * K * K + 4 * K
    of_attention = 2 * K * K + K + 4 * K * K
    expected = of_words + (2 + sentence_layers) * L * of_layer + attention * of_attention + K + 1
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == expected
    matrices = [leaf for leaf in jax.tree.leaves(params) if leaf.ndim == 2]
    for matrix in matrices:
        assert 0.9 * 0.08 * (1 - 2 / matrix.size) < np.abs(matrix).max() <= 0.08
    for layer in params["stack"]:
        np.testing.assert_array_equal(layer["bias"], np.repeat([0, 1, 0, 0], K))


@pytest.mark.parametrize(
    "name", ["hierarchical_attention_autoencoder", *also(["standard_autoencoder"])]
)
def test_a_step_of_a_large_vocabulary_does_not_hold_all_logits(name):
    """V = 120,003 and 32 documents of 8 sentences of 32 positions, compiled and not run."""
    V, shape_BxSxN = 120_003, (32, 8, 32)
    model = models.create(name, vocab_size=V, embedding_dim=8, hidden_dim=8, num_layers=1)
    optimizer = create_optimizer(OptimizerConfig(name="sgd"), 1)

    def arguments():
        key, ids = jax.random.key(0), jnp.zeros(shape_BxSxN, jnp.int32)
        batch = Batch(ids, ids, ids > 0)
        batch = dataclasses.replace(batch, source=batch)
        return first_state(model.init(key), optimizer), batch, key

    state, batch, key = jax.eval_shape(arguments)
    batch = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape), a.dtype), batch)
    compiled: Any = parallel_step(model, optimizer).lower(state, batch, key).compile()
    all_logits = 4 * V * math.prod(shape_BxSxN)
    assert compiled.memory_analysis().temp_size_in_bytes < all_logits / 8
