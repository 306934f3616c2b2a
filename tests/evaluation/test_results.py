"""Results of evaluations: measured once, saved, and read again."""

import contextlib
import dataclasses
import logging
import types
from typing import Any, ClassVar

import numpy as np
import pytest

from dclm_jax.coherence.compare import Bootstrap, FirstSentence, Fixed, Insert, OrderTest
from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import OnDocument
from dclm_jax.data.encoding import Encoded
from dclm_jax.evaluation.adaptation import Adaptation, Tuning
from dclm_jax.evaluation.context_ablation import ContextAblation, ContextPerplexities
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.results import Evaluation, Results
from dclm_jax.evaluation.target_sums import Targets
from tests.evaluation.test_context_ablation import DOCUMENTS, Neighbours


def split(documents=DOCUMENTS) -> Dataset:
    source = {"data": "data", "split": "test"}
    return Dataset(lambda: map(Encoded, documents), len(documents), source)


def model(workdir, parameter=0.0, scorer=None, precision="highest") -> Any:
    return types.SimpleNamespace(
        label=str(workdir),
        facts=types.SimpleNamespace(workdir=str(workdir), matmul_precision=precision),
        fingerprint=str(parameter),
        parameter=parameter,
        adaptation=None,
        reads_source=False,
        vocabulary=types.SimpleNamespace(fingerprint="vocabulary"),
        scorer=scorer or Neighbours(),
        described=lambda sums, dataset: sums,
    )


@dataclasses.dataclass(frozen=True)
class Counted(Evaluation[dict[str, Any]]):
    """An evaluation that counts how often it measures."""

    seed: int = 0

    name: ClassVar[str] = "counted"
    version: ClassVar[int] = 1
    count: ClassVar[list[int]] = []

    def measure(self, lm: Any, dataset: Dataset, on_document: OnDocument) -> dict[str, Any]:
        self.count.append(1)
        on_document(dataset.num_documents or 0)
        return {"nats": 0.1 + lm.parameter, "documents": dataset.num_documents, "seed": self.seed}

    def to_json(self, result: dict[str, Any]) -> dict[str, Any]:
        return result

    def from_json(self, value: dict[str, Any]) -> dict[str, Any]:
        return value


@pytest.fixture
def count(monkeypatch) -> list[int]:
    monkeypatch.setattr(Counted, "count", [])
    return Counted.count


def test_every_evaluation_is_read_as_it_was_measured(tmp_path):
    trials = [{"weight": 0.5, "strength": 10.0, "perplexity": 9.0}]
    adaptation = Adaptation("unigram", {"weight": 0.5, "strength": 10.0}, trials, {"split": "test"})
    tests: list[OrderTest[Any]] = [
        Bootstrap(Shuffle(), 5, 30, 3),
        Bootstrap(Shuffle(fix_first=1), 5, 30, 3),
        FirstSentence(seed=5),
        Fixed(Shuffle(swap=True), permutations=3),
        Insert(),
    ]
    tuning = Tuning("unigram", {"weight": None, "strength": 10.0})
    evaluations: list[Evaluation[Any]] = [Targets(), ContextAblation(5), tuning, *tests]
    lm, dataset, saved = model(tmp_path), split(), Results()
    for evaluation in evaluations:
        measured = Results().measured(lm, dataset, evaluation)
        read = saved.measured(lm, dataset, evaluation)
        assert saved.saved(lm, dataset, evaluation) is not None
        assert evaluation.to_json(read) == evaluation.to_json(measured)
        assert type(read) is type(measured)
    assert tuning.from_json(tuning.to_json(adaptation)) == adaptation
    assert len(set(saved.read)) == len(evaluations) == len(list((tmp_path / "results").iterdir()))
    assert saved.note.startswith("saved results, not measured again: ")


def test_one_pass_measures_all_targets(tmp_path):
    class Once(Neighbours):
        passes = 0

        def score(self, documents):
            Once.passes += 1
            return super().score(documents)

    lm = model(tmp_path, scorer=Once())
    for _ in range(2):
        Results().measured(lm, split(), Targets())
        assert Once.passes == 1
    assert [path.name.split("-")[0] for path in (tmp_path / "results").iterdir()] == ["perplexity"]


def test_progress_ends_at_its_total(tmp_path):
    counts = []

    @contextlib.contextmanager
    def progress(label, total):
        seen = []
        yield seen.append
        counts.append((seen[-1], total))

    results, lm = Results(progress), model(tmp_path)
    results.measured(lm, split(), Targets())
    # A document of one sentence has one order.
    results.measured(lm, split(), Fixed())
    assert counts == [(3, 3), (2, 2)]


def test_a_model_without_context_has_one_perplexity_in_every_context(tmp_path):
    class Blind(Neighbours):
        context_order = 0

        def score(self, documents):
            for document in documents:
                ids = document.sentences
                yield (
                    document,
                    [nll for each in ids for _, (nll,) in Neighbours().score([[each]])],
                )

    lm = model(tmp_path, scorer=Blind())
    expected = Results().measured(lm, split(), Targets()).perplexity.perplexity
    measured = Results().measured(lm, split(), ContextAblation(5))
    assert measured == ContextPerplexities(expected, expected, expected)


def test_a_result_is_measured_once_for_model_documents_and_options(tmp_path, count, caplog):
    lm, results = model(tmp_path / "run"), Results()
    caplog.set_level(logging.INFO, "dclm_jax")
    expected = {"nats": 0.1, "documents": len(DOCUMENTS), "seed": 0}
    assert results.saved(lm, split(), Counted()) is None
    assert results.measured(lm, split(), Counted()) == expected
    assert results.saved(lm, split(), Counted()) == expected
    assert len(count) == 1 and len(list((tmp_path / "run/results").iterdir())) == 1
    # Other options and documents are saved beside them.
    assert results.measured(lm, split(), Counted(1)) == expected | {"seed": 1}
    assert results.measured(lm, split(DOCUMENTS[:2]), Counted()) == expected | {"documents": 2}
    assert (results.measured(lm, split(), Counted()), len(count)) == (expected, 3)
    # And so are those of another precision.
    assert results.saved(model(tmp_path / "run", precision="high"), split(), Counted()) is None
    # A model that was trained again takes the place of the earlier one.
    trained = model(tmp_path / "run", parameter=1.0)
    assert results.saved(trained, split(), Counted()) is None
    assert "is from a different model or version and is not used" in caplog.messages[-1]
    assert results.measured(trained, split(), Counted())["nats"] == 1.1
    assert results.measured(lm, split(), Counted())["nats"] == 0.1 and len(count) == 5
    assert len(list((tmp_path / "run/results").iterdir())) == 3


def test_results_of_text_and_of_models_without_a_run_are_not_saved(tmp_path, count):
    text = dataclasses.replace(split(), source={"input": "a.txt", "split": None})
    for lm, dataset in ((model(tmp_path), text), (model(""), split())):
        for _ in range(2):
            Results().measured(lm, dataset, Counted())
    assert len(count) == 4 and not list(tmp_path.iterdir())


def test_a_result_of_another_form_is_measured_again(tmp_path, caplog):
    caplog.set_level(logging.INFO, "dclm_jax")
    measured = Results().measured(model(tmp_path), split(), Targets())
    (path,) = (tmp_path / "results").iterdir()
    path.write_text(path.read_text().replace('"by_token"', '"by_word"'))
    again = Results().measured(model(tmp_path), split(), Targets())
    assert again.perplexity == measured.perplexity and '"by_token"' in path.read_text()
    assert caplog.messages == [f"{path}: has another form and is not used"]


@pytest.mark.parametrize("content", ["", "[]", '{"identity": {}}', None])
def test_a_damaged_result_is_measured_again(tmp_path, count, caplog, content):
    caplog.set_level(logging.INFO, "dclm_jax")
    lm, results = model(tmp_path), Results()
    expected = results.measured(lm, split(), Counted())
    (path,) = (tmp_path / "results").iterdir()
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2] if content is None else content)
    assert results.measured(lm, split(), Counted()) == expected and len(count) == 2
    assert caplog.messages[0].startswith(f"{path}: ") and path.read_text() == whole


def test_a_run_that_cannot_be_written_is_measured(tmp_path, caplog):
    caplog.set_level(logging.INFO, "dclm_jax")
    (tmp_path / "results").write_text("")
    assert Results().measured(model(tmp_path), split(), Counted())["documents"] == len(DOCUMENTS)
    assert any(line.startswith("not saved: ") for line in caplog.messages)


def test_documents_have_fingerprints():
    fingerprint = split().fingerprint
    joined = [[np.concatenate(document)] for document in DOCUMENTS]
    assert fingerprint == split([list(document) for document in DOCUMENTS]).fingerprint
    assert len({fingerprint, *(split(d).fingerprint for d in (DOCUMENTS[::-1], joined))}) == 3
