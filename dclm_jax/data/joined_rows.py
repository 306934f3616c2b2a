"""Notes on rows of tables as documents: how many were joined, and columns that should join fewer.

If a column that tells stimuli apart, such as their condition, is missing from the columns by which
rows are joined, the stimuli of an item become one document, and later stimuli follow copies of
themselves. The names of their regions then come back within the document.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dclm_jax.data.documents import Document, column_names, value_text
from dclm_jax.data.records import listed
from dclm_jax.errors import brief
from dclm_jax.log import logger

_MOST_EXAMPLES = 20
"""Maximum number of documents per column in which a missing column is searched."""
_LINE_NAME = re.compile(r":\d+$")
"""The end of the name of a document without an id."""
Rows = Sequence[Mapping[str, Any]]


def noted_rows(documents: Iterable[Document], joined_by: Sequence[str]) -> Iterator[Document]:
    """The documents, streamed. At the end the log says how many rows of tables were joined, and
    warns of columns whose values come back or repeat within documents; without `joined_by` it says
    that rows were not joined, if consecutive rows without ids have a cell in common."""
    num_rows = num_documents = 0
    returning: dict[str, tuple[str, list[Rows]]] = {}
    repeating: dict[str, tuple[str, list[Rows]]] = {}
    distinct: set[str] = set()
    shared: dict[str, None] = {}
    previous: Mapping[str, Any] = {}
    for document in documents:
        yield document
        rows = document.rows
        num_rows += len(rows)
        num_documents += bool(rows)
        for name in column_names(document) if joined_by and len(rows) > 1 else ():
            cells = list(filter(None, _cells(rows, name)))
            changes = [cell for cell, _ in itertools.groupby(cells)]
            if name in joined_by or len(changes) < 2:
                continue
            if len(set(cells)) == len(cells):
                distinct.add(name)
                continue
            kind = returning if len(set(changes)) < len(changes) else repeating
            repeated = next(cell for cell in changes if cells.count(cell) > 1)
            where = f"{brief(repeated)} in {brief(document.id)}"
            _, examples = kind.setdefault(name, (where, []))
            examples.extend([rows] * (len(examples) < _MOST_EXAMPLES))
        # Several parts of a row are a whole text.
        if not joined_by and len(rows) == 1 and _LINE_NAME.search(document.id):
            (cells,) = rows
            alike = [name for name, cell in cells.items() if cell and cell == previous.get(name)]
            shared |= dict.fromkeys(alike)
            previous = cells
    if joined_by and num_rows:
        logger.info(f"{num_rows:,} rows joined into {num_documents:,} documents")
    elif shared:
        logger.info(
            f"each of {num_rows:,} rows is a document; if a document has several rows, "
            f"name the columns that identify it by --join_rows (columns with equal cells in "
            f"consecutive rows: {listed(shared)})"
        )
    suspicious = returning | {
        name: example for name, example in repeating.items() if name in distinct
    }
    named = [name for name, (_, examples) in returning.items() if not _are_numbers(name, examples)]
    for name, (where, examples) in suspicious.items():
        missing = _missing([name, *named], joined_by, examples)
        missing = missing or _missing([name], joined_by, examples)
        # Numbers may repeat by chance.
        is_periodic = all(_is_periodic(_cells(rows, name)) for rows in examples)
        if _are_numbers(name, examples) and not missing and not is_periodic:
            continue
        change = "come back" if name in returning else "repeat"
        remedy = f"sort the rows by {name} and add it to --join_rows"
        if missing:
            remedy = f"add {' and '.join(missing)} to --join_rows"
        logger.warning(
            f"values of the column {brief(name)} {change} within documents, such as {where}; if a "
            f"document has several texts, {remedy}"
        )
        return


def _missing(names: Sequence[str], joined_by: Sequence[str], examples: Sequence[Rows]) -> list[str]:
    """The fewest further columns that join rows into documents in which no value of the columns
    `names` occurs twice; empty without such columns."""
    columns = dict.fromkeys(key for rows in examples for row in rows for key in row)
    others = [key for key in columns if key not in joined_by]
    for missing in itertools.chain.from_iterable(
        itertools.combinations(others, size) for size in (1, 2, 3)
    ):
        if all(_tells_apart(names, missing, rows) for rows in examples):
            return list(missing)
    return []


def _tells_apart(names: Sequence[str], missing: Sequence[str], rows: Rows) -> bool:
    """Whether consecutive rows with equal cells in the columns `missing` are documents of several
    rows, each with its own cells, in which the values of the other columns `names` differ."""
    keys = list(zip(*(_cells(rows, key) for key in missing), strict=True))
    num_documents = len(set(keys))
    if sum(1 for _ in itertools.groupby(keys)) > num_documents or num_documents * 2 > len(rows):
        return False
    others = [name for name in names if name not in missing]
    return all(len(set(zip(keys, _cells(rows, name), strict=True))) == len(rows) for name in others)


def _are_numbers(name: str, examples: Sequence[Rows]) -> bool:
    return all(_is_number(cell) for rows in examples for cell in _cells(rows, name))


def _cells(rows: Rows, name: str) -> list[str]:
    return [value_text(row.get(name)) for row in rows]


def _is_periodic(cells: list[str]) -> bool:
    """Whether cells are the same cells several times, such as 1 2 1 2."""
    return any(
        cells == cells[:period] * (len(cells) // period) for period in range(1, len(cells) // 2 + 1)
    )


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return False
    return True
