"""Options of test-time adaptation and its tuning, for the commands that adapt runs."""

import dataclasses
from collections.abc import Sequence

from dclm_jax.errors import InputError
from dclm_jax.scoring.adaptation import SETTINGS, WINDOW, complete

from ._options import CommandOptions

_PREFIXES = {"cache": "cache", "unigram": "cache", "dynamic": "dynamic"}
"""The kinds of adaptation, and the beginnings of the names of their flags."""


@dataclasses.dataclass(frozen=True)
class AdaptationOptions(CommandOptions):
    """Options of a command that adapts runs.

    Attributes:
      adapt: test-time adaptation to each document, separated by commas: cache (neural cache),
        unigram (unigram cache), dynamic (dynamic evaluation).
      cache_weight: weight l of --adapt=cache or unigram, from 0 to 1. Default: tuned.
      cache_theta: sharpness theta of --adapt=cache. Default: tuned.
      cache_window: maximum number of targets in the window of --adapt=cache.
      cache_strength: strength s of the model in --adapt=cache or unigram, in targets. Default:
        tuned.
      dynamic_rate: learning rate eta of --adapt=dynamic. Default: tuned.
      dynamic_decay: decay lambda of --adapt=dynamic, towards the trained parameters. Default:
        tuned.
    """

    adapt: Sequence[str] | None = None
    cache_weight: float | None = None
    cache_theta: float | None = None
    cache_window: int = WINDOW
    cache_strength: float | None = None
    dynamic_rate: float | None = None
    dynamic_decay: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = self.adapt or ()
        if self.adapt is not None and not kinds:
            raise InputError(f"--adapt is empty; choose from {', '.join(_PREFIXES)}, or remove it")
        if len(set(kinds)) < len(kinds):
            raise InputError(f"--adapt={','.join(kinds)} repeats a name; write each name once")
        for kind in kinds:
            complete(kind, self.setting(kind) if kind in _PREFIXES else {})
        for field in dataclasses.fields(AdaptationOptions):
            users = [kind for kind in _PREFIXES if field.name in _names(kind)]
            if users and self.is_given(field.name) and not set(users) & set(kinds):
                needed = " or ".join(f"--adapt={kind}" for kind in users)
                raise InputError(
                    f"--{field.name} has no effect without {needed}; add {needed} or remove "
                    f"--{field.name}"
                )

    def setting(self, kind: str) -> dict[str, float | None]:
        """The setting of a kind of adaptation; None is tuned."""
        return {number: getattr(self, name) for name, number in _names(kind).items()}

    @property
    def settings(self) -> dict[str, dict[str, float | None]]:
        """The settings by kind of adaptation."""
        return {kind: self.setting(kind) for kind in self.adapt or ()}

    @property
    def tunes(self) -> bool:
        """Whether a setting of an adaptation is tuned."""
        return any(
            None in complete(kind, setting).values() for kind, setting in self.settings.items()
        )


def _names(kind: str) -> dict[str, str]:
    """The flags of a kind of adaptation, and the numbers that they set."""
    return {f"{_PREFIXES[kind]}_{number}": number for number in SETTINGS[kind]}
