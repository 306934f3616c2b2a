"""launch.train from another run, end to end."""

from tests.launch.support import fingerprint, launch, refuse


def test_a_run_starts_from_another_one_and_goes_on_for_longer(space, tmp_path):
    flags = [
        f"--config.training.start_from={space.run}",
        "--config.training.frozen=embedding,output/*",
        f"--config.data.directory={space.other_corpus}",
    ]
    arguments = space.training(tmp_path / "run", *flags)
    said = launch("train", *arguments, "--config.training.max_steps=8").stdout
    assert f" of {space.run}:\n" in said
    assert "53 x 8" in said and "taken, frozen\n" in said and "\n  trained" in said
    said = launch("train", *arguments, "--config.training.max_steps=16").stdout
    assert "resuming after step 8" in said and "finished 16 steps" in said
    before = fingerprint(tmp_path / "run")
    error = refuse("train", *arguments, "--config.training.max_steps=8")
    assert "holds a run of 16 steps; training.epochs and training.max_steps make 8" in error
    assert fingerprint(tmp_path / "run") == before


def test_a_start_from_nowhere_and_a_pattern_of_nothing_are_refused(space, tmp_path):
    arguments = space.training(tmp_path / "run")
    error = refuse("train", *arguments, "--config.training.start_from=nowhere", cwd=tmp_path)
    assert error == "error: training.start_from: nowhere holds no run: config.json is missing"
    error = refuse("train", *arguments, "--config.training.frozen=embeding", cwd=tmp_path)
    assert error == (
        "error: training.frozen: 'embeding' matches no parameter; did you mean 'embedding'?"
    )
    assert not list(tmp_path.iterdir())
