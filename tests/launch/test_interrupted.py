"""launch.train: runs that are interrupted, damaged, or diverge."""

import json
import re
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from dclm_jax.training.checkpoints import restore_run
from tests.exhaustive import also
from tests.launch.support import STEPS, launch, refuse, start


def latest_state(run: Path, step: int):
    """Every array of a checkpoint for resuming, read without the code under test."""
    with ocp.StandardCheckpointer() as reader:
        return reader.restore((run / "checkpoints" / "latest" / str(step) / "state").resolve())


def assert_same_run(one: Path, other: Path, step: int) -> None:
    """The last state and the best parameters are the same, bit for bit."""
    for read in (lambda run: latest_state(run, step), lambda run: restore_run(run).params):
        left, right = read(one), read(other)
        assert jax.tree.structure(left) == jax.tree.structure(right)
        jax.tree.map(np.testing.assert_array_equal, left, right)
    assert restore_run(one).info == restore_run(other).info


def damage(checkpoint: Path) -> None:
    """Halves every file of a checkpoint, manifests of its arrays included."""
    for file in checkpoint.rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.fixture(scope="module")
def long_run(space) -> tuple[list[str], Path]:
    """An uninterrupted run that is long enough to be met in the middle."""
    values = [
        "--config.training.max_steps=400",
        "--config.training.epochs=100",
        "--config.training.evaluate_every=50",
        "--config.training.checkpoint_every=30",
        "--config.model.dropout=0.2",
    ]
    whole = space.root / "whole"
    launch("train", *space.training(whole, *values))
    return values, whole


@pytest.mark.parametrize("number", [signal.SIGTERM, *also([signal.SIGKILL])])
def test_interrupted_training_goes_on_bit_for_bit(space, long_run, tmp_path, number):
    values, whole = long_run
    run = tmp_path / "run"
    arguments = space.training(run, *values)
    process = start("train", *arguments)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 70/"):
            process.send_signal(number)
            break
    output, errors = process.communicate(timeout=60)
    if number == signal.SIGTERM:
        assert (process.returncode, errors) == (75, "")
        assert "interrupted and saved at step" in output
    else:
        assert process.returncode == -signal.SIGKILL
    assert not (run / "checkpoints" / "latest" / "400").exists()
    resumed = launch("train", *arguments, quiet=False)
    left_locked = f"note: {run} was left locked by process {process.pid} on "
    assert resumed.stderr.startswith(left_locked if number == signal.SIGKILL else "")
    assert resumed.stderr.count("\n") == (number == signal.SIGKILL)
    assert "resuming after step" in resumed.stdout
    assert "finished 400 steps" in resumed.stdout
    assert_same_run(run, whole, 400)


@pytest.mark.parametrize("kind", ["latest", "best"])
def test_truncated_newest_checkpoint_falls_back_and_says_so(space, tmp_path, kind):
    run = tmp_path / "run"
    shutil.copytree(space.run, run)
    checkpoints = run / "checkpoints" / kind
    previous, newest = sorted(checkpoints.iterdir(), key=lambda step: int(step.name))
    damage(newest)
    if kind == "latest":
        errors = launch("train", *space.training(run), quiet=False).stderr
        assert_same_run(run, space.run, STEPS)
    else:
        output = run / "perplexity.json"
        errors = launch("evaluate", f"--workdir={run}", f"--output={output}", quiet=False).stderr
        assert json.loads(output.read_text())["step"] == int(previous.name)
    first, second = errors.splitlines()
    assert first.startswith(f"warning: {newest} cannot be used: ")
    assert second == f"warning: using step {previous.name} instead"


def test_divergence_is_one_line_with_the_step_and_keeps_the_best_model(space, tmp_path):
    run = tmp_path / "run"
    sgd = ["--config.optimizer.name=sgd", "--config.optimizer.clip_norm=0.0"]
    # The learning rate grows from step to step: the first ones still work.
    growing = [
        "--config.optimizer.schedule=exponential",
        "--config.optimizer.learning_rate=0.1",
        "--config.optimizer.final_fraction=1e36",
        "--config.training.evaluate_every=1",
    ]
    error = refuse("train", *space.training(run, *sgd, *growing), code=1)
    match = re.match(r"error: step (\d+): .*the best model is of step (\d+)", error)
    assert match, error
    failed, best = map(int, match.groups())
    assert restore_run(run).step == best < failed <= STEPS
    for params in (restore_run(run).params, latest_state(run, failed - 1)["params"]):
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    launch("evaluate", f"--workdir={run}")

    # A rate that spoils the parameters at once leaves nothing to resume from or to use.
    at_once = [*sgd, "--config.optimizer.learning_rate=1e30", "--config.training.evaluate_every=1"]
    error = refuse("train", *space.training(tmp_path / "once", *at_once), code=1)
    assert error.startswith("error: step 1: ")
    assert not list((tmp_path / "once" / "checkpoints" / "latest").iterdir())
    assert "no checkpoint to use yet" in refuse("evaluate", f"--workdir={tmp_path / 'once'}")
