"""Minimum error rate training against brute force on small lists, and by hand."""

import itertools

import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.metrics.systems import METRICS, picked
from dclm_jax.rescoring import mert

BLEU, WER = METRICS["bleu"], METRICS["wer"]


def random_lists(seed, segments=4, hypotheses=4, features=2):
    """Features, and word errors as statistics, of lists with different numbers of hypotheses."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, hypotheses + 1, segments)
    errors = [np.column_stack([rng.integers(0, 9, n), np.full(n, 10)]) for n in counts]
    return [rng.normal(size=(n, features)) for n in counts], errors


def metric_at(features, statistics, metric, weights):
    choices = [int(np.argmax(segment @ weights)) for segment in features]
    total = sum(rows[choice] for rows, choice in zip(statistics, choices, strict=True))
    return metric.sign * metric.score(total)


def crossings(features, weights, direction):
    """Every gamma at which any two hypotheses of a segment have the same score."""
    for segment in features:
        offsets, slopes = segment @ weights, segment @ direction
        for i, j in itertools.combinations(range(len(segment)), 2):
            yield (offsets[j] - offsets[i]) / (slopes[i] - slopes[j])


def between(points):
    points = np.sort(np.array([*points]))
    if not points.size:
        return np.zeros(1)
    return np.array([points[0] - 1, *(points[1:] + points[:-1]) / 2, points[-1] + 1])


@pytest.mark.parametrize("seed", range(20))
def test_the_line_search_finds_the_best_of_all_points_between_crossings(seed):
    features, statistics = random_lists(seed)
    rng = np.random.default_rng([1, seed])
    weights, direction = rng.normal(size=(2, 2))
    points = between(crossings(features, weights, direction))
    best = max(metric_at(features, statistics, WER, weights + p * direction) for p in points)
    lists = mert.join_lists(features, statistics)
    gamma, value = mert.line_search(lists, WER, weights, direction)
    assert value == pytest.approx(best, abs=1e-9)
    value_there = metric_at(features, statistics, WER, weights + gamma * direction)
    assert value_there == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_the_weights_of_two_features_are_the_best_of_all_directions(seed):
    features, statistics = random_lists(seed, segments=5)
    # Two hypotheses have the same score where the weights are at right angles to their difference.
    angles = []
    for segment in features:
        for i, j in itertools.combinations(range(len(segment)), 2):
            normal = np.arctan2(*(segment[i] - segment[j])[::-1]) + np.pi / 2
            angles += [normal % (2 * np.pi), (normal + np.pi) % (2 * np.pi)]
    middles = between([*angles, *(np.array(angles) + 2 * np.pi)])
    best = max(
        metric_at(features, statistics, WER, np.array([np.cos(angle), np.sin(angle)]))
        for angle in middles
    )
    rng = np.random.default_rng(0)
    tuned = mert.maximize(features, statistics, WER, np.array([1.0, 0.0]), restarts=20, rng=rng)
    assert metric_at(features, statistics, WER, tuned.weights) == pytest.approx(best, abs=1e-9)
    assert WER.sign * tuned.value == pytest.approx(best, abs=1e-9)
    assert np.abs(tuned.weights).sum() == pytest.approx(1)


def test_lines_of_one_segment_by_hand():
    # y = 1 - x until 0.5, y = 0.5 until 1.5, y = x - 1 from there; y = -1 is nowhere the highest.
    features = np.array([[1.0, -1.0], [0.5, 0.0], [-1.0, 1.0], [-1.0, 0.0]])
    statistics = np.array([[3, 10], [1, 10], [2, 10], [0, 10]])
    lists = mert.join_lists([features], [statistics])
    offset, slope = np.eye(2)
    assert mert.line_search(lists, WER, offset, slope) == (1.0, -10.0)
    # Without the middle one the outer ones cross at 1, and the right one goes on without end.
    outer = mert.join_lists([features[[0, 2]]], [statistics[[0, 2]]])
    assert mert.line_search(outer, WER, offset, slope) == (2.0, -20.0)
    # Where nothing depends on the direction the search stays where it is.
    assert mert.line_search(lists, WER, offset, 0 * slope) == (0.0, -30.0)


def test_bleu_is_tuned_and_the_scale_of_a_feature_does_not_matter():
    reference = "the cat sat on the mat .".split()
    good, bad = "the cat sat on a mat .".split(), "a cat at the mat sat .".split()
    statistics = [BLEU.statistics([bad, good], reference)] * 3
    features = [np.array([[1.0, 0.0], [0.0, 1e-6 * scale]]) for scale in (1, 2, 3)]
    rng = np.random.default_rng(0)
    tuned = mert.maximize(features, statistics, BLEU, np.array([1.0, 0.0]), restarts=2, rng=rng)
    assert tuned.value == pytest.approx(BLEU.score(3 * statistics[0][1]))
    assert metric_at(features, statistics, BLEU, tuned.weights) == pytest.approx(tuned.value)


def test_a_feature_that_is_constant_in_each_list_has_no_weight():
    rng = np.random.default_rng(0)
    # 0.1 is no float: its distance from its mean is rounding.
    features = [np.column_stack([rng.normal(size=7), np.full(7, 0.1)]) for _ in range(20)]
    statistics = [WER.statistics([["a"] * (1 + k) for k in range(7)], ["a"])] * 20
    for seed in range(3):
        rng = np.random.default_rng(seed)
        tuned = mert.maximize(features, statistics, WER, np.array([0.5, 0.5]), restarts=2, rng=rng)
        assert np.abs(tuned.weights).tolist() == [1, 0]
    constant = [segment[:, 1:] for segment in features]
    with pytest.raises(InputError, match="no feature differs within a list"):
        mert.maximize(constant, statistics, WER, np.ones(1), restarts=0, rng=rng)


def test_what_is_decoded_decides_where_features_depend_on_what_is_chosen():
    # The better hypothesis of the second segment wins only after that of the first was not chosen.
    statistics = [np.array([[0, 10], [1, 10]]), np.array([[0, 10], [9, 10]])]
    rounds, weights_tried = [], []

    def decode(weights):
        weights_tried.append(weights)
        first = np.array([[1.0, 0.0], [0.0, 1.0]])
        choice = int(np.argmax(first @ weights))
        second = np.array([[0.0, 0.5], [1.0, 0.0]] if choice else [[0.0, 0.0], [1.0, 2.0]])
        return [choice, int(np.argmax(second @ weights))], [first, second]

    def on_round(number, tuned):
        rounds.append((number, tuned.value))

    tuned = mert.tune_weights(decode, statistics, WER, np.array([2.0, 0.0]), on_round=on_round)
    assert weights_tried[0].tolist() == [1.0, 0.0]
    assert rounds[0] == (1, pytest.approx(45.0))
    assert [number for number, _ in rounds] == list(range(1, len(weights_tried) + 1))
    assert len(rounds) <= 10
    assert tuned.value == min(value for _, value in rounds)
    choices, _ = decode(tuned.weights)
    assert WER.score(picked(statistics, choices).sum(axis=0)) == tuned.value
