"""`launch.plan` from its flags to its table and its JSON, for this machine's CPU."""

import json

import pytest

from tests.launch.support import launch


@pytest.fixture(scope="module")
def flags(space) -> list[str]:
    """A run of a small model, whose batches have a shape that no corpus is read for."""
    return [f"--config={space.config}:rnnlm", "--target=cpu", "--shape=4,2,8", "--vocab_size=50"]


def test_text_and_json(flags, tmp_path):
    path = tmp_path / "plan.json"
    printed = launch("plan", *flags, f"--output={path}").stdout
    lines, saved = printed.splitlines(), json.loads(path.read_text())
    assert lines[:2] == ["compiling training, 1 of 1: 4 x 2 x 8", "compiling scoring: 4 x 2 x 8"]
    assert [line.split()[0] for line in lines if "4 x 2 x 8 " in line][:2] == [
        *("training", "scoring")
    ]
    assert "estimate, nothing was run" in printed and "  it fits: " in printed
    assert saved["fits"] and saved["target"] == "cpu"
    assert [row["name"] for row in saved["programs"]] == ["training", "scoring"]
    done = launch("plan", *flags, "--output=-", quiet=False)
    assert (json.loads(done.stdout), done.stderr) == (saved, printed)


def test_shapes_of_a_corpus(space):
    flags = [f"--config={space.config}", f"--config.data.directory={space.corpus}"]
    result = json.loads(launch("plan", *flags, "--target=cpu", "--output=-", quiet=False).stdout)
    training = [row for row in result["programs"] if row["name"] == "training"]
    assert result["steps"] == 24 and sum(row["steps_per_epoch"] for row in training) > 0
    assert 0 < result["share_real"] < 1
