"""Records with their positions: objects of JSON lines and rows of tables."""

import collections
import csv
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dclm_jax.data.notes import Notes
from dclm_jax.data.text_files import TextLine
from dclm_jax.errors import InputError, brief
from dclm_jax.files import parse_json

TABLES = {"csv": ",", "tsv": "\t"}
"""Delimiters of the cells of tables, by format."""
RECORDS = ("jsonl", *TABLES)
"""Formats of records."""
_DELIMITERS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "vertical bars"}


class Record(NamedTuple):
    """A row of a table or an object of JSON lines: its position for messages, its first line, and
    its cells by column or key."""

    where: str
    number: int
    cells: Mapping[str, Any]


def records(lines: Iterator[TextLine], source: str, kind: str, notes: Notes) -> Iterator[Record]:
    """The objects of JSON lines, or the rows of a table with a header.

    Args:
      lines: lines of the text.
      source: name of the text in messages.
      kind: a format in RECORDS.
      notes: notes of the input that the text belongs to.
    """
    return _rows(lines, source, kind, notes) if kind in TABLES else _objects(lines, source)


def _objects(lines: Iterator[TextLine], source: str) -> Iterator[Record]:
    for number, line in lines:
        content = line.strip()
        if not content:
            continue
        where = f"{source}:{number}"
        if not (content.startswith("{") and content.endswith("}")):
            raise InputError(
                f"{where}: the line is {brief(content)}; write one JSON object per line, with "
                "'text' or 'sentences' (jq -c '.[]' converts an array, jq -c . other JSON)"
            )
        cells = parse_json(line, where, dict[str, Any])
        # Escapes such as \ud83d may be half of a pair.
        if "\\ud" in line.lower():
            require_characters(json.dumps(cells, ensure_ascii=False), f"{where}: the record")
        yield Record(where, number, cells)


def _rows(lines: Iterator[TextLine], source: str, kind: str, notes: Notes) -> Iterator[Record]:
    # The default maximum of the module is shorter than many texts.
    csv.field_size_limit(sys.maxsize)
    header, first = None, list(itertools.islice(lines, 1))
    for line in first:
        _require_delimiter(line, source, kind)
    rows = csv.reader(
        (line.text for line in itertools.chain(first, lines)),
        delimiter=TABLES[kind],
        quoting=csv.QUOTE_MINIMAL if kind == "csv" else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        number = rows.line_num + 1
        where = f"{source}:{number}"
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise InputError(
                f"{where}: the row that begins on this line is not valid {kind.upper()} ({error}); "
                "correct its quotation marks"
            ) from error
        if row is None:
            return
        if rows.line_num > number:
            example = f"lines {number} to {rows.line_num}"
            notes.add("long cell", example, rows.line_num - number)
        if not row:
            continue
        if header is None:
            header = row
            for name, times in collections.Counter(header).items():
                if times > 1:
                    raise InputError(
                        f"{where}: the table has {times} columns {brief(name)}; rename one of them"
                    )
            continue
        if len(row) != len(header):
            raise InputError(
                f"{where}: the row has {len(row)} cells, but the header has {len(header)}; add or "
                "remove cells"
            )
        yield Record(where, number, dict(zip(header, row, strict=True)))


def _require_delimiter(line: TextLine, source: str, kind: str) -> None:
    """Raises an `InputError` if the header of a table has the delimiter of another format."""
    if TABLES[kind] in line.text:
        return
    for delimiter, name in _DELIMITERS.items():
        if delimiter in line.text:
            raise InputError(
                f"{source}:{line.number}: the header {brief(line.text.strip())} has {name} between "
                f"its cells; expected {_DELIMITERS[TABLES[kind]]} in {kind.upper()}: save the "
                "table with this delimiter"
            )


def require_characters(text: str, name: str) -> None:
    """Raises an `InputError` if a text, called `name` in the message, has no form in UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} has half of a surrogate pair, which is not a character; remove it"
        ) from error


def require_columns(names: Iterable[str], cells: Iterable[str], where: str) -> None:
    """Raises an `InputError` if a record has no column of one of these names."""
    for name in names:
        if name not in cells:
            raise InputError(
                f"{where}: there is no column {brief(name)}; choose from: {listed(cells)}"
            )


def listed(names: Iterable[str]) -> str:
    """Names for a message: the first 30."""
    return ", ".join(brief(name)[:40] for name in itertools.islice(names, 30)) or "none"
