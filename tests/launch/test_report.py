"""launch.report on small trained runs: files, what is measured again and what is not, bad input."""

import csv
import json
import shutil

import pytest

from dclm_jax.coherence import results
from tests.launch.support import copy_run, launch, refuse

FAST = ("--bootstrap=20", "--pool=2")


@pytest.fixture(scope="module")
def workdirs(space, tmp_path_factory):
    """Two models, one of them with two seeds and two segment lengths."""
    root = tmp_path_factory.mktemp("report")
    seed = space.train("seed", "ccdclm", "--config.training.seed=1")
    # Whatever it was trained with: a report reads it in the configuration.
    elsewhere = {"data_directory": str(space.test_only), "data_segment_length": 10}
    long = copy_run(space.run, root / "long", **elsewhere)
    return [space.run, space.rnnlm, seed, long]


def report(workdirs, output, *flags, **options):
    paths = ",".join(map(str, workdirs))
    arguments = [f"--workdirs={paths}", f"--output={output}", *FAST, *flags]
    return launch("report", *arguments, **options).stdout


def test_tables_pictures_and_the_page(space, workdirs, tmp_path):
    output, page = tmp_path / "report", tmp_path / "pages" / "all.html"
    flags = ("--blocks=2", "--adapt=unigram", f"--html={page}")
    printed = report(workdirs, output, *flags)
    # No document of the test set has the nine sentences that are two blocks of eight.
    assert printed.count("measured in") == 4 * 4 and f"page: {page}" in printed
    text = (output / "report.md").read_text()
    for label in ("| rnnlm |", "| ccdclm, L = 5 |", "| ccdclm, L = 10 |"):
        assert text.count(label) == 7
    for title in ("Table 2", "Table 3", "context is worth", "Figure 3"):
        assert title in text
    for name in ("by_token", "by_sentence", "segment_length", "blocks"):
        assert (output / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads((output / "report.json").read_text())["rows"]
    assert [(row["label"], len(row["runs"])) for row in rows] == [
        ("rnnlm", 1),
        ("ccdclm, L = 5", 2),
        ("ccdclm, L = 10", 1),
    ]
    evaluate = ("evaluate", f"--workdir={workdirs[1]}", "--adapt=unigram", "--output=-")
    evaluated = json.loads(launch(*evaluate).stdout)
    measured, (adapted,) = rows[0]["runs"][0], evaluated["adapted"]
    assert measured["test"]["perplexity"] == pytest.approx(evaluated["perplexity"], rel=1e-6)
    unigram = measured["adapted"]["unigram"]
    assert unigram["test"]["perplexity"] == pytest.approx(adapted["perplexity"], rel=1e-6)
    assert unigram["setting"] == pytest.approx(adapted["setting"], rel=1e-4)
    with (output / "report.csv").open() as file:
        first = next(csv.DictReader(file))
    told = float(first["test_perplexity_unigram"])
    assert told == pytest.approx(adapted["perplexity"], rel=1e-6)
    orders = ("--permutations=0", *FAST, "--adapt=unigram", "--output=-")
    alone = json.loads(launch("coherence", f"--workdir={workdirs[0]}", *orders).stdout)["runs"]
    ccdclm = rows[1]["runs"][0]
    accuracies = [one["coherence"]["mean"] for one in (ccdclm, ccdclm["adapted"]["unigram"])]
    assert accuracies == [one["mean"] for one in alone] and accuracies[0] != accuracies[1]

    blocks = rows[1]["runs"][0]["blocks"]
    assert list(blocks) == ["2", "4"] and blocks["4"]["documents"] < blocks["2"]["documents"]
    made = page.read_text("utf-8")
    shown = (
        rows[2]["runs"][0]["arrangements"]["mixed"],
        100 * rows[0]["runs"][0]["blocks"]["2"]["mean"],
    )
    for told in (
        *map("{:.2f}".format, shown),
        *("Sentence 1 of ", f"--html={page}", "launch.evaluate --split=test", "jaxlib"),
        "Adapted to each document",
        str(space.corpus),
    ):
        assert told in made

    again = report(workdirs, output, *flags, process=True)
    assert again.count("measured before") == 4 * 4
    assert (output / "report.md").read_text() == text and page.read_text("utf-8") == made
    for other in ("--seed=1", "--bootstrap=0"):
        assert report(workdirs[:1], output, other).count("measured in") == 1
    other = ("--adapt=unigram", "--cache_strength=7")
    assert report(workdirs[:1], output, *other).count("measured in") == 1
    assert report(workdirs, output, *flags).count("measured before") == 4 * 4
    assert (output / "report.md").read_text() == text


def test_any_run_or_model_is_a_baseline(workdirs, tmp_path):
    output = tmp_path / "report"
    run = workdirs[3]
    printed = report(workdirs, output, f"--baseline={run}", "--bootstrap=0")
    assert "to ccdclm, L = 10" in printed and "to rnnlm" not in printed
    rows = json.loads((output / "report.json").read_text())["rows"]
    of = {row["label"]: row for row in rows}
    base = of["ccdclm, L = 10"]["runs"][0]["test"]["perplexity"]
    compared = of["rnnlm"]["compared"]["ccdclm, L = 10"]
    own = of["rnnlm"]["runs"][0]["test"]["perplexity"]
    assert compared["ratio"] == pytest.approx(own / base)
    assert compared["interval"][0] < own / base < compared["interval"][1]
    with (output / "report.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["label"] for line in lines] == ["rnnlm", "ccdclm, L = 5", "ccdclm, L = 10"]
    assert float(lines[0]["test_perplexity"]) == pytest.approx(own, rel=1e-9)
    assert [line["data.segment_length"] for line in lines] == ["5", "5", "10"]
    assert "\\begin{tabular}" in (output / "report.tex").read_text()
    assert "--bootstrap=1000 fills it in." in (output / "report.md").read_text()

    printed = report(workdirs, output, "--baseline=ccdclm", "--bootstrap=0")
    assert printed.count("measured before") == 4
    told = json.loads((output / "report.json").read_text())["rows"][0]["compared"]
    assert told == {} or list(told) == ["ccdclm"]
    paths = f"--workdirs={workdirs[0]},{workdirs[1]}"
    error = refuse("report", paths, f"--output={output}", "--baseline=hrnnlm")
    assert "--baseline is hrnnlm; expected one of --workdirs, or of the models ccdclm, r" in error


def test_both_coherences_where_the_first_sentence_decides(workdirs, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FIRST_DECIDES", 0.0)
    output = tmp_path / "report"
    printed = report(workdirs[:2], output)
    assert printed.count("measured in") == 4 and "first kept %" in printed
    assert "WARNING" in (output / "report.md").read_text()
    rows = json.loads((output / "report.json").read_text())["rows"]
    run = f"--workdir={workdirs[0]}"
    alone = launch("coherence", run, "--permutations=0", *FAST, "--keep_first=1", "--output=-")
    found = rows[1]["runs"][0]
    assert found["first_kept"]["mean"] == json.loads(alone.stdout)["mean"]
    assert (found["coherence"]["keep_first"], found["first_kept"]["keep_first"]) == (0, 1)
    assert report(workdirs[:2], output).count("measured before") == 4
    # Where it is kept anyway there is one number, the same one.
    printed = report(workdirs[:2], output, "--keep_first=1")
    assert "first kept %" not in printed and printed.count("measured in") == 2
    kept = json.loads((output / "report.json").read_text())["rows"][1]["runs"][0]["coherence"]
    assert kept == found["first_kept"]


def test_runs_are_found_by_a_pattern(workdirs, tmp_path):
    for name, run in (("b", workdirs[0]), ("a", workdirs[1])):
        shutil.copytree(run, tmp_path / "runs" / name)
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "c.txt").write_text("")
    page = tmp_path / "page.html"
    flags = (f"--workdirs={tmp_path}/runs/*", f"--html={page}")
    printed = launch("report", "--quick", *flags).stdout
    assert "launch.evaluate --workdir=" in page.read_text("utf-8")
    assert [line.split()[0] for line in printed.splitlines()[2:4]] == ["rnnlm", "ccdclm"]
    for name, command in (("perplexity", "evaluate"), ("coherence", "coherence")):
        writer = f"launch.{command} --workdir={tmp_path}/runs/a --output={tmp_path}/runs/a"
        assert f"rnnlm: no {name}.json; `python -m {writer}/{name}.json` fills that in" in printed
    error = refuse("report", "--quick", f"--workdirs={tmp_path}/runs/*.txt")
    assert "runs/*.txt stands for no run" in error


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
        (["--blocks=1"], "--blocks is 1; expected 0, or 2 and more"),
        (["--blocks=2", "--bootstrap=0"], "--blocks needs test sets, and --bootstrap is 0"),
        (["--html="], "--html is ''; expected a file to write"),
        (["--html=RUN"], "/run'; expected a file to write"),
        (["--html=RUN/config.json/page.html"], "/config.json: cannot be written: File exists"),
        (["--keep_first=-1"], "--keep_first is -1; expected 0 or more"),
        (["--baseline=RUN/.."], "expected one of --workdirs, or of the models ccdclm"),
        (["--workdirs="], "--workdirs holds an empty name"),
        (["--workdirs=RUN,nowhere"], "nowhere"),
        (["--output=RUN/config.json"], "config.json/runs: cannot be written: Not a directory"),
        (["--data=nowhere"], "nowhere"),
        (["--workdirs=nowhere"], "nowhere"),
        (["--output="], "--output is missing; expected a directory to write, or --quick"),
        (["--quick", "--workdirs="], "--workdirs holds an empty name"),
        (["--quick", "--workdirs=nowhere"], "nowhere holds no run: config.json is missing"),
        (["--quick", "--baseline=rnnlm"], "--baseline says how to measure; --quick measures"),
        (["--quick", "--seed=1"], "--seed says how to measure; --quick measures nothing"),
        (["--quick", "--cache_theta=1"], "--cache_theta says how to measure; --quick measures"),
        (["--quick", "--tune_on=train"], "--tune_on says how to measure; --quick measures"),
        (["--adapt="], "--adapt is empty; expected some of cache, unigram, dynamic"),
        (["--adapt=unigram", "--cache_strength=0"], "unigram cache's strength is 0.0"),
        (["--adapt=cache", "--cache_weight=nan"], "the cache's weight is nan"),
        (["--adapt=dynamic", "--dynamic_rate=nan"], "the rate of dynamic evaluation is nan"),
    ],
)
def test_bad_input(workdirs, tmp_path, flags, message):
    output = tmp_path / "report"
    flags = [flag.replace("RUN", str(workdirs[0])) for flag in flags]
    assert message in refuse("report", f"--workdirs={workdirs[0]}", f"--output={output}", *flags)
    assert not output.exists()


def test_a_quick_report_prints_a_table_and_draws_curves(space, tmp_path):
    runs = [tmp_path / "one", tmp_path / "two"]
    shutil.copytree(space.run, runs[0])
    launch("evaluate", f"--workdir={runs[0]}", f"--output={runs[0] / 'perplexity.json'}")
    launch(
        "coherence",
        f"--workdir={runs[0]}",
        "--permutations=2",
        f"--output={runs[0] / 'coherence.json'}",
    )
    shutil.copytree(runs[0], runs[1])
    workdirs = f"--workdirs={runs[0]},{runs[1]}"
    done = launch("report", "--quick", workdirs, f"--output={tmp_path / 'out'}")
    perplexity = json.loads((runs[0] / "perplexity.json").read_text())["perplexity"]
    assert done.stdout.count(f"{perplexity:.2f}") == 2
    plot = tmp_path / "out" / "learning_curves.png"
    assert done.stdout.splitlines()[-1] == f"Learning curves: {plot}"
    assert plot.read_bytes().startswith(b"\x89PNG")
    plot.unlink()
    assert launch("report", "--quick", workdirs).stdout == done.stdout.rpartition("Learning")[0]
    assert not plot.exists()


def test_a_quick_report_says_what_fills_the_blanks_of_a_run_without_results(space):
    printed = launch("report", "--quick", f"--workdirs={space.run}").stdout
    best = json.loads((space.run / "result.json").read_text())["best_perplexity"]
    assert printed.splitlines()[2].split()[:2] == ["ccdclm", f"{best:.2f}"]
    for name, command in (("perplexity", "evaluate"), ("coherence", "coherence")):
        writer = f"`python -m launch.{command} --workdir={space.run} --output={space.run}/{name}"
        assert f"ccdclm: no {name}.json; {writer}.json` fills that in" in printed
    assert "--workdirs" in refuse("report", "--quick", process=True)
