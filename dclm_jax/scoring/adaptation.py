"""Test-time adaptation of a model: its kinds, and the numbers of its settings.

A model adapts by a neural cache or a unigram cache (`caches`), or by dynamic evaluation
(`dynamic`).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dclm_jax.errors import InputError

Setting = Mapping[str, float | None]
"""Numbers by name; a number that is None is tuned."""

SETTINGS: dict[str, tuple[str, ...]] = {
    "cache": ("weight", "theta", "window", "strength"),
    "unigram": ("weight", "strength"),
    "dynamic": ("rate", "decay"),
}
"""The kinds of adaptation, and the names of their numbers."""
WINDOW = 2000
"""The default of the number "window", which is never tuned."""
# In these ranges products with scores and counts are finite in float32, and counts fit int32.
_RANGES = {
    "weight": (0, 1),
    "theta": (0, 1e30),
    "window": (1, 10**9),
    "strength": (0, 1e30),
    "rate": (0, 1e38),
    "decay": (0, 1e38),
}


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """The kind and the setting of a model's adaptation.

    Attributes:
      kind: one of SETTINGS.
      setting: numbers by name.
      trials: the settings tried, each with its "perplexity" on the tuning documents (infinite if
        the model diverged), the best first; empty if the setting was not tuned.
      tuned_on: the source of the tuning documents.
      training_text: the checksum that `training_text` returns.
    """

    kind: str
    setting: dict[str, float]
    trials: list[dict[str, float]] = dataclasses.field(default_factory=list)
    tuned_on: dict[str, Any] = dataclasses.field(default_factory=dict)
    training_text: str = ""

    def __str__(self) -> str:
        numbers = (
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4g}"
            for name, value in self.setting.items()
        )
        source = self.tuned_on.get("input") or self.tuned_on.get("split")
        return ", ".join(numbers) + (f", tuned on {source}" if self.trials else "")

    def to_json(self) -> dict[str, Any]:
        """The kind, the setting and, if it was tuned, all trials."""
        value: dict[str, Any] = {"adapt": self.kind, "setting": self.setting}
        if self.trials:
            value["tuning"] = {**self.tuned_on, "tried": self.trials}
        return value


def complete(kind: str, setting: Setting) -> dict[str, float | None]:
    """All numbers of a kind of adaptation, checked: given numbers, defaults, and None to tune."""
    if kind not in SETTINGS:
        raise InputError(f"--adapt={kind} is unknown; choose from {', '.join(SETTINGS)}")
    for name in setting.keys() - set(SETTINGS[kind]):
        names = ", ".join(SETTINGS[kind])
        raise InputError(f"{name} is not a setting of --adapt={kind}; choose from {names}")
    numbers = {name: setting.get(name) for name in SETTINGS[kind]}
    if "window" in numbers and numbers["window"] is None:
        numbers["window"] = WINDOW
    for name, value in numbers.items():
        low, high = _RANGES[name]
        if value is not None and not low <= value <= high:
            raise InputError(
                f"the {name} of --adapt={kind} is {value}; expected a number from {low} to {high:g}"
            )
    if numbers.get("strength") == 0 and (kind == "unigram" or numbers["weight"] == 1):
        raise InputError(
            f"--adapt={kind}: with strength 0 new words have probability 0; choose a strength "
            "above 0" + (", or a weight below 1" if kind == "cache" else "")
        )
    return numbers
