"""Steps on hashed features touch the slices of the batch, and are those of the whole array."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.nn.hashing import history_starts
from dclm_jax.reading.likelihoods import batch_likelihood
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.freezing import by_path, choose
from dclm_jax.training.optimizer import create_optimizer, require_sparse
from dclm_jax.training.step import first_state, parallel_step, spread, spread_rows
from dclm_jax.training.warm_start import word_axes
from tests.exhaustive import also
from tests.models.support import VOCAB, pack, random_params, small_model

# Few words, so that there are entries that no slice of theirs covers.
BATCH = pack((((5, 3, 5), (3,)), ((5,), (3, 5))))
WORDS = (0, 3, 5)
SIZE = 60
# Every model with both optimizers, and words counted or not with each of these.
STEPS = [
    ("rnn_lin", "sgd", False),
    ("rnn_lin", "adagrad", True),
    ("rnnslm", "sgd", True),
    ("rnnslm", "adagrad", False),
    ("hrnnlm_two_step", "sgd", False),
    ("hrnnlm_two_step", "adagrad", True),
]
OTHER_STEPS = [(name, optimizer, not counted) for name, optimizer, counted in STEPS]


def stepped(model, options, frozen="", steps=2, batch=BATCH):
    optimizer = create_optimizer(options, steps)
    params = random_params(model)
    state = spread(first_state(params, optimizer, choose(frozen, by_path(params))))
    step, batch = parallel_step(model, optimizer), spread_rows(batch)
    for _ in range(steps):
        state, metrics = step(state, batch, jax.random.key(0))
    return jax.device_get(state), float(metrics.gradient_norm)


def require_whole(model, options, batch, state, norm):
    """Two clipped steps are those on the dense gradient of all entries."""

    def loss(params):
        likelihood = batch_likelihood(model, params, batch)
        return (likelihood.nll + likelihood.extra) / likelihood.terms

    dense = create_optimizer(options, 2)
    params = random_params(model)
    dense_state = dense.init(params)
    for _ in range(2):
        gradient = jax.jit(jax.grad(loss))(params)
        updates, dense_state = dense.update(gradient, dense_state, params)
        params = jax.tree.map(jnp.add, params, updates)
    whole = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(gradient)))
    np.testing.assert_allclose(norm, whole, rtol=1e-10)
    assert whole > 0.1, "the test must clip to be able to fail"
    close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
    jax.tree.map(close, (state.params, state.optimizer_state), (params, dense_state))


@pytest.mark.parametrize(("name", "optimizer", "counted"), [*STEPS, *also(OTHER_STEPS)])
def test_a_step_is_that_of_the_whole_array(name, optimizer, counted, x64):
    model = small_model(name, hash_size=SIZE)
    options = OptimizerConfig(name=optimizer, learning_rate=0.3, clip_norm=0.1)
    batch = BATCH.with_words_counted() if counted else BATCH
    state, norm = stepped(model, options, batch=batch)
    require_whole(model, options, batch, state, norm)

    before = random_params(model)
    for array in model.hashed:
        changed = state.params[array] != before[array]
        starts = history_starts(VOCAB, SIZE)[list(WORDS if array == "bigrams" else WORDS[1:])]
        covered = np.isin(np.arange(SIZE), (starts[:, None] + np.arange(VOCAB)).ravel())
        assert not covered.all(), "the test must leave something alone to be able to fail"
        np.testing.assert_array_equal(changed, covered)


@pytest.mark.parametrize("name", ["rnnslm", "hrnnlm_two_step"])
def test_words_of_the_segment_before_are_histories_as_well(name, x64):
    """They are no words of the batch itself, and the first sentence is predicted from them."""
    model = small_model(name, hash_size=SIZE)
    options = OptimizerConfig(name="sgd", learning_rate=0.3, clip_norm=0.1)
    carried = dataclasses.replace(BATCH, earlier=pack((((7, 8),), ((9,),)), N=4))
    batch = carried.with_words_counted()
    assert batch.most_words == 8
    state, norm = stepped(model, options, batch=batch)
    require_whole(model, options, batch, state, norm)


def test_the_second_step_leaves_the_sentence_level_alone():
    """Its hashed features are whole arrays then, and those of the words packed slices."""
    model = small_model("hrnnlm_two_step", hash_size=SIZE)
    options = OptimizerConfig(name="sgd", learning_rate=0.3, schedule="halve_on_plateau")
    state, _ = stepped(model, options, frozen="sentence_*")
    before, after = by_path(random_params(model)), by_path(state.params)
    assert {path for path in before if not np.array_equal(before[path], after[path])} == {
        path for path in before if not path.startswith("sentence_")
    }


def test_parameters_of_the_sentence_level_have_one_name_in_both_models():
    single, both = (
        by_path(jax.eval_shape(small_model(name).init, jax.random.key(0)))
        for name in ("rnnslm", "hrnnlm_two_step")
    )
    assert {path: leaf.shape for path, leaf in single.items()} == {
        path: leaf.shape for path, leaf in both.items() if path.startswith("sentence_")
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "adam"}, "optimizer.name is 'adam', which changes all hashed features at ev"),
        ({"name": "sgd", "average_decay": 0.5}, "optimizer.average_decay is 0.5, .* choose 0 "),
    ],
)
def test_what_moves_parameters_without_a_gradient_is_refused(options, message):
    require_sparse(OptimizerConfig(name="adagrad"))
    with pytest.raises(InputError, match=f"^{message}"):
        require_sparse(OptimizerConfig(**options))


def test_hashed_features_of_the_smallest_size_have_no_axis_of_words():
    model = small_model("rnnslm", hash_size=VOCAB)
    assert word_axes(model)["sentence_bigrams"] is None
    assert word_axes(model)["sentence_embedding"] == 0
