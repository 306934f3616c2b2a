"""The programs of a run, compiled for a target, and their costs on the target."""

import bisect
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import SingleDeviceSharding

from dclm_jax.allocation import peak_memory
from dclm_jax.data.batches import Shape
from dclm_jax.errors import InputError
from dclm_jax.models.base import DocumentModel
from dclm_jax.nn.plan import GPU, Plan
from dclm_jax.nn.precision import SCORING_PRECISION, at_precision
from dclm_jax.nn.softmax import first_chunk_sizes
from dclm_jax.planning.hlo import Chunks, Loop, Program
from dclm_jax.planning.targets import Device, Target
from dclm_jax.reading.likelihoods import block_nll, open_documents
from dclm_jax.training.step import TrainState, parallel_step

# XLA refuses sizes beyond its integers and, for TPUs, a program that does not fit.
_REFUSED = re.compile(r"(?:INVALID_ARGUMENT|UNIMPLEMENTED): .{,100}")
_NEEDED = re.compile(r"^RESOURCE_EXHAUSTED: .*total memory required .*?\(([\d.]+)([KMGT])\)")


@dataclasses.dataclass(frozen=True)
class Workload:
    """A run to plan.

    Attributes:
      model, optimizer, loss_per: see `training.step`.
      state: the shapes of the training state.
      share_real: share of positions with a target, 0 to 1; the rest is padding.
      shapes: number of steps per epoch by shape of the batch, 0 for a given shape.
      steps: number of steps of the whole run; 0 if the shape was given.
    """

    model: DocumentModel
    optimizer: optax.GradientTransformation
    state: TrainState
    loss_per: str = "token"
    share_real: float = 1.0
    shapes: Mapping[Shape, int] = dataclasses.field(default_factory=dict)
    steps: int = 0


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
      useful_flops: FLOPs of matrix products on real positions.
      targets: number of real targets, over all devices.
      estimated_seconds: see `_seconds`; None if it is unknown.
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
    useful_flops: float
    targets: float
    estimated_seconds: float | None = None
    loops: tuple[Loop, ...] = ()
    loops_are_known: bool = False
    all_reduces: int = 0
    reduced: int = 0

    @property
    def kernels(self) -> float:
        """Number of kernels that a run of the program launches."""
        return sum(loop.trips * loop.kernels for loop in self.loops)

    @property
    def rate(self) -> float | None:
        """Estimated targets per second."""
        return self.targets / self.estimated_seconds if self.estimated_seconds else None


def training_cost(workload: Workload, shape: Shape, target: Target) -> Cost:
    """The cost of a training step of a batch of this shape on the target's devices."""
    num_devices = len(target.devices)
    device_shape = shape.on_each(num_devices)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def step(plan: Plan, devices: Sequence[Any]) -> Any:
        model = dataclasses.replace(workload.model, plan=plan)
        return parallel_step(model, workload.optimizer, workload.loss_per, devices)

    batch = device_shape.batch(num_devices)
    lowered = step(target.plan, target.devices).lower(workload.state, batch, key)
    arguments = (workload.state, device_shape.batch(1), key)
    gpu_jaxpr = jax.make_jaxpr(step(GPU, jax.devices("cpu")[:1]))(*arguments)
    targets = workload.share_real * shape.num_positions
    return _cost(workload, device_shape, target, lowered, gpu_jaxpr.jaxpr, targets)


def scoring_cost(workload: Workload, shape: Shape, target: Target) -> Cost:
    """The cost of scoring a block of documents of this shape on one of the target's devices."""
    params, rows = workload.state.params, shape.segments
    batch = jax.tree.map(_without_first, shape._replace(earlier=0).batch(1))
    source, batch = batch.source, dataclasses.replace(batch, source=None)
    model = dataclasses.replace(workload.model, matmul_precision=SCORING_PRECISION)

    def score(plan: Plan) -> Callable[..., Any]:
        planned = dataclasses.replace(model, plan=plan)
        return at_precision(SCORING_PRECISION, functools.partial(block_nll, planned))

    context = jax.eval_shape(
        lambda params, source: open_documents(model, params, rows, source), params, source
    )
    sharding = SingleDeviceSharding(target.devices[0])
    arguments = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding),
        (params, context, batch),
    )
    lowered = jax.jit(score(target.plan)).lower(*arguments)
    gpu_jaxpr = jax.make_jaxpr(score(GPU))(params, context, batch)
    scoring_workload = dataclasses.replace(
        workload, state=dataclasses.replace(workload.state, optimizer_state=())
    )
    targets = workload.share_real * shape.num_positions
    return _cost(scoring_workload, shape, target, lowered, gpu_jaxpr.jaxpr, targets)


def _flops(jaxpr: Any, chunks: Chunks) -> float:
    """FLOPs of the matrix products of a program, in all trips of its loops."""
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


def _chunks(workload: Workload, shape: Shape, plan: Plan) -> Chunks:
    vocab_size, positions = workload.model.vocab_size, shape.num_positions
    if workload.model.objective == "bags":
        positions = shape.segments * shape.sentences
    sizes = first_chunk_sizes(positions, vocab_size, plan)
    count = math.ceil(positions * workload.share_real)
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
    workload: Workload,
    shape: Shape,
    target: Target,
    lowered: jax.stages.Lowered,
    gpu_jaxpr: Any,
    targets: float,
) -> Cost:
    """The cost of a program with a batch of this shape per device.

    Args:
      gpu_jaxpr: the jaxpr of the program in the plan of GPUs, where no kernel hides products.
      targets: number of real targets, over all devices.
    """
    compiled: Any = _compiled(lowered)
    state = workload.state
    parameters, optimizer_state = map(_num_bytes, (state.params, state.optimizer_state))
    flops = _flops(gpu_jaxpr, _chunks(workload, shape, GPU))
    cost = Cost(
        parameters=parameters,
        optimizer_state=optimizer_state,
        temporary=0,
        peak=0,
        flops=flops,
        useful_flops=flops * workload.share_real,
        targets=targets,
    )
    if isinstance(compiled, int):
        temporary = compiled - parameters - optimizer_state
        return dataclasses.replace(cost, temporary=temporary, peak=compiled)
    memory = compiled.memory_analysis()
    device = target.device
    per_byte = device.clock / device.bandwidth if device.clock and device.bandwidth else 0.0
    program = Program(compiled.as_text(), _chunks(workload, shape, target.plan), per_byte)
    reductions = [
        kernel for kernel in program.kernels() if kernel.instruction.opcode.startswith("all-reduce")
    ]
    loops, loops_are_known = tuple(program.loops()), not target.plan.stops_early
    return dataclasses.replace(
        cost,
        batch=max(0, memory.argument_size_in_bytes - parameters - optimizer_state),
        temporary=memory.temp_size_in_bytes,
        peak=peak_memory(compiled),
        donated=memory.alias_size_in_bytes >= parameters + optimizer_state,
        estimated_seconds=_seconds(loops, flops, device) if loops_are_known else None,
        loops=loops,
        loops_are_known=loops_are_known,
        all_reduces=sum(kernel.times for kernel in reductions),
        reduced=sum(kernel.times * kernel.num_bytes // 2 for kernel in reductions),
    )


def _seconds(loops: Sequence[Loop], flops: float, device: Device) -> float | None:
    """Estimated seconds of one execution, excluding time spent waiting for other devices. None if
    the device has no clock and its bandwidth or FLOP/s are unknown.

    On a TPU the time is XLA's estimate of the cycles of each kernel. A fused token scan
    (nn/fused.py) has no such estimate, and its time is the time of its memory traffic. On other
    devices the time is a roofline. Each loop takes its launch time or its memory-traffic time,
    whichever is longer. The total is at least the time of all matrix products.
    """
    if device.clock:
        return sum(loop.trips * loop.cycles for loop in loops) / device.clock
    if not (device.bandwidth and device.flops):
        return None
    launch = device.launch or 0.0
    by_loop = (
        loop.trips * max(loop.kernels * launch, loop.num_bytes / device.bandwidth) for loop in loops
    )
    return max(sum(by_loop), flops / device.flops)


def _num_bytes(tree: Any) -> int:
    return sum(
        math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree)
    )


def _without_first(array: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape[1:], array.dtype)
