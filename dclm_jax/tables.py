"""Tables: for a terminal, in Markdown and in LaTeX. Rows are lists of texts, a header first; the
first column is to the left, the others to the right."""

from collections.abc import Sequence

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
