"""Trains a model for every choice of some values, and selects by development perplexity.

Three learning rates, two cells at a time on this machine, and a table of what came of them:

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from absl import flags

from dclm_jax import files, storage
from dclm_jax.errors import InputError, require_at_least
from dclm_jax.experiments import figures, jobs, sweep
from dclm_jax.experiments.sweep import Cell, Outcome, Value
from dclm_jax.training.progress import duration, interruption
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
    "plot", None, "Picture to draw: development perplexity by two keys (PNG, PDF, SVG)."
)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Show the cells and their commands, and stop.")

_say = functools.partial(print, flush=True)


class _Plan(NamedTuple):
    """What is to be trained; `parameters` of each cell's model by the cell's name."""

    directory: Path
    grid: dict[str, Sequence[Value]]
    cells: list[Cell]
    parameters: dict[str, int]

    def workdir(self, cell: Cell) -> Path:
        return self.directory / sweep.CELLS / cell.name

    def log(self, cell: Cell, ending: str) -> Path:
        return self.directory / "logs" / f"{cell.name}.{ending}"

    def outcome(self, cell: Cell) -> Outcome | None:
        return sweep.outcome(cell, self.parameters[cell.name], self.workdir(cell))


def main(argv: Sequence[str]) -> int:
    del argv
    _check_flags()
    plan = _plan()
    if _DRY_RUN.value:
        for cell in plan.cells:
            _say(f"{cell.name}  {plan.parameters[cell.name]:,} parameters\n  {_shown(plan, cell)}")
        return 0
    before = {cell.name: plan.outcome(cell) for cell in plan.cells}
    outcomes = {name: outcome for name, outcome in before.items() if outcome is not None}
    waiting = [cell for cell in plan.cells if cell.name not in outcomes]
    if _WRITE_JOBS.value:
        _write_jobs(plan, Path(_WRITE_JOBS.value))
    sweep.write_sweep(plan.directory, _training.config(), plan.grid)
    failed = {}
    if _WRITE_JOBS.value:
        _say(f"{len(plan.cells)} cells, {len(outcomes)} finished")
    else:
        logs = plan.directory / "logs"
        _say(
            f"{len(plan.cells)} cells, {len(outcomes)} finished before; what they print is in "
            f"{logs}"
        )
        failed = _train(plan, waiting, outcomes) if waiting else {}
    if outcomes:
        _report(plan, outcomes)
    if failed:
        _report_failed(plan, failed)
        return 1
    is_complete = _WRITE_JOBS.value or len(outcomes) == len(plan.cells)
    return 0 if is_complete else _app.EXIT_INTERRUPTED


def _check_flags() -> None:
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


def _plan() -> _Plan:
    config, directory = _training.config(), Path(_WORKDIR.value or "")
    texts = sweep.parse_grid(_GRID.value or "")
    for key in _training.overrides():
        if key in texts:
            raise InputError(f"--config.{key} sets a key of --grid; expected one of the two")
    grid = sweep.agreed_grid(directory, config, sweep.typed(texts, config))
    if _PLOT.value and len(several := _several(grid)) != 2:
        raise InputError(
            "--plot draws a grid of two keys with several values each; "
            f"--grid has {', '.join(several) or 'none'}"
        )
    all_cells = sweep.cells(grid)
    return _Plan(directory, grid, all_cells, sweep.check(config, all_cells))


def _several(grid: Mapping[str, Sequence[Value]]) -> list[str]:
    return [key for key, values in grid.items() if len(values) > 1]


def _write_jobs(plan: _Plan, path: Path) -> None:
    """Writes the flags of all cells, finished ones too: an element of an array reads its line again
    when it is requeued, so that lines keep their numbers.
    """
    lines = []
    for cell in plan.cells:
        workdir = plan.workdir(cell).absolute()
        arguments = [*_overrides(cell), f"--workdir={workdir}"]
        for argument in arguments:
            if len(argument.split()) != 1:
                raise InputError(
                    f"--write_jobs: {argument!r} holds white space, which divides the flags of a "
                    "line; choose a name without it"
                )
        lines.append(" ".join(arguments))
    content = "".join(f"{line}\n" for line in lines)
    if path.exists() and files.read_bytes(path) != content.encode():
        raise InputError(
            f"{path}: holds the flags of other cells, which jobs may still read; choose another "
            "--write_jobs"
        )
    files.write_bytes(path, content.encode())
    _say(
        f"{path}: flags of {len(lines)} cells. To train them:\n  CONFIG={_training.source()} "
        f"ARGUMENTS={path} sbatch --array=1-{len(lines)} launch/slurm/train.sbatch"
    )


def _train(
    plan: _Plan, waiting: Sequence[Cell], outcomes: dict[str, Outcome]
) -> dict[str, tuple[str, Path]]:
    """Runs cells, adds to `outcomes`, and returns the `_failure` of the others."""
    by_name = {cell.name: cell for cell in waiting}
    commands = {cell.name: [sys.executable, *_arguments(plan, cell)] for cell in waiting}
    failed: dict[str, tuple[str, Path]] = {}
    total = len(plan.cells)
    with interruption() as interrupted:
        logs, at_once = plan.directory / "logs", _JOBS.value
        for ended in jobs.run(commands, logs, at_once=at_once, interrupted=interrupted):
            cell, time = by_name[ended.name], duration(ended.seconds)
            if (outcome := plan.outcome(cell)) is not None:
                outcomes[cell.name] = outcome
                what = f"development perplexity {outcome.result.best_perplexity:.2f}"
            elif interrupted():
                what = "stopped"
            else:
                failed[cell.name] = _failure(ended, plan.log(cell, "err"))
                what = "failed"
            _say(f"[{len(outcomes) + len(failed)}/{total}] {cell.name}  {what}  {time}")
        if interrupted():
            _say(
                f"interrupted: {len(outcomes)} of {total} cells are finished; the same command "
                "resumes"
            )
    return failed


def _arguments(plan: _Plan, cell: Cell) -> list[str]:
    config, workdir = f"--config={_training.source()}", f"--workdir={plan.workdir(cell)}"
    return ["-m", "launch.train", config, *_overrides(cell), workdir]


def _overrides(cell: Cell) -> list[str]:
    values = {**_training.overrides(), **cell.values}
    return [f"--config.{key}={value}" for key, value in values.items()]


def _shown(plan: _Plan, cell: Cell) -> str:
    return shlex.join(["python", *_arguments(plan, cell)])


def _failure(ended: jobs.Ended, errors: Path) -> tuple[str, Path]:
    """The last line of the cell's errors, and their file."""
    lines = files.read_bytes(errors).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"ended without a message, with code {ended.code}", errors


def _report(plan: _Plan, outcomes: Mapping[str, Outcome]) -> None:
    # In the order of the grid, whatever order they have ended in.
    best_first = sweep.ranked(outcomes[one.name] for one in plan.cells if one.name in outcomes)
    path = plan.directory / sweep.TABLE_FILE
    sweep.write_table(path, best_first)
    _say(f"\n{sweep.table(best_first)}\nTable: {path}")
    best = shlex.quote(str(plan.workdir(best_first[0].cell)))
    _say(f"Best cell: python -m launch.evaluate --workdir={best} --split=test")
    if _PLOT.value:
        labels, keys = sweep.short_names(list(plan.grid)), _several(plan.grid)
        rows, columns = ((labels[key], list(map(str, plan.grid[key]))) for key in keys)
        perplexities = {
            (str(one.cell.values[keys[0]]), str(one.cell.values[keys[1]])): (
                one.result.best_perplexity
            )
            for one in best_first
        }
        figures.plot_grid(rows, columns, perplexities, _PLOT.value)
        _say(f"Plot: {_PLOT.value}")


def _report_failed(plan: _Plan, failed: Mapping[str, tuple[str, Path]]) -> None:
    _say("\nFailed cells:")
    for cell in plan.cells:
        if cell.name in failed:
            line, log = failed[cell.name]
            _say(f"{cell.name}\n  {line}\n  log: {log}\n  again: {_shown(plan, cell)}")
    _say(f"error: {len(failed)} of {len(plan.cells)} cells failed", file=sys.stderr)


if __name__ == "__main__":
    _app.run(main, _training.parse)
