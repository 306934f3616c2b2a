"""A grid of configurations, with one run of launch.train per cell, and their results.

SWEEP/
  cells/CELL/         the work directory of the run of a cell
  logs/               output of the runs
  sweep.csv           the finished cells, the best cell first
"""

import copy
import dataclasses
import functools
import hashlib
import itertools
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from absl import flags
from ml_collections import ConfigDict

from dclm_jax import files, models
from dclm_jax.data.corpus import open_corpus
from dclm_jax.errors import InputError, did_you_mean
from dclm_jax.experiments import jobs
from dclm_jax.tables import Column, Table
from dclm_jax.training.config import difference_text, differences, flat, validated
from dclm_jax.training.freezing import by_path, choose
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.progress import count_parameters, duration, interruption
from dclm_jax.training.workdir import CONFIG_FILE, Result, read_config, read_lines, read_result

_FORM = "expected --grid='KEY=VALUE,VALUE;KEY=VALUE,VALUE'"
_PARSERS: dict[type, flags.ArgumentParser] = {
    bool: flags.BooleanParser(),
    int: flags.IntegerParser(),
    float: flags.FloatParser(),
    str: flags.ArgumentParser(),
}
# File systems allow 255 bytes; files of a job add an ending to the name of a cell.
_MAX_NAME = 180

Value = bool | int | float | str
Grid = Mapping[str, Sequence[Value]]


class Cell(NamedTuple):
    """A choice of one value for every key of a grid; its folder is called `name`."""

    name: str
    values: dict[str, Value]


class Outcome(NamedTuple):
    """A finished cell.

    Attributes:
      parameters: number of parameters of the model.
      seconds: training time, without evaluation and compilation.
      tokens_per_second: targets trained on per second of this time.
    """

    cell: Cell
    parameters: int
    result: Result
    seconds: float
    tokens_per_second: float


class Failure(NamedTuple):
    """A failed cell: the last line of its standard error, and the file with all lines."""

    cell: Cell
    line: str
    log: Path


def parse_grid(text: str, config: ConfigDict) -> dict[str, list[Value]]:
    """The values of every key in "KEY=VALUE,VALUE;KEY=VALUE", with the types of the
    configuration."""
    known = flat(config.to_dict())
    grid: dict[str, list[Value]] = {}
    for part in text.split(";"):
        key, equals, values = (piece.strip() for piece in part.partition("="))
        if not key or not equals:
            raise InputError(f"--grid: found {part.strip()!r}; {_FORM}")
        if key in grid:
            raise InputError(f"--grid: {key} occurs twice; write every key once")
        if key not in known:
            raise InputError(f"--grid: unknown configuration key {key!r}{did_you_mean(key, known)}")
        grid[key] = []
        for value_text in map(str.strip, values.split(",")):
            if not value_text:
                raise InputError(f"--grid: found an empty value in {part.strip()!r}; {_FORM}")
            value = _parse_value(key, value_text, known[key])
            if value in grid[key]:
                raise InputError(
                    f"--grid: {key} has the value {value_text} twice; write every value once"
                )
            grid[key].append(value)
    return grid


def _parse_value(key: str, text: str, default: Any) -> Value:
    kind = type(default)
    if kind not in _PARSERS:
        raise InputError(
            f"--grid: {key} is {default!r}; choose a key whose value is a number, text or boolean"
        )
    try:
        value: Any = _PARSERS[kind].parse(text)
    except ValueError as error:
        raise InputError(
            f"--grid: {key} has the value {text!r}; expected a value of type {kind.__name__}"
        ) from error
    return value


def cells(grid: Grid) -> list[Cell]:
    """All cells of a grid; values of the last key change first."""
    labels = short_names(list(grid)).values()
    all_cells = []
    for values in itertools.product(*grid.values()):
        text = ",".join(f"{label}={value}" for label, value in zip(labels, values, strict=True))
        name = re.sub(r"[^A-Za-z0-9_.,=+-]", "_", text)[:_MAX_NAME]
        if name != text:
            # Two names may differ only in the characters that were replaced or cut.
            name = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        all_cells.append(Cell(name, dict(zip(grid, values, strict=True))))
    return all_cells


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Keys without their sections, unless two keys would then be equal."""
    names = {key: key.rpartition(".")[2] for key in keys}
    return names if len(set(names.values())) == len(names) else {key: key for key in keys}


def configured(config: ConfigDict, values: Mapping[str, Value]) -> ConfigDict:
    """A copy of the configuration with the values of a cell."""
    changed = copy.deepcopy(config)
    changed.update_from_flattened_dict(dict(values))
    return changed


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Runs of launch.train in a directory, one run per cell of a grid.

    Attributes:
      directory: directory of the sweep.
      config: the configuration that cells change.
      grid: values by key, in the order of the names of cells.
      config_file: FILE[:NAME] of the configuration.
      overrides: values of --config.KEY for all cells.
    """

    directory: Path
    config: ConfigDict
    grid: Grid
    config_file: str = ""
    overrides: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.directory / CONFIG_FILE).exists():
            raise InputError(f"{self.directory} has a run; choose a --workdir only for the sweep")

    @functools.cached_property
    def cells(self) -> list[Cell]:
        """All cells of the grid."""
        return cells(self.grid)

    @functools.cached_property
    def parameters(self) -> dict[str, int]:
        """The number of parameters of each cell's model, by the name of the cell. An `InputError`
        names a cell that cannot be trained."""

        @functools.cache
        def vocab_size(directory: str) -> int:
            splits = [open_corpus(directory, split) for split in ("train", "valid")]
            return len(splits[0].vocabulary)

        parameters = {}
        for cell in self.cells:
            try:
                settings = validated(configured(self.config, cell.values))
                size = vocab_size(settings.data.directory)
                model = models.create(vocab_size=size, **settings.model)
                create_optimizer(settings.optimizer, total_steps=1)
                # The key is abstract too, so that this process does not occupy an accelerator.
                shapes = jax.eval_shape(model.init, jax.eval_shape(jax.random.key, 0))
                choose(settings.training.frozen, by_path(shapes))
            except InputError as error:
                raise InputError(f"cell {cell.name}: {error}") from error
            parameters[cell.name] = count_parameters(shapes)
        return parameters

    def workdir(self, cell: Cell) -> Path:
        """The work directory of a cell."""
        return self.directory / "cells" / cell.name

    def flags(self, cell: Cell) -> list[str]:
        """The flags of launch.train for a cell, except --config and --workdir."""
        values = {**self.overrides, **cell.values}
        return [f"--config.{key}={value}" for key, value in values.items()]

    def command(self, cell: Cell) -> list[str]:
        """The program and arguments that train a cell."""
        config, workdir = f"--config={self.config_file}", f"--workdir={self.workdir(cell)}"
        return ["python", "-m", "launch.train", config, *self.flags(cell), workdir]

    def outcome(self, cell: Cell) -> Outcome | None:
        """The result of a finished cell; None if it is not finished. A cell that was trained with
        another configuration is refused."""
        workdir = self.workdir(cell)
        result = read_result(workdir)
        if result is None:
            return None
        config = configured(self.config, cell.values).to_dict()
        if different := differences(read_config(workdir), config):
            raise InputError(
                f"{workdir} has a run with a different configuration "
                f"({difference_text(different)}); choose a new --workdir"
            )
        last = read_lines(workdir)[-1]
        rate = last.tokens / last.seconds if last.seconds else math.nan
        return Outcome(cell, self.parameters[cell.name], result, last.seconds, rate)

    def outcomes(self) -> list[Outcome]:
        """The finished cells by validation perplexity, lowest first; cells with equal perplexities
        are in the order of the grid."""
        finished = [outcome for cell in self.cells if (outcome := self.outcome(cell)) is not None]
        return sorted(finished, key=lambda outcome: outcome.result.best_perplexity)

    def train(
        self, waiting: Sequence[Cell], *, at_once: int, say: Callable[[str], None]
    ) -> list[Failure]:
        """Trains cells as processes of this machine, stops them at a signal, and returns the failed
        cells. `say` is called with a line for each ended process."""
        by_name = {cell.name: cell for cell in waiting}
        commands = {cell.name: [sys.executable, *self.command(cell)[1:]] for cell in waiting}
        logs, total = self.directory / "logs", len(self.cells)
        done, failed = total - len(waiting), []
        with interruption() as interrupted:
            for ended in jobs.run(commands, logs, at_once=at_once, interrupted=interrupted):
                cell = by_name[ended.name]
                if (outcome := self.outcome(cell)) is not None:
                    message = f"validation perplexity {outcome.result.best_perplexity:.2f}"
                elif interrupted():
                    message, done = "stopped", done - 1
                else:
                    log = logs / f"{cell.name}.err"
                    *_, line = [
                        f"ended with exit code {ended.code} and without a message",
                        *files.read_bytes(log).decode(errors="replace").strip().splitlines(),
                    ]
                    failed.append(Failure(cell, line, log))
                    message = "failed"
                done += 1
                say(f"[{done}/{total}] {cell.name}  {message}  {duration(ended.seconds)}")
            if interrupted():
                say(
                    f"interrupted: {done - len(failed)} of {total} cells are finished; repeat the "
                    "command to resume"
                )
        return failed

    def write_jobs(self, path: Path) -> None:
        """Writes the flags of all cells, one cell per line. Finished cells are included: an element
        of an array reads its line again when it is requeued, so line numbers must not change."""
        lines = []
        for cell in self.cells:
            arguments = [*self.flags(cell), f"--workdir={self.workdir(cell).absolute()}"]
            for argument in arguments:
                if len(argument.split()) != 1:
                    raise InputError(
                        f"--write_jobs: {argument!r} has white space, which separates the flags of "
                        "a line; choose a value without white space"
                    )
            lines.append(" ".join(arguments) + "\n")
        content = "".join(lines).encode()
        if path.exists() and files.read_bytes(path) != content:
            raise InputError(
                f"{path}: has the flags of other cells, which jobs may still read; choose another "
                "--write_jobs"
            )
        files.write_bytes(path, content)


def table(outcomes: Sequence[Outcome]) -> Table:
    """The finished cells; the best cell is first and marked."""
    cells, results = [o.cell for o in outcomes], [o.result for o in outcomes]
    perplexities = [[result.best_perplexity] for result in results]
    rates = [[outcome.tokens_per_second] for outcome in outcomes]
    columns = [
        Column("", [["best" if outcome is outcomes[0] else ""] for outcome in outcomes]),
        Column(None, [[cell.name] for cell in cells], keys=["cell"]),
        *(
            Column(label, [[cell.values[key]] for cell in cells], keys=[key])
            for key, label in short_names(list(cells[0].values)).items()
        ),
        Column("parameters", [[o.parameters] for o in outcomes], "{:,}".format, ["parameters"]),
        Column("validation perplexity", perplexities, "{:.2f}".format, ["perplexity"]),
        Column("best step", [[r.best_step] for r in results], "{:,}".format, ["best_step"]),
        Column(None, [[result.ending, result.step] for result in results], keys=["ending", "step"]),
        Column("seconds", [[o.seconds] for o in outcomes], "{:.1f}".format, ["seconds"]),
        Column("targets/s", rates, "{:,.0f}".format, ["tokens_per_second"]),
    ]
    return Table.of("Finished cells by validation perplexity", "", columns)
