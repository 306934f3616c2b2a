"""launch.train: runs that are interrupted, or diverge."""

import re
import signal

import jax
import numpy as np
import pytest

from dclm_jax.training.workdir import restore_run
from tests.launch.support import STEPS, launch, refuse, start
from tests.training.support import assert_same_bits, latest_state


@pytest.mark.exhaustive
def test_a_terminated_run_resumes_bit_for_bit(space, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    # Long enough to be met in the middle.
    values = {
        "training.max_steps": 400,
        "training.epochs": 100,
        "training.evaluate_every": 50,
        "training.checkpoint_every": 30,
        "model.dropout": 0.2,
    }
    flags = [f"--config.{key}={value}" for key, value in values.items()]
    launch("train", *space.training(whole, *flags))
    arguments = space.training(run, *flags)
    process = start("train", *arguments)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 70/"):
            process.send_signal(signal.SIGTERM)
            break
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (75, "")
    assert "interrupted and saved at step" in output
    assert not (run / "checkpoints" / "latest" / "400").exists()
    resumed = launch("train", *arguments).stdout
    assert "resuming after step" in resumed and "finished 400 steps" in resumed
    assert_same_bits(latest_state(run, 400), latest_state(whole, 400))
    ours, theirs = restore_run(run), restore_run(whole)
    assert_same_bits(ours.params, theirs.params)
    assert ours.info == theirs.info


def test_divergence_is_one_line_with_the_step_and_keeps_the_best_model(space, tmp_path):
    run, spoiled = tmp_path / "run", tmp_path / "spoiled"
    sgd = ["--config.optimizer.name=sgd", "--config.optimizer.clip_norm=0.0"]
    sgd.append("--config.training.evaluate_every=1")
    # The learning rate grows from step to step: the first ones still work.
    growing = [
        "--config.optimizer.schedule=exponential",
        "--config.optimizer.learning_rate=0.1",
        "--config.optimizer.final_fraction=1e36",
    ]
    error = refuse("train", *space.training(run, *sgd, *growing), code=1)
    match = re.match(r"error: step (\d+): .*the best model is from step (\d+)", error)
    assert match, error
    failed, best = map(int, match.groups())
    assert restore_run(run).step == best < failed <= STEPS
    for params in (restore_run(run).params, latest_state(run, failed - 1)["params"]):
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    launch("evaluate", f"--workdir={run}")

    # A rate that spoils the parameters at once leaves nothing to resume from or to use.
    at_once = [*sgd, "--config.optimizer.learning_rate=1e30"]
    error = refuse("train", *space.training(spoiled, *at_once), code=1)
    assert error.startswith("error: step 1: ")
    assert not list((spoiled / "checkpoints" / "latest").iterdir())
    assert "no checkpoint to use yet" in refuse("evaluate", f"--workdir={spoiled}")
