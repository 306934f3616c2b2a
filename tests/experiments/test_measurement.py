"""One real measurement, kept and read again."""

import json
import math
from typing import Any

import numpy as np
import pytest

from dclm_jax.coherence.compare import Bootstrap, FirstSentence, compare
from dclm_jax.errors import InputError
from dclm_jax.evaluation import context_ablation, perplexity
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.experiments import grouping, measurement, report
from tests.evaluation.test_context_ablation import DOCUMENTS, Neighbours
from tests.exhaustive import also
from tests.experiments.made_up import result
from tests.fuzzing import single_faults, value_or_input_error


def test_a_measurement_holds_what_its_parts_measure():
    counts: Any = {"replicates": 30, "pool": 3, "seed": 5}
    measured = measurement.measure(Neighbours(), DOCUMENTS[:2], DOCUMENTS, **counts)
    expected = perplexity.measure(Neighbours(), DOCUMENTS)
    assert measured["test"] == expected.to_json()
    assert measured["valid"] == perplexity.measure(Neighbours(), DOCUMENTS[:2]).to_json()
    assert measured["arrangements"] == {
        name: pytest.approx(context_ablation.rearranged(Neighbours(), DOCUMENTS, name, 5))
        for name in context_ablation.ARRANGEMENTS
    }
    assert sum(measured["by_document"]) == pytest.approx(expected.nll, abs=0.01)
    bootstrap = compare(Neighbours(), DOCUMENTS, Bootstrap(**counts)).result
    first = compare(Neighbours(), DOCUMENTS, FirstSentence(seed=5)).result
    assert measured["coherence"] == bootstrap.to_json() | {"first_sentence": first}
    kept = measurement.measure(Neighbours(), DOCUMENTS, DOCUMENTS, keep_first=1, **counts)
    test = Bootstrap(Shuffle(fix_first=1), **counts)
    bootstrap = compare(Neighbours(), DOCUMENTS, test).result
    assert kept["coherence"] == bootstrap.to_json()
    without = measurement.measure(Neighbours(), DOCUMENTS, DOCUMENTS, replicates=0)
    assert without["coherence"] is None


def test_perplexities_that_overflow_are_kept(tmp_path):
    counts: Any = {"replicates": 0, "pool": 0, "keep_first": 0, "seed": 0}
    measured = measurement.measure(Neighbours(), DOCUMENTS, DOCUMENTS, **counts)
    for split in ("valid", "test"):
        measured[split]["perplexity"] = math.inf
    measured["arrangements"] |= {"own": math.inf, "shuffled": math.inf}
    identity = {"options": counts}
    measurement.keep(tmp_path / "kept.json", identity, measured)
    assert "Infinity" not in (tmp_path / "kept.json").read_text()
    assert measurement.read(tmp_path / "kept.json", identity, len(DOCUMENTS)) == measured


@pytest.mark.parametrize("kind", ["all", "coherence alone", "adapted", *also(["first kept"])])
def test_what_was_kept_of_a_measurement_is_whole_or_refused(tmp_path, kind):
    counts: Any = {"replicates": 4, "pool": 2, "keep_first": 0, "seed": 0}
    counts |= {"keep_first": 1} if kind == "first kept" else {}
    identity: dict[str, Any] = {"options": counts, "model": "x"}
    measured = measurement.measure(Neighbours(), DOCUMENTS, DOCUMENTS, **counts)
    if kind == "coherence alone":
        identity["coherence_alone"] = True
        measured = measured["coherence"]
    if kind == "adapted":
        identity["adapt"] = {"kind": "cache", "theta": 0.5}
        found = measurement.measure_adapted(Neighbours(), DOCUMENTS, **counts)
        assert found == {name: measured[name] for name in ("test", "coherence")}
        measured = {"setting": {"theta": 0.5, "weight": 0.1}, **found}
    path = tmp_path / "kept.json"
    measurement.keep(path, identity, measured)
    assert measurement.read(path, identity, len(DOCUMENTS)) == measured
    for other, documents in (({**identity, "model": "y"}, 3), (identity, 4)):
        if kind not in ("coherence alone", "adapted") or documents == 3:
            with pytest.raises(InputError, match="kept.json: is not the measurement that is want"):
                measurement.read(path, other, documents)

    def check(content: bytes) -> None:
        path.write_bytes(content)
        read = value_or_input_error(path, lambda: measurement.read(path, identity, len(DOCUMENTS)))
        if read is not None and kind == "adapted":
            report.tables(grouping.rows([{**result(), "adapted": {"cache": read}}]))
        elif read is not None and kind != "coherence alone":
            rows = grouping.rows([result() | read | {"config": result()["config"]}])
            report.markdown(report.tables(rows), {}, []).encode()
            report.first_decides(rows[0].results)
        elif read is not None:
            report.tables(grouping.rows([{**result(), "first_kept": read}]))

    for content in single_faults(json.loads(path.read_text())):
        check(content)


def test_documents_have_fingerprints():
    assert measurement.fingerprint(DOCUMENTS) == measurement.fingerprint(
        [list(d) for d in DOCUMENTS]
    )
    assert measurement.fingerprint(DOCUMENTS) != measurement.fingerprint(DOCUMENTS[::-1])
    joined = [[np.concatenate(document) for document in DOCUMENTS[:1]]]
    assert measurement.fingerprint(joined) != measurement.fingerprint(DOCUMENTS[:1])
