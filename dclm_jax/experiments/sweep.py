"""A grid of configurations: its text, its cells, what is kept of it, and which cell is the best.

SWEEP/
  sweep.json          the configuration and the grid
  cells/CELL/         the workdir of a run, one for each choice of values
  sweep.csv           the finished cells, the best one first
"""

import copy
import dataclasses
import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from absl import flags
from ml_collections import ConfigDict

from dclm_jax import files, models
from dclm_jax.data.corpus import open_corpus
from dclm_jax.errors import InputError, did_you_mean
from dclm_jax.tables import aligned, separated
from dclm_jax.training.config import difference_text, differences, flat, validated
from dclm_jax.training.freezing import by_path, choose
from dclm_jax.training.metrics import read_lines
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.progress import count_parameters
from dclm_jax.training.workdir import CONFIG_FILE, Result, read_result

SWEEP_FILE = "sweep.json"
TABLE_FILE = "sweep.csv"
CELLS = "cells"
_FORM = "expected --grid='KEY=VALUE,VALUE;KEY=VALUE,VALUE'"
_PARSERS: dict[type, flags.ArgumentParser] = {
    bool: flags.BooleanParser(),
    int: flags.IntegerParser(),
    float: flags.FloatParser(),
    str: flags.ArgumentParser(),
}
# File systems allow 255 bytes; a job's files add an ending to a cell's name.
_MAX_NAME = 180

Value = bool | int | float | str


@dataclasses.dataclass(frozen=True)
class _Sweep:
    grid: dict[str, list[Any]]
    config: dict[str, Any]


class Cell(NamedTuple):
    """A choice of one value for every key of a grid; `name` is that of its folder."""

    name: str
    values: dict[str, Value]


class Outcome(NamedTuple):
    """A finished cell.

    Attributes:
      parameters: scalars of the model.
      seconds: spent training, evaluation and compilation left out.
      tokens_per_second: targets trained on in that time.
    """

    cell: Cell
    parameters: int
    result: Result
    seconds: float
    tokens_per_second: float


def parse_grid(text: str) -> dict[str, list[str]]:
    """The values of every key in "KEY=VALUE,VALUE;KEY=VALUE", as they are written."""
    grid: dict[str, list[str]] = {}
    for part in text.split(";"):
        key, equals, values = (piece.strip() for piece in part.partition("="))
        if not key or not equals:
            raise InputError(f"--grid: found {part.strip()!r}; {_FORM}")
        if key in grid:
            raise InputError(f"--grid: {key} is there twice; expected every key once")
        grid[key] = [value.strip() for value in values.split(",")]
        if not all(grid[key]):
            raise InputError(f"--grid: found an empty value in {part.strip()!r}; {_FORM}")
    return grid


def typed(grid: Mapping[str, Sequence[str]], config: ConfigDict) -> dict[str, list[Value]]:
    """The grid with values of the types that its keys have in the configuration."""
    known = flat(config.to_dict())
    made: dict[str, list[Value]] = {key: [] for key in grid}
    for key, values in made.items():
        if key not in known:
            raise InputError(f"--grid: unknown configuration key {key!r}{did_you_mean(key, known)}")
        kind = type(known[key])
        if kind not in _PARSERS:
            raise InputError(
                f"--grid: {key} is {known[key]!r}; expected a key of a number, text or true and "
                "false"
            )
        for text in grid[key]:
            found = f"--grid: {key} has the value"
            try:
                value: Any = _PARSERS[kind].parse(text)
            except ValueError as error:
                expected = f"expected a value of type {kind.__name__}"
                raise InputError(f"{found} {text!r}; {expected}") from error
            if value in values:
                raise InputError(f"{found} {text} twice; expected different values")
            values.append(value)
    return made


def cells(grid: Mapping[str, Sequence[Value]]) -> list[Cell]:
    """Every choice of values; those of the last key change first."""
    labels = short_names(list(grid)).values()
    made = []
    for values in itertools.product(*grid.values()):
        text = ",".join(f"{label}={value}" for label, value in zip(labels, values, strict=True))
        name = re.sub(r"[^A-Za-z0-9_.,=+-]", "_", text)[:_MAX_NAME]
        if name != text:
            # What was left out may have been all that two names differ in.
            name = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        made.append(Cell(name, dict(zip(grid, values, strict=True))))
    return made


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Keys without their section, where that tells them apart."""
    names = {key: key.rpartition(".")[2] for key in keys}
    return names if len(set(names.values())) == len(names) else {key: key for key in keys}


def configured(config: ConfigDict, values: Mapping[str, Value]) -> ConfigDict:
    """The configuration of a cell; the one given stays as it is."""
    changed = copy.deepcopy(config)
    changed.update_from_flattened_dict(dict(values))
    return changed


def check(config: ConfigDict, all_cells: Sequence[Cell]) -> dict[str, int]:
    """Finds out before anything is started whether every cell can be trained.

    Returns:
      The number of parameters of each cell's model, by the cell's name.
    """
    vocabularies: dict[str, int] = {}
    parameters = {}
    for cell in all_cells:
        try:
            settings = validated(configured(config, cell.values))
            directory = settings.data.directory
            if directory not in vocabularies:
                # Each cell verifies what it reads.
                corpora = [
                    open_corpus(directory, split, verify=False) for split in ("train", "valid")
                ]
                vocabularies[directory] = len(corpora[0].vocabulary)
            options = dict(settings.model)
            name = options.pop("name")
            model = models.create(name, vocab_size=vocabularies[directory], **options)
            create_optimizer(settings.optimizer, total_steps=1)
            # Within eval_shape the key is abstract too: no accelerator is taken from the cells.
            shapes = jax.eval_shape(lambda model=model: model.init(jax.random.key(0)))
            choose(settings.training.frozen, by_path(shapes))
        except InputError as error:
            raise InputError(f"cell {cell.name}: {error}") from error
        parameters[cell.name] = count_parameters(shapes)
    return parameters


def agreed_grid(
    directory: Path, config: ConfigDict, grid: Mapping[str, Sequence[Value]]
) -> dict[str, Sequence[Value]]:
    """The grid, its keys in the order of the sweep that the directory may hold.

    Its values may be others than there: a cell has the same name in every grid of these keys.
    """
    path = directory / SWEEP_FILE
    if not path.exists():
        if (directory / CONFIG_FILE).exists():
            raise InputError(f"{directory} holds a run; expected a directory of its own")
        return dict(grid)
    held = files.read_json(path, _Sweep)
    if set(held.grid) != set(grid):
        raise InputError(
            f"{directory} holds a sweep over {', '.join(held.grid)}; "
            f"found --grid over {', '.join(grid)}"
        )
    # What the grid sets is the same on both sides, whatever the configurations have there.
    chosen = {key: values[0] for key, values in grid.items()}
    try:
        old = configured(ConfigDict(held.config), chosen)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: expected the configuration of a sweep over its grid") from error
    if different := differences(old.to_dict(), configured(config, chosen).to_dict()):
        raise InputError(
            f"{directory} holds a sweep of another configuration: {difference_text(different)}"
        )
    return {key: grid[key] for key in held.grid}


def write_sweep(directory: Path, config: ConfigDict, grid: Mapping[str, Sequence[Value]]) -> None:
    """Keeps what the directory is a sweep of."""
    files.write_json(directory / SWEEP_FILE, {"grid": dict(grid), "config": config.to_dict()})


def outcome(cell: Cell, parameters: int, workdir: Path) -> Outcome | None:
    """What a finished cell has come to; None of one that is not finished."""
    result = read_result(workdir)
    if result is None:
        return None
    last = read_lines(workdir)[-1]
    rate = last.tokens / last.seconds if last.seconds else math.nan
    return Outcome(cell, parameters, result, last.seconds, rate)


def ranked(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The lowest development perplexity first; equal ones stay in the order of the grid."""
    return sorted(outcomes, key=lambda one: one.result.best_perplexity)


def table(best_first: Sequence[Outcome]) -> str:
    """The aligned table of finished cells, with a mark at the best."""
    labels = short_names(list(best_first[0].cell.values)).values()
    measured = ("parameters", "development perplexity", "best step", "seconds", "tokens/s")
    rows = [["", *labels, *measured]]
    for one in best_first:
        mark = "best" if one is best_first[0] else ""
        numbers = (f"{one.parameters:,}", f"{one.result.best_perplexity:.2f}")
        numbers += (f"{one.result.best_step:,}", f"{one.seconds:.1f}")
        values = map(str, one.cell.values.values())
        rows.append([mark, *values, *numbers, f"{one.tokens_per_second:,.0f}"])
    return "\n".join(line.rstrip() for line in aligned(rows))


def write_table(path: Path, best_first: Sequence[Outcome]) -> None:
    """Writes the finished cells as CSV, numbers unrounded."""
    rows = [
        {
            "cell": one.cell.name,
            **one.cell.values,
            "parameters": one.parameters,
            "perplexity": one.result.best_perplexity,
            "best_step": one.result.best_step,
            "ending": one.result.ending,
            "step": one.result.step,
            "seconds": one.seconds,
            "tokens_per_second": one.tokens_per_second,
        }
        for one in best_first
    ]
    with files.open_output(path) as file:
        file.writelines(separated(cells, ",") for cells in (rows[0], *map(dict.values, rows)))
