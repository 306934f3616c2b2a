"""Compares training and scoring speed with PyTorch, in one run.

    pip install -e '.[benchmark]'                               # PyTorch, once
    python -m launch.benchmark --suite=quick --rounds=3         # one benchmark, under a minute
    python -m launch.benchmark --rows=train_adclm_16,train_rnnlm_16
    python -m launch.benchmark --metrics=benchmark.json          # all benchmarks, some minutes
    python -m launch.benchmark --suite=accelerator              # on a GPU or TPU

For each benchmark the command prints targets per second, memory, and our speed relative to PyTorch.
Without PyTorch it prints our numbers only. The command needs Linux. launch/benchmark.md describes
the method and has results.
"""

import importlib.metadata
import os
import pathlib
import platform
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import jax
from absl import flags

from dclm_jax import files
from dclm_jax.errors import InputError, did_you_mean

from .. import _app
from .._flags import define_metrics
from . import contest
from .contest import Work
from .timing import PeerError
from .worker import usable_cores

_PRECISIONS = ("default", "highest", "bfloat16")
CPU_ROWS = {
    "train_ccdclm_16": Work("ccdclm", 16),
    "train_ccdclm_64": Work("ccdclm", 64, num_batches=2),
    "train_ccdclm_1": Work("ccdclm", 1, num_batches=16),
    "train_rnnlm_16": Work("rnnlm", 16),
    "train_codclm_16": Work("codclm", 16),
    "train_adclm_16": Work("adclm", 16),
    "score_ccdclm_16": Work("ccdclm", 16, scores=True),
    "train_ccdclm_16_subwords": Work("ccdclm", 16, subwords=True),
    "score_ccdclm_16_subwords": Work("ccdclm", 16, scores=True, subwords=True),
}
ACCELERATOR_ROWS = {
    f"{model}_{segments}x{hidden_dim}_{precision}": Work(
        model, segments, num_batches=2, hidden_dim=hidden_dim, precision=precision
    )
    for models, segments, hidden_dim, precisions in (
        (("rnnlm", "drnnlm", "hrnnlm", "ccdclm", "codclm", "adclm"), 64, 128, ("default",)),
        (("rnnlm", "ccdclm", "adclm"), 256, 512, _PRECISIONS),
        (("rnnlm", "ccdclm"), 1024, 1024, _PRECISIONS),
    )
    for model in models
    for precision in precisions
}
ROWS = CPU_ROWS | ACCELERATOR_ROWS
SUITES = {
    "full": tuple(CPU_ROWS),
    "quick": ("train_ccdclm_16",),
    "accelerator": tuple(ACCELERATOR_ROWS),
}

_SUITE = flags.DEFINE_enum(
    "suite",
    "full",
    list(SUITES),
    "Suite: quick (one benchmark), full (all benchmarks of CPUs) or accelerator (training on a GPU "
    "or TPU, at several sizes and precisions).",
)
_ROWS = flags.DEFINE_list("rows", None, f"Benchmarks in place of --suite: {', '.join(ROWS)}.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Number of turns of each contender.", lower_bound=1)
_SEED = flags.DEFINE_integer(
    "seed", 0, "Random seed for documents, batches and parameters.", lower_bound=0
)
_METRICS = define_metrics()


def main(argv: Sequence[str]) -> int | None:
    del argv
    if _ROWS.value is not None and _SUITE.present:
        raise InputError("--rows replaces --suite; remove --suite or --rows")
    names = SUITES[_SUITE.value] if _ROWS.value is None else _ROWS.value
    for name in names:
        if name not in ROWS:
            raise InputError(f"--rows: unknown benchmark {name!r}{did_you_mean(name, ROWS)}")
    # On standard output the lines would be mixed with the JSON.
    stream = sys.stderr if _METRICS.value == files.STDOUT else sys.stdout
    try:
        # The file is opened first, so that a name that cannot be written is refused first.
        with files.open_output(_METRICS.value or os.devnull) as file:
            file.write(files.json_text(_measured(names, stream), indent=2) + "\n")
    except PeerError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


def _measured(names: Sequence[str], stream: TextIO) -> dict[str, Any]:
    """The results of benchmarks for a file of results; `stream` gets their lines."""
    machine = _machine()
    print("{cpu}, {cores} cores; JAX on {devices} x {device}".format(**machine), file=stream)
    if not contest.peers():
        print(f"torch is not installed; install it with: {contest.INSTALL}", file=stream)
    rows = []
    for name in names:
        work = ROWS[name]
        result = contest.run(work, _ROUNDS.value, _SEED.value)
        print(f"{name}: {work}", *result.lines(), sep="\n    ", file=stream, flush=True)
        rows.append({"name": name, "work": str(work), **result.to_json()})
    return {"machine": machine, "rounds": _ROUNDS.value, "seed": _SEED.value, "rows": rows}


def _machine() -> dict[str, Any]:
    """The processor, the devices available to JAX, and the versions of packages."""
    packages = ("jax", "jaxlib", *(("torch",) if contest.peers() else ()))
    (cpu, *_) = [
        line.partition(":")[2].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ] or [platform.machine()]
    return {
        "cpu": cpu,
        "cores": usable_cores(),
        "device": jax.devices()[0].device_kind,
        "devices": jax.local_device_count(),
        "versions": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in packages},
        },
    }


if __name__ == "__main__":
    _app.run(main)
