"""launch.report on small trained runs: files, what is measured again and what is not."""

import dataclasses
import json
import re
import shutil

import pytest

import dclm_jax
from dclm_jax.coherence.measure import coherence
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.datasets import open_split
from dclm_jax.errors import InputError
from dclm_jax.evaluation.adaptation import Tuning, adapt
from dclm_jax.evaluation.results import Results
from dclm_jax.evaluation.target_sums import GROUPINGS
from dclm_jax.report import results
from tests.launch.support import copy_run, launch

FAST = ("--bootstrap=20", "--permutation_pool=2")


@pytest.fixture(autouse=True)
def measured_anew():
    """Results are read here."""


@pytest.fixture(scope="module")
def workdirs(space, tmp_path_factory):
    """Two models, one of them with two seeds and two segment lengths."""
    root = tmp_path_factory.mktemp("report")
    # A report saves results in runs.
    runs = {"run": space.run, "rnnlm": space.rnnlm, "seed": space.seed}
    copies = [copy_run(run, root / name) for name, run in runs.items()]
    # Whatever it was trained with: a report reads it in the configuration.
    elsewhere = {"data_directory": str(space.test_only), "data_segment_length": 10}
    return [*copies, copy_run(space.run, root / "long", **elsewhere)]


def report(workdirs, output, *flags):
    paths = ",".join(map(str, workdirs))
    arguments = [f"--workdirs={paths}", f"--output={output}", "--measure", *FAST, *flags]
    return launch("report", *arguments).stdout


def without_results(run, target):
    """A copy of a run that holds no results."""
    return shutil.copytree(run, target, ignore=shutil.ignore_patterns("results"))


def test_tables_pictures_and_the_page(space, workdirs, tmp_path):
    output, page = tmp_path / "report", tmp_path / "pages" / "all.html"
    flags = ("--adapt=unigram", f"--html={page}")
    printed = report(workdirs, output, *flags)
    measured = re.findall(r": ([^:]*): measured in", printed)
    plain = ["perplexity (valid)", "perplexity (test)", "context ablation (test)"]
    of_coherence = ["coherence, bootstrap (test)", "coherence, first sentence moved (test)"]
    adapted = ["tuning of unigram (valid)", "perplexity (test)", *of_coherence]
    assert sorted(measured) == sorted([*plain, *of_coherence, *adapted] * 4)
    assert f"HTML report: {page}" in printed
    markdown = (output / "report.md").read_text()
    for label in ("| rnnlm |", "| ccdclm, L = 5 |", "| ccdclm, L = 10 |"):
        assert markdown.count(label) == markdown.count("| model |") > 4
    for title in ("Table 2", "Table 3", "Context ablation", "Figure 3"):
        assert title in markdown
    assert "matmul precision: highest" in markdown and "matmul precision: highest" in printed
    for name in ("learning_curves", *(grouping.name for grouping in GROUPINGS)):
        assert (output / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads((output / "report.json").read_text())["rows"]
    assert rows[0]["runs"][0]["matmul_precision"] == "highest"
    assert [(row["label"], len(row["runs"])) for row in rows] == [
        ("rnnlm", 1),
        ("ccdclm, L = 5", 2),
        ("ccdclm, L = 10", 1),
    ]
    rnnlm = without_results(workdirs[1], tmp_path / "rnnlm")
    evaluate = ("evaluate", f"--workdir={rnnlm}", "--adapt=unigram", "--metrics=-")
    evaluated = json.loads(launch(*evaluate).stdout)
    measured, (adapted,) = rows[0]["runs"][0], evaluated["adapted"]
    assert measured["test"]["perplexity"] == pytest.approx(evaluated["perplexity"], rel=1e-6)
    unigram = measured["adapted"]["unigram"]
    assert unigram["test"]["perplexity"] == pytest.approx(adapted["perplexity"], rel=1e-6)
    assert unigram["setting"] == pytest.approx(adapted["setting"], rel=1e-4)
    orders = ("--permutations=0", *FAST, "--metrics=-")
    run = without_results(workdirs[0], tmp_path / "run")
    alone = json.loads(launch("coherence", f"--workdir={run}", *orders).stdout)["mean"]
    ccdclm, lm = rows[1]["runs"][0], dclm_jax.restore(run)
    unigram = ccdclm["adapted"]["unigram"]
    adapted = coherence(
        adapt(lm, "unigram", **unigram["setting"]),
        open_split(lm.vocabulary, space.corpus, "test"),
        permutations=0,
        bootstrap=20,
        permutation_pool=2,
    )
    accuracies = [result["coherence"]["mean"] for result in (ccdclm, unigram)]
    assert accuracies == [alone, adapted.to_json()["mean"]] and accuracies[0] != accuracies[1]

    made = page.read_text("utf-8")
    test = open_corpus(space.corpus, "test")
    first_document = next(
        name for index, name in enumerate(test.document_ids) if len(test.document(index)) > 1
    )
    runs = [row["runs"][0] for row in rows]
    numbers = (runs[2]["contexts"]["other"], 100 * runs[1]["coherence"]["mean"])
    for text in (
        *map("{:.2f}".format, numbers),
        *(first_document, f"--html={page}", "version of jaxlib"),
        "Test-time adaptation",
        str(space.corpus),
    ):
        assert text in made

    # Contexts, permutations and the positions of the first sentence have a seed.
    for other, count in (
        (("--seed=1",), 3),
        (("--bootstrap=0",), 0),
        # Tuning, and the model that is adapted like this: perplexity and coherence.
        (("--adapt=unigram", "--cache_strength=7"), 4),
    ):
        assert report(workdirs[:1], output, *other).count("measured in") == count
    assert "measured in" not in report(workdirs, output, *flags)
    assert (output / "report.md").read_text() == markdown and page.read_text("utf-8") == made
    # Nothing is computed: one table of four runs, with blanks.
    quick = report(workdirs, output, "--nomeasure", "--seed=2")
    assert "measured in" not in quick and "Coherence" not in quick
    first = workdirs[0]
    missing = f"Not measured yet: {first}: context ablation (test); {first}: coherence, bootstrap"
    assert missing in quick and "and 5 more. Add --measure to measure these results." in quick
    assert (
        printed.splitlines()[
            printed.splitlines().index("Perplexity (Ji et al. 2015, Table 2)") + 3
        ][:40]
        in quick
    )


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (["evaluate"], ["RUN: perplexity (test)"]),
        (
            ["evaluate", "--adapt=unigram"],
            ["RUN: tuning of unigram (valid)", "RUN + unigram: perplexity (test)"],
        ),
        (["coherence", "--permutations=0", *FAST], ["RUN: coherence, bootstrap (test)"]),
    ],
)
def test_commands_read_what_others_have_measured(workdirs, tmp_path, command, names):
    """The values of a run without saved results, and a note that names results that were read."""
    report(workdirs[:1], tmp_path / "report", "--adapt=unigram")
    bare, results = without_results(workdirs[0], tmp_path / "bare"), {}
    for run in (workdirs[0], bare):
        results[run] = tmp_path / f"{run.name}.json"
        done = [
            launch(command[0], f"--workdir={run}", *command[1:], f"--metrics={output}", quiet=False)
            for output in (results[run], "-")
        ]
        note, again = (each.stderr for each in done)
        assert (note == "") == (run == bare)
        for name in (name.replace("RUN", str(run)) for name in names):
            assert name in again and again.startswith("note: saved results, not measured again")
            assert run == bare or name in note
        assert json.loads(done[1].stdout) == json.loads(results[run].read_text())
    read, measured = (path.read_text() for path in results.values())
    assert read == measured.replace(str(bare), str(workdirs[0]))
    # And a report reads what they have measured.
    printed = report([bare], tmp_path / "report", "--adapt=unigram")
    assert "measured in" in printed and not any(
        name.replace("RUN", str(bare)) in printed for name in names
    )


def test_any_run_is_a_baseline(workdirs, tmp_path):
    output = tmp_path / "report"
    run = workdirs[3]
    printed = report(workdirs, output, f"--baseline={run}", "--bootstrap=0")
    assert "vs ccdclm, L = 10" in printed and "vs rnnlm" not in printed
    rows = json.loads((output / "report.json").read_text())["rows"]
    of = {row["label"]: row for row in rows}
    base = of["ccdclm, L = 10"]["runs"][0]["test"]["perplexity"]
    compared = of["rnnlm"]["compared"]["ccdclm, L = 10"]
    assert compared["ratio"] == pytest.approx(of["rnnlm"]["runs"][0]["test"]["perplexity"] / base)
    assert "--bootstrap=1000 measures it." in (output / "report.md").read_text()


def test_both_coherences_where_the_first_sentence_decides(workdirs, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FIRST_DECIDES", 0.0)
    output = tmp_path / "report"
    printed = report(workdirs[:2], output)
    assert printed.count("coherence, bootstrap, first sentence fixed (test): measured") == 2
    assert "first sentence fixed, %" in printed
    assert "WARNING" in (output / "report.md").read_text()
    rows = json.loads((output / "report.json").read_text())["rows"]
    run = f"--workdir={without_results(workdirs[0], tmp_path / 'run')}"
    alone = launch("coherence", run, "--permutations=0", *FAST, "--fix_first=1", "--metrics=-")
    run_record = rows[1]["runs"][0]
    assert run_record["first_fixed"]["mean"] == json.loads(alone.stdout)["mean"]
    assert (run_record["coherence"]["fix_first"], run_record["first_fixed"]["fix_first"]) == (0, 1)
    # Where it is kept anyway there is one number, the same one.
    printed = report(workdirs[:2], output, "--fix_first=1")
    assert "first sentence fixed, %" not in printed and "measured in" not in printed
    kept = json.loads((output / "report.json").read_text())["rows"][1]["runs"][0]["coherence"]
    assert kept == run_record["first_fixed"]


def test_a_report_of_a_pattern_measures_nothing_by_default(workdirs, tmp_path):
    for name, run in (("b", workdirs[0]), ("a", workdirs[1])):
        without_results(run, tmp_path / "runs" / name)
    # A run that has not saved yet is omitted.
    shutil.rmtree(without_results(workdirs[1], tmp_path / "runs" / "new") / "checkpoints")
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "c.txt").write_text("")
    page = tmp_path / "page.html"
    done = launch("report", f"--workdirs={tmp_path}/runs/*", f"--html={page}", quiet=False)
    assert f"note: omitted: {tmp_path}/runs/new has neither checkpoints" in done.stdout
    printed = done.stdout.partition("\n")[2]
    best = json.loads((workdirs[0] / "result.json").read_text())["best_perplexity"]
    rnnlm, ccdclm = (line.split() for line in printed.splitlines()[3:5])
    # The last column that is not blank is the best validation perplexity.
    assert rnnlm[0] == "rnnlm" and [ccdclm[0], *ccdclm[-1:]] == ["ccdclm", f"{best:.2f}"]
    assert printed.splitlines()[-1] == f"HTML report: {page}"
    assert "launch.report --measure measures it" in page.read_text("utf-8")
    assert not list(tmp_path.glob("runs/*/results"))
    with pytest.raises(InputError, match=f"one of the runs inside: {tmp_path}/runs/a, {tmp_path}/"):
        dclm_jax.restore(tmp_path / "runs")


def test_runs_that_are_not_trained_to_their_end_are_rows_of_their_own(workdirs, tmp_path):
    unfinished = tmp_path / "seed"
    shutil.copytree(workdirs[2], unfinished)
    (unfinished / "result.json").unlink()
    text = report([workdirs[0], unfinished], tmp_path / "report", "--bootstrap=0")
    assert f"note: training of {unfinished} is unfinished; results are from step " in text
    assert "ccdclm, unfinished = True" in text


def test_adapted_results_are_of_the_text_that_they_were_tuned_on(space, workdirs, tmp_path):
    run = without_results(workdirs[0], tmp_path / "run")
    lm = dclm_jax.restore(run)
    valid = open_split(lm.vocabulary, space.corpus, "valid")
    shorter = dataclasses.replace(valid, read=lambda: list(valid.documents)[1:])
    for split in (valid, shorter, valid):
        Results().measured(lm, split, Tuning.of(lm, "unigram", {}, None))
    assert len(list((run / "results").iterdir())) == 2
