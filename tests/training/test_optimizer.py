"""Optimizers and schedules by value."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.optimizer import (
    create_optimizer,
    model_params,
    schedule_of,
)


def test_adagrad_leaves_untouched_rows_alone_and_moves_others_by_the_rate():
    optimizer = create_optimizer(OptimizerConfig(clip_norm=0.0), 10)
    params = jnp.ones((2, 2))
    gradient = jnp.array([[0.0, 0.0], [1e-6, -3.0]])
    update, _ = optimizer.update(gradient, optimizer.init(params), params)
    np.testing.assert_allclose(np.asarray(update), [[0.0, 0.0], [-0.1, 0.1]], rtol=1e-5)


def test_adadelta_is_zeilers():
    """E[g^2] and E[dx^2] decay by 0.95; dx = -g sqrt(E[dx^2] + 1e-6) / sqrt(E[g^2] + 1e-6)."""
    options = OptimizerConfig(name="adadelta", learning_rate=1.0, clip_norm=0.0)
    optimizer = create_optimizer(options, 3)
    params = jnp.zeros(2)
    state = optimizer.init(params)
    squares = moves = np.zeros(2)
    for gradient in ([0.3, -20.0], [0.0, 1.0], [-0.1, 2.0]):
        update, state = optimizer.update(jnp.array(gradient), state, params)
        squares = 0.95 * squares + 0.05 * np.square(gradient)
        expected = -np.array(gradient) * np.sqrt((moves + 1e-6) / (squares + 1e-6))
        moves = 0.95 * moves + 0.05 * expected**2
        np.testing.assert_allclose(np.asarray(update), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0]),
        ("cosine", [0.25, 0.5, 0.75, 1.0, 1.0, 0.5 * (1 + np.cos(np.pi / 4)), 0.5]),
    ],
)
def test_schedule_warms_up_and_decays_over_the_rest_of_the_run(schedule, expected):
    options = OptimizerConfig(learning_rate=1.0, schedule=schedule, warmup_steps=4)
    rate = schedule_of(options, total_steps=8)
    np.testing.assert_allclose([np.asarray(rate(step)) for step in range(7)], expected, rtol=1e-5)


def test_a_rate_is_halved_every_half_epoch_after_the_fifth():
    """7 epochs of 10 steps: 50 at the full rate, then 5 at each half of the rate before."""
    options = OptimizerConfig(name="sgd", learning_rate=0.1, schedule="halve_after", clip_norm=0.0)
    expected = [0.1] * 50 + [0.1 / 2**halvings for halvings in (1, 2, 3, 4) for _ in range(5)]
    optimizer = create_optimizer(options, 70, steps_per_epoch=10)
    params, updates = jnp.zeros(1), []
    state = optimizer.init(params)
    for _ in expected:
        update, state = optimizer.update(jnp.ones(1), state, params)
        updates.append(-np.asarray(update).item())
    np.testing.assert_allclose(updates, expected, rtol=1e-6)


@pytest.mark.parametrize("steps_per_epoch", [25, 29, 31, 41, 10_625])
def test_a_compiled_rate_is_halved_at_the_same_steps(steps_per_epoch):
    """Multiplied by 1 / 25 as float32, step 125 would still be in the fifth epoch."""
    options = OptimizerConfig(name="sgd", learning_rate=0.1, schedule="halve_after")
    rate = schedule_of(options, 7 * steps_per_epoch, steps_per_epoch)
    first = [-(-n * steps_per_epoch // 2) for n in (10, 11, 12, 13)]
    steps = np.array(first)[:, None] + [-1, 0]
    expected = 0.1 / 2.0 ** np.array([[0, 1], [1, 2], [2, 3], [3, 4]])
    for function in (rate, jax.jit(rate)):
        values = [[np.asarray(function(np.int32(step))) for step in pair] for pair in steps]
        np.testing.assert_allclose(values, expected, rtol=1e-6)
    never = schedule_of(dataclasses.replace(options, halve_after=1e30), 7, 1)
    np.testing.assert_allclose(np.asarray(never(2**31 - 2)), 0.1, rtol=1e-6)


def test_errors_name_the_nearest():
    with pytest.raises(InputError, match=r"optimizer.name is 'adagard'; did you mean 'adagrad'"):
        create_optimizer(OptimizerConfig(name="adagard"), 1)
    with pytest.raises(InputError, match=r"schedule is 'cosin'; did you mean 'cosine'"):
        create_optimizer(OptimizerConfig(schedule="cosin"), 1)
    with pytest.raises(
        InputError, match=r"halve_every is 0 with halve_after; choose a value above 0"
    ):
        create_optimizer(OptimizerConfig(schedule="halve_after", halve_every=0.0), 1)


def test_epochs_until_the_first_halving_count_from_the_start_of_training_with_a_warm_up():
    options = OptimizerConfig(schedule="halve_after", learning_rate=0.8, warmup_steps=4)
    options = dataclasses.replace(options, halve_after=2.0, halve_every=1.0)
    rate = schedule_of(options, 40, steps_per_epoch=5)
    rates = [np.asarray(rate(step)) for step in range(16)]
    expected = [0.2, 0.4, 0.6, 0.8, *[0.8] * 6, *[0.4] * 5, 0.2]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


def test_averages_of_parameters_by_hand():
    """d = t / (t + 9) until it reaches the decay: 0.1, 2/11, 0.2, 0.2."""
    options = OptimizerConfig(name="sgd", learning_rate=1.0, clip_norm=0.0, average_decay=0.2)
    optimizer = create_optimizer(options, 4)
    params = average = np.array([5.0])
    state = optimizer.init(jnp.asarray(params))
    np.testing.assert_array_equal(np.asarray(model_params(jnp.asarray(params), state)), average)
    for gradient, decay in ((1.0, 0.1), (2.0, 2 / 11), (-1.0, 0.2), (1.0, 0.2)):
        update, state = optimizer.update(jnp.array([gradient]), state, jnp.asarray(params))
        params = params - gradient
        average = decay * average + (1 - decay) * params
        np.testing.assert_allclose(np.asarray(update), [-gradient])
        np.testing.assert_allclose(np.asarray(model_params(params, state)), average, rtol=1e-6)
    assert not np.allclose(average, params)


def test_without_averages_the_parameters_are_the_model():
    optimizer = create_optimizer(OptimizerConfig(), 1)
    params = jnp.ones(2)
    assert model_params(params, optimizer.init(params)) is params
    with pytest.raises(InputError, match=r"average_decay is 1.0; choose a value below 1"):
        create_optimizer(OptimizerConfig(average_decay=1.0), 1)


def test_the_rate_is_halved_after_an_epoch_that_did_not_lower_the_loss():
    """Epochs of two steps, whose losses are means over all their terms."""
    options = OptimizerConfig(
        name="sgd", learning_rate=0.1, clip_norm=0.0, schedule="halve_on_plateau"
    )
    optimizer = create_optimizer(options, 100, 2)
    # The means of the epochs are 2, 2.5, 2.4, 2.4, 1.
    nats = [(4.0, 1), (4.0, 3), (5.0, 2), (5.0, 2), (1.2, 1), (3.6, 1), (2.4, 1), (2.4, 1)]
    nats += [(1.0, 1)] * 2
    state = optimizer.init(jnp.zeros(1))
    applied, rates = [], []
    for step, (nll, terms) in enumerate(nats):
        rates.append(float(optimizer.learning_rate(jnp.asarray(step), state)))
        updates, state = optimizer.update(
            jnp.ones(1), state, jnp.zeros(1), nll=jnp.asarray(nll), terms=jnp.asarray(terms)
        )
        applied.append(-np.asarray(updates).item())
    expected = [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]
    np.testing.assert_allclose(applied, 0.1 * np.array(expected), rtol=1e-6)
    np.testing.assert_allclose(rates, applied, rtol=1e-6)
