"""launch.train from another run, end to end."""

from tests.launch.support import launch


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
