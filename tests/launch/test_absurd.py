"""Absurd values of flags and keys: one line at once, and nothing left behind."""

import pytest

from tests.launch.support import refuse


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (
            "model.hidden_dim=1000000000",
            "training ccdclm with its 8,000,000,135,000,000,882 parameters",
        ),
        ("data.batch_size=1000000000000", "a batch of 1,000,000,000,000 segments would take"),
    ],
)
def test_training_that_fits_no_machine_leaves_nothing_behind(space, tmp_path, option, expected):
    run = tmp_path / "run"
    error = refuse("train", *space.training(run, f"--config.{option}"))
    assert expected in error and "of memory at least" in error
    assert not run.exists()


@pytest.mark.parametrize("count", ["permutations", "bootstrap"])
def test_coherence_that_fits_no_machine_is_refused_at_once(space, count):
    error = refuse("coherence", f"--workdir={space.run}", f"--{count}=1000000000000")
    assert "of memory at least" in error


@pytest.mark.parametrize("flag", ["workdir", "input", "output", "data"])
def test_names_that_are_too_long_are_told_in_a_line(space, flag):
    flags = {"workdir": str(space.run)} | {flag: "/x" * 2500 + "y" * 5000}
    error = refuse("evaluate", *(f"--{name}={value}" for name, value in flags.items()))
    assert error.endswith("File name too long") and len(error) < 6000 * 2
