"""Absurd values of flags and keys: one line at once, and nothing left behind."""

import pytest

from tests.launch.support import launch, refuse
from tests.training.support import read_metrics


def test_training_that_fits_no_machine_leaves_nothing_behind(space, tmp_path):
    run = tmp_path / "run"
    error = refuse("train", *space.training(run, "--config.model.hidden_dim=1000000000"))
    assert "a training step of" in error and "GiB of memory per device" in error
    assert "Use a smaller data.batch_size" in error
    assert not run.exists()


def test_a_batch_of_more_segments_than_there_are_trains(space, tmp_path):
    """Batches of all segments themselves are compared in test_batches."""
    sizes = {"data.segment_length": 0, "data.batch_size": 10**12, "training.max_steps": 3}
    options = [f"--config.{name}={value}" for name, value in sizes.items()]
    launch("train", *space.training(tmp_path / "run", *options))
    lines = read_metrics(tmp_path / "run")
    assert len([line for line in lines if line["kind"] == "train"]) == 3


@pytest.mark.parametrize("count", ["permutations", "bootstrap"])
def test_coherence_that_fits_no_machine_is_refused_at_once(space, count):
    error = refuse("coherence", f"--workdir={space.run}", f"--{count}=1000000000000")
    assert "would take at least" in error


@pytest.mark.parametrize("flag", ["workdir", "input", "output", "data"])
def test_names_that_are_too_long_are_told_in_a_line(space, flag):
    flags = {"workdir": str(space.run)} | {flag: "/x" * 2500 + "y" * 5000}
    error = refuse("evaluate", *(f"--{name}={value}" for name, value in flags.items()))
    assert error.endswith("File name too long") and len(error) < 6000 * 2
