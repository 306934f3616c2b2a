"""Notes on the rows of a table that became documents."""

import itertools
import logging

import pytest

from dclm_jax.data.documents import Document
from dclm_jax.data.joined_rows import noted_rows

REGIONS = "before", "verb", "object", "end"


def table(*columns: str, **values) -> list[dict[str, str]]:
    """Rows with these columns in this order, from all combinations of their values."""
    values = {"item": ["1", "2"], "condition": ["x", "y"], "region": REGIONS, **values}
    cells = itertools.product(*(values[name] for name in columns))
    return [dict(zip(columns, row, strict=True)) for row in cells]


def documents(rows: list[dict[str, str]], *joined_by: str) -> list[Document]:
    groups = itertools.groupby(rows, lambda row: [row[name] for name in joined_by] or row)
    return [
        Document("/".join(key) if joined_by else f"t.csv:{number}", [["w"]], rows=list(group))
        for number, (key, group) in enumerate(groups, start=2)
    ]


def messages(caplog, rows: list[dict[str, str]], *joined_by: str) -> tuple[list[str], list[str]]:
    """The notes and the warnings on rows."""
    caplog.clear()
    read = documents(rows, *joined_by)
    assert list(noted_rows(read, joined_by)) == read
    return tuple(
        [record.getMessage() for record in caplog.records if record.levelno == level]
        for level in (logging.INFO, logging.WARNING)
    )  # pyright: ignore[reportReturnType]


def test_rows_are_counted_and_documents_of_one_stimulus_are_not_warned_of(caplog):
    rows = table("item", "condition", "region")
    notes, warnings = messages(caplog, rows, "item", "condition")
    assert notes == ["16 rows joined into 4 documents"] and not warnings
    # Numbers may repeat by chance.
    measured = [row | {"letters": str(5 - len(row["region"]) % 3), "ms": "1.5"} for row in rows]
    measured = [row | {"note": "late" * (row["region"] == "verb")} for row in measured]
    assert not messages(caplog, measured, "item", "condition")[1]


@pytest.mark.parametrize(
    ("columns", "where", "remedy"),
    [
        (
            "item condition region",
            "'region' come back within documents, such as 'before' in '1'",
            "add condition to --join_rows",
        ),
        (
            "item region condition",
            "'condition' come back within documents, such as 'x' in '1'",
            "add region to --join_rows",
        ),
        (
            "item condition noun region",
            "'noun' come back within documents, such as 's' in '1'",
            "add condition and noun to --join_rows",
        ),
        (
            "item list condition region",
            "'condition' come back within documents, such as 'x' in '1'",
            "add list and condition to --join_rows",
        ),
        (
            "item condition position",
            "'position' come back within documents, such as '1' in '1'",
            "add condition to",
        ),
    ],
)
def test_a_missing_column_is_named(caplog, columns, where, remedy):
    rows = table(*columns.split(), noun=["s", "p"], list=["a", "b", "c"], position=list("123"))
    notes, (warning,) = messages(caplog, rows, "item")
    assert notes == [f"{len(rows)} rows joined into 2 documents"]
    assert warning.startswith(f"values of the column {where}; if a document has several texts, ")
    assert remedy in warning


def test_numbers_of_regions_that_come_back_are_warned_of(caplog):
    """Without a column of the condition."""
    rows = [
        {"item": row["item"], "region": row["position"]}
        for row in table("item", "condition", "position", position=list("123"))
    ]
    _, (warning,) = messages(caplog, rows, "item")
    assert "'region' come back within documents, such as '1' in '1'; " in warning


def test_a_name_that_repeats_only_in_some_documents_is_warned_of(caplog):
    rows = table("item", "region")
    rows.insert(2, rows[1])
    _, (warning,) = messages(caplog, rows, "item")
    assert "'region' repeat within documents, such as 'verb' in '1'; " in warning
    assert warning.endswith("sort the rows by region and add it to --join_rows")


def test_rows_that_were_not_joined_are_noted(caplog):
    ((note,), warnings) = messages(caplog, table("item", "condition", "region"))
    assert note.startswith("each of 16 rows is a document; ") and not warnings
    assert note.endswith("equal cells in consecutive rows: 'item', 'condition')")
    # One stimulus per row.
    assert messages(caplog, table("item")) == ([], [])
    named = [Document(row["item"], [["w"]], rows=[{"list": "1"}]) for row in table("item")]
    caplog.clear()
    assert list(noted_rows(named, [])) == named and not caplog.records
