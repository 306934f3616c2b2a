"""Alternating rounds, medians, and the check that a peer computes the same thing."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

PAUSE = 0.05
"""Seconds before each turn: threads of the turn before spin for a while before they sleep."""

LOSS_TOLERANCE = 1e-4
"""Relative difference of losses: sums of float32 in another order stay well below it."""


class PeerError(Exception):
    """A peer that cannot be compared with: it failed, or it computes something else."""


class Turn(NamedTuple):
    """One pass over the work: its seconds, and the nats of its first batch."""

    seconds: float
    nll: float


def alternate(turns: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median seconds of each contender; each round gives every contender one turn."""
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            time.sleep(PAUSE)
            seconds[name].append(turn())
    return {name: statistics.median(values) for name, values in seconds.items()}


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
