"""The table and figure of test perplexity by size of the training text."""

from typing import Any

import pytest

from configs.modern.corpus_size import BASELINE, MODEL, by_size, figure, table

WORDS = {"large": 2000, "small": 1000}
PERPLEXITIES = {"large": (80.0, 60.0, 75.0), "small": (200.0, 190.0, 195.0)}


def row_of(size: str, model: str) -> dict[str, Any]:
    baseline, perplexity, none = PERPLEXITIES[size]
    if model == BASELINE:
        perplexity = none = baseline
    ratio = perplexity / baseline
    comparison = {"ratio": ratio, "interval": [ratio - 0.05, ratio + 0.05]}
    run = {
        "workdir": size,
        "test": {"perplexity": perplexity},
        "contexts": {"none": none},
    }
    compared = {BASELINE: comparison}
    return {"config": {"model.name": model}, "compared": compared, "runs": [run]}


@pytest.fixture
def sizes():
    reports = [{"rows": [row_of(size, model) for model in (BASELINE, MODEL)]} for size in WORDS]
    return by_size(reports, WORDS.__getitem__)


def test_a_row_per_size_with_the_changes_of_perplexity(sizes):
    header, rows = table(sizes).values()
    assert len(header) == 6
    assert rows == [
        ["1,000", "200.00", "190.00", "-5.0 [-10.0, 0.0]", "195.00", "-2.6"],
        ["2,000", "80.00", "60.00", "-25.0 [-30.0, -20.0]", "75.00", "-20.0"],
    ]


def test_lines_from_the_smallest_text_to_the_largest(sizes):
    drawn = figure(sizes)
    assert [list(line.x) for line in drawn.lines] == [[1, 2]] * 3
    assert [list(line.y) for line in drawn.lines] == [[200, 80], [195, 75], [190, 60]]
