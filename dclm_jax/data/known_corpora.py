"""What there is to know of the corpora that have a name: sotu, imdb, bbc."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dclm_jax.data import corpus, division, layouts, sotu


@dataclasses.dataclass(frozen=True)
class Collection:
    """What there is to know of a corpus that has a name.

    Attributes:
      title: what it is called in messages.
      duration: what to expect of splitting it into sentences.
      fractions: the shares of the splits that are divided; the corpus has its own of the others.
      describe: its folder -> its name and checksum, for the manifest.
      divide: (names of its documents, shares, seed) -> the index of each one's split.
      embedded: a package holds it, and all choices are made: no folder, shares, seed or case.
    """

    title: str
    duration: str
    fractions: tuple[float, ...]
    describe: Callable[[str | pathlib.Path], dict[str, Any]]
    divide: Callable[[Sequence[str], Sequence[float], int], np.ndarray]
    embedded: bool = False


def _describe_sotu(source: str | pathlib.Path) -> dict[str, Any]:
    del source
    return {"name": f"sotu {sotu.version()}", "sha256": sotu.checksum()}


def _describe_layout(name: str) -> Callable[[str | pathlib.Path], dict[str, Any]]:
    def describe(source: str | pathlib.Path) -> dict[str, Any]:
        files = layouts.LAYOUTS[name].files(source)
        return {
            "name": str(source),
            "sha256": corpus.files_sha256(
                pathlib.Path(source), [f for part in files.values() for f in part]
            ),
            "files": {folder: len(part) for folder, part in files.items()},
        }

    return describe


def _divide_by_year(names: Sequence[str], shares: Sequence[float], seed: int) -> np.ndarray:
    del seed
    return np.asarray(sotu.split_by_year([sotu.address_year(name) for name in names], shares))


def _divide_reviews(names: Sequence[str], shares: Sequence[float], seed: int) -> np.ndarray:
    is_training = np.asarray([name.startswith("train/") for name in names])
    parts = np.full(len(names), corpus.SPLITS.index("test"))
    parts[is_training] = division.divide(int(is_training.sum()), shares, seed, "imdb")
    return parts


def _divide_articles(names: Sequence[str], shares: Sequence[float], seed: int) -> np.ndarray:
    return division.divide(len(names), shares, seed, "bbc")


COLLECTIONS = {
    "sotu": Collection(
        title="the State of the Union addresses",
        duration="under two minutes",
        fractions=(0.8, 0.1, 0.1),
        describe=_describe_sotu,
        divide=_divide_by_year,
        embedded=True,
    ),
    "imdb": Collection(
        title=layouts.LAYOUTS["imdb"].title,
        duration="about six minutes on two CPU cores",
        fractions=(0.86, 0.14),
        describe=_describe_layout("imdb"),
        divide=_divide_reviews,
    ),
    "bbc": Collection(
        title=layouts.LAYOUTS["bbc"].title,
        duration="under a minute",
        fractions=(0.9, 0.05, 0.05),
        describe=_describe_layout("bbc"),
        divide=_divide_articles,
    ),
}
