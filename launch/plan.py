"""Compiles the training step of a configuration for TPUs or H100s, and prints its memory.

    pip install -e '.[plan]'                                    # the compilers, once
    python -m launch.plan --config=configs/your_text.py:adclm --target=h100 \\
        --config.data.directory=data/ptb
    python -m launch.plan --config=configs/your_text.py:adclm --target=v5e --devices=8 \\
        --shape=512,5,32 --vocab_size=10003

No device is needed and nothing is run. The compiled step is the step of the largest batch of the
corpus, or of --shape. The command prints the memory of each device, whether the step fits, and the
useful FLOPs: the FLOPs of matrix products at positions with a target. Padding, recomputation and
sentences that data.carry_context reads again do not count. Compilation takes seconds to minutes.
"""

import dataclasses
import math
import os
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
from jax.experimental import topologies

from dclm_jax import files, models
from dclm_jax.allocation import memory_text, peak_memory
from dclm_jax.data.batches import Shape
from dclm_jax.errors import InputError
from dclm_jax.files import Size
from dclm_jax.models.base import DocumentModel
from dclm_jax.nn.plan import Plan, plan_of
from dclm_jax.reading.likelihoods import earlier_sentences
from dclm_jax.training.config import validated
from dclm_jax.training.job import first_shapes, open_job
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import TrainState, parallel_step

from . import _app, _training
from ._options import MetricsOptions

MEMORY = {"v5e": 16 * 2**30, "h100": 84_942_979_072}
"""Bytes of memory per device."""
_SLICES = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
# One host has all chips of these slices.
_ONE_HOST = {1: (1, 1, 1), 8: (2, 4, 1)}
_H100 = pathlib.Path(__file__).with_name("h100.textproto")


@dataclasses.dataclass(frozen=True)
class Options(MetricsOptions, _training.ConfigOptions):
    """Options of `plan`.

    Attributes:
      target: kind of device to compile for.
      devices: number of devices.
      shape: shape of a global batch, SEGMENTS,SENTENCES,TOKENS, in place of the shapes of the
        corpus.
      vocab_size: number of entries of the vocabulary, for --shape.
    """

    target: Literal["v5e", "h100"] | None = None
    devices: Size = 1
    shape: str | None = None
    vocab_size: Size | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape is None:
            if self.vocab_size is not None:
                raise InputError("--vocab_size has no effect without --shape; give both or neither")
            return
        if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*){2}", self.shape):
            raise InputError(
                f"--shape={self.shape}; expected SEGMENTS,SENTENCES,TOKENS, all above 0"
            )
        if self.vocab_size is None:
            raise InputError("--vocab_size is missing; add --vocab_size=N to --shape")


class Workload(NamedTuple):
    """A training step: its arguments (see `training.step`), and the shape of its global batch and
    its share of positions that have a target."""

    model: DocumentModel
    optimizer: Any
    state: TrainState
    loss_per: str
    shape: Shape
    share_real: float = 1.0

    def step(self, devices: Sequence[Any], **options: Any) -> Any:
        model = dataclasses.replace(self.model, **options)
        return parallel_step(model, self.optimizer, self.loss_per, devices)


def plan(options: Options) -> None:
    """Compiles a training step, and prints and writes its costs."""
    # No device is opened; the CUDA plugin would refuse to work without cuDNN and a driver.
    jax.config.update("jax_platforms", "cpu")
    # JAX cannot load the programs of machines that are not there.
    jax.config.update("jax_enable_compilation_cache", False)
    target = options.required("target", "h100")
    workload = _workload(options)
    result = {
        "target": target,
        "devices": options.devices,
        "jax": jax.__version__,
        "model": workload.model.name,
        "shape": workload.shape._asdict(),
        "share_real": workload.share_real,
        **costs(workload, _devices(target, options.devices), MEMORY[target]),
    }
    # Standard output has only the JSON.
    stream = sys.stderr if options.metrics == files.STDOUT else sys.stdout
    print(*_lines(result), sep="\n", file=stream)
    if options.metrics:
        files.write_json(options.metrics, result)


def costs(workload: Workload, devices: Sequence[Any], memory: int) -> dict[str, Any]:
    """The bytes per device of a training step on devices with this memory, and its useful FLOPs
    over all devices. `peak_bytes` is None if the compiler refused the step for its memory."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    batch = workload.shape.on_each(len(devices)).batch(len(devices))
    step = workload.step(devices, plan=plan_of(devices[0], fused_scan=workload.model.fused_scan))
    # One chunk of the softmax has all positions, so that no loop has an unknown number of trips.
    plain = Plan(chunk_logits=2**62, max_chunk=2**31 - 1, only_chunks=1)
    plain_step = workload.step(jax.devices("cpu")[:1], plan=plain, remat=False)
    needed = workload.shape._replace(earlier=0).batch(1)
    products = jax.make_jaxpr(plain_step)(workload.state, needed, key)
    result = {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(workload.state.params)),
        "useful_flops": _flops(products.jaxpr) * workload.share_real,
    }
    try:
        compiled = step.lower(workload.state, batch, key).compile()
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            return result | {"peak_bytes": None, "fits": False}
        raise
    peak = peak_memory(compiled)
    analysis: Any = compiled.memory_analysis()
    return result | {
        "argument_bytes": analysis.argument_size_in_bytes,
        "temporary_bytes": analysis.temp_size_in_bytes,
        "peak_bytes": peak,
        "fits": peak <= memory,
    }


def _workload(options: Options) -> Workload:
    config = options.settings
    if options.shape is None or options.vocab_size is None:
        job = open_job(config)
        shapes = list(map(job.batches.shape, range(job.batches.steps_per_epoch)))
        largest = max(shapes, key=lambda shape: shape.on_each(options.devices).positions_at_once)
        share = job.batches(shapes.index(largest)).mask_BxSxN.mean().item()
        loss_per = job.config.training.loss_per
        return Workload(job.model, job.optimizer, job.state, loss_per, largest, share)
    settings = validated(config)
    segments, sentences, tokens = map(int, options.shape.split(","))
    model = models.create(vocab_size=options.vocab_size, **settings.model)
    earlier = earlier_sentences(model, sentences if settings.data.carry_context else 0)
    optimizer = create_optimizer(settings.optimizer, 1)
    return Workload(
        model,
        optimizer,
        first_shapes(model, optimizer, settings.training.frozen),
        settings.training.loss_per,
        Shape(segments, sentences, tokens, earlier, model.reads_source),
    )


def _devices(target: str, count: int) -> list[Any]:
    """The compile-only devices of JAX."""
    if target == "h100":
        options: dict[str, Any] = {"platform": "cuda", "topology_name": "h100"}
        options["target_config"] = _H100.read_text()
        options["topology"] = f"1x1x{count}"
    elif count in _SLICES:
        # Without these variables libtpu asks the metadata server of Google Cloud and warns.
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
        os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
        os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
        # Several processes compile at a time; none opens a device.
        os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
        options = {"platform": "tpu", "topology_name": f"v5e:{_SLICES[count]}"}
        if count in _ONE_HOST:
            options["chips_per_host_bounds"] = _ONE_HOST[count]
    else:
        numbers = ", ".join(map(str, _SLICES))
        raise InputError(f"--devices is {count}; slices of TPUs have {numbers} devices")
    try:
        return list(topologies.get_topology_desc(**options).devices)
    # The plugins raise errors of any type from C++.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"--target is {target}; JAX {jax.__version__} cannot compile for it: {reason}. "
            "Install the compilers that belong to this JAX: pip install -e '.[plan]'"
        ) from error


def _flops(jaxpr: Any) -> float:
    """FLOPs of the matrix products of a program, in all trips of its scans."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [_flops(part) for part in _parts(equation)]
        match equation.primitive.name:
            case "dot_general":
                ((contracted, _), _) = equation.params["dimension_numbers"]
                left, (result,) = equation.invars[0].aval, equation.outvars
                length = math.prod(left.shape[axis] for axis in contracted)
                total += 2.0 * length * math.prod(result.aval.shape)
            case "scan":
                total += equation.params["length"] * sum(inner)
            case "cond":
                total += max(inner)
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


def _lines(result: dict[str, Any]) -> Iterator[str]:
    count, memory = result["devices"], MEMORY[result["target"]]
    segments, sentences, positions, *_ = result["shape"].values()
    yield (
        f"{result['model']}, {result['parameters'] / 1e6:.2f} M parameters: a training step of "
        f"{segments} segments of {sentences} sentences of {positions} positions, "
        f"{result['share_real']:.0%} with a target"
    )
    yield f"{result['target']}, {count} x {memory_text(memory)}, compiled and not run"
    yield f"useful FLOPs per step and device: {result['useful_flops'] / count / 1e9:,.1f} GFLOP"
    if result["fits"]:
        share = result["peak_bytes"] / memory
        yield (
            f"it fits: {memory_text(result['peak_bytes'])} per device at the peak ({share:.1%}), "
            f"{memory_text(result['argument_bytes'])} of parameters, optimizer state and batch and "
            f"{memory_text(result['temporary_bytes'])} of activations and gradients"
        )
    else:
        peak = "the compiler found too little memory"
        if result["peak_bytes"]:
            peak = f"{memory_text(result['peak_bytes'])} per device at the peak"
        yield (
            f"it does not fit: {peak}; use a smaller data.batch_size, model.remat=true or more "
            "devices"
        )


if __name__ == "__main__":
    _app.run(plan, Options, _training.parse)
