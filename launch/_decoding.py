"""Options of the commands that generate text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

from dclm_jax.decoding.choices import Decoding
from dclm_jax.errors import InputError
from dclm_jax.log import logger

from ._options import CommandOptions, part

NAMES = {"beam_width": "beam"}
"""Names of flags that are not the names of the fields of `Decoding`."""
FLAGS_BY_METHOD = {
    "beam": ("beam", "length_normalization"),
    "sample": ("temperature", "top_k", "top_p"),
}
"""Flags that only one method reads, by method."""


@dataclasses.dataclass(frozen=True)
class GenerationOptions(CommandOptions):
    """Options of a command that generates text.

    Attributes:
      seed: random seed for --method=sample.
    """

    decoding: Decoding = part(Decoding(), names=NAMES)
    seed: int = 0

    flags_by_method: ClassVar[Mapping[str, Sequence[str]]] = FLAGS_BY_METHOD

    def __post_init__(self) -> None:
        super().__post_init__()
        for method, names in self.flags_by_method.items():
            for name in names:
                if self.is_given(name) and method != self.decoding.method:
                    raise InputError(
                        f"--{name} has no effect without --method={method}; add "
                        f"--method={method} or remove --{name}"
                    )
        if self.is_given("seed") and self.decoding.method != "sample":
            logger.info(
                f"--seed has no effect, because --method={self.decoding.method} is deterministic; "
                "add --method=sample"
            )
