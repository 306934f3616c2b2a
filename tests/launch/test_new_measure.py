"""A measure that a contributor adds: in launch.evaluate, in launch.report and in Python."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

import dclm_jax
from dclm_jax.errors import InputError
from dclm_jax.evaluation import measures
from dclm_jax.evaluation.datasets import open_split
from dclm_jax.evaluation.measures import Measure
from dclm_jax.evaluation.scoring import Document
from dclm_jax.experiments.subjects import restore_all
from tests.launch.support import copy_run, launch


class FirstWords(Measure):
    """Mean surprisal of the first word of each sentence, in nats."""

    name = "first_words"
    header = "first words, nats"

    def __init__(self) -> None:
        self.nats, self.sentences = 0.0, 0

    def add(self, sentences: Document, nll: Sequence[np.ndarray]) -> None:
        # `nll` has an array per sentence, whose last value is END's.
        self.nats += sum(float(nats[0]) for nats in nll)
        self.sentences += len(nll)

    def value(self) -> float:
        return self.nats / self.sentences


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(measures, "MEASURES", (*measures.MEASURES, FirstWords))


@pytest.fixture(scope="module")
def runs(space, tmp_path_factory):
    """Two seeds of a model, and another model."""
    root = tmp_path_factory.mktemp("measure")
    runs = {"a": space.run, "b": space.seed, "c": space.rnnlm}
    return [copy_run(run, root / name) for name, run in runs.items()]


def by_hand(run, split, corpus) -> float:
    """The mean in float64, from the scores of single sentences in Python."""
    lm = dclm_jax.restore(run)
    documents = open_split(lm.vocabulary, corpus, split).documents
    columns = lm.surprisals(
        [list(map(lm.vocabulary.decode, document.sentences)) for document in documents]
    )
    return float(np.mean(columns["surprisal"][columns["position"] == 1]))


@pytest.fixture(autouse=True)
def measured_anew():
    """Results are read here: these runs are copies."""


def test_evaluate_shows_it(space, runs, tmp_path):
    output = tmp_path / "result.json"
    printed = launch("evaluate", f"--workdir={runs[0]}", f"--output={output}").stdout
    expected = by_hand(runs[0], "test", space.corpus)
    assert json.loads(output.read_text())["first_words"] == pytest.approx(expected, rel=1e-6)
    assert f"first words, nats: {expected:.4f}\n" in printed
    workdirs = f"--workdirs={runs[0]},{runs[2]}"
    printed = launch("evaluate", workdirs, "--interpolate", f"--output={output}").stdout
    result = json.loads(output.read_text())
    header, _, *rows = printed.splitlines()
    assert "  first words, nats" in header
    for row, run, value in zip(rows, (runs[0], runs[2]), result["runs"], strict=False):
        expected = by_hand(run, "test", space.corpus)
        assert value["first_words"] == pytest.approx(expected, rel=1e-6)
        assert f"{expected:.4f}" in row
    assert result["mixture"]["first_words"] > 0


def test_reports_have_a_column(space, runs, tmp_path):
    made = dclm_jax.report(map(str, runs), str(tmp_path / "report"), bootstrap=0)
    expected = [by_hand(run, "test", space.corpus) for run in runs]
    first, second = np.mean(expected[:2]), expected[2]
    header, *cells = made.tables["perplexity"].cells
    column = [row[header.index("first words, nats")] for row in cells]
    spread = np.std(expected[:2], ddof=1)
    assert column == [f"{second:.2f}", f"{first:.2f} ± {spread:.2f}"]
    saved = json.loads((tmp_path / "report/report.json").read_text())["rows"]
    values = [run["first_words"] for row in saved for run in row["runs"]]
    assert values == pytest.approx([second, *expected[:2]], rel=1e-6)
    assert "first words, nats" in (tmp_path / "report/report.md").read_text()
    # What is saved is shown, and nothing else is measured.
    again = dclm_jax.report(runs, quick=True, bootstrap=0)
    assert again.tables == made.tables
    (alone,) = dclm_jax.report(runs[2], quick=True, bootstrap=0).rows
    assert alone.label == "rnnlm"
    for workdirs, output, message in (
        ([], None, "names no run"),
        (runs, "", "--output is ''"),
        (runs, "-", "--output is '-'"),
    ):
        with pytest.raises(InputError, match=message):
            dclm_jax.report(workdirs, output, quick=True, bootstrap=0)


def test_python_measures_it(space, runs):
    (subject,) = restore_all([str(runs[0])], dclm_jax.LanguageModel)
    values = subject.lm.measure(open_split(subject.lm.vocabulary, space.corpus, "test"))
    assert list(values) == [measure.name for measure in measures.MEASURES]
    assert values["first_words"] == pytest.approx(by_hand(runs[0], "test", space.corpus), rel=1e-6)
