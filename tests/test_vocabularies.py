"""Sums of test words by their frequency in the training text, and their table and figure."""

import math

import numpy as np
import pytest

from configs.modern.vocabularies import (
    BASELINE,
    CLASSES,
    MODEL,
    VOCABULARIES,
    ClassSums,
    class_of,
    figure,
    header,
    rows,
    sums_by_class,
)
from dclm_jax.scoring.score_types import DocumentScore, SentenceScore


def test_classes_begin_at_their_first_number():
    counts = (0, 1, 9, 10, 99, 100, 10**7)
    assert [CLASSES[class_of(count)] for count in counts] == [
        *("never", "1 to 9", "1 to 9", "10 to 99", "10 to 99", "100 or more", "100 or more")
    ]


def test_sums_of_a_document_by_hand():
    tokens = ["the", "zebra", "<unk>", "ran", "<END>"]
    nats = [1.0, 9.0, math.nan, 4.0, 0.5]
    sentence = SentenceScore(tokens, [True, False, False, True, True], {"surprisal": nats})
    scores = [DocumentScore("a", [sentence, sentence])]
    sums = sums_by_class(scores, {"the": 400, "ran": 12}, "<unk>")
    assert sums.nats.tolist() == [18, 0, 8, 2, 1]
    assert sums.targets.tolist() == [2, 0, 2, 2, 2]
    assert sums.oov.tolist() == [2, 0, 0, 0, 0]
    assert sums.perplexity == pytest.approx(math.exp(29 / 8))


@pytest.fixture
def runs():
    targets = np.array([10, 0, 20, 40, 30.0])
    nats = {
        ("words", BASELINE): [20, 0, 100, 80, 10],
        ("words", MODEL): [21, 0, 90, 70, 9],
        ("subwords", BASELINE): [150, 0, 100, 80, 10],
        ("subwords", MODEL): [110, 0, 90, 72, 8],
    }
    oov = {"words": [10, 0, 5, 0, 0], "subwords": [0] * 5}
    return {
        run: ClassSums(np.array(values, float), targets, np.array(oov[run[0]], float))
        for run, values in nats.items()
    }


def test_a_row_per_class_with_its_share_of_the_reduction(runs):
    assert len(header()) == 2 + 4 * len(VOCABULARIES)
    never, rare, frequent, *_, total = rows(runs)
    assert never == ["never", "10", "100.0", "2.00", "-0.100", "-5.0", "0.0", "15.00", "4.000"] + [
        "66.7"
    ]
    assert rare == ["1 to 9", "0", *[""] * 8]
    assert frequent[2:6] == ["25.0", "5.00", "0.500", "50.0"]
    assert total == [
        "all",
        "100",
        "21.4",
        "2.10",
        "0.200",
        "100.0",
        "0.0",
        "3.40",
        "0.600",
        "100.0",
    ]


def test_a_line_per_corpus_and_vocabulary(runs):
    drawn = figure({"film": runs, "news": runs})
    assert [line.label for line in drawn.lines] == [
        f"{corpus}, {vocabulary}" for corpus in ("film", "news") for vocabulary in VOCABULARIES
    ]
    np.testing.assert_allclose(drawn.lines[1].y, [4, np.nan, 0.5, 0.2])
    assert drawn.ticks == CLASSES
