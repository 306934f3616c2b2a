"""Compares training and scoring speed with PyTorch and DyNet, in one run.

    pip install -e '.[benchmark]'                               # once; a missing peer is skipped
    python -m launch.benchmark --suite=quick --rounds=3         # one benchmark, under a minute
    python -m launch.benchmark --rows=train_adclm_16,input_16   # two benchmarks
    python -m launch.benchmark --output=benchmark.json          # all benchmarks, some minutes
    python -m launch.benchmark --suite=accelerator              # on a GPU or TPU

For each benchmark the command prints the measured value (a ratio or targets per second), the
smallest acceptable value, the aim, and a verdict. The command needs Linux. launch/benchmark.md
describes the method and has results.
"""

import contextlib
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Sequence

import jax
from absl import flags
from jax.experimental.compilation_cache import compilation_cache

from dclm_jax import files
from dclm_jax.benchmark import rows
from dclm_jax.benchmark.timing import PeerError
from dclm_jax.benchmark.workloads import Setting
from dclm_jax.errors import InputError, did_you_mean
from launch import _app

_SUITE = flags.DEFINE_enum(
    "suite",
    "full",
    list(rows.SUITES),
    "Suite: quick (one benchmark), full (all benchmarks of CPUs) or accelerator (training on a GPU "
    "or TPU, at several sizes and precisions).",
)
_ROWS = flags.DEFINE_list("rows", None, f"Benchmarks in place of --suite: {', '.join(rows.ROWS)}.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Number of turns of each contender.", lower_bound=1)
_SEED = flags.DEFINE_integer(
    "seed", 0, "Random seed for documents, batches and parameters.", lower_bound=0
)
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the result; '-' is standard output.")


def main(argv: Sequence[str]) -> int | None:
    del argv
    if _ROWS.value is not None and _SUITE.present:
        raise InputError("--rows replaces --suite; remove --suite or --rows")
    names = rows.SUITES[_SUITE.value] if _ROWS.value is None else _ROWS.value
    for name in names:
        if name not in rows.ROWS:
            raise InputError(f"--rows: unknown benchmark {name!r}{did_you_mean(name, rows.ROWS)}")
    try:
        _run(names)
    except PeerError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


@contextlib.contextmanager
def _new_compilation_cache(directory: pathlib.Path) -> Iterator[None]:
    """Uses an empty compilation cache, so that compilation times do not depend on earlier runs."""
    before = jax.config.values["jax_compilation_cache_dir"]
    _set_compilation_cache(str(directory))
    try:
        yield
    finally:
        _set_compilation_cache(before)


def _set_compilation_cache(directory: str | None) -> None:
    jax.config.update("jax_compilation_cache_dir", directory)
    # Without a reset JAX would continue to use the previous directory.
    compilation_cache.reset_cache()


def _run(names: Sequence[str]) -> None:
    # On standard output the table would be mixed with the JSON.
    table = sys.stderr if _OUTPUT.value == files.STDOUT else sys.stdout
    with contextlib.ExitStack() as stack:
        # An output that cannot be written is refused before the long measurement.
        file = None if not _OUTPUT.value else stack.enter_context(files.open_output(_OUTPUT.value))
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(_new_compilation_cache(directory / "xla"))
        setting = Setting(
            directory, rounds=_ROUNDS.value, seed=_SEED.value, tuned_peers=_SUITE.value != "quick"
        )
        result = rows.run(names, setting, lambda line: print(line, file=table, flush=True))
        if file is not None:
            file.write(files.json_text(result, indent=2) + "\n")


if __name__ == "__main__":
    _app.run(main)
