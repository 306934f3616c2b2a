"""Facts of a run that training left."""

import json
import math
import types
from typing import Any

import pytest

from dclm_jax.errors import InputError
from dclm_jax.report.results import Forecast, facts_of


def model(workdir) -> Any:
    return types.SimpleNamespace(
        facts=types.SimpleNamespace(
            workdir=str(workdir),
            config={"model": {"name": "neighbours"}, "data": {"directory": "corpus"}},
            num_parameters=1,
            text=types.SimpleNamespace(oov_rates={"test": 0.1}),
            step=20,
            matmul_precision="highest",
        ),
        reads_source=False,
        vocabulary=types.SimpleNamespace(has_pieces=False),
        scorer=types.SimpleNamespace(objective="words", context_order=None),
    )


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
    facts = facts_of(model(tmp_path), "corpus")
    assert facts.curve == [(10, 400.0), (20, 340.0), (30, 300.0)]
    assert (facts.seconds, facts.unfinished, facts.training_text) == (150, True, None)
    assert (facts.step, facts.usual_oov_rate, facts.parameters) == (20, 0.1, 1)
    # Perplexities in training are of the run's own validation documents.
    assert facts.validation == 300.0
    assert facts_of(model(tmp_path), "other").validation is None


def test_what_training_has_not_left(tmp_path):
    # An n-gram model is not trained in steps.
    facts = facts_of(model(tmp_path), "corpus")
    assert (facts.curve, facts.seconds, facts.unfinished) == ((), None, False)
    write_metrics(tmp_path, line("train", 5, 500, 60, 8.0))
    with pytest.raises(InputError, match="metrics.jsonl: no line of kind 'valid'"):
        facts_of(model(tmp_path), "corpus")
    for text, message in (
        ('{"kind": "valid", "step": 5, "tokens": 5, "seconds": 1, "perplexity": -1}\n', "is -1"),
        ("{oops\n", "metrics.jsonl:1: not JSON"),
        ("", "has no line; train the run first"),
    ):
        (tmp_path / "metrics.jsonl").write_text(text)
        with pytest.raises(InputError, match=message):
            facts_of(model(tmp_path), "corpus")


def test_the_time_left_is_that_of_earlier_results_of_a_kind(caplog):
    caplog.set_level("INFO", "dclm_jax")
    forecast = Forecast()
    forecast.expect({f"{run}: {kind}": kind for run in "abc" for kind in ("perplexity", "order")})
    for label, seconds in (("a: perplexity", 5.0), ("a: cache", 9.0), ("a: order", 60.4)):
        forecast.measured(label, seconds)
    assert caplog.messages == [
        "results to measure: 6",
        "results measured: 1 of 6",
        "results measured: 2 of 6, about 0:02:11 left",
    ]
    for label in ("b: perplexity", "b: order", "c: perplexity", "c: order"):
        forecast.measured(label, 1.0)
    assert caplog.messages[-1] == "results measured: 6 of 6"
    assert caplog.messages[-2] == "results measured: 5 of 6, about 0:00:01 left"
