"""Which documents a prepared corpus leaves out: too short, too long, too many unknown words.

Lengths come first. The vocabulary is counted over the training documents that are left, and by it
documents of too many unknown words are found, as in Li et al. (2015, 4.1). It is not counted again
without them.
"""

import dataclasses

import numpy as np

from dclm_jax.data.corpus import Dropped
from dclm_jax.errors import InputError, require_at_least

_REASONS = tuple(field.name for field in dataclasses.fields(Dropped))
KEPT, _SHORT, _LONG, _UNKNOWN = range(1 + len(_REASONS))


@dataclasses.dataclass(frozen=True)
class Filters:
    """What is asked of a document; None asks nothing.

    Attributes:
      min_words, max_words: of the document.
      max_unknown: the share of its words that are outside the vocabulary.
    """

    min_words: int | None = None
    max_words: int | None = None
    max_unknown: float | None = None

    def __post_init__(self):
        require_at_least("min_words", self.min_words, 1)
        require_at_least("max_words", self.max_words, self.min_words or 1)
        if self.max_unknown is not None and not 0 <= self.max_unknown <= 1:
            raise InputError(f"max_unknown is {self.max_unknown:g}; expected a share from 0 to 1")

    def by_length(self, words_D: np.ndarray) -> np.ndarray:
        """The reason [D] to leave out each document of so many words; 0 is none."""
        is_short_D = words_D < (self.min_words or 0)
        is_long_D = words_D > (np.inf if self.max_words is None else self.max_words)
        return np.select([is_short_D, is_long_D], [_SHORT, _LONG], KEPT)

    def by_unknown(self, unknown_D: np.ndarray, words_D: np.ndarray) -> np.ndarray:
        """The same for documents that have so many unknown ones among their words."""
        most = 1.0 if self.max_unknown is None else self.max_unknown
        return np.where(unknown_D / words_D > most, _UNKNOWN, KEPT)


def first_reason(reasons_CxD: np.ndarray) -> np.ndarray:
    """The first reason [D] that any of C checks has found."""
    first_1xD = (reasons_CxD != KEPT).argmax(axis=0)[None]
    return np.take_along_axis(reasons_CxD, first_1xD, axis=0)[0]


def require_some(reason_D: np.ndarray, split: str) -> None:
    """Raises an InputError that names the options if none of a split's documents is left."""
    if reason_D.size and (reason_D != KEPT).all():
        counts = dataclasses.asdict(count_dropped(reason_D)).items()
        listed = ", ".join(f"--{reason} {count:,}" for reason, count in counts if count)
        raise InputError(f"the filters drop all {reason_D.size:,} documents of {split}: {listed}")


def count_dropped(reason_D: np.ndarray) -> Dropped:
    """How many documents there is each reason to leave out."""
    counts = np.bincount(reason_D, minlength=1 + len(_REASONS)).tolist()
    return Dropped(*counts[1:])
