"""`launch.coherence --baseline`: what a baseline is trained on and how it is measured."""

import json

import pytest

from dclm_jax.data.prepare import prepare
from tests.launch import support

TEXT = "\n\n".join(f"a{i} b{i}\nb{i} c{i}\nc{i} d{i}" for i in range(4))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("baselines")
    (root / "text").write_text(TEXT)
    prepare({split: root / "text" for split in ("train", "valid", "test")}, root / "corpus")
    (root / "new").write_text("c1 d1\na1 b1\nb1 c1\n")
    return root


def test_a_baseline_is_trained_and_measured_like_a_model(corpus, tmp_path):
    result = tmp_path / "result.json"
    command = ["coherence", "--baseline=maximum_entropy", f"--data={corpus / 'corpus'}"]
    flags = ["--permutations=30", "--bootstrap=3", "--permutation_pool=2", f"--output={result}"]
    done = support.launch(*command, *flags, quiet=False)
    assert [line.split(", ")[0] for line in done.stderr.splitlines()] == [
        f"maximum_entropy: C {strength}" for strength in ("0.0001", "0.001", "0.01", "0.1", "1")
    ]
    assert done.stdout.startswith("maximum_entropy, 58 parameters\n")
    assert "with only the first sentence moved: accuracy 100.00%" in done.stdout
    assert "\nwarning: the first sentence identifies documents" in done.stdout
    value = json.loads(result.read_text("utf-8"))
    assert (value["kind"], value["documents"], value["split"]) == ("bootstrap", 4, "test")
    assert (value["model"], value["parameters"]) == ("maximum_entropy", 58)
    # It was trained on this text.
    assert value["fixed"]["permutations"] == 30 and value["fixed"]["mean"] > 0.9

    flags = [f"--input={corpus / 'new'}", "--seed=3", "--fix_first=1", "--output=-"]
    value = json.loads(support.launch(*command, *flags, quiet=False).stdout)
    assert (value["documents"], value["input"]) == (1, str(corpus / "new"))
    assert (value["keep_first"], value["first_sentence"]) == (1, None)
    assert value["seed"] == 3
