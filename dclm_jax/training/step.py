"""One training step: pure, and data-parallel under `jax.pmap`.

There is one copy of the state per device. The gradient is psum(sum of gradients) / psum(tokens or
sentences), never a mean of means; empty batch elements change no sum. For the parameters that
`hashed` names, a step updates only the slices of the batch's words, with sgd and adagrad alone.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dclm_jax import processes
from dclm_jax.data.batches import Batch
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.nn.precision import at_precision
from dclm_jax.processes import DEVICES
from dclm_jax.reading.likelihoods import Likelihood, batch_likelihood
from dclm_jax.training.freezing import joined, split
from dclm_jax.training.hashed import HashedSlices
from dclm_jax.training.optimizer import rate_factor


@flax.struct.dataclass
class TrainState:
    """Everything a step changes: step counter (int32 scalar), parameters, optimizer state; and the
    paths of those parameters that it does not change (`training.frozen`)."""

    step: jax.Array
    params: Params
    optimizer_state: optax.OptState
    frozen: frozenset[str] = flax.struct.field(pytree_node=False, default=frozenset())


class StepMetrics(NamedTuple):
    """Sums over the global batch (see `Likelihood`), and two numbers of the step.

    nll, terms: nats, and the number of targets or sentences that they are a sum over.
    extra: nats of a further objective; 0 with frozen parameters.
    tokens: targets.
    gradient_norm: global norm of the gradient of the mean loss, before clipping.
    rate_factor: factor on the learning rate.
    """

    nll: jax.Array
    extra: jax.Array
    terms: jax.Array
    tokens: jax.Array
    gradient_norm: jax.Array
    rate_factor: jax.Array


def first_state(
    params: Params, optimizer: optax.GradientTransformation, frozen: frozenset[str] = frozenset()
) -> TrainState:
    """The state before the first step, from given parameters; the frozen ones have no optimizer
    state."""
    trained, _ = split(params, frozen)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(trained), frozen)


def train_step(
    model: DocumentModel,
    optimizer: optax.GradientTransformation,
    state: TrainState,
    batch: Batch,
    key: jax.Array,
    loss_per: str = "token",
) -> tuple[TrainState, StepMetrics]:
    """One update from this device's rows of the global batch, under `jax.pmap` over DEVICES.

    Devices hold different numbers of tokens: the gradient is the sum over all devices of the
    gradients of summed losses, divided by the sum of tokens (or sentences), which is what one
    device would compute.

    Args:
      key: the run's dropout key; the step and each row's index in the global batch are folded in.
      loss_per: "token" or "sentence", what the loss is a mean over; of bags always sentences.

    Only the slices of the batch's words are read, differentiated and written of hashed features.
    """
    rows = batch.tokens_BxSxN.shape[0]
    first_row = jax.lax.axis_index(DEVICES) * rows
    step_key = jax.random.fold_in(key, state.step)
    keys_B = jax.vmap(jax.random.fold_in, (None, 0))(step_key, first_row + jnp.arange(rows))
    # Weights are dropped alike on all devices; no row has this index.
    weights_key = jax.random.fold_in(step_key, 2**32 - 1)
    whole, held = split(state.params, state.frozen)
    slices = HashedSlices.of_batch(model, whole, batch)
    trained, optimizer_state = slices.read((whole, state.optimizer_state))

    @functools.partial(at_precision, model.matmul_precision)
    @functools.partial(jax.grad, has_aux=True)
    def gradient(trained: Params) -> tuple[jax.Array, Likelihood]:
        params = slices.as_rows(joined(trained, held))
        sums = batch_likelihood(model, params, batch, keys_B, weights_key)
        return sums.nll + sums.extra, sums

    gradients, sums = gradient(trained)
    gradients, sums = jax.lax.psum((gradients, sums), DEVICES)
    count = {"token": sums.terms, "sentence": sums.sentences}[loss_per]
    gradients = jax.tree.map(lambda gradient: gradient / count, gradients)
    norm, factor = optax.tree.norm(gradients), rate_factor(optimizer_state)
    updates, optimizer_state = optax.with_extra_args_support(optimizer).update(
        gradients, optimizer_state, trained, nll=sums.nll, terms=sums.terms
    )
    updated = jax.tree.map(jnp.add, trained, updates)
    whole, optimizer_state = slices.write(
        (whole, state.optimizer_state), (updated, optimizer_state)
    )
    params = joined(whole, held)
    # A further objective of frozen parameters alone costs nothing where nobody asks for it.
    extra = jnp.zeros(()) if state.frozen else sums.extra
    metrics = StepMetrics(sums.nll, extra, sums.terms, sums.tokens, norm, factor)
    return TrainState(state.step + 1, params, optimizer_state, state.frozen), metrics


def parallel_step(
    model: DocumentModel,
    optimizer: optax.GradientTransformation,
    loss_per: str = "token",
    devices: Sequence[jax.Device] | None = None,
) -> Callable[[TrainState, Batch, jax.Array], tuple[TrainState, StepMetrics]]:
    """`train_step` over devices, by default those of all processes: state (donated) and key as one
    device holds them, batch of `shard_rows`."""
    step = functools.partial(train_step, model, optimizer, loss_per=loss_per)
    if devices is None:
        # In the order of the rows that `spread_rows` gives to processes.
        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    # The state has no axis of devices: none is copied in or out of it.
    return jax.pmap(
        step,
        axis_name=DEVICES,
        in_axes=(None, 0, None),
        out_axes=(None, None),
        donate_argnums=(0,),
        devices=devices,
    )


def spread(state: TrainState) -> TrainState:
    """A copy of the state on every local device, where steps leave it: the first step of a run is
    compiled for the same arrays as all others."""
    return jax.tree.map(jnp.copy, processes.on_local_devices(state))


def spread_rows(batch: Batch) -> Batch:
    """The rows of a global batch that belong to this process's devices."""
    first = jax.process_index() * jax.local_device_count()
    mine = slice(first, first + jax.local_device_count())
    return jax.tree.map(lambda array: array[mine], shard_rows(batch, jax.device_count()))


def shard_rows(batch: Batch, num_devices: int) -> Batch:
    """Splits rows evenly over devices, [B, ...] -> [devices, ceil(B / devices), ...].

    Rows that are missing for an even split are empty: they hold no token and change no sum.
    """
    missing = -batch.tokens_BxSxN.shape[0] % num_devices

    def split(array: np.ndarray) -> np.ndarray:
        padded = np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
        return padded.reshape(num_devices, -1, *array.shape[1:])

    return jax.tree.map(split, batch)
