"""The sentence in which a report says whether context helps."""

import dataclasses
import math
import re
from typing import Any

import pytest

from dclm_jax.evaluation.context_ablation import ContextPerplexities
from dclm_jax.report.report import Report
from dclm_jax.report.rows import rows_of
from dclm_jax.report.verdict import verdicts
from tests.report import pages
from tests.report.made_up import by_range, result, sums

# Three documents of 1, 4 and 5 targets, all with the same difference per target.
TARGETS = [5.0, 3.0, 1.0]


def rows(*results):
    return rows_of(results)


def run(model: Any = "ccdclm", ratio=1.0, other=1.0, noise=(0.0, 0.0, 0.0), **config: Any):
    """A run whose perplexity is `ratio` times the baseline's in every document, plus `noise`."""
    nats = [[3 * n + n * math.log(ratio) + d] for n, d in zip(TARGETS, noise, strict=True)]
    by_token = by_range(*nats, counts=[[n] for n in TARGETS])
    return dataclasses.replace(
        result(model, 0, 100 * ratio, 0.8, **config),
        test=sums(100 * ratio, by_token),
        contexts=ContextPerplexities(1.0, 100 * other, 1.0),
    )


def test_context_helps_if_the_whole_interval_is_below_the_baseline():
    expected = (
        "Context helps ccdclm: 5% lower perplexity than with the context of other documents; 24.2% "
        "lower than rnnlm [24.2%, 24.2%]; first sentences, which have no context, have a 24% lower "
        "perplexity, too; documents are more probable than 80% of their shuffled versions."
    )
    assert verdicts(rows(run("rnnlm"), run(ratio=0.758, other=0.758 / 0.95))) == [expected]


def test_context_does_not_help_if_the_interval_is_above_the_baseline():
    (text,) = verdicts(rows(run("rnnlm"), run(ratio=1.031, other=1.04)))
    assert text.startswith(
        "Context does not help ccdclm: 1% lower perplexity than with the context of other "
        "documents; 3.1% higher than rnnlm [3.1%, 3.1%]; first sentences, which have no context, "
        "have a 3% higher perplexity; documents"
    )


def test_an_interval_around_the_baseline_decides_nothing():
    (text,) = verdicts(rows(run("rnnlm"), run(ratio=0.99, noise=(1.0, -1.0, 0.0))))
    assert text.startswith(
        "It is uncertain whether context helps ccdclm: 1% lower perplexity than with the context "
        "of other documents; 1.0% lower than rnnlm ["
    )
    low, high = text.split("[")[1].split("]")[0].split(", ")
    assert low.startswith("-") and not high.startswith("-")


def test_a_better_model_that_is_as_good_in_other_contexts_proves_nothing():
    (text,) = verdicts(rows(run("rnnlm"), run(ratio=0.97, other=0.95)))
    assert text.startswith("It is uncertain whether context helps ccdclm: 2% higher perplexity")
    assert "3.0% lower than rnnlm" in text


@pytest.mark.parametrize(
    ("ratio", "answer", "change"),
    [(0.9, "Context helps", "10% lower"), (1.1, "Context does not help", "10% higher")],
)
def test_without_a_baseline_the_context_of_other_documents_decides(ratio, answer, change):
    (text,) = verdicts(rows(run("ccdclm", ratio=ratio, other=1.0)))
    assert text.startswith(f"{answer} ccdclm: {change} perplexity than with the context of")


def test_another_recipe_says_nothing_and_models_without_context_have_no_verdict():
    other = run("rlm", **{"model.hidden_dim": 99})
    one, *others = verdicts(rows(other, run(ratio=0.9)))
    assert one.startswith("Context helps ccdclm: 10% lower perplexity than with the context of")
    assert "rlm" not in one and not others
    assert verdicts(rows(other, dataclasses.replace(run(ratio=0.9), contexts=None))) == []
    assert verdicts(rows(run("rnnlm"))) == []


def test_all_claims_are_about_the_runs_that_are_compared():
    better, worse = run(ratio=0.9), run(ratio=2.0, other=1.0, **{"training.seed": 1})
    (text,) = verdicts(rows(run("rnnlm"), better, worse))
    assert "10% lower perplexity than with the context of other documents; 10.0% lower than" in text


def test_numbers_that_are_not_finite_are_not_claimed_and_nothing_is_no_help():
    infinite = run(ratio=0.9, other=math.inf)
    (text,) = verdicts(rows(run("rnnlm"), infinite))
    assert text.startswith("Context helps ccdclm: 10.0% lower") and "other documents" not in text
    assert infinite.test is not None
    infinite = dataclasses.replace(infinite, test=sums(math.inf, infinite.test.by_token))
    assert verdicts(rows(run("rnnlm"), infinite)) == []
    (text,) = verdicts(rows(run("rnnlm"), run(ratio=0.9999, other=1.0)))
    assert text.startswith("It is uncertain whether") or text.startswith("Context does not help")


def test_what_is_not_measured_is_not_claimed():
    bare = dataclasses.replace(run(ratio=0.9), contexts=None, coherence=None)
    (text,) = verdicts(rows(run("rnnlm"), bare))
    assert text == (
        "Context helps ccdclm: 10.0% lower perplexity than rnnlm [10.0%, 10.0%]; first sentences, "
        "which have no context, have a 10% lower perplexity, too."
    )
    assert verdicts(rows(run("rnnlm"), dataclasses.replace(bare, test=None))) == []


def test_the_verdict_is_above_the_tables_everywhere():
    report = Report(pages.rows(), ("rnnlm",))
    assert len(report.verdicts) == 2
    for text in (report.text(), report._markdown()):
        assert text.startswith("\n\n".join(report.verdicts) + "\n\n")
    page = pages.text()
    (place,) = [match.start() for match in re.finditer("Context helps ccdclm", page)]
    assert place < page.index("<main")


def test_first_sentences_are_compared_apart():
    """By the sums of the first position, whatever the other positions are."""
    baseline, better = run("rnnlm"), run(ratio=0.9)
    for change, expected in (
        (0.94, "a 6% lower perplexity, too"),
        (1.02, "a 2% higher perplexity;"),
    ):
        assert baseline.test is not None and better.test is not None
        first = [[3 * n + n * math.log(change), 99.0] for n in TARGETS]
        by_sentence = by_range(*first, counts=[[n, 1.0] for n in TARGETS])
        test = dataclasses.replace(better.test, by_sentence=by_sentence)
        (text,) = verdicts(rows(baseline, dataclasses.replace(better, test=test)))
        assert f"first sentences, which have no context, have {expected}" in text
        assert "10.0% lower than rnnlm [10.0%, 10.0%]; first sentences" in text
    first = [[3 * n + n * math.log(0.9), 99.0] for n in TARGETS]
    worse = run(ratio=1.1)
    assert worse.test is not None
    test = dataclasses.replace(
        worse.test, by_sentence=by_range(*first, counts=[[n, 1.0] for n in TARGETS])
    )
    (text,) = verdicts(rows(baseline, dataclasses.replace(worse, test=test)))
    assert "have a 10% lower perplexity;" in text
