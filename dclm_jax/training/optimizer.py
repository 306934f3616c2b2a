"""Optimizers and learning-rate schedules by name, and the exponential moving average (EMA) of
parameters."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dclm_jax.errors import InputError, did_you_mean
from dclm_jax.nn.layers import combine
from dclm_jax.training.config import OptimizerConfig

OPTIMIZERS: dict[str, Callable[[optax.Schedule], optax.GradientTransformation]] = {
    # Epsilon, inside the square root, is so small that the first step has the full rate.
    "adagrad": functools.partial(optax.adagrad, initial_accumulator_value=0.0, eps=1e-20),
    # Zeiler's decay and constant (2012); its learning rate is 1.
    "adadelta": functools.partial(optax.adadelta, rho=0.95, eps=1e-6),
    "adam": optax.adam,
    "sgd": optax.sgd,
}
SCHEDULES = ("constant", "cosine", "halve_on_plateau", "halve_after")

# A rate is 0 in float32 after this number of halvings.
_MOST_HALVINGS = 128


class Optimizer(NamedTuple):
    """A gradient transformation of optax, and its learning rate.

    Attributes:
      init, update: see `optax.GradientTransformationExtraArgs`; `update` takes the sums `nll` and
        `terms` of the step.
      learning_rate: the rate of a step, a function of its number and the state before it.
    """

    init: optax.TransformInitFn
    update: optax.TransformUpdateExtraArgsFn
    learning_rate: Callable[[jax.Array, optax.OptState], jax.Array]


def schedule_of(
    options: OptimizerConfig, total_steps: int, steps_per_epoch: int | None = None
) -> optax.Schedule:
    """The scheduled learning rate by step; for the arguments see `create_optimizer`."""
    warmup, peak = options.warmup_steps, options.learning_rate
    match options.schedule:
        # `_halve_on_plateau` multiplies the constant rate by a factor.
        case "constant" | "halve_on_plateau":
            schedule = optax.constant_schedule(peak)
        case "halve_after":
            schedule = _halve_after(options, steps_per_epoch or total_steps)
        case "cosine":
            schedule = optax.cosine_decay_schedule(peak, max(1, total_steps - warmup))
        case _:
            hint = did_you_mean(options.schedule, SCHEDULES)
            raise InputError(f"optimizer.schedule is {options.schedule!r}{hint}")
    if not warmup:
        return schedule
    growth = optax.linear_schedule(peak / warmup, peak, max(1, warmup - 1))
    return optax.join_schedules([growth, schedule], [warmup])


def _halve_after(options: OptimizerConfig, steps_per_epoch: int) -> optax.Schedule:
    if not options.halve_every:
        raise InputError("optimizer.halve_every is 0 with halve_after; choose a value above 0")
    epochs = options.halve_after + options.halve_every * np.arange(_MOST_HALVINGS)
    # The first step of each rate, computed by numpy: XLA rounds a quotient of steps differently, so
    # that some rates would be halved a step late.
    first = np.ceil(np.round(epochs * steps_per_epoch, 6)).clip(max=np.iinfo(np.int32).max)
    # Epochs count from the start of training, and steps of this schedule from the end of the
    # warm-up.
    first = first.astype(np.int32) - options.warmup_steps

    def rate(step: Any) -> jax.Array:
        return options.learning_rate * 0.5 ** jnp.sum(step >= first)

    return rate


class Plateau(NamedTuple):
    """State of `_halve_on_plateau`.

    Attributes:
      factor: factor on the learning rate.
      steps, nll, terms: number of steps, sum of nats and its number of terms in the epoch so far,
        without an auxiliary loss, which is therefore not computed for frozen parameters.
      last: mean loss of the previous epoch; the largest float in the first epoch.
    """

    factor: jax.Array
    steps: jax.Array
    nll: jax.Array
    terms: jax.Array
    last: jax.Array


def _halve_on_plateau(steps_per_epoch: int) -> optax.GradientTransformationExtraArgs:
    """Halves updates after each epoch whose mean training loss is not below the mean of the
    previous epoch (Lin et al. 2015, 4.2; Mikolov et al. 2010)."""

    def init(params: Any) -> Plateau:
        del params
        zero = jnp.zeros(())
        last = jnp.full((), jnp.finfo(zero.dtype).max)
        return Plateau(jnp.ones(()), jnp.zeros((), jnp.int32), zero, zero, last)

    def update(updates: Any, state: Any, params: Any = None, **sums: Any) -> tuple[Any, Plateau]:
        del params
        updates = jax.tree.map(lambda update: state.factor * update, updates)
        steps, nll, terms = state.steps + 1, state.nll + sums["nll"], state.terms + sums["terms"]
        ends, mean = steps == steps_per_epoch, nll / terms
        return updates, Plateau(
            factor=jnp.where(ends & ~(mean < state.last), state.factor / 2, state.factor),
            steps=jnp.where(ends, 0, steps),
            nll=jnp.where(ends, 0, nll),
            terms=jnp.where(ends, 0, terms),
            last=jnp.where(ends, mean, state.last),
        )

    return optax.GradientTransformationExtraArgs(init, update)


class ParameterAverage(NamedTuple):
    """Number of steps, and the EMA of the parameters after these steps."""

    count: jax.Array
    average: Any


def _average_parameters(decay: float) -> optax.GradientTransformation:
    """Computes a_t = d a_{t-1} + (1 - d) x_t, d = min(decay, t / (t + 9)); updates do not change.

    This averages the iterates of stochastic gradient descent (Polyak and Juditsky 1992). Because of
    the decay, the weight of the first steps soon vanishes and no later start is needed.
    """

    def init(params: Any) -> ParameterAverage:
        return ParameterAverage(jnp.zeros((), jnp.int32), jax.tree.map(jnp.copy, params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, ParameterAverage]:
        count = state.count + 1
        step = 1 - jnp.minimum(decay, count / (count + 9))
        average = jax.tree.map(
            lambda a, x, u: a + step * (x + u - a), state.average, params, updates
        )
        return updates, ParameterAverage(count, average)

    return optax.GradientTransformation(init, update)


def model_params(params: Any, optimizer_state: optax.OptState) -> Any:
    """The parameters that are evaluated and saved as the best model: the EMA, if there is one,
    otherwise the parameters. Frozen parameters have no average."""
    average = optax.tree.get(optimizer_state, "average")
    return params if average is None else combine(average, params)


def create_optimizer(
    options: OptimizerConfig, total_steps: int, steps_per_epoch: int | None = None
) -> Optimizer:
    """The optimizer of `config.optimizer`; the gradient is clipped before it is accumulated.

    Args:
      options: options of the configuration.
      total_steps: number of training steps of the run, over which a learning rate decays.
      steps_per_epoch: number of training steps per epoch, for `halve_after` and
        `halve_on_plateau`; None for all steps.
    """
    if not options.average_decay < 1:
        raise InputError(
            f"optimizer.average_decay is {options.average_decay}; choose a value below 1"
        )
    if options.name not in OPTIMIZERS:
        raise InputError(
            f"optimizer.name is {options.name!r}{did_you_mean(options.name, OPTIMIZERS)}"
        )
    schedule = schedule_of(options, total_steps, steps_per_epoch)
    parts = [OPTIMIZERS[options.name](schedule)]
    if options.clip_norm:
        parts.insert(0, optax.clip_by_global_norm(options.clip_norm))
    if options.schedule == "halve_on_plateau":
        parts.append(_halve_on_plateau(steps_per_epoch or total_steps))
    if options.average_decay:
        parts.append(_average_parameters(options.average_decay))

    def learning_rate(step: jax.Array, state: optax.OptState) -> jax.Array:
        factor = optax.tree.get(state, "factor")
        return jnp.asarray(schedule(step)) * (1.0 if factor is None else factor)

    transformation = optax.with_extra_args_support(optax.chain(*parts))
    return Optimizer(transformation.init, transformation.update, learning_rate)
