"""The sentence in which a report says whether context helps."""

import math
import re

import pytest

from dclm_jax.experiments import comparison
from dclm_jax.experiments.report import Report
from dclm_jax.experiments.verdict import verdicts
from tests.experiments import pages
from tests.experiments.made_up import result

# Three documents of 1, 4 and 5 targets, all with the same difference per target.
TARGETS = [5.0, 3.0, 1.0]


def rows(*results):
    return comparison.rows(list(results))


def run(model="ccdclm", ratio=1.0, none=1.0, accuracy=0.8, noise=(0.0, 0.0, 0.0), **config):
    """A run whose perplexity is `ratio` times the baseline's in every document, plus `noise`."""
    nats = [3 * n + n * math.log(ratio) + d for n, d in zip(TARGETS, noise, strict=True)]
    made = result(model, 0, 100 * ratio, accuracy, nats, **config)
    made["by_token"]["count"] = [[n, 0.0, 0.0] for n in TARGETS]
    made["arrangements"] |= {"own": 100 * ratio, "none": 100 * none}
    return made


def test_context_helps_if_the_whole_interval_is_below_the_baseline():
    expected = (
        "Context helps ccdclm: 24.2% lower perplexity than rnnlm [24.2%, 24.2%]; 5% lower than the "
        "same model without context; 80% of documents are more probable than a shuffled version."
    )
    assert verdicts(rows(run("rnnlm"), run(ratio=0.758, none=0.758 / 0.95))) == [expected]


def test_context_does_not_help_if_the_interval_is_above_the_baseline():
    (text,) = verdicts(rows(run("rnnlm"), run(ratio=1.031, none=1.04)))
    assert text.startswith(
        "Context does not help ccdclm: 3.1% higher perplexity than rnnlm [3.1%, 3.1%]; 1% lower"
    )


def test_an_interval_around_the_baseline_decides_nothing():
    (text,) = verdicts(rows(run("rnnlm"), run(ratio=0.99, noise=(1.0, -1.0, 0.0))))
    assert text.startswith(
        "It is uncertain whether context helps ccdclm: 1.0% lower perplexity than rnnlm ["
    )
    low, high = text.split("[")[1].split("]")[0].split(", ")
    assert low.startswith("-") and not high.startswith("-")


def test_a_better_model_that_is_as_good_without_its_context_proves_nothing():
    (text,) = verdicts(rows(run("rnnlm"), run(ratio=0.97, none=0.95)))
    assert text.startswith("It is uncertain whether context helps ccdclm: 3.0% lower perplexity")
    assert "2% higher than the same model without context" in text


@pytest.mark.parametrize(
    ("ratio", "answer", "change"),
    [(0.9, "Context helps", "10% lower"), (1.1, "Context does not help", "10% higher")],
)
def test_without_a_baseline_the_same_model_without_context_decides(ratio, answer, change):
    (text,) = verdicts(rows(run("ccdclm", ratio=ratio, none=1.0)))
    assert text.startswith(f"{answer} ccdclm: {change} perplexity than the same model without")


def test_another_recipe_says_nothing_and_models_without_context_have_no_verdict():
    other = run("rlm", **{"model.hidden_dim": 99})
    one, *others = verdicts(rows(other, run(ratio=0.9)))
    assert one.startswith("Context helps ccdclm: 10% lower perplexity than the same model without")
    assert "rlm" not in one and not others
    assert verdicts(rows(other, run(ratio=0.9) | {"arrangements": None})) == []
    assert verdicts(rows(run("rnnlm"))) == []


def test_all_claims_are_about_the_runs_that_are_compared():
    better, worse = run(ratio=0.9), run(ratio=2.0, none=1.0)
    worse["config"] = worse["config"] | {"training.seed": 1}
    (text,) = verdicts(rows(run("rnnlm"), better, worse))
    assert "10.0% lower perplexity than rnnlm [10.0%, 10.0%]; 10% lower than the same" in text


def test_numbers_that_are_not_finite_are_not_claimed_and_nothing_is_no_help():
    infinite = run(ratio=0.9)
    infinite["arrangements"]["none"] = math.inf
    (text,) = verdicts(rows(run("rnnlm"), infinite))
    assert text.startswith("Context helps ccdclm: 10.0% lower") and "without" not in text
    infinite["test"]["perplexity"] = infinite["arrangements"]["own"] = math.inf
    assert verdicts(rows(run("rnnlm"), infinite)) == []
    (text,) = verdicts(rows(run("rnnlm"), run(ratio=0.9999, none=1.0)))
    assert text.startswith("It is uncertain whether") or text.startswith("Context does not help")


def test_what_is_not_measured_is_not_claimed():
    bare = run(ratio=0.9) | {"arrangements": None, "coherence": None}
    (text,) = verdicts(rows(run("rnnlm"), bare))
    assert text == "Context helps ccdclm: 10.0% lower perplexity than rnnlm [10.0%, 10.0%]."
    assert verdicts(rows(run("rnnlm"), bare | {"test": None})) == []


def test_the_verdict_is_above_the_tables_everywhere():
    report = Report(pages.rows(), ("rnnlm",))
    assert len(report.verdicts) == 2
    for text in (report.text(), report._markdown()):
        assert text.startswith("\n\n".join(report.verdicts) + "\n\n")
    page = pages.text()
    (place,) = [match.start() for match in re.finditer("Context helps ccdclm", page)]
    assert place < page.index("<main")
