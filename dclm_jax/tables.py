"""Tables for people."""

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of aligned cells: the first column to the left, the others to the right."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in rows]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: a header, a rule and the other rows."""
    header, *lines = columns(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [header, "  ".join("-" * width for width in widths), *lines]
