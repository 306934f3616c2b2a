"""Tables: for a terminal, in Markdown and in LaTeX, and for programs as TSV and CSV.

For people rows are lists of texts, a header first; the first column is to the left, the others to
the right. For programs a backslash before a word that pandas or R would take for a missing value
makes it text: NA is written \\NA, \\NA is written \\\\NA.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence

_MISSING = (
    *("", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""What `pandas.read_csv` and R's `read.delim` take for a missing value, quoted or not."""
_LIKE_MISSING = re.compile(rf"\\*({'|'.join(map(re.escape, _MISSING))})")
_OF_LATEX = str.maketrans(
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


def aligned(rows: Sequence[Sequence[str]], *, rule: bool = True) -> list[str]:
    """The lines of a table with a rule below its header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    if rule:
        lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    bar = r"\|"
    header, *body = (
        f"| {' | '.join(cell.replace('|', bar) for cell in cells)} |" for cells in rows
    )
    return [header, "|" + "|".join(["---", *["---:"] * (len(rows[0]) - 1)]) + "|", *body]


def latex(rows: Sequence[Sequence[str]], caption: str) -> list[str]:
    """The lines of a table in LaTeX, for the package booktabs; what has a meaning there is
    escaped."""
    header, *body = (f"    {' & '.join(map(escaped, cells))} \\\\" for cells in rows)
    return [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escaped(caption)}}}",
        rf"  \begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}",
        r"    \toprule",
        header,
        r"    \midrule",
        *body,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def escaped(text: str) -> str:
    """Text with the characters escaped that have a meaning in LaTeX."""
    return text.translate(_OF_LATEX)


def separated(cells: Iterable[object], delimiter: str = "\t") -> str:
    """A line of TSV, or with a comma of CSV, quoted where it must be: texts as `text_cell`, None as
    a missing value, and anything else as `str`."""
    line = io.StringIO(newline="")
    writer = csv.writer(line, delimiter=delimiter, lineterminator="\n")
    writer.writerow([text_cell(cell) if isinstance(cell, str) else cell for cell in cells])
    return line.getvalue()


def text_cell(text: str) -> str:
    """A text as a cell, before quoting: with one backslash more where it is a word for a missing
    value, or backslashes and such a word."""
    return f"\\{text}" if _LIKE_MISSING.fullmatch(text) else text


def cell_text(cell: str) -> str:
    """The text of a cell, the inverse of `text_cell`."""
    return cell.removeprefix("\\") if _LIKE_MISSING.fullmatch(cell) else cell
