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

import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import sys
from collections.abc import Sequence
from typing import Any, Literal, TextIO

import jax

from dclm_jax import files
from dclm_jax.errors import InputError, did_you_mean
from dclm_jax.files import Count, Size

from .. import _app
from .._options import MetricsOptions
from . import contest
from .contest import Work
from .timing import PeerError
from .worker import usable_cores

# As the kernel names them, the widest first.
_VECTORS = ("avx512f", "avx2", "avx", "sse2")
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


@dataclasses.dataclass(frozen=True)
class Options(MetricsOptions):
    """Options of `benchmark`.

    Attributes:
      suite: set of benchmarks: quick (one), full (all for CPUs) or accelerator (training on a GPU
        or TPU, at several sizes and precisions).
      rows: benchmarks in place of --suite, such as train_adclm_16,score_ccdclm_16.
      rounds: number of turns of each contender.
      seed: random seed for documents, batches and parameters.
    """

    suite: Literal["quick", "full", "accelerator"] = "full"
    rows: Sequence[str] | None = None
    rounds: Size = 5
    seed: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is not None and self.is_given("suite"):
            raise InputError("--rows replaces --suite; remove --suite or --rows")
        for name in self.rows or ():
            if name not in ROWS:
                raise InputError(f"--rows: unknown benchmark {name!r}{did_you_mean(name, ROWS)}")


def benchmark(options: Options) -> int | None:
    """Measures the speeds, and prints and writes them."""
    # On standard output the lines would be mixed with the JSON.
    stream = sys.stderr if options.metrics == files.STDOUT else sys.stdout
    try:
        # The file is opened first, so that a name that cannot be written is refused first.
        with files.open_output(options.metrics or os.devnull) as file:
            file.write(files.json_text(_measured(options, stream), indent=2) + "\n")
    except PeerError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


def _measured(options: Options, stream: TextIO) -> dict[str, Any]:
    """The results of benchmarks for a file of results; `stream` gets their lines."""
    machine = _machine()
    print(
        "{cpu}, {vectors}, {cores} cores; JAX on {devices} x {device}".format(**machine),
        file=stream,
    )
    if not contest.peers():
        print(f"torch is not installed; install it with: {contest.INSTALL}", file=stream)
    rows = []
    for name in SUITES[options.suite] if options.rows is None else options.rows:
        work = ROWS[name]
        result = contest.compete(work, options.rounds, options.seed)
        print(f"{name}: {work}", *result.lines(), sep="\n    ", file=stream, flush=True)
        rows.append({"name": name, "work": str(work), **result.to_json()})
    return {"machine": machine, "rounds": options.rounds, "seed": options.seed, "rows": rows}


def _machine() -> dict[str, Any]:
    """The processor and its widest vectors, the devices available to JAX, and the versions of
    packages."""
    packages = ("jax", "jaxlib", *(("torch",) if contest.peers() else ()))
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    cpuinfo = {
        name.strip(): text.strip() for name, _, text in (row.partition(":") for row in lines)
    }
    flags = cpuinfo.get("flags", "").split()
    return {
        "cpu": cpuinfo.get("model name", platform.machine()),
        "vectors": next((name for name in _VECTORS if name in flags), "unknown vectors"),
        "cores": usable_cores(),
        "device": jax.devices()[0].device_kind,
        "devices": jax.local_device_count(),
        "versions": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in packages},
        },
    }


if __name__ == "__main__":
    _app.run(benchmark, Options)
