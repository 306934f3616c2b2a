"""`launch.plan` from its flags to its table and its JSON, for this machine's CPU."""

import json

import pytest

from tests.launch.support import launch, refuse


@pytest.fixture(scope="module")
def flags(space) -> list[str]:
    """A run of a small model, whose batches have a shape that no corpus is read for."""
    return [f"--config={space.config}:rnnlm", "--target=cpu", "--shape=4,2,8", "--vocab_size=50"]


def test_text(flags):
    lines = launch("plan", *flags).stdout.splitlines()
    assert lines[:2] == [
        "compiling training, 1 of 1: 4 x 2 x 8",
        "compiling scoring: 4 x 2 x 8",
    ]
    rows = [line.split()[0] for line in lines if "4 x 2 x 8 " in line]
    assert rows == ["training", "scoring"]
    text = "\n".join(lines)
    assert "estimate, nothing was run" in text and "  it fits: " in text


def test_json_in_a_file_and_on_standard_output(flags, tmp_path):
    path = tmp_path / "plan.json"
    printed = launch("plan", *flags, f"--output={path}").stdout
    saved = json.loads(path.read_text())
    assert "it fits" in printed and saved["fits"] and saved["target"] == "cpu"
    assert [row["name"] for row in saved["programs"]] == ["training", "scoring"]

    done = launch("plan", *flags, "--output=-", quiet=False)
    assert json.loads(done.stdout) == saved
    assert done.stderr == printed


def test_variants(flags):
    programs = launch("plan", *flags, "--variants", "--output=-", quiet=False).stdout
    assert [row["name"] for row in json.loads(programs)["programs"]] == [
        "training",
        "scoring",
        "with model.remat=true",
        "with model.compute_dtype=bfloat16",
        "with data.batch_size=8",
    ]


def test_shapes_of_a_corpus(space):
    flags = [f"--config={space.config}", f"--config.data.directory={space.corpus}"]
    result = json.loads(launch("plan", *flags, "--target=cpu", "--output=-", quiet=False).stdout)
    training = [row for row in result["programs"] if row["name"] == "training"]
    assert result["steps"] == 24 and sum(row["steps_per_epoch"] for row in training) > 0
    assert 0 < result["share_real"] < 1


def test_a_run_that_does_not_fit_is_an_answer(flags):
    done = launch("plan", *flags, "--device_gib=0.00001", "--output=-", quiet=False)
    assert "it does not fit: " in done.stderr
    result = json.loads(done.stdout)
    assert result["fits"] is False
    peak = max(row["peak"] for row in result["programs"])
    assert result["missing_bytes"] == pytest.approx(peak - 0.00001 * 2**30)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--shape=4,2"], "--shape=4,2; expected SEGMENTS,SENTENCES,TOKENS, all above 0"),
        (["--shape=4,0,8"], "--shape=4,0,8; expected SEGMENTS,SENTENCES,TOKENS, all above 0"),
        (
            ["--vocab_size=0"],
            "--vocab_size is missing; add the size of the vocabulary, with --shape",
        ),
        (["--device_gib=0"], "--device_gib=0.0; expected a number above 0"),
        (["--launch_us=nan"], "--launch_us=nan; expected a number above 0"),
        (["--device_tflops=inf"], "--device_tflops=inf; expected a number above 0"),
    ],
)
def test_flags_that_are_wrong(flags, changes, message):
    assert message in refuse("plan", *flags, *changes)


def test_a_number_of_words_without_a_shape(space):
    error = refuse("plan", f"--config={space.config}", "--target=cpu", "--vocab_size=50")
    assert "--vocab_size has no effect without --shape; give both or neither" in error
