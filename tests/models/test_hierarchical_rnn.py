"""What the models of Lin et al. (2015) begin with; their equations are in test_oracles.py."""

import jax
import numpy as np
import pytest

from dclm_jax.reading.driver import weighted
from dclm_jax.training.freezing import by_path
from tests.models.support import LIN, VOCAB, random_params, small_model


@pytest.mark.parametrize("name", LIN)
def test_initial_values_are_uniform_by_the_size_of_the_layer_before(name):
    model = small_model(name, hidden_dim=40, num_layers=2)
    for path, leaf in by_path(model.init(jax.random.key(0))).items():
        if leaf.ndim == 1:
            assert not np.any(leaf), path
            continue
        inputs = VOCAB if path.endswith("embedding") else 40
        assert leaf.shape[0] == inputs
        assert 0.9 < np.abs(leaf).max() * inputs <= 1, path
        assert abs(np.mean(leaf)) * inputs < 0.2, path


def test_documents_begin_with_a_history_of_tenths_and_no_words():
    model = small_model("rnnslm", num_layers=2)
    context = model.open_document(weighted(model, random_params(model)), 3)
    for array in jax.tree.leaves(context.state):
        np.testing.assert_array_equal(array, np.full((3, 5), 0.1, np.float32))
    assert np.all(context.words_BxM == -1)


def test_without_hashed_features_there_are_none():
    model = small_model("hrnnlm_two_step", hash_size=0)
    assert not {"bigrams", "sentence_bigrams"} & random_params(model).keys()
