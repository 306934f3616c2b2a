"""launch.report on small trained runs: files, what is measured again and what is not, bad input."""

import json

import pytest

from tests.launch.support import launch, refuse

FAST = ("--bootstrap=20", "--pool=2")


@pytest.fixture(scope="module")
def workdirs(space, tmp_path_factory):
    """Two models, one of them with two seeds and two segment lengths."""
    root = tmp_path_factory.mktemp("report")
    runs = {
        "rnnlm": ("rnnlm",),
        "seed": ("ccdclm", "--config.training.seed=1"),
        "long": ("ccdclm", "--config.data.segment_length=10"),
    }
    for name, (model, *flags) in runs.items():
        arguments = list(space.training(root / name, *flags))
        arguments[0] += f":{model}"
        launch("train", *arguments)
    return [space.run, *(root / name for name in runs)]


def report(workdirs, output, *flags):
    paths = ",".join(map(str, workdirs))
    return launch("report", f"--workdirs={paths}", f"--output={output}", *FAST, *flags).stdout


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

    assert report(workdirs, output).count("measured before") == 4
    assert (output / "report.md").read_text() == text
    again = report(workdirs, output, "--seed=1")
    assert again.count("measured in") == 4


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
        (["--bootstrap=-1"], "--bootstrap is -1; expected 0 or more"),
        (["--data=nowhere"], "nowhere"),
        (["--workdirs=nowhere"], "nowhere"),
    ],
)
def test_bad_input(workdirs, tmp_path, flags, message):
    output = tmp_path / "report"
    assert message in refuse("report", f"--workdirs={workdirs[0]}", f"--output={output}", *flags)
    assert not output.exists()
