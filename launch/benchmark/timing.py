"""Alternating rounds, medians, and the check that a peer computes our loss."""

import pathlib
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

PAUSE = 0.05
"""Seconds of waiting before each turn, because threads of the previous turn spin before they
sleep."""

CONTENDED = 0.25
"""Contention above which a measurement is disturbed. On two cores the contention is below 0.05 on a
quiet machine, and near 1 if a second benchmark runs."""

LOSS_TOLERANCES = {"default": 1e-4, "highest": 1e-4, "bfloat16": 2e-3}
"""Maximum relative difference of losses, by precision. Float32 sums in different orders differ far
less than 1e-4; bfloat16 has eight bits of precision."""

_PRESSURE = pathlib.Path("/proc/pressure/cpu")


class PeerError(Exception):
    """A peer failed, or computes a different loss."""


class Turn(NamedTuple):
    """One pass over the work: its seconds, and the sum of nats of its first batch."""

    seconds: float
    nll: float


class Rounds(NamedTuple):
    """The median seconds of each contender, and the contention: the share of the time in which some
    work waited for a core; None if Linux does not report it."""

    seconds: dict[str, float]
    contention: float | None

    @property
    def disturbed(self) -> bool:
        """Whether other programs ran, so that the medians do not compare the contenders."""
        return self.contention is not None and self.contention > CONTENDED


def alternate(turns: Mapping[str, Callable[[], float]], rounds: int) -> Rounds:
    """The medians over rounds; every contender has one turn per round."""
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
    """The total seconds in which some work waited for a core; None if Linux does not report them.

    The first line of Linux's pressure stall information is "some avg10=... total=MICROSECONDS".
    """
    if not _PRESSURE.is_file():
        return None
    return int(_PRESSURE.read_text().split("\n")[0].rpartition("total=")[2]) / 1e6


def require_same_loss(
    peer: str, model: str, ours: float, theirs: float, precision: str = "default"
) -> None:
    """Raises PeerError if two losses from the same parameters and batch differ."""
    # The negation also refuses a loss that is not a number.
    if not abs(theirs - ours) <= LOSS_TOLERANCES[precision] * abs(ours):
        raise PeerError(
            f"{peer} computes a different {model}: its loss is {theirs:.6g} and ours {ours:.6g} "
            "for the same parameters and batch"
        )
