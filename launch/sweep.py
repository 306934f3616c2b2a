"""Trains a model for every choice of some values, and selects by validation perplexity.

Three learning rates, two cells at a time on this machine, and a table of their results:

    python -m launch.prepare --corpus=sotu --output=data/sotu
    python -m launch.sweep --config=configs/quickstart.py:ccdclm --workdir=sweeps/rates \\
        --config.data.directory=data/sotu --grid='optimizer.learning_rate=0.05,0.1,0.2' --jobs=2

Any key of the configuration may be in the grid; --help --config=configs/quickstart.py lists them.
--config=FILE and --config.KEY=VALUE are those of launch.train, and hold for all cells. All cells
are checked before the first is started; --dry_run shows them and their commands, and starts none.
The grid search of Ji et al. (2015, 3.1) over K (embedding_dim) and H (hidden_dim):

    python -m launch.sweep --config=configs/ptb/paper.py:ccdclm --workdir=sweeps/ccdclm \\
        --config.data.directory=data/ptb --jobs=2 \\
        --grid='model.hidden_dim=32,48,64,96,128,256;model.embedding_dim=32,48,64,96,128,256'

Every cell is a run of launch.train in a workdir of its own, SWEEP/cells/hidden_dim=32,..., to be
used like any other; what it prints is in SWEEP/logs. Ctrl-C or SIGTERM saves and stops the cells.
The same command resumes: finished cells are not started again, the others resume from their newest
checkpoint. A grid may get other values later, more or fewer; its keys and the configuration stay.

On a cluster, --write_jobs=FILE trains nothing and writes the flags of each cell as a line of FILE,
which launch/slurm/train.sbatch trains as an array of jobs. The same command again prints the table
of the cells that are finished:

    python -m launch.sweep --config=configs/ptb/paper.py:ccdclm --workdir=sweeps/ccdclm \\
        --config.data.directory=data/ptb --grid='model.hidden_dim=32,64;model.dropout=0.0,0.2' \\
        --write_jobs=sweeps/ccdclm.flags
    CONFIG=configs/ptb/paper.py:ccdclm ARGUMENTS=sweeps/ccdclm.flags sbatch --array=1-4 \\
        --time=4:00:00 launch/slurm/train.sbatch

At the end come a table, also as SWEEP/sweep.csv, the best cell, and the cells that failed with the
last line of their errors; the exit code is 1 if there are any, 75 if the sweep was stopped. --plot
draws a grid of two keys.
"""

import functools
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from dclm_jax import storage
from dclm_jax.errors import InputError, require_at_least
from dclm_jax.experiments import figures
from dclm_jax.experiments.sweep import Sweep, parse_grid, table, write_table
from launch import _app, _training

flags.adopt_module_key_flags(_training)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Directory of the sweep; made if it does not exist.", required=True
)
_GRID = flags.DEFINE_string(
    "grid", None, "Keys and their values, 'KEY=VALUE,VALUE;KEY=VALUE', in quotes.", required=True
)
_JOBS = flags.DEFINE_integer("jobs", 1, "Maximum number of cells that run at a time.")
_WRITE_JOBS = flags.DEFINE_string(
    "write_jobs",
    None,
    "File to write instead of training: the flags of one cell per line, which "
    "launch/slurm/train.sbatch trains as an array of jobs.",
)
_PLOT = flags.DEFINE_string(
    "plot", None, "Figure to draw: validation perplexity by two keys (PNG, PDF, SVG)."
)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Show the cells and their commands, and stop.")

_say = functools.partial(print, flush=True)


def main(argv: Sequence[str]) -> int:
    del argv
    sweep = _sweep()
    # Every cell is checked before the first is started.
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
    sweep.save()
    failed = []
    if not _WRITE_JOBS.value:
        _say(f"{counts} before; what they print is in {sweep.directory / 'logs'}")
        if waiting:
            failed = sweep.train(waiting, at_once=_JOBS.value, say=_say)
    outcomes = sweep.outcomes()
    if outcomes:
        path = sweep.directory / "sweep.csv"
        write_table(path, outcomes)
        _say(f"\n{table(outcomes)}\nTable: {path}")
        best = shlex.quote(str(sweep.workdir(outcomes[0].cell)))
        _say(f"Best cell: python -m launch.evaluate --workdir={best} --split=test")
        if _PLOT.value:
            sweep.plot(outcomes, _PLOT.value)
            _say(f"Plot: {_PLOT.value}")
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
    if storage.is_remote(_WORKDIR.value):
        raise InputError(
            f"--workdir is {_WORKDIR.value}; jobs of a sweep meet in a file system, expected a path"
        )
    require_at_least("--jobs", _JOBS.value, 1)
    if _WRITE_JOBS.value and _JOBS.present:
        raise InputError(
            "--jobs has no effect with --write_jobs, which trains no cells; remove one of the two"
        )
    if _PLOT.value:
        figures.check_target(_PLOT.value)
    config, overrides = _training.config(), _training.overrides()
    grid = parse_grid(_GRID.value or "", config)
    for key in overrides:
        if key in grid:
            raise InputError(f"--config.{key} sets a key of --grid; expected one of the two")
    directory = Path(_WORKDIR.value or "")
    sweep = Sweep(directory, config, grid, _training.source(), overrides).agreed()
    if _PLOT.value and len(sweep.several) != 2:
        raise InputError(
            "--plot draws a grid of two keys with several values each; "
            f"--grid has {', '.join(sweep.several) or 'none'}"
        )
    return sweep


if __name__ == "__main__":
    _app.run(main, _training.parse)
