"""launch.report on small trained runs: files, what is measured again and what is not, bad input."""

import json
import shutil

import pytest

from tests.launch.support import copy_run, launch, refuse

FAST = ("--bootstrap=20", "--pool=2")


@pytest.fixture(scope="module")
def workdirs(space, tmp_path_factory):
    """Two models, one of them with two seeds and two segment lengths."""
    root = tmp_path_factory.mktemp("report")
    seed = space.train("seed", "ccdclm", "--config.training.seed=1")
    # Whatever it was trained with: a report reads it in the configuration.
    long = copy_run(space.run, root / "long", data_segment_length=10)
    return [space.run, space.rnnlm, seed, long]


def report(workdirs, output, *flags, **options):
    paths = ",".join(map(str, workdirs))
    arguments = [f"--workdirs={paths}", f"--output={output}", *FAST, *flags]
    return launch("report", *arguments, **options).stdout


def test_tables_and_pictures(workdirs, tmp_path):
    output = tmp_path / "report"
    printed = report(workdirs, output)
    assert printed.count("measured in") == 4
    text = (output / "report.md").read_text()
    for label in ("| rnnlm |", "| ccdclm, L = 5 |", "| ccdclm, L = 10 |"):
        assert text.count(label) == 5
    for title in ("Table 2", "Table 3", "context is worth", "Figure 3"):
        assert title in text
    for name in ("by_token", "by_sentence", "segment_length"):
        assert (output / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads((output / "report.json").read_text())["rows"]
    assert [(row["label"], len(row["runs"])) for row in rows] == [
        ("rnnlm", 1),
        ("ccdclm, L = 5", 2),
        ("ccdclm, L = 10", 1),
    ]
    evaluated = launch("evaluate", f"--workdir={workdirs[1]}", "--output=-").stdout
    perplexity = rows[0]["runs"][0]["test"]["perplexity"]
    assert perplexity == pytest.approx(json.loads(evaluated)["perplexity"], rel=1e-6)
    coherence = launch(
        "coherence", f"--workdir={workdirs[0]}", "--permutations=0", *FAST, "--output=-"
    ).stdout
    assert rows[1]["runs"][0]["coherence"]["mean"] == json.loads(coherence)["mean"]

    assert report(workdirs, output, process=True).count("measured before") == 4
    assert (output / "report.md").read_text() == text
    for other in ("--seed=1", "--bootstrap=0"):
        assert report(workdirs[:1], output, other).count("measured in") == 1
    assert report(workdirs, output).count("measured before") == 4
    assert (output / "report.md").read_text() == text


def test_what_was_trained_anew_is_measured_anew(workdirs, tmp_path):
    run, output = tmp_path / "run", tmp_path / "report"
    for trained in (workdirs[0], workdirs[2]):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(trained, run)
        assert "measured in" in report([run], output)
    metrics = run / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    lines[-1]["seconds"] += 60
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = json.loads((output / "report.json").read_text())
    assert "measured before" in report([run], output)
    after = json.loads((output / "report.json").read_text())
    seconds = [one["rows"][0]["runs"][0]["seconds"] for one in (before, after)]
    assert seconds[1] == seconds[0] + 60


def test_runs_that_lost_their_records_are_measured(workdirs, tmp_path):
    """Without the curve it is a row as before; without corpus.json its text is not known."""
    lost = tmp_path / "seed"
    shutil.copytree(workdirs[2], lost)
    (lost / "metrics.jsonl").unlink()
    rows = report([workdirs[0], lost], tmp_path / "report", "--bootstrap=0")
    assert rows.count("ccdclm") == 4 and "training_text" not in rows
    (lost / "corpus.json").unlink()
    assert "training_text = None" in report([workdirs[0], lost], tmp_path / "report")


def test_runs_that_are_not_trained_to_their_end_are_rows_of_their_own(workdirs, tmp_path):
    unfinished = tmp_path / "seed"
    shutil.copytree(workdirs[2], unfinished)
    (unfinished / "result.json").unlink()
    text = report([workdirs[0], unfinished], tmp_path / "report", "--bootstrap=0")
    assert f"note: {unfinished} is not trained to its end; step " in text
    assert "ccdclm, unfinished = True" in text


def test_what_cannot_be_reported_is_refused_before_it_is_measured(space, workdirs, tmp_path):
    output = tmp_path / "report"
    other = space.other_run
    paths = f"--workdirs={workdirs[0]},{other}"
    error = refuse("report", paths, f"--output={output}")
    assert f"{other} has another vocabulary (" in error and f"than {workdirs[0]} (" in error
    broken = tmp_path / "broken"
    shutil.copytree(workdirs[0], broken)
    paths = f"--workdirs={workdirs[0]},{broken}"
    assert "are the same run" in refuse("report", paths, f"--output={output}")
    (broken / "metrics.jsonl").write_text("{\n")
    assert "metrics.jsonl:1" in refuse("report", paths, f"--output={output}")
    assert not output.exists()


def test_damaged_measurements_are_made_again(workdirs, tmp_path):
    output = tmp_path / "report"
    report(workdirs[:1], output)
    (kept,) = (output / "runs").iterdir()
    content = kept.read_bytes()
    kept.write_bytes(content[: len(content) // 2])
    assert "measured in" in report(workdirs[:1], output)
    assert kept.read_bytes() == content


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--bootstrap=1"], "--bootstrap is 1; expected 0, or 2 and more"),
        (["--pool=-1"], "--pool is -1; expected 0, or 2 and more"),
        (["--seed=-1"], "--seed is -1; expected 0 or more"),
        (["--workdirs="], "--workdirs holds an empty name"),
        (["--workdirs=RUN,nowhere"], "nowhere"),
        (["--output=RUN/config.json"], "config.json/runs: cannot be written: Not a directory"),
        (["--data=nowhere"], "nowhere"),
        (["--workdirs=nowhere"], "nowhere"),
        (["--output="], "--output is missing; expected a directory to write, or --quick"),
        (["--quick", "--workdirs="], "--workdirs holds an empty name"),
        (["--quick", "--workdirs=nowhere"], "nowhere holds no run: config.json is missing"),
        (["--quick", "--seed=1"], "--seed says how to measure; --quick measures nothing"),
    ],
)
def test_bad_input(workdirs, tmp_path, flags, message):
    output = tmp_path / "report"
    flags = [flag.replace("RUN", str(workdirs[0])) for flag in flags]
    assert message in refuse("report", f"--workdirs={workdirs[0]}", f"--output={output}", *flags)
    assert not output.exists()
