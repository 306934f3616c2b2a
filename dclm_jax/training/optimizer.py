"""Optimizers and learning-rate schedules by name, and averages of parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dclm_jax.errors import InputError
from dclm_jax.models import did_you_mean
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.frozen import joined


def _adagrad(learning_rate: optax.ScalarOrSchedule, options: OptimizerConfig):
    # optax adds eps inside the square root: tiny, so that the first step has the full rate.
    accumulator = options.initial_accumulator
    return optax.adagrad(learning_rate, initial_accumulator_value=accumulator, eps=1e-20)


OPTIMIZERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "adagrad": _adagrad,
    # Zeiler's decay and constant (2012); its learning rate is 1.
    "adadelta": lambda learning_rate, options: optax.adadelta(learning_rate, rho=0.95, eps=1e-6),
    "adam": lambda learning_rate, options: optax.adam(learning_rate),
    "adamw": lambda learning_rate, options: optax.adamw(
        learning_rate, weight_decay=options.weight_decay
    ),
    "sgd": lambda learning_rate, options: optax.sgd(learning_rate),
}


def _exponential(peak: float, steps: int, fraction: float) -> optax.Schedule:
    if not fraction:
        raise InputError(
            "optimizer.schedule is 'exponential' with final_fraction 0.0; expected more than 0"
        )
    return optax.exponential_decay(peak, steps, fraction, end_value=peak * fraction)


SCHEDULES: dict[str, Callable[[float, int, float], optax.Schedule]] = {
    "constant": lambda peak, steps, fraction: optax.constant_schedule(peak),
    "linear": lambda peak, steps, fraction: optax.linear_schedule(peak, peak * fraction, steps),
    "cosine": lambda peak, steps, fraction: optax.cosine_decay_schedule(peak, steps, fraction),
    "exponential": _exponential,
}


def learning_rate(options: OptimizerConfig, total_steps: int) -> optax.Schedule:
    """The learning rate as a function of the step.

    Raises:
      InputError: an unknown schedule.
    """
    if options.schedule not in SCHEDULES:
        raise InputError(
            f"optimizer.schedule is {options.schedule!r}{did_you_mean(options.schedule, SCHEDULES)}"
        )
    warmup = options.warmup_steps
    decay_steps = options.decay_steps or max(1, total_steps - warmup)
    peak = options.learning_rate
    schedule = SCHEDULES[options.schedule](peak, decay_steps, options.final_fraction)
    if not warmup:
        return schedule
    growth = optax.linear_schedule(peak / warmup, peak, max(1, warmup - 1))
    return optax.join_schedules([growth, schedule], [warmup])


class Averages(NamedTuple):
    """Number of steps, and the moving average of the parameters after each of them."""

    count: jax.Array
    average: Any


def _average_parameters(decay: float) -> optax.GradientTransformation:
    """Keeps a_t = d a_{t-1} + (1 - d) x_t, d = min(decay, t / (t + 9)); updates stay as they are.

    Averages of stochastic gradient steps (Polyak and Juditsky 1992), with decay instead of a start:
    the first steps are soon forgotten.
    """

    def init(params: Any) -> Averages:
        return Averages(jnp.zeros((), jnp.int32), jax.tree.map(jnp.copy, params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Averages]:
        count = state.count + 1
        step = 1 - jnp.minimum(decay, count / (count + 9))
        average = jax.tree.map(
            lambda a, x, u: a + step * (x + u - a), state.average, params, updates
        )
        return updates, Averages(count, average)

    return optax.GradientTransformation(init, update)


def model_params(params: Any, optimizer_state: optax.OptState) -> Any:
    """What is evaluated and kept of a step: the averages, if there are any, or the parameters.

    Frozen parameters have no average.
    """
    average = optax.tree.get(optimizer_state, "average")
    return params if average is None else joined(average, params)


def create_optimizer(options: OptimizerConfig, total_steps: int) -> optax.GradientTransformation:
    """The optimizer of `config.optimizer`; the gradient is clipped before it is accumulated.

    Raises:
      InputError: an unknown optimizer or schedule.
    """
    if not options.average_decay < 1:
        raise InputError(f"optimizer.average_decay is {options.average_decay}; expected below 1")
    if options.name not in OPTIMIZERS:
        raise InputError(
            f"optimizer.name is {options.name!r}{did_you_mean(options.name, OPTIMIZERS)}"
        )
    if options.weight_decay and options.name != "adamw":
        raise InputError(
            f"optimizer.weight_decay is {options.weight_decay} with optimizer {options.name}; "
            "only adamw has it"
        )
    update = OPTIMIZERS[options.name](learning_rate(options, total_steps), options)
    if options.clip_norm:
        update = optax.chain(optax.clip_by_global_norm(options.clip_norm), update)
    if options.average_decay:
        update = optax.chain(update, _average_parameters(options.average_decay))
    if options.max_skipped_steps:
        update = optax.apply_if_finite(update, options.max_skipped_steps)
    return update
