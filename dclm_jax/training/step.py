"""One training step: pure, and data-parallel under `jax.pmap`.

There is one copy of the state per device. The gradient is psum(sum of gradients) / psum(tokens or
sentences), never a mean of means; empty batch elements change no sum. A device reads long
sentences in microbatches (`Shape.microbatches`), and adds their gradients.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dclm_jax import processes
from dclm_jax.allocation import device_memory, memory_text, peak_memory
from dclm_jax.data.batches import Batch, Shape, shard_rows
from dclm_jax.errors import InputError
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.nn.layers import combine
from dclm_jax.processes import DEVICES
from dclm_jax.reading.likelihoods import Likelihood, batch_likelihood
from dclm_jax.training.freezing import partition
from dclm_jax.training.optimizer import Optimizer


@flax.struct.dataclass
class TrainState:
    """Everything that a step changes: step counter (int32 scalar), parameters and optimizer state.
    `frozen` has the paths of parameters that it does not change (`training.frozen`)."""

    step: jax.Array
    params: Params
    optimizer_state: optax.OptState
    frozen: frozenset[str] = flax.struct.field(pytree_node=False, default=frozenset())


class StepMetrics(NamedTuple):
    """Sums over the global batch (see `Likelihood`), and two numbers of the step.

    nats, tokens: nats of the targets, and the number of targets.
    auxiliary: nats of the auxiliary loss; 0 with frozen parameters.
    gradient_norm: global norm of the gradient of the optimized mean loss, before clipping.
    learning_rate: the learning rate.
    """

    nats: jax.Array
    tokens: jax.Array
    auxiliary: jax.Array
    gradient_norm: jax.Array
    learning_rate: jax.Array


Step = Callable[[TrainState, Batch, jax.Array], tuple[TrainState, StepMetrics]]


def first_state(
    params: Params, optimizer: Optimizer, frozen: frozenset[str] = frozenset()
) -> TrainState:
    """The state before the first step; frozen parameters have no optimizer state."""
    trained, _ = partition(params, frozen)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(trained), frozen)


def train_step(
    model: DocumentModel,
    optimizer: Optimizer,
    loss_per: str,
    state: TrainState,
    batch: Batch,
    key: jax.Array,
) -> tuple[TrainState, StepMetrics]:
    """One update from this device's part of the global batch, under `jax.pmap` over DEVICES.

    Devices have different numbers of tokens. The gradient is therefore the sum over all devices of
    the gradients of summed losses, divided by the sum of tokens (or sentences), as on one device.

    Args:
      loss_per: "token" or "sentence", the unit over which the loss is a mean; always sentences for
        bags of words.
      key: the run's dropout key; the step and the index of each batch element in the global batch
        are folded in.
    """
    trained, held = partition(state.params, state.frozen)
    keys_B, weights_key = _dropout_keys(key, state.step, len(batch.tokens_BxSxN))

    def loss(trained: Params, batch: Batch, keys_B: jax.Array) -> tuple[jax.Array, Likelihood]:
        sums = batch_likelihood(model, combine(trained, held), batch, keys_B, weights_key)
        return sums.nll + sums.auxiliary, sums

    # The products of the backward pass have the same precision.
    with jax.default_matmul_precision(model.matmul_precision):
        gradient = functools.partial(jax.grad(loss, has_aux=True), trained)
        gradients, sums = _sum_over_microbatches(gradient, batch, keys_B)
    gradients, sums = jax.lax.psum((gradients, sums), DEVICES)
    count = {"token": sums.terms, "sentence": sums.sentences}[loss_per]
    gradients = jax.tree.map(lambda gradient: gradient / count, gradients)
    norm = optax.tree.norm(gradients)
    rate = optimizer.learning_rate(state.step, state.optimizer_state)
    updates, optimizer_state = optimizer.update(
        gradients, state.optimizer_state, trained, nll=sums.nll, terms=sums.terms
    )
    params = combine(jax.tree.map(jnp.add, trained, updates), held)
    # XLA does not compute an auxiliary loss of frozen parameters if no result needs it.
    auxiliary = jnp.zeros(()) if state.frozen else sums.auxiliary
    metrics = StepMetrics(sums.nats, sums.tokens, auxiliary, norm, rate)
    return TrainState(state.step + 1, params, optimizer_state, state.frozen), metrics


def _sum_over_microbatches(
    function: Callable[[Batch, jax.Array], Any], batch: Batch, keys_B: jax.Array
) -> Any:
    """The sum of a function's values at the microbatches and at the keys of their elements."""
    segments, sentences, positions = batch.mask_BxSxN.shape
    count = Shape(segments, sentences, positions).microbatches
    if count == 1:
        return function(batch, keys_B)

    def add(total: Any, microbatch: tuple[Batch, jax.Array]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, function(*microbatch)), None

    batches = shard_rows(batch, count, jnp.pad)
    # Keys of empty batch elements have no effect.
    keys = keys_B[jnp.arange(count * batches.mask_BxSxN.shape[1]) % segments].reshape(count, -1)
    microbatches = batches, keys
    first = jax.tree.map(lambda array: array[0], microbatches)
    zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, *first))
    return jax.lax.scan(add, zero, microbatches)[0]


def _dropout_keys(key: jax.Array, step: jax.Array, rows: int) -> tuple[jax.Array, jax.Array]:
    """The keys of this device's batch elements [B], and the key of dropout on weights."""
    step_key = jax.random.fold_in(key, step)
    row_B = jax.lax.axis_index(DEVICES) * rows + jnp.arange(rows)
    keys_B = jax.vmap(jax.random.fold_in, (None, 0))(step_key, row_B)
    # Weights have the same dropout mask on all devices; no batch element has this index.
    return keys_B, jax.random.fold_in(step_key, 2**32 - 1)


def parallel_step(
    model: DocumentModel,
    optimizer: Optimizer,
    loss_per: str = "token",
    devices: Sequence[Any] | None = None,
) -> Step:
    """`train_step` over devices, by default the devices of all processes. The state (donated) and
    the key have no axis of devices; the batch is from `local_shards`."""
    step = functools.partial(train_step, model, optimizer, loss_per)
    if devices is None:
        # In the order in which `local_shards` divides the batch among processes.
        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    # The state has no axis of devices, so it is not copied to add or remove one.
    return jax.pmap(
        step,
        axis_name=DEVICES,
        in_axes=(None, 0, None),
        out_axes=(None, None),
        donate_argnums=(0,),
        devices=devices,
    )


def compiled_step(step: Any, state: TrainState, batch: Batch) -> Step:
    """The step of `parallel_step`, compiled for batches of these shapes. A step that needs more
    memory than a device has is refused.

    Args:
      step: result of `parallel_step`.
      state: the state; its shapes suffice.
      batch: this process's part of a batch, [D, B, ...]; its shapes suffice.
    """
    _, *sizes = batch.mask_BxSxN.shape
    # XLA does not compile for sizes beyond any memory.
    state_size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    _require_device_memory(state_size, sizes)
    arguments = state, batch
    in_one_process = jax.process_count() == 1
    if not in_one_process:
        # With several processes `pmap` compiles for arrays only.
        arguments = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), arguments)
    compiled = step.lower(*arguments, jax.random.key(0)).compile()
    _require_device_memory(peak_memory(compiled), sizes)
    # A program of several processes has no arguments of one process; `pmap` has, and compiles
    # again at the first step, from the compilation cache.
    return compiled if in_one_process else step


def _require_device_memory(needed: int, sizes: Sequence[int]) -> None:
    if needed > (available := device_memory()):
        segments, sentences, positions = sizes
        raise InputError(
            f"a training step of {segments:,} segments of {sentences:,} sentences of "
            f"{positions:,} positions needs at least {memory_text(needed)} of memory per device; "
            f"a device has {memory_text(available)}. Use a smaller data.batch_size, "
            "data.segment_length or data.max_sentence_length, model.remat=true, a smaller model or "
            "more devices"
        )


def shapes_of(batch: Batch) -> Any:
    """The shapes of a batch as a key; a step is compiled for each key."""
    return (jax.tree.structure(batch), *(leaf.shape for leaf in jax.tree.leaves(batch)))


def replicate(state: TrainState) -> TrainState:
    """A copy of the state on every local device, like the result of a step. The first step of a run
    is then compiled for the same arrays as all later steps."""
    return jax.tree.map(jnp.copy, processes.on_local_devices(state))


def local_shards(batch: Batch) -> Batch:
    """The batch elements of a global batch for this process's devices."""
    first = jax.process_index() * jax.local_device_count()
    mine = slice(first, first + jax.local_device_count())
    return jax.tree.map(lambda array: array[mine], shard_rows(batch, jax.device_count()))
