"""The programs of a run, compiled for a target, and their costs on the target."""

import bisect
import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import SingleDeviceSharding

from dclm_jax.allocation import peak_memory
from dclm_jax.data.batches import Batch, Shape
from dclm_jax.errors import InputError
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.nn.plan import GPU
from dclm_jax.nn.precision import SCORING_PRECISION, at_precision
from dclm_jax.nn.softmax import first_chunk_sizes
from dclm_jax.planning.hlo import Chunks, Loop, Program
from dclm_jax.planning.targets import Target
from dclm_jax.reading.likelihoods import block_nll, open_documents
from dclm_jax.training.step import TrainState, parallel_step

# XLA refuses sizes beyond its integers and, for TPUs, a program that does not fit.
_REFUSED = re.compile(r"(?:INVALID_ARGUMENT|UNIMPLEMENTED): .{,100}")
_NEEDED = re.compile(r"^RESOURCE_EXHAUSTED: .*total memory required .*?\(([\d.]+)([KMGT])\)")


@dataclasses.dataclass(frozen=True)
class Training:
    """The parts from which a training step is compiled.

    Attributes:
      model, optimizer, loss_per: see `training.step`.
      state: the shapes of the training state.
      share_real: share of positions with a target, 0 to 1; the rest is padding.
    """

    model: DocumentModel
    optimizer: optax.GradientTransformation
    state: TrainState
    loss_per: str = "token"
    share_real: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a compiled program on one of its devices.

    Attributes:
      parameters, optimizer_state: bytes of the state; each device has a copy.
      batch: bytes of the device's part of the batch.
      temporary: bytes of activations, gradients and other intermediate arrays.
      peak: maximum bytes that the program holds at a time.
      donated: whether the new state takes the buffers of the old state.
      flops: FLOPs of matrix products, including products on padding.
      targets: number of real targets, over all devices.
      loops: kernels, cycles and bytes of each outermost loop.
      loops_are_known: whether the trips of loops over tokens are known. They are unknown on a CPU,
        where loops end with the longest sentence, and if the program does not fit a TPU.
      all_reduces, reduced: number of all-reduces between devices, and their bytes.
    """

    parameters: int
    optimizer_state: int
    batch: int = 0
    temporary: int
    peak: int
    donated: bool = False
    flops: float
    targets: float
    loops: tuple[Loop, ...] = ()
    loops_are_known: bool = False
    all_reduces: int = 0
    reduced: int = 0

    @property
    def kernels(self) -> float:
        """Number of kernels that a run of the program launches."""
        return sum(loop.trips * loop.kernels for loop in self.loops)

    def seconds(self, target: Target) -> float | None:
        """Estimated seconds of one execution, excluding time spent waiting for other devices. None
        if the trips of loops are unknown, or if the device has no clock and its bandwidth or FLOP/s
        are unknown.

        On a TPU the time is XLA's estimate of the cycles of each kernel. A fused token scan
        (nn/fused.py) has no such estimate, and its time is the time of its memory traffic. On other
        devices the time is a roofline. Each loop takes its launch time or its memory-traffic time,
        whichever is longer. The total is at least the time of all matrix products.
        """
        device = target.device
        if not self.loops_are_known:
            return None
        if device.clock:
            return sum(loop.trips * loop.cycles for loop in self.loops) / device.clock
        if not (device.bandwidth and device.flops):
            return None
        launch = device.launch or 0.0
        by_loop = (
            loop.trips * max(loop.kernels * launch, loop.num_bytes / device.bandwidth)
            for loop in self.loops
        )
        return max(sum(by_loop), self.flops / device.flops)


def training_cost(training: Training, shape: Shape, target: Target) -> Cost:
    """The cost of a training step of a batch of this shape on the target's devices."""
    model = dataclasses.replace(training.model, plan=target.plan)
    num_devices = len(target.devices)
    device_shape = shape.on_each(num_devices)
    state = training.state
    batch = device_shape.batch(num_devices, bool(model.hashed))
    key = jax.eval_shape(lambda: jax.random.key(0))
    step = parallel_step(model, training.optimizer, training.loss_per, target.devices)
    compiled = _compiled(step.lower(state, batch, key))

    counted = dataclasses.replace(model, plan=GPU)
    chunks = _chunks(counted, device_shape, training.share_real)
    flops = product_flops(
        parallel_step(counted, training.optimizer, training.loss_per, jax.devices("cpu")[:1]),
        (state, device_shape.batch(1, bool(model.hashed)), key),
        chunks,
    )
    targets = training.share_real * shape.num_positions
    chunks = _chunks(model, device_shape, training.share_real)
    return _cost(compiled, state, target, flops, targets, chunks)


def scoring_cost(training: Training, shape: Shape, target: Target) -> Cost:
    """The cost of scoring a block of documents of this shape on one of the target's devices."""
    model = dataclasses.replace(
        training.model, plan=target.plan, matmul_precision=SCORING_PRECISION
    )
    sharding = SingleDeviceSharding(target.devices[0])
    params = training.state.params
    batch = jax.tree.map(_without_first, shape._replace(earlier=0).batch(1))
    rows, source = shape.segments, batch.source
    batch = dataclasses.replace(batch, source=None)

    def score(params: Params, context: Any, batch: Batch) -> Any:
        return block_nll(model, params, context, batch)

    context = jax.eval_shape(
        lambda params, source: open_documents(model, params, rows, source), params, source
    )
    arguments = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding),
        (params, context, batch),
    )
    lowered = jax.jit(at_precision(model.matmul_precision, score)).lower(*arguments)
    compiled = _compiled(lowered)
    counted = dataclasses.replace(model, plan=GPU)
    flops = product_flops(
        lambda params, context, batch: block_nll(counted, params, context, batch),
        (params, context, batch),
        _chunks(counted, shape, training.share_real),
    )
    targets = training.share_real * shape.num_positions
    state = dataclasses.replace(training.state, params=params, optimizer_state=())
    chunks = _chunks(model, shape, training.share_real)
    return _cost(compiled, state, target, flops, targets, chunks)


def product_flops(function: Callable[..., Any], arguments: Any, chunks: Chunks) -> float:
    """FLOPs of the matrix products of a function, in all trips of its loops."""
    return _flops(jax.make_jaxpr(function)(*arguments).jaxpr, chunks)


def _flops(jaxpr: Any, chunks: Chunks) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [_flops(part, chunks) for part in _parts(equation)]
        match equation.primitive.name:
            case "dot_general":
                ((contracted, _), _) = equation.params["dimension_numbers"]
                left, (result,) = equation.invars[0].aval, equation.outvars
                length = math.prod(left.shape[axis] for axis in contracted)
                total += 2.0 * length * math.prod(result.aval.shape)
            case "scan":
                total += equation.params["length"] * sum(inner)
            case "while":
                total += chunks.trips * sum(inner)
            case "cond":
                total += chunks.branch(inner, float)
            case _:
                total += sum(inner)
    return total


def _parts(equation: Any) -> Iterator[Any]:
    """The jaxprs in the parameters of an equation."""
    for value in equation.params.values():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            # A closed jaxpr has a jaxpr; JAX exports the types of both in some versions only.
            jaxpr = getattr(part, "jaxpr", part)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr


def _chunks(model: DocumentModel, shape: Shape, share_real: float) -> Chunks:
    positions = shape.num_positions
    if model.objective == "bags":
        positions = shape.segments * shape.sentences
    sizes = first_chunk_sizes(positions, model.vocab_size, model.plan)
    count = math.ceil(positions * share_real)
    trips = max(0, count - 1) // sizes[-1]
    return Chunks(trips, bisect.bisect_left(sizes, count - trips * sizes[-1]), len(sizes))


def _compiled(lowered: jax.stages.Lowered) -> jax.stages.Compiled | int:
    """The compiled program; for a TPU with less memory than it needs, the bytes that it needs."""
    try:
        return lowered.compile()
    except RuntimeError as error:
        if refused := _REFUSED.search(str(error)):
            raise InputError(
                f"the model cannot be compiled ({refused[0]}); use smaller sizes"
            ) from error
        needed = _NEEDED.search(str(error))
        if needed is None:
            raise
        return round(float(needed[1]) * 1024 ** ("KMGT".index(needed[2]) + 1))


def _cost(
    compiled: Any, state: TrainState, target: Target, flops: float, targets: float, chunks: Chunks
) -> Cost:
    """The cost of what `_compiled` returns."""
    parameters, optimizer_state = map(_num_bytes, (state.params, state.optimizer_state))
    if isinstance(compiled, int):
        return Cost(
            parameters=parameters,
            optimizer_state=optimizer_state,
            temporary=compiled - parameters - optimizer_state,
            peak=compiled,
            flops=flops,
            targets=targets,
        )
    memory = compiled.memory_analysis()
    device = target.device
    per_byte = device.clock / device.bandwidth if device.clock and device.bandwidth else 0.0
    program = Program(compiled.as_text(), chunks, per_byte)
    reductions = [
        kernel for kernel in program.kernels() if kernel.instruction.opcode.startswith("all-reduce")
    ]
    return Cost(
        parameters=parameters,
        optimizer_state=optimizer_state,
        batch=max(0, memory.argument_size_in_bytes - parameters - optimizer_state),
        temporary=memory.temp_size_in_bytes,
        peak=peak_memory(compiled),
        donated=memory.alias_size_in_bytes >= parameters + optimizer_state,
        flops=flops,
        targets=targets,
        loops=tuple(program.loops()),
        loops_are_known=not target.plan.stops_early,
        all_reduces=sum(kernel.times for kernel in reductions),
        reduced=sum(kernel.times * kernel.num_bytes // 2 for kernel in reductions),
    )


def _num_bytes(tree: Any) -> int:
    return sum(
        math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree)
    )


def _without_first(array: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape[1:], array.dtype)
