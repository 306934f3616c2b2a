"""Tables for people (aligned text, Markdown, LaTeX) and for programs (TSV).

Tables for people are lists of rows of strings, a header first. The first column is aligned to the
left, all other columns to the right. In tables for programs, a backslash precedes a string that
pandas or R would read as a missing value: NA is written \\NA, and \\NA is written \\\\NA.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

_MISSING = (
    *("", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""Strings that `pandas.read_csv` or R's `read.delim` reads as a missing value, quoted or not."""
_LIKE_MISSING = re.compile(rf"\\*({'|'.join(map(re.escape, _MISSING))})")
_LATEX_ESCAPES = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
        "\n": " ",
    }
)


class Column(NamedTuple):
    """A column.

    Attributes:
      header: header, with the unit.
      values: numbers or strings of each row; None where they are missing.
      form: returns the string of a cell, given the values of a row.
      about: sentences that describe the numbers, for the description of the table.
    """

    header: str
    values: Sequence[Sequence[Any] | None]
    form: Callable[..., str] = str
    about: str = ""

    def texts(self) -> list[str]:
        """The strings of all rows, blank where values are missing."""
        return ["" if row is None else self.form(*row) for row in self.values]


class Table(NamedTuple):
    """A table.

    Attributes:
      title: title.
      about: description of the numbers.
      cells: rows of strings, a header first.
    """

    title: str
    about: str
    cells: Sequence[Sequence[str]]

    @classmethod
    def of(cls, title: str, about: str, columns: Sequence[Column]) -> "Table":
        """A table of columns, which is described by `about` and by its columns."""
        texts = [[column.header, *column.texts()] for column in columns]
        sentences = " ".join(filter(None, dict.fromkeys([about, *(c.about for c in columns)])))
        return cls(title, sentences, list(map(list, zip(*texts, strict=True))))

    def text(self) -> str:
        """The title and the table for a terminal."""
        return "\n".join([self.title, *aligned(self.cells)])

    def markdown(self) -> str:
        """The title as a heading, the description and the table in Markdown."""
        return "\n".join([f"## {self.title}", "", self.about, "", *markdown(self.cells)])

    def latex(self) -> str:
        """The table in LaTeX with the package booktabs; special characters are escaped."""
        header, *body = (f"    {' & '.join(map(_escaped, cells))} \\\\" for cells in self.cells)
        lines = [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{_escaped(f'{self.title}. {self.about}')}}}",
            rf"  \begin{{tabular}}{{l{'r' * (len(self.cells[0]) - 1)}}}",
            r"    \toprule",
            header,
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines)


def markdown(cells: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown, from cells with a header first."""
    bar = r"\|"
    header, *body = (f"| {' | '.join(cell.replace('|', bar) for cell in row)} |" for row in cells)
    rule = "|" + "|".join(["---", *["---:"] * (len(cells[0]) - 1)]) + "|"
    return [header, rule, *body]


def _escaped(text: str) -> str:
    return text.translate(_LATEX_ESCAPES)


def aligned(rows: Sequence[Sequence[str]], *, rule: bool = True) -> list[str]:
    """The lines of a table as aligned text, with a rule below the header if `rule`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    if rule:
        lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def separated(cells: Iterable[object]) -> str:
    """One line of TSV, which the defaults of R's `read.delim` and `pandas.read_csv` for tabs read
    back whole: cells are quoted where necessary, and quotation marks in them doubled. A string is
    written by `escaped_cell`, None as a missing value, and any other cell by `str`."""
    line = io.StringIO(newline="")
    # Both characters are quoted in cells, because many readers end a line at either.
    end = "\r\n"
    writer = csv.writer(line, delimiter="\t", lineterminator=end)
    writer.writerow([escaped_cell(cell) if isinstance(cell, str) else cell for cell in cells])
    return line.getvalue().removesuffix(end) + "\n"


def present(cell: str | None) -> str | None:
    """The string of a cell of another table; None for a missing value."""
    return None if cell in _MISSING else cell


def has_text(cell: Any) -> bool:
    """Whether the cell of a column of text has text. A missing value has none: an empty string, one
    of `_MISSING` except None, which is a word, and None, NaN and NA of Python and pandas."""
    if isinstance(cell, str):
        return bool(cell.strip()) and (cell == "None" or present(cell) is not None)
    return present(str(cell)) is not None


def escaped_cell(text: str) -> str:
    """The cell of a string, before quoting. It gets one more backslash if the string, without its
    leading backslashes, is one of `_MISSING`."""
    return f"\\{text}" if _LIKE_MISSING.fullmatch(text) else text


def unescaped_cell(cell: str) -> str:
    """The string of a cell, the inverse of `escaped_cell`."""
    return cell.removeprefix("\\") if _LIKE_MISSING.fullmatch(cell) else cell
