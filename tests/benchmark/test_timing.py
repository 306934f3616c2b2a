"""Turns, medians, losses, and contenders in processes of their own."""

import math

import pytest

from launch.benchmark import timing
from launch.benchmark.timing import PeerError
from launch.benchmark.worker import PeerJob, Worker


def test_contenders_take_turns_and_the_median_counts(monkeypatch):
    monkeypatch.setattr(timing, "PAUSE", 0)
    order = []

    def contender(name, seconds):
        values = iter(seconds)

        def turn():
            order.append(name)
            return next(values)

        return turn

    turns = {name: contender(name, seconds) for name, seconds in (("a", [3, 9, 1]), ("b", [2] * 3))}
    assert timing.alternate(turns, 3) == {"a": 3, "b": 2}
    assert order == ["a", "b"] * 3


def test_a_loss_may_differ_by_rounding_only():
    timing.require_same_loss("Peer", "ccdclm", 1000.0, 1000.05)
    for theirs in (1000.2, 999.8, math.nan):
        with pytest.raises(PeerError) as raised:
            timing.require_same_loss("Peer", "ccdclm", 1000.0, theirs)
        for part in ("Peer", "ccdclm", "1000", f"{theirs:.6g}"):
            assert part in str(raised.value)


@pytest.mark.parametrize(("params", "method"), [({}, "turn"), ({"embedding": None}, "fail")])
def test_a_peer_that_fails_is_named(params, method):
    """It cannot be created, or has no such method."""
    job = PeerJob(False, "ccdclm", params, [])
    with (
        Worker("Peer", "tests.benchmark.twin", job, keep_memory=True) as worker,
        pytest.raises(PeerError, match="^Peer failed: "),
    ):
        worker.call(method)
