"""Measurements of a run: their values, what is saved of them, and what training left."""

import contextlib
import json
import math
import types
from typing import Any

import numpy as np
import pytest

from dclm_jax.coherence.compare import Bootstrap, FirstSentence, Fixed, Insert, OrderTest, compare
from dclm_jax.errors import InputError
from dclm_jax.evaluation import context_ablation, measures, scoring
from dclm_jax.evaluation.datasets import Dataset, Encoded
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.perplexity import corpus_perplexities
from dclm_jax.experiments import results
from dclm_jax.experiments.results import Result, Store
from dclm_jax.experiments.subjects import Subject
from tests.evaluation.test_context_ablation import DOCUMENTS, Neighbours


def split(documents=DOCUMENTS) -> Dataset:
    source = {"data": "data", "split": "test"}
    return Dataset(lambda: map(Encoded, documents), len(documents), source)


def run(workdir, parameter=0.0, scorer=None, precision="highest") -> Subject:
    scorer = scorer or Neighbours()

    def compare_orders(documents, test, on_document):
        return compare(scorer, documents, test, on_document=on_document)

    lm: Any = types.SimpleNamespace(
        config={"model": {"name": "neighbours"}},
        fingerprint=str(parameter),
        parameter=parameter,
        matmul_precision=precision,
        adaptation=None,
        vocabulary=types.SimpleNamespace(fingerprint="vocabulary"),
        scorer=scorer,
        compare_orders=compare_orders,
        num_parameters=1,
        step=20,
        text=types.SimpleNamespace(unknown_rates={"test": 0.1}),
    )
    return Subject("neighbours", str(workdir), lm)


def test_measures_are_what_their_parts_measure(tmp_path):
    store, subject, documents = Store(), run(tmp_path), split()
    (expected,) = corpus_perplexities([Neighbours()], DOCUMENTS)
    values = store.targets(subject, documents)
    assert values is not None and store.targets(subject, documents) == values
    assert values.pop("perplexity") == expected.to_json()
    assert list(values) == [kind.name for kind in measures.MEASURES]
    assert sum(values["by_document"]) == pytest.approx(expected.nll, abs=0.01)
    assert store.context(subject, documents, 5) == {
        name: pytest.approx(context_ablation.rearranged(Neighbours(), DOCUMENTS, name, 5))
        for name in ("shuffled", "mixed", "none")
    }
    tests: list[OrderTest[Any]] = [
        Bootstrap(Shuffle(), 5, 30, 3),
        Bootstrap(Shuffle(fix_first=1), 5, 30, 3),
        FirstSentence(seed=5),
        Fixed(Shuffle(swap=True), permutations=3),
        Insert(),
    ]
    for test in tests:
        compared = compare(Neighbours(), DOCUMENTS, test)
        for result in (store.order_test(subject, documents, test) for _ in range(2)):
            assert result == compared
    assert len(store.read) == 1 + 5


def test_one_pass_measures_all_targets(tmp_path):
    class Once(Neighbours):
        passes = 0

        def score(self, documents):
            Once.passes += 1
            return super().score(documents)

    subject = run(tmp_path, scorer=Once())
    for _ in range(2):
        Store().targets(subject, split())
        assert Once.passes == 1
    assert [path.name.split("-")[0] for path in (tmp_path / "results").iterdir()] == ["perplexity"]


def test_progress_ends_at_its_total(tmp_path):
    counts = []

    @contextlib.contextmanager
    def progress(label, total):
        seen = []
        yield seen.append
        counts.append((seen[-1], total))

    store, subject = Store(progress=progress), run(tmp_path)
    store.targets(subject, split())
    # A document of one sentence has one order.
    store.order_test(subject, split(), Fixed())
    assert counts == [(3, 3), (2, 2)]


def test_results_of_other_measures_are_not_used(tmp_path, monkeypatch):
    subject, store = run(tmp_path), Store(compute=False)
    measured = Store().targets(subject, split())
    assert store.targets(subject, split()) == measured
    monkeypatch.setattr(measures, "MEASURES", measures.MEASURES[:2])
    assert store.targets(subject, split()) is None


def test_a_model_without_context_has_one_perplexity_in_every_context(tmp_path):
    class Blind(Neighbours):
        context_order = 0

        def score(self, documents):
            for document in documents:
                yield (
                    document,
                    [
                        nll
                        for ids in scoring.sentences_to_score(document)[0]
                        for _, (nll,) in Neighbours().score([[ids]])
                    ],
                )

    assert Store().context(run(tmp_path, scorer=Blind()), split(), 5) == {
        name: pytest.approx(context_ablation.rearranged(Blind(), DOCUMENTS, name, 5))
        for name in ("shuffled", "mixed", "none")
    }


class Counted:
    """A measure that counts how often it is computed."""

    def __init__(self):
        self.count = 0

    def __call__(
        self,
        subject: Subject,
        options: Any = None,
        documents: Any = DOCUMENTS,
        compute: bool = True,
    ) -> Any:
        def measured(on_document):
            self.count += 1
            on_document(len(documents))
            nats = [0.1 + getattr(subject.lm, "parameter"), math.inf]  # noqa: B009
            return {"nats": nats, "documents": len(documents), **(options or {})}

        store = Store(compute)
        result = Result.of(subject, split(documents), "counted", options or {})
        return store.measured(result, measured)


def test_a_measurement_is_computed_once_for_model_documents_and_options(tmp_path, caplog):
    counted, subject = Counted(), run(tmp_path / "run")
    expected = {"nats": [0.1, None], "documents": len(DOCUMENTS)}
    assert counted(subject, compute=False) is None
    assert counted(subject) == expected and counted(subject, compute=False) == expected
    assert counted.count == 1 and len(list((tmp_path / "run/results").iterdir())) == 1
    # Other options and documents are saved beside them.
    assert counted(subject, {"seed": 1}) == expected | {"seed": 1}
    assert counted(subject, documents=DOCUMENTS[:2]) == expected | {"documents": 2}
    assert (counted(subject), counted.count) == (expected, 3)
    # And so are those of another precision.
    assert counted(run(tmp_path / "run", precision="high"), compute=False) is None
    # A model that was trained again takes the place of the earlier one.
    trained = run(tmp_path / "run", parameter=1.0)
    assert counted(trained, compute=False) is None
    assert "is from a different model or version and is not used" in caplog.messages[-1]
    assert counted(trained)["nats"] == [1.1, None]
    assert counted(trained) != counted(subject) and counted.count == 5
    assert len(list((tmp_path / "run/results").iterdir())) == 3


@pytest.mark.parametrize("content", ["", "[]", '{"identity": {}}', None])
def test_a_damaged_measurement_is_computed_again(tmp_path, content, caplog):
    counted, subject = Counted(), run(tmp_path)
    expected = counted(subject)
    (path,) = (tmp_path / "results").iterdir()
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2] if content is None else content)
    assert counted(subject) == expected
    assert caplog.messages[0].startswith(f"{path}: ") and path.read_text() == whole


def test_a_run_that_cannot_be_written_is_measured(tmp_path, caplog):
    (tmp_path / "results").write_text("")
    counted = Counted()
    assert counted(run(tmp_path))["documents"] == len(DOCUMENTS)
    assert any(line.startswith("not saved: ") for line in caplog.messages)


def test_documents_have_fingerprints():
    fingerprint = split().fingerprint
    joined = [[np.concatenate(document)] for document in DOCUMENTS]
    assert fingerprint == split([list(document) for document in DOCUMENTS]).fingerprint
    assert len({fingerprint, *(split(d).fingerprint for d in (DOCUMENTS[::-1], joined))}) == 3


def line(kind, step, tokens, seconds, perplexity):
    return {
        **{"kind": kind, "step": step, "tokens": tokens, "seconds": seconds},
        "perplexity": perplexity,
    }


def write_metrics(folder, *lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text.replace("NaN", "null").replace("Infinity", "null"))


def test_the_facts_of_training(tmp_path):
    write_metrics(
        tmp_path,
        line("train", 10, 400, 20, 2.0),
        line("valid", 10, 400, 60, 400.0),
        line("train", 20, 600, 80, math.inf),
        line("valid", 20, 600, 120, 340.0),
        line("valid", 30, 800, 150, 300.0),
    )
    known = results.facts(run(tmp_path))
    assert known["curve"] == [[10, 400.0], [20, 340.0], [30, 300.0]]
    assert (known["seconds"], known["unfinished"], known["training_text"]) == (150, True, None)
    assert (known["step"], known["own_oov_rate"], known["parameters"]) == (20, 0.1, 1)


def test_what_training_has_not_left(tmp_path):
    # An n-gram model is not trained in steps.
    known = results.facts(run(tmp_path))
    assert (known["curve"], known["seconds"], known["unfinished"]) == ([], None, False)
    write_metrics(tmp_path, line("train", 5, 500, 60, 8.0))
    with pytest.raises(InputError, match="metrics.jsonl: no line of kind 'valid'"):
        results.facts(run(tmp_path))
    for text, message in (
        ('{"kind": "valid", "step": 5, "tokens": 5, "seconds": 1, "perplexity": -1}\n', "is -1"),
        ("{oops\n", "metrics.jsonl:1: not JSON"),
        ("", "has no line; train the run first"),
    ):
        (tmp_path / "metrics.jsonl").write_text(text)
        with pytest.raises(InputError, match=message):
            results.facts(run(tmp_path))
