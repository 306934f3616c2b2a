"""launch.sweep end to end: cells are processes of launch.train on the small corpus."""

import csv
import json
import os
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

import dclm_jax
from tests.launch.support import STEPS, fingerprint, launch, refuse, start
from tests.training.support import read_metrics

GRID = "--grid=optimizer.learning_rate=0.02,0.05;training.seed=0,1"
NAMES = [f"learning_rate={rate},seed={seed}" for rate in (0.02, 0.05) for seed in (0, 1)]


def sweeping(space, directory: Path, *more: str) -> list[str]:
    return space.training(directory, "--jobs=2", *more)


def rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def swept(space) -> tuple[Path, str]:
    """A finished sweep, and what it said."""
    directory = space.root / "sweep"
    done = launch("sweep", *sweeping(space, directory, GRID))
    return directory, done.stdout


def test_every_cell_is_a_run_and_the_best_is_told(swept):
    directory, said = swept
    assert sorted(path.name for path in (directory / "cells").iterdir()) == NAMES
    perplexities = {}
    for name in NAMES:
        cell = directory / "cells" / name
        result = json.loads((cell / "result.json").read_text())
        evaluations = [line for line in read_metrics(cell) if "loss" in line]
        best = min(
            (line for line in evaluations if line["kind"] == "valid"),
            key=lambda line: line["perplexity"],
        )
        assert result == {
            "ending": "finished",
            "step": STEPS,
            "best_step": best["step"],
            "best_perplexity": best["perplexity"],
        }
        perplexities[name] = best["perplexity"]
        assert f"finished {STEPS} steps" in (directory / "logs" / f"{name}.out").read_text()
        measured = f"{name}  validation perplexity {best['perplexity']:.2f}"
        assert re.search(rf"{re.escape(measured)}  \d+:\d\d", said)
    assert len(set(perplexities.values())) == 4
    assert "4 cells, 0 finished before" in said and "[4/4]" in said

    table = rows(directory)
    order = sorted(perplexities, key=perplexities.__getitem__)
    assert [row["cell"] for row in table] == order
    assert [float(row["perplexity"]) for row in table] == sorted(perplexities.values())
    assert {row["parameters"] for row in table} == {table[0]["parameters"]}

    (line,) = [line for line in said.splitlines() if line.startswith("Best cell: ")]
    command = shlex.split(line.removeprefix("Best cell: "))
    best = directory / "cells" / order[0]
    assert command == ["python", "-m", "launch.evaluate", f"--workdir={best}", "--split=test"]
    assert dclm_jax.restore(best).num_parameters == int(table[0]["parameters"])


def test_a_finished_sweep_starts_nothing(space, swept):
    directory, said = swept
    before = fingerprint(directory)
    done = launch("sweep", *sweeping(space, directory, GRID))
    assert "4 cells, 4 finished before" in done.stdout and "[" not in done.stdout
    assert done.stdout.splitlines()[2:] == said.splitlines()[6:]
    assert fingerprint(directory) == before


def test_failed_cells_are_listed_and_the_others_are_not_lost(space, swept):
    directory, _ = swept
    grid = "--grid=optimizer.learning_rate=1e30,0.02;training.seed=1"
    done = launch("sweep", *sweeping(space, directory, grid), code=1)
    failed = "learning_rate=1e+30,seed=1"
    assert done.stderr == "error: 1 of 2 cells failed\n"
    assert "2 cells, 1 finished before" in done.stdout
    assert re.search(rf"{re.escape(f'[2/2] {failed}  failed')}  \d+:\d\d", done.stdout)
    assert [row["cell"] for row in rows(directory)] == [NAMES[1]]

    *_, name, line, log, again = done.stdout.splitlines()
    log, again = log.strip(), again.strip()
    assert name == failed and line.startswith("  error: step ")
    assert Path(log.removeprefix("log: ")).read_text() == f"{line.strip()}\n"
    assert not (directory / "cells" / failed / "result.json").exists()
    assert shlex.split(again.removeprefix("again: ")) == [
        "python",
        "-m",
        "launch.train",
        f"--config={space.config}",
        f"--config.data.directory={space.corpus}",
        "--config.optimizer.learning_rate=1e+30",
        "--config.training.seed=1",
        f"--workdir={directory / 'cells' / failed}",
    ]


def test_an_interrupted_sweep_saves_and_goes_on(space, tmp_path):
    directory = tmp_path / "sweep"
    values = ["--config.training.max_steps=150", "--config.training.epochs=100"]
    values += ["--config.training.evaluate_every=75", "--grid=training.seed=7"]
    arguments = space.training(directory, *values)
    process = start("sweep", *arguments, group=True)
    log, cell = directory / "logs" / "seed=7.out", directory / "cells" / "seed=7"
    deadline = time.monotonic() + 110
    while not (log.exists() and "step 30/" in log.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    # As a terminal does it: Ctrl-C is for the whole group.
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (75, "")
    assert re.search(r"\[0/1\] seed=7  stopped  \d+:\d\d", output)
    assert "0 of 1 cells are finished; repeat the command to resume" in output
    saved = log.read_text().splitlines()[-1]
    assert saved.startswith("interrupted and saved at step ")
    assert not (cell / "result.json").exists()
    assert not (directory / "sweep.csv").exists()
    done = launch("sweep", *arguments)
    assert "[1/1] seed=7  validation perplexity" in done.stdout
    step = saved.removeprefix("interrupted and saved at step ").split(";")[0]
    assert f"resuming after step {step}\n" in log.read_text()
    assert json.loads((cell / "result.json").read_text())["step"] == 150


def test_a_dry_run_shows_commands_and_writes_nothing(space, tmp_path):
    more = ["--grid=model.hidden_dim=4,8;model.dropout=0.1", "--config.model.tie_embeddings=false"]
    directory = tmp_path / "a sweep"
    done = launch("sweep", *sweeping(space, directory, *more, "--dry_run"))
    lines = done.stdout.splitlines()
    assert lines[0].startswith("hidden_dim=4,dropout=0.1  ") and "parameters" in lines[0]
    assert shlex.split(lines[1]) == [
        "python",
        "-m",
        "launch.train",
        f"--config={space.config}",
        f"--config.data.directory={space.corpus}",
        "--config.model.tie_embeddings=False",
        "--config.model.hidden_dim=4",
        "--config.model.dropout=0.1",
        f"--workdir={directory}/cells/hidden_dim=4,dropout=0.1",
    ]
    assert len(lines) == 4
    assert not directory.exists()


def test_jobs_are_a_line_of_flags_per_cell_and_what_has_finished_is_tabulated(
    space, swept, tmp_path
):
    directory, said = swept
    path = tmp_path / "flags"
    arguments = [*space.training(directory), f"--write_jobs={path}"]
    done = launch("sweep", *arguments, GRID)
    assert path.read_text().splitlines() == [
        f"--config.data.directory={space.corpus} --config.optimizer.learning_rate={rate} "
        f"--config.training.seed={seed} --workdir={directory}/cells/learning_rate={rate},"
        f"seed={seed}"
        for rate in (0.02, 0.05)
        for seed in (0, 1)
    ]
    lines = done.stdout.splitlines()
    assert lines[1] == (
        f"  CONFIG={space.config} ARGUMENTS={path} sbatch --array=1-4 launch/slurm/train.sbatch"
    )
    assert lines[2] == "4 cells, 4 finished"
    assert lines[3:] == said.splitlines()[5:]
    # A file that jobs may still read is not changed under them.
    before = path.read_text()
    error = refuse("sweep", *arguments, "--grid=optimizer.learning_rate=0.02;training.seed=0")
    assert f"{path}: has the flags of other cells" in error and path.read_text() == before
    assert launch("sweep", *arguments, GRID).stdout == done.stdout
