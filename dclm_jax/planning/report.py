"""The memory and the estimated time of a run on a machine, as text and as JSON; nothing is run."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from dclm_jax import models
from dclm_jax.data.batches import Shape
from dclm_jax.models.base import DocumentModel
from dclm_jax.planning.hlo import Loop
from dclm_jax.planning.programs import Cost, Training, scoring_cost, training_cost
from dclm_jax.planning.targets import Target
from dclm_jax.reading.likelihoods import earlier_sentences
from dclm_jax.tables import aligned
from dclm_jax.training.config import validated
from dclm_jax.training.loop import first_shapes, open_job
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.progress import duration

ESTIMATE = "estimate, nothing was run"
_GIB, _MIB = 2**30, 2**20


@dataclasses.dataclass(frozen=True)
class Workload:
    """The programs of a run: its training, the shapes of its batches with their steps per epoch,
    and the number of epochs and of steps of the whole run, 0 if the shape was given."""

    training: Training
    shapes: collections.Counter[Shape]
    steps: int = 0


def workload_of_run(config: ConfigDict | Mapping[str, Any]) -> Workload:
    """The workload of a configuration with its corpus."""
    job = open_job(config)
    shapes = job.batches.shapes(range(job.batches.steps_per_epoch))
    positions = sum(count * shape.num_positions for shape, count in shapes.items())
    training = Training(
        job.model,
        job.optimizer,
        job.state,
        job.config.training.loss_per,
        job.batches.num_targets / positions,
    )
    return Workload(training, shapes, job.total_steps)


def workload_of_shape(
    config: ConfigDict | Mapping[str, Any], sizes: tuple[int, int, int], vocab_size: int
) -> Workload:
    """The workload of a configuration without its corpus: one shape, all positions real."""
    settings = validated(config)
    model = models.create(vocab_size=vocab_size, **settings.model)
    segments, sentences, positions = sizes
    earlier = earlier_sentences(model, sentences if settings.data.carry_context else 0)
    source = (sentences, positions) if model.reads_source else None
    shape = Shape(segments, sentences, positions, earlier, source)
    optimizer = create_optimizer(settings.optimizer, 1)
    state = first_shapes(model, optimizer, settings.training.frozen)
    training = Training(model, optimizer, state, settings.training.loss_per)
    return Workload(training, collections.Counter({shape: 0}))


@dataclasses.dataclass(frozen=True)
class Row:
    """The cost of a program: its name, the shape of its batch, its steps per epoch (0 for scoring),
    and its estimated seconds and useful FLOPs on a device: matrix products on real positions."""

    name: str
    shape: Shape
    steps: int
    cost: Cost
    seconds: float | None
    useful_flops: float

    @property
    def rate(self) -> float | None:
        """Estimated targets per second."""
        return self.cost.targets / self.seconds if self.seconds else None


@dataclasses.dataclass(frozen=True)
class Report:
    """The rows of a workload on a target; the first is the training step that needs most memory."""

    target: Target
    workload: Workload
    rows: tuple[Row, ...]
    variants: tuple[Row, ...] = ()

    @property
    def missing(self) -> float:
        """Bytes that the device lacks; 0 if the run fits."""
        return max(0.0, max(row.cost.peak for row in self.rows) - self.target.device.memory)

    @property
    def hours(self) -> float | None:
        """Estimated hours of all training steps; None if they are unknown."""
        training = [row for row in self.rows if row.steps]
        if not self.workload.steps or any(row.seconds is None for row in training):
            return None
        epoch = sum(row.steps * (row.seconds or 0) for row in training)
        return epoch * self.workload.steps / sum(row.steps for row in training) / 3600


def plan(
    workload: Workload,
    target: Target,
    *,
    variants: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Compiles the training step for each shape of batch, and scoring for the largest.

    Args:
      variants: whether to compile the changes that may help, too: remat, bfloat16, twice the batch.
      say: called with a line before each compilation, which can take minutes.
    """
    count = len(workload.shapes)

    def training(name: str, number: int, changed: Training, shape: Shape, steps: int) -> Row:
        say(f"compiling {name}, {number} of {count}: {_shape_text(shape)}")
        cost = training_cost(changed, shape, target)
        return Row(name, shape, steps, cost, cost.seconds(target), cost.flops * changed.share_real)

    rows = [
        training("training", number, workload.training, shape, steps)
        for number, (shape, steps) in enumerate(sorted(workload.shapes.items()), start=1)
    ]
    rows.sort(key=lambda row: -row.cost.peak)
    largest = rows[0].shape
    block = largest.on_each(len(target.devices))
    say(f"compiling scoring: {_shape_text(block)}")
    cost = scoring_cost(workload.training, block, target)
    useful = cost.flops * workload.training.share_real
    rows.append(Row("scoring", block, 0, cost, cost.seconds(target), useful))
    return Report(
        target,
        workload,
        tuple(rows),
        tuple(
            training(name, 1, changed, shape, 0)
            for name, changed, shape in _variants(workload.training, largest)
            if variants
        ),
    )


def _variants(training: Training, shape: Shape) -> Iterator[tuple[str, Training, Shape]]:
    model = training.model
    if not model.remat:
        yield "with model.remat=true", _changed(training, model, remat=True), shape
    if model.compute_dtype == "float32":
        changed = _changed(training, model, compute_dtype="bfloat16")
        yield "with model.compute_dtype=bfloat16", changed, shape
    twice = shape._replace(segments=2 * shape.segments)
    yield f"with data.batch_size={twice.segments}", training, twice


def _changed(training: Training, model: DocumentModel, **options: Any) -> Training:
    return dataclasses.replace(training, model=dataclasses.replace(model, **options))


def _shape_text(shape: Shape) -> str:
    return f"{shape.segments} x {shape.sentences} x {shape.positions}"


def lines(report: Report) -> Iterator[str]:
    """The report as text."""
    target, workload, largest = report.target, report.workload, report.rows[0]
    yield f"{target.name}: {len(target.devices)} x {_constants(target)}"
    model, cost = workload.training.model, largest.cost
    yield (
        f"{model.name}: {cost.parameters / 4e6:.2f} M parameters; "
        f"{workload.training.share_real:.0%} of positions have a target"
    )
    yield ""
    yield f"Per step, memory and FLOPs per device ({ESTIMATE}):"
    yield from aligned([_HEADER, *(_cells(row, target) for row in report.rows)])
    yield ""
    yield f"Memory per device of the largest training step ({_shape_text(largest.shape)}):"
    yield (
        f"  parameters {_size(cost.parameters)}, optimizer state {_size(cost.optimizer_state)}, "
        f"batch {_size(cost.batch)}, activations and gradients {_size(cost.temporary)}"
    )
    yield f"  {_fit(report)}"
    if len(target.devices) > 1:
        state = cost.parameters + cost.optimizer_state
        yield (
            f"Between devices: {_size(state)} of state replicated on each; all-reduces per step: "
            f"{cost.all_reduces}, {_size(cost.reduced)} in total, whose time is not in the estimate"
        )
    if cost.loops_are_known:
        yield ""
        yield "Time of that step by loops:"
        yield from aligned([_LOOP_HEADER, *_loop_cells(largest, target)])
    yield ""
    if report.variants:
        yield "Changes that may help, on the same step:"
        yield from aligned([_HEADER, *(_cells(row, target) for row in report.variants)])
    else:
        yield "--variants shows what remat, bfloat16 and a larger batch change."
    if report.hours is not None:
        yield ""
        yield (
            f"Whole run: {workload.steps:,} steps, {duration(3600 * report.hours)} of training "
            f"({ESTIMATE}; without compilation, evaluation, input and all-reduces)"
        )


def as_json(report: Report) -> dict[str, Any]:
    """The report for programs: bytes, seconds and FLOPs per device, targets over all devices."""
    target = report.target
    return {
        "target": target.name,
        "devices": len(target.devices),
        "device": dataclasses.asdict(target.device),
        "jax": jax.__version__,
        "model": report.workload.training.model.name,
        "share_real": report.workload.training.share_real,
        "fits": not report.missing,
        "missing_bytes": report.missing,
        "steps": report.workload.steps,
        "estimated_hours": report.hours,
        "programs": [_row_json(row) for row in (*report.rows, *report.variants)],
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "shape": row.shape._asdict(),
        "steps_per_epoch": row.steps,
        "estimated_seconds": row.seconds,
        "estimated_targets_per_second": row.rate,
        "useful_flops": row.useful_flops,
        "kernels": row.cost.kernels,
        **dataclasses.asdict(row.cost),
    }


_HEADER = (
    *("program", "shape", "steps/epoch", "memory", "useful GFLOP", "kernels", "ms", "targets/s"),
    "of peak",
)
_LOOP_HEADER = ("loops", "number", "trips", "kernels per trip", "ms")


def _cells(row: Row, target: Target) -> list[str]:
    cost = row.cost
    return [
        row.name,
        _shape_text(row.shape),
        f"{row.steps:,}" if row.steps else "",
        _size(cost.peak),
        f"{row.useful_flops / 1e9:,.1f}",
        f"{cost.kernels:,.0f}" if cost.loops_are_known else "",
        "" if row.seconds is None else f"{1e3 * row.seconds:,.2f}",
        "" if row.rate is None else f"{row.rate:,.0f}",
        ""
        if not (row.seconds and target.device.flops)
        else f"{row.useful_flops / row.seconds / target.device.flops:.1%}",
    ]


def _loop_cells(row: Row, target: Target) -> Iterator[list[str]]:
    """The loops in groups: code outside of loops, loops over tokens, and the output layer's."""

    def kind(loop: Loop) -> str:
        if not loop.name:
            return "outside of loops"
        return "over chunks of the output layer" if loop.is_over_chunks else "over tokens"

    for name, group in itertools.groupby(sorted(row.cost.loops, key=kind), kind):
        loops = tuple(group)
        trips = sum(loop.trips for loop in loops)
        kernels = sum(loop.trips * loop.kernels for loop in loops)
        seconds = dataclasses.replace(row.cost, loops=loops, flops=0.0).seconds(target)
        time = "" if seconds is None else f"{1e3 * seconds:,.2f}"
        yield [name, f"{len(loops)}", f"{trips:,}", f"{kernels / max(1, trips):,.1f}", time]


def _constants(target: Target) -> str:
    device = target.device
    parts = [f"{device.memory / _GIB:.1f} GiB"]
    if device.flops:
        parts.append(f"{device.flops / 1e12:,.0f} TFLOP/s")
    if device.bandwidth:
        parts.append(f"{device.bandwidth / 1e9:,.0f} GB/s")
    if device.clock:
        parts.append(f"{device.clock / 1e9:.2f} GHz")
    if device.launch:
        parts.append(f"{1e6 * device.launch:.1f} us per launch")
    return ", ".join(parts)


def _fit(report: Report) -> str:
    peak = max(row.cost.peak for row in report.rows)
    has = report.target.device.memory
    if report.missing:
        return (
            f"it does not fit: {_size(peak)} at the peak, {_size(report.missing)} more than a "
            "device has; use a smaller data.batch_size, model.remat=true or more devices"
        )
    return f"it fits: {_size(peak)} at the peak, {peak / has:.1%} of the memory of a device"


def _size(num_bytes: float) -> str:
    if num_bytes >= _GIB:
        return f"{num_bytes / _GIB:,.2f} GiB"
    return f"{num_bytes / _MIB:,.1f} MiB"
