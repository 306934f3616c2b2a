"""Documents divided at random into train, valid and test."""

import pathlib
from collections.abc import Sequence

import numpy as np

from dclm_jax.data import corpus
from dclm_jax.errors import InputError


def check_fractions(fractions: Sequence[float], splits: Sequence[str]) -> tuple[float, ...]:
    """The shares of `splits`; raises InputError if they are none."""
    if (
        len(fractions) != len(splits)
        or not all(0 <= share <= 1 for share in fractions)
        or abs(sum(fractions) - 1) > 1e-6
    ):
        count = {2: "two", 3: "three"}[len(splits)]
        raise InputError(
            f"split is {','.join(f'{share:g}' for share in fractions)}; expected {count} shares of "
            f"{', '.join(splits[:-1])} and {splits[-1]} that add up to 1"
        )
    return tuple(fractions)


def check_seed(seed: int) -> None:
    """Raises InputError unless it can be a seed."""
    if seed < 0:
        raise InputError(f"seed is {seed}; expected 0 or more")


def with_shares(fractions: Sequence[float]) -> list[str]:
    """The splits that get any documents."""
    return [split for split, share in zip(corpus.SPLITS, fractions, strict=True) if share]


def divide(
    num_documents: int, fractions: Sequence[float], seed: int, source: str | pathlib.Path
) -> np.ndarray:
    """The index of the split of each document, drawn at random.

    Raises:
      InputError: there are too few documents for every split to get one.
    """
    bounds = np.rint(np.cumsum(fractions) * num_documents).astype(np.int64)
    sizes = np.diff(bounds, prepend=0)
    if not sizes[np.asarray(fractions) > 0].all():
        raise InputError(
            f"{source}: {num_documents} documents are too few to split as "
            + ",".join(f"{share:g}" for share in fractions)
        )
    parts = np.repeat(np.arange(len(fractions)), sizes)
    return np.random.default_rng(seed).permutation(parts)
