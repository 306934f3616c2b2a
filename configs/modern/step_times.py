"""Times of a training step under other plans, and its kernels, on the device that JAX uses.

    python -m configs.modern.step_times rnnlm_256x512 plan,unpadded,plain_scan
    python -m configs.modern.step_times pointer_recipe plan --profile

The first argument is one of ROWS: a model, its sizes and the number of segments per step of the
synthetic text of launch.benchmark. The second names some of VARIANTS: the plan of the device, or
the plan with one change (plain_scan needs a GPU or a TPU). Each variant is timed in a process of
its own. configs/modern/steps.md has the results on an H100.
"""

import collections
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import jax

from dclm_jax import models
from dclm_jax.nn import recurrence
from launch.benchmark import ours, workloads

_RECIPE = {"embedding_dim": 160, "hidden_dim": 424, "num_layers": 1, "tie_embeddings": True}
ROWS = {
    **{
        f"{name}_{segments}x{dim}": (
            name,
            segments,
            {"embedding_dim": dim, "hidden_dim": dim, "num_layers": 2},
        )
        for name, segments, dim in (
            ("rnnlm", 64, 128),
            ("ccdclm", 64, 128),
            ("rnnlm", 256, 512),
            ("ccdclm", 256, 512),
        )
    },
    "drnnlm_recipe": ("drnnlm", 64, _RECIPE),
    "pointer_recipe": ("pointer_drnnlm", 64, _RECIPE),
}
VARIANTS = {
    "plan": {},
    "plain_scan": {},
    "bfloat16": {},
    "unpadded": {"vocab_multiple": 1},
    "unrolled_1": {"unrolled_steps": 1},
    "unrolled_8": {"unrolled_steps": 8},
    "products_repeated": {"repeats_products": True},
    "gates_joined": {"joins_gates": True},
}
_TURNS, _KERNELS = 15, 25


def main(row: str, variants: str, *options: str) -> None:
    names = variants.split(",")
    if len(names) > 1:
        for name in names:
            command = [sys.executable, "-m", "configs.modern.step_times", row, name, *options]
            subprocess.run(command, check=True)
        return
    (variant,) = names
    model_name, segments, sizes = ROWS[row]
    precision: dict[str, Any] = {"compute_dtype": "bfloat16"} if variant == "bfloat16" else {}
    model = models.create(
        model_name, vocab_size=10_003, cell="lstm", matmul_precision="default", **sizes, **precision
    )
    model = dataclasses.replace(model, plan=dataclasses.replace(model.plan, **VARIANTS[variant]))
    if variant == "plain_scan":
        recurrence.scan = _plain_scan  # pyright: ignore[reportAttributeAccessIssue]
    with tempfile.TemporaryDirectory() as folder:
        batches = workloads.training_batches(segments, 2)
        documents = [workloads.unpacked(batch) for batch in batches]
        targets = sum(map(workloads.num_targets, documents)) / len(batches)
        contender = ours.Training(model, batches)
        for _ in range(4):
            contender.turn()
        turns = [contender.turn().seconds for _ in range(_TURNS)]
        seconds = statistics.median(turns) / len(batches)
        result = {
            "row": row,
            "variant": variant,
            "device": jax.devices()[0].device_kind,
            "ms per step": round(1e3 * seconds, 2),
            "targets/s": round(targets / seconds),
        }
        print(json.dumps(result), flush=True)
        if "--profile" in options:
            with jax.profiler.trace(folder):
                contender.turn()
            print(*_kernels(pathlib.Path(folder), len(batches)), sep="\n")


def _plain_scan(step, plan, params, carry, xs, mask_NxB):
    """`recurrence.scan` with the derivative of `lax.scan`."""

    def body(carry, inputs):
        x, is_real_Bx1 = inputs
        new, y = step(params, carry, x)
        return recurrence.keep_at_padding(is_real_Bx1, new, carry), y

    return recurrence._loop(body, carry, xs, mask_NxB, plan)


def _kernels(folder: pathlib.Path, steps: int) -> Iterator[str]:
    """The kernels of each stream of the device, by their total time per step."""
    (path,) = folder.rglob("*.xplane.pb")
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        if "/device:" not in plane.name:
            continue
        for line in plane.lines:
            nanoseconds, launches = collections.Counter(), collections.Counter()
            for event in line.events:
                nanoseconds[event.name] += event.duration_ns
                launches[event.name] += 1
            busy = sum(nanoseconds.values()) / 1e6 / steps
            yield f"{plane.name} {line.name}: {busy:.2f} ms per step"
            for name, time in nanoseconds.most_common(_KERNELS):
                count = launches[name] // steps
                yield f"{time / 1e6 / steps:9.3f} ms {count:6,} x {name[:90]}"


if __name__ == "__main__":
    main(*sys.argv[1:])
