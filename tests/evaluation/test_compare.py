"""The comparison of runs, on small hand-written result files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dclm_jax.errors import InputError
from dclm_jax.evaluation import compare

REPOSITORY = Path(__file__).parents[2]


def valid(step, tokens, seconds, perplexity):
    return {
        "step": step,
        "kind": "valid",
        "epoch": 0.5,
        "tokens": tokens,
        "seconds": seconds,
        "loss": 5.0,
        "perplexity": perplexity,
    }


def train(step, tokens, seconds):
    return {"step": step, "kind": "train", "tokens": tokens, "seconds": seconds, "loss": 5.5}


def write_run(folder, name="rnnlm", perplexity=200.0, mean=0.5, metrics=None, tokens=1234):
    folder.mkdir(parents=True)
    if metrics is None:
        metrics = [train(5, 500, 60.0), valid(10, 1000, 120.0, 300.0), valid(20, 2000, 240.0, 210)]
    (folder / "config.json").write_text(json.dumps({"model": {"name": name}}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    (folder / "perplexity.json").write_text(
        json.dumps(
            {
                "perplexity": perplexity,
                "tokens": tokens,
                "vocabulary_size": 10003,
                "oov_rate": 0.0321,
                "parameters": 1234567,
            }
        )
    )
    (folder / "coherence.json").write_text(
        json.dumps({"mean": mean, "sd": 0.01, "kind": "fixed", "documents": 24})
    )
    return folder


def test_the_table_shows_every_run_by_value(tmp_path):
    first = write_run(tmp_path / "a")
    second = write_run(tmp_path / "b", "ccdclm", perplexity=180.456, mean=0.83256)
    assert compare.comparison_table(compare.read_runs([first, second])).splitlines() == [
        "model   parameters  test perplexity  coherence %  training minutes",
        "------  ----------  ---------------  -----------  ----------------",
        "rnnlm    1,234,567           200.00        50.00               4.0",
        "ccdclm   1,234,567           180.46        83.26               4.0",
        "Perplexity = exp(sum NLL / targets) over 1,234 targets (END counted, START not), "
        "vocabulary 10,003, OOV rate 3.21%.",
        "Coherence: log P(document) > log P(permutation), ties count half, 24 documents.",
    ]


def test_runs_of_one_model_are_told_apart_by_their_folders(tmp_path):
    folders = [write_run(tmp_path / "small"), write_run(tmp_path / "large")]
    assert [run.label for run in compare.read_runs(folders)] == list(map(str, folders))


def test_of_steps_repeated_after_a_kill_the_last_lines_count(tmp_path):
    metrics = [
        valid(10, 1000, 60.0, 400.0),
        valid(20, 2000, 130.0, 350.0),
        valid(20, 2000, 120.0, 340.0),
        valid(30, 3000, 150.0, 300.0),
    ]
    (run,) = compare.read_runs([write_run(tmp_path / "run", metrics=metrics)])
    assert run.minutes == pytest.approx(2.5)
    assert run.curve == (
        compare.CurvePoint(10, 1000, 400.0),
        compare.CurvePoint(20, 2000, 340.0),
        compare.CurvePoint(30, 3000, 300.0),
    )


def test_a_line_that_is_still_being_written_is_left_out(tmp_path):
    folder = write_run(tmp_path / "run")
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 30, "ki')
    assert len(compare.read_runs([folder])[0].curve) == 2


def test_the_picture_is_a_png_with_one_line_a_run(tmp_path):
    runs = compare.read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b", "ccdclm")])
    target = tmp_path / "plots" / "curves.png"
    compare.plot_learning_curves(runs, target)
    assert target.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")

    as_text = tmp_path / "curves.svg"
    compare.plot_learning_curves(runs, as_text)
    svg = as_text.read_text()
    assert svg.count("<!-- rnnlm (best 210.0) -->") == 1
    assert svg.count("<!-- ccdclm (best 210.0) -->") == 1


def test_a_picture_format_that_does_not_exist_is_an_input_error(tmp_path):
    runs = compare.read_runs([write_run(tmp_path / "a")])
    with pytest.raises(InputError, match="curves.xyz: cannot write the plot"):
        compare.plot_learning_curves(runs, tmp_path / "curves.xyz")


@pytest.mark.parametrize(
    ("name", "writer"),
    [
        ("config.json", "launch.train"),
        ("metrics.jsonl", "launch.train"),
        ("perplexity.json", "launch.evaluate"),
        ("coherence.json", "launch.coherence"),
    ],
)
def test_a_missing_file_is_named_with_the_command_that_writes_it(tmp_path, name, writer):
    folder = write_run(tmp_path / "run")
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"{name}: no such file.*{writer}"):
        compare.read_runs([folder])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", "{}", "config.json: expected the model's name"),
        ("perplexity.json", "[1]", "perplexity.json: expected a JSON object"),
        ("perplexity.json", '{"parameters": null}', "number under 'parameters', found None"),
        ("coherence.json", "{", "coherence.json: not JSON"),
        ("coherence.json", '{"mean": "high"}', "number under 'mean', found 'high'"),
        ("metrics.jsonl", '{"seconds": 1}\n{oops\n', "metrics.jsonl:2: not JSON"),
        ("metrics.jsonl", '{"seconds": 1, "kind": "train"}\n', "no line of kind 'valid'"),
    ],
)
def test_broken_files_are_input_errors(tmp_path, name, text, message):
    folder = write_run(tmp_path / "run")
    (folder / name).write_text(text)
    with pytest.raises(InputError, match=message):
        compare.read_runs([folder])


def test_other_wrong_input(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such work directory"):
        compare.read_runs([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="no work directory to compare"):
        compare.read_runs([])
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", "ccdclm", tokens=99)]
    with pytest.raises(InputError, match="rnnlm was scored with 1,234 targets, ccdclm with 99"):
        compare.read_runs(folders)


def run_launcher(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "launch.compare", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_command_line(tmp_path):
    folders = [str(write_run(tmp_path / "a")), str(write_run(tmp_path / "b", "ccdclm"))]
    plot = tmp_path / "curves.png"
    done = run_launcher(f"--workdirs={','.join(folders)}", f"--plot={plot}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"Learning curves: {plot}"
    assert plot.stat().st_size > 1000

    failed = run_launcher(f"--workdirs={tmp_path / 'nowhere'}")
    assert failed.returncode == 2
    assert failed.stderr == f"error: {tmp_path / 'nowhere'}: no such work directory\n"
