"""launch.train: runs that are interrupted, damaged, or diverge."""

import re
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

from dclm_jax.training.workdir import restore_run
from tests.exhaustive import also
from tests.launch.support import STEPS, launch, refuse, start
from tests.training.support import assert_same_bits, latest_state


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
    assert_same_bits(latest_state(run, 400), latest_state(whole, 400))
    ours, theirs = restore_run(run), restore_run(whole)
    assert_same_bits(ours.params, theirs.params)
    assert ours.info == theirs.info


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
