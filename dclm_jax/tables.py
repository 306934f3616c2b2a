"""Tables for people."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], *, rule: bool = True) -> list[str]:
    """The lines of a table, a header first and a rule below it: the first column to the left, the
    others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    if rule:
        lines.insert(1, "  ".join("-" * width for width in widths))
    return lines
