"""Goals, verdicts and rows as text and JSON."""

import json

import pytest

from dclm_jax.benchmark import report
from dclm_jax.benchmark.report import Goal, Row


@pytest.mark.parametrize(
    ("goal", "measured", "verdict"),
    [
        (Goal(2.0, 2.5), 2.5, "aim met"),
        (Goal(2.0, 2.5), 2.49, "met"),
        (Goal(2.0, 2.5), 1.99, "missed"),
        (Goal(1 / 8, 1 / 16, at_most=True), 1 / 16, "aim met"),
        (Goal(1 / 8, 1 / 16, at_most=True), 0.1, "met"),
        (Goal(1 / 8, 1 / 16, at_most=True), 0.126, "missed"),
    ],
)
def test_verdicts(goal, measured, verdict):
    assert goal.verdict(measured) == verdict
    row = Row("name", "work", goal, measured)
    assert report.row_text(row).split("\n")[0].endswith(f"  {verdict}")
    assert json.loads(json.dumps(row.to_json()))["verdict"] == verdict


def test_a_disturbed_row_has_no_verdict():
    row = Row("name", "work", Goal(2.0, 2.5), 9.0, disturbed=True)
    assert row.to_json()["verdict"] == "disturbed"
    assert "other programs" in report.row_text(row)


def test_rows_without_a_measure():
    skipped = Row("name", "work", Goal(2, 3), note="torch is not installed")
    assert skipped.verdict == "skipped" and skipped.to_json()["measured"] is None
    assert "torch is not installed" in report.row_text(skipped)
    assert Row("name", "work", details={"seconds": 1}).to_json()["seconds"] == 1


def test_machine_and_versions_name_what_was_used():
    assert report.machine()["cores"] >= 1 and report.machine()["cpu"]
    versions = report.versions()
    assert versions["jax"] and versions["python"] and {"torch", "dynet38"} <= set(versions)
