"""Alternating rounds, medians, and the check that a peer computes our loss."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

PAUSE = 0.05
"""Seconds of waiting before each turn, because threads of the previous turn spin before they
sleep."""

LOSS_TOLERANCES = {"default": 1e-4, "highest": 1e-4, "bfloat16": 2e-3}
"""Maximum relative difference of losses, by precision. Float32 sums in different orders differ far
less than 1e-4; bfloat16 has eight bits of precision."""


class PeerError(Exception):
    """A peer failed, or computes a different loss."""


class Turn(NamedTuple):
    """One pass over the work: its seconds, and the sum of nats of its first batch."""

    seconds: float
    nll: float


def alternate(turns: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median seconds of each contender over rounds; every contender has one turn per round."""
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            time.sleep(PAUSE)
            seconds[name].append(turn())
    return {name: statistics.median(values) for name, values in seconds.items()}


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
