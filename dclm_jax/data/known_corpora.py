"""What there is to know of the corpora that have a name: their sources and their splits."""

import bisect
import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dclm_jax.data import corpus, division, layouts, sotu, ted, treebank

OPTIONS = ("source", "fractions", "seed", "lowercase")


@dataclasses.dataclass(frozen=True)
class Collection:
    """What there is to know of a corpus that has a name.

    Attributes:
      title: what it is called in messages.
      duration: what to expect of reading it.
      fractions: the shares of the splits that are divided; the corpus has its own of the others.
      describe: its folder -> its name and checksum, for the manifest.
      divide: (names of its documents, shares, seed) -> the index of each one's split.
      is_prose: it is split into sentences, not only read.
      options: what may be chosen; with "source" it lies in a folder, which must be given.
    """

    title: str
    duration: str
    fractions: tuple[float, ...]
    describe: Callable[[str | pathlib.Path], dict[str, Any]]
    divide: Callable[[Sequence[str], Sequence[float], int], np.ndarray]
    is_prose: bool = True
    options: tuple[str, ...] = OPTIONS


def _describe_sotu(source: str | pathlib.Path) -> dict[str, Any]:
    del source
    return {"name": f"sotu {sotu.version()}", "sha256": sotu.checksum()}


def _describe_layout(name: str) -> Callable[[str | pathlib.Path], dict[str, Any]]:
    return lambda source: _describe(source, layouts.LAYOUTS[name].files(source))


def _describe_ptb(source: str | pathlib.Path) -> dict[str, Any]:
    parts = {split: [] for split in corpus.SPLITS}
    for section, files in treebank.section_files(source).items():
        parts[corpus.SPLITS[_split_of_section(section)]] += files
    return _describe(source, parts)


def _describe_nant(source: str | pathlib.Path) -> dict[str, Any]:
    return _describe(source, {"files": treebank.nant_files(source)})


def _describe_ted(source: str | pathlib.Path) -> dict[str, Any]:
    return _describe(source, ted.talk_files(source))


def _describe(
    source: str | pathlib.Path, files: Mapping[str, Sequence[pathlib.Path]]
) -> dict[str, Any]:
    return {
        "name": str(source),
        "sha256": corpus.files_sha256(
            pathlib.Path(source), [file for part in files.values() for file in part]
        ),
        "files": {name: len(part) for name, part in files.items()},
    }


def _divide_by_year(names: Sequence[str], shares: Sequence[float], seed: int) -> np.ndarray:
    del seed
    return np.asarray(sotu.split_by_year([sotu.address_year(name) for name in names], shares))


def _divide_training(name: str) -> Callable[[Sequence[str], Sequence[float], int], np.ndarray]:
    """Divides what is for training; all else is for testing."""

    def divide(names: Sequence[str], shares: Sequence[float], seed: int) -> np.ndarray:
        is_training = np.asarray([one.startswith("train/") for one in names])
        parts = np.full(len(names), corpus.SPLITS.index("test"))
        parts[is_training] = division.divide(int(is_training.sum()), shares, seed, name)
        return parts

    return divide


def _divide_all(name: str) -> Callable[[Sequence[str], Sequence[float], int], np.ndarray]:
    return lambda names, shares, seed: division.divide(len(names), shares, seed, name)


def _divide_by_section(names: Sequence[str], shares: Sequence[float], seed: int) -> np.ndarray:
    del shares, seed
    return np.asarray([_split_of_section(name.split("/")[0]) for name in names])


def _split_of_section(section: str) -> int:
    """Sections 0-20 are for training, 21-22 for development, 23-24 for testing."""
    return bisect.bisect_right([21, 23], int(section))


COLLECTIONS = {
    "sotu": Collection(
        title="the State of the Union addresses",
        duration="under two minutes",
        fractions=(0.8, 0.1, 0.1),
        describe=_describe_sotu,
        divide=_divide_by_year,
        options=(),
    ),
    "imdb": Collection(
        title=layouts.LAYOUTS["imdb"].title,
        duration="about six minutes on two CPU cores",
        fractions=(0.86, 0.14),
        describe=_describe_layout("imdb"),
        divide=_divide_training("imdb"),
    ),
    "bbc": Collection(
        title=layouts.LAYOUTS["bbc"].title,
        duration="under a minute",
        fractions=(0.9, 0.05, 0.05),
        describe=_describe_layout("bbc"),
        divide=_divide_all("bbc"),
    ),
    # Marcus et al. (1993); the split is that of Ji et al. (2016), section 3.
    "ptb": Collection(
        title="the Penn Treebank",
        duration="under a minute",
        fractions=(),
        describe=_describe_ptb,
        divide=_divide_by_section,
        is_prose=False,
        options=("source", "lowercase"),
    ),
    # McClosky et al. (2008). Which documents Ji et al. took is not known; they took this many.
    "nant": Collection(
        title="BLLIP North American News Text",
        duration="some five minutes for 100,000 sentences of 50 parses",
        fractions=tuple(count / 29_363 for count in (26_462, 148, 2_753)),
        describe=_describe_nant,
        divide=_divide_all("nant"),
        is_prose=False,
    ),
    # Cettolo et al. (2012); the shares are those of Lin et al. (2015), 6.1.
    "ted": Collection(
        title="TED talks of IWSLT",
        duration="a minute or two",
        fractions=(0.9, 0.1),
        describe=_describe_ted,
        divide=_divide_training("ted"),
        is_prose=False,
    ),
}
