"""Measures this project beside PyTorch and DyNet, on the same models, batches and documents.

One row in under a minute, then everything (some minutes):

    pip install -e '.[benchmark]'
    python -m launch.benchmark --suite=quick --rounds=3
    python -m launch.benchmark --output=benchmark.json

Some rows only:

    python -m launch.benchmark --rows=train_adclm_16,input_16

All contenders take turns in every round, warm (the second turn counts), and medians over the rounds
are compared. PyTorch runs as it is installed, to which the goals apply, and (not in the quick
suite) again with the allocator keeping freed memory, as our launchers do. Before any timing a
peer must have our loss from our parameters, else the run ends with exit code 1. A peer that is not
installed is skipped. Each row prints what was measured, the least that is wanted, the aim, and
whether they are met. Linux only.
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

_SUITE = flags.DEFINE_enum("suite", "full", list(rows.SUITES), "Which rows to run.")
_ROWS = flags.DEFINE_list("rows", None, f"Rows to run instead: {', '.join(rows.ROWS)}.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Turns of each contender; the median counts.")
_SEED = flags.DEFINE_integer("seed", 0, "Of documents, batches and parameters.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the result; '-' is standard output.")


def main(argv: Sequence[str]) -> int | None:
    del argv
    for name, value, least in (("rounds", _ROUNDS.value, 1), ("seed", _SEED.value, 0)):
        if value < least:
            raise InputError(f"--{name}={value}; expected at least {least}")
    if _ROWS.value is not None and _SUITE.present:
        raise InputError("--rows replaces --suite; expected one of the two")
    names = rows.SUITES[_SUITE.value] if _ROWS.value is None else _ROWS.value
    for name in names:
        if name not in rows.ROWS:
            raise InputError(f"--rows: unknown row {name!r}{did_you_mean(name, rows.ROWS)}")
    try:
        _run(names)
    except PeerError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


@contextlib.contextmanager
def _new_compilation_cache(directory: pathlib.Path) -> Iterator[None]:
    """Compile times are to be those of programs that no earlier run has compiled."""
    before = jax.config.values["jax_compilation_cache_dir"]
    _set_compilation_cache(str(directory))
    try:
        yield
    finally:
        _set_compilation_cache(before)


def _set_compilation_cache(directory: str | None) -> None:
    jax.config.update("jax_compilation_cache_dir", directory)
    # Without it JAX would go on with the directory it has used before.
    compilation_cache.reset_cache()


def _run(names: Sequence[str]) -> None:
    # A table on standard output would get among the JSON there.
    table = sys.stderr if _OUTPUT.value == files.STDOUT else sys.stdout
    with contextlib.ExitStack() as stack:
        # An output that cannot be written is found out before the minutes of measuring.
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
