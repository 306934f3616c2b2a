"""Alternating rounds, medians, and the check that a peer computes the same thing."""

import pathlib
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

PAUSE = 0.05
"""Seconds before each turn: threads of the turn before spin for a while before they sleep."""

CONTENDED = 0.25
"""Contention of a disturbed measurement; on a quiet machine of two cores it is below 0.05, with a
second benchmark beside this one it is near 1."""

LOSS_TOLERANCE = 1e-4
"""Relative difference of losses: sums of float32 in another order stay well below it."""

_PRESSURE = pathlib.Path("/proc/pressure/cpu")


class PeerError(Exception):
    """A peer that cannot be compared with: it failed, or it computes something else."""


class Turn(NamedTuple):
    """One pass over the work: its seconds, and all nats of its first batch."""

    seconds: float
    nll: float


class Rounds(NamedTuple):
    """The median seconds of each contender, and for which part of the time some work waited for a
    core that other work had; None where Linux does not say."""

    seconds: dict[str, float]
    contention: float | None

    @property
    def disturbed(self) -> bool:
        """Other programs ran: the medians do not compare the contenders."""
        return self.contention is not None and self.contention > CONTENDED


def alternate(turns: Mapping[str, Callable[[], float]], rounds: int) -> Rounds:
    """Gives every contender one turn a round."""
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    start, waited_before = time.perf_counter(), _seconds_waited()
    for _ in range(rounds):
        for name, turn in turns.items():
            time.sleep(PAUSE)
            seconds[name].append(turn())
    elapsed, waited = time.perf_counter() - start, _seconds_waited()
    contention = None
    if waited is not None and waited_before is not None:
        contention = (waited - waited_before) / elapsed
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return Rounds(medians, contention)


def _seconds_waited() -> float | None:
    """Pressure stall information: "some avg10=... total=MICROSECONDS" is its first line."""
    if not _PRESSURE.is_file():
        return None
    return int(_PRESSURE.read_text().split("\n")[0].rpartition("total=")[2]) / 1e6


def alternate_work(work: Mapping[str, Callable[[], object]], rounds: int) -> Rounds:
    """Times work that does not return before it is done, once it has been done and is compiled."""
    for function in work.values():
        function()
    turns = {name: partial(stopwatch, function) for name, function in work.items()}
    return alternate(turns, rounds)


def stopwatch(work: Callable[[], object]) -> float:
    """Seconds that `work` takes; it must not return before it is done."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def require_same_loss(peer: str, model: str, ours: float, theirs: float) -> None:
    """Raises PeerError unless both losses, from the same parameters and batch, are the same."""
    # Written so that a loss that is not a number is refused, too.
    if not abs(theirs - ours) <= LOSS_TOLERANCE * abs(ours):
        raise PeerError(
            f"{peer} computes another {model}: its loss is {theirs:.6g}, ours {ours:.6g} "
            "from the same parameters and batch"
        )
