"""The memory and the estimated time of a run on a machine, as text and as JSON; nothing is run."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from dclm_jax import models
from dclm_jax.data.batches import Shape
from dclm_jax.planning.programs import Cost, Workload, scoring_cost, training_cost
from dclm_jax.planning.targets import Target
from dclm_jax.reading.likelihoods import earlier_sentences
from dclm_jax.tables import aligned
from dclm_jax.training.config import validated
from dclm_jax.training.loop import first_shapes, open_job
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.progress import duration

ESTIMATE = "estimate, nothing was run"
_GIB, _MIB = 2**30, 2**20


def workload_of_run(config: ConfigDict | Mapping[str, Any]) -> Workload:
    """The workload of a configuration with its corpus."""
    job = open_job(config)
    shapes = job.batches.shapes(range(job.batches.steps_per_epoch))
    positions = sum(count * shape.num_positions for shape, count in shapes.items())
    return Workload(
        job.model,
        job.optimizer,
        job.state,
        job.config.training.loss_per,
        job.batches.num_targets / positions,
        shapes,
        job.total_steps,
    )


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
    loss_per = settings.training.loss_per
    return Workload(model, optimizer, state, loss_per, shapes={shape: 0})


class Row(NamedTuple):
    """The cost of a program: its name, the shape of its batch, and its steps per epoch (0 for
    scoring)."""

    name: str
    shape: Shape
    steps: int
    cost: Cost


@dataclasses.dataclass(frozen=True)
class Report:
    """The rows of a workload on a target; the first is the training step that needs most memory."""

    target: Target
    workload: Workload
    rows: tuple[Row, ...]

    @property
    def missing(self) -> float:
        """Bytes that the device lacks; 0 if the run fits."""
        return max(0.0, max(row.cost.peak for row in self.rows) - self.target.device.memory)

    @property
    def hours(self) -> float | None:
        """Estimated hours of all training steps; None if they are unknown."""
        training = [row for row in self.rows if row.steps]
        if not self.workload.steps or any(row.cost.estimated_seconds is None for row in training):
            return None
        epoch = sum(row.steps * (row.cost.estimated_seconds or 0) for row in training)
        return epoch * self.workload.steps / sum(row.steps for row in training) / 3600


def plan(
    workload: Workload, target: Target, *, say: Callable[[str], None] = lambda line: None
) -> Report:
    """Compiles the training step for each shape of batch, and scoring for the largest.

    Args:
      say: called with a line before each compilation, which can take minutes.
    """
    rows = []
    for number, (shape, steps) in enumerate(sorted(workload.shapes.items()), start=1):
        say(f"compiling training, {number} of {len(workload.shapes)}: {_shape_text(shape)}")
        rows.append(Row("training", shape, steps, training_cost(workload, shape, target)))
    rows.sort(key=lambda row: -row.cost.peak)
    block = rows[0].shape.on_each(len(target.devices))
    say(f"compiling scoring: {_shape_text(block)}")
    rows.append(Row("scoring", block, 0, scoring_cost(workload, block, target)))
    return Report(target, workload, tuple(rows))


def _shape_text(shape: Shape) -> str:
    return f"{shape.segments} x {shape.sentences} x {shape.positions}"


def lines(report: Report) -> Iterator[str]:
    """The report as text."""
    target, workload, largest = report.target, report.workload, report.rows[0]
    yield f"{target.name}: {len(target.devices)} x {_constants(target)}"
    model, cost = workload.model, largest.cost
    yield (
        f"{model.name}: {cost.parameters / 4e6:.2f} M parameters; "
        f"{workload.share_real:.0%} of positions have a target"
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
        "model": report.workload.model.name,
        "share_real": report.workload.share_real,
        "fits": not report.missing,
        "missing_bytes": report.missing,
        "steps": report.workload.steps,
        "estimated_hours": report.hours,
        "programs": [_row_json(row) for row in report.rows],
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "shape": row.shape._asdict(),
        "steps_per_epoch": row.steps,
        "estimated_targets_per_second": row.cost.rate,
        "kernels": row.cost.kernels,
        **dataclasses.asdict(row.cost),
    }


_HEADER = (
    *("program", "shape", "steps/epoch", "memory", "useful GFLOP", "kernels", "ms", "targets/s"),
    "of peak",
)


def _cells(row: Row, target: Target) -> list[str]:
    cost, seconds = row.cost, row.cost.estimated_seconds
    return [
        row.name,
        _shape_text(row.shape),
        f"{row.steps:,}" if row.steps else "",
        _size(cost.peak),
        f"{cost.useful_flops / 1e9:,.1f}",
        f"{cost.kernels:,.0f}" if cost.loops_are_known else "",
        "" if seconds is None else f"{1e3 * seconds:,.2f}",
        "" if cost.rate is None else f"{cost.rate:,.0f}",
        ""
        if not (seconds and target.device.flops)
        else f"{cost.useful_flops / seconds / target.device.flops:.1%}",
    ]


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
