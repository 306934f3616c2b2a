"""Stories with reading times: one text each, with the mean times of subjects.

A table has one row per word, or one per word and subject. The rows of a story, or of a story and
subject, are consecutive and in the order of the text.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data.documents import Document, value_text
from dclm_jax.data.records import listed, require_columns
from dclm_jax.errors import InputError, brief
from dclm_jax.tables import present

_RUN = 5
"""Number of words of a run that a text has once, and of which repeated texts have many twice."""
_REPEATED_SHARE = 0.2


class Story(NamedTuple):
    """A story of N rows.

    Attributes:
      document: its text; row n has only the cell "row", n as counted over all stories from 0.
      numbers_NxY: float64, the means over subjects of the columns of numbers; NaN if no subject has
        a number.
      readings: for each subject the N rows of the input.
      first_rows: for each subject the number of its first row in the input, from 1.
    """

    document: Document
    numbers_NxY: np.ndarray
    readings: list[Sequence[Mapping[str, Any]]]
    first_rows: list[int]

    def lines(self) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
        """For each row of the input its word in the story, its number and its cells."""
        for first, rows in zip(self.first_rows, self.readings, strict=True):
            for word, cells in enumerate(rows):
                yield word, first + word, cells


def read_stories(
    documents: Iterable[Document],
    story: Sequence[str],
    subject: str | None,
    columns: Sequence[str],
) -> list[Story]:
    """The stories of documents joined from rows of a table, each row a word.

    Args:
      documents: documents joined by the columns `story`, and by `subject` unless it is None.
      story: columns that identify a story.
      subject: column of subjects, who have read the same words.
      columns: columns of numbers.
    """
    readings: dict[tuple[str, ...], list[tuple[int, Document]]] = {}
    next_row = 1
    for document in documents:
        for number, cells in enumerate(document.rows, start=next_row):
            require_columns(columns, cells, f"row {number} of --input")
        key = tuple(value_text(document.rows[0][name]) for name in story)
        readings.setdefault(key, []).append((next_row, document))
        next_row += len(document.rows)
    stories, num_words = [], 0
    for key, of_subjects in readings.items():
        name = "/".join(key)
        first_rows, (first, *others) = map(list, zip(*of_subjects, strict=True))
        _require_one_text(first, [*story, *columns, *filter(None, [subject])])
        for start, other in zip(first_rows[1:], others, strict=True):
            _require_equal(name, first, other, start)
        rows = [{"row": str(num_words + index)} for index in range(len(first.rows))]
        num_words += len(rows)
        texts = [document.rows for document in (first, *others)]
        numbers_RxNxY = np.array(
            [
                [
                    [_number(cells, column, f"row {start + n} of --input") for column in columns]
                    for n, cells in enumerate(document_rows)
                ]
                for start, document_rows in zip(first_rows, texts, strict=True)
            ]
        )
        stories.append(
            Story(first._replace(id=name, rows=rows), _means(numbers_RxNxY), texts, first_rows)
        )
    return stories


def _number(cells: Mapping[str, Any], column: str, where: str) -> float:
    try:
        return float(present(value_text(cells[column])) or "nan")
    except ValueError as error:
        raise InputError(f"{where}: {error}; correct or empty the cell") from None


def _means(numbers_RxNxY: np.ndarray) -> np.ndarray:
    is_number = np.isfinite(numbers_RxNxY)
    counts = is_number.sum(axis=0)
    sums = np.where(is_number, numbers_RxNxY, 0).sum(axis=0)
    return np.where(counts, sums / np.maximum(counts, 1), math.nan)


def _texts(document: Document) -> list[str]:
    """The words of each row, as one string."""
    texts: list[list[str]] = [[] for _ in document.rows]
    rows = document.row_of_word or [[0] * len(words) for words in document.sentences]
    for words, of_words in zip(document.sentences, rows, strict=True):
        for word, row in zip(words, of_words, strict=True):
            texts[row].append(word)
    return list(map(" ".join, texts))


def _require_equal(name: str, first: Document, other: Document, start: int) -> None:
    """Refuses a subject's words that differ from the first subject's."""
    for n, (one, two) in enumerate(itertools.zip_longest(_texts(first), _texts(other))):
        if one != two:
            raise InputError(
                f"row {start + n} of --input: word {n + 1} of the story {brief(name)} is "
                f"{brief(two or 'missing')}, but {brief(one or 'missing')} for the first subject; "
                "write the same words for every subject, and leave a missing time empty"
            )


def _require_one_text(document: Document, known: Sequence[str]) -> None:
    """Refuses a story with copies of its text, such as those of several subjects."""
    texts = _texts(document)
    if not _has_copies(texts):
        return
    names = [name for name in document.rows[0] if name not in known]
    columns = {name: [value_text(row.get(name)) for row in document.rows] for name in names}
    missing = next((name for name in names if _divides(columns[name], texts)), None)
    remedy = (
        "remove the copies, or name the column that distinguishes them by --subject or --story, "
        f"from: {listed(names)}"
    )
    if missing is not None:
        remedy = (
            f"the column {brief(missing)} tells its copies apart: add --subject={missing} if "
            "subjects read one text, or add it to --story if the texts differ"
        )
    raise InputError(
        f"the story {brief(document.id)} has its text several times, so that all but the first "
        f"would be read after a copy; {remedy}"
    )


def _has_copies(texts: Sequence[str]) -> bool:
    """Whether a text consists of copies, or many of its runs of words occur twice."""
    size = len(texts)
    if any(
        size % period == 0 and list(texts) == list(texts[:period]) * (size // period)
        for period in range(2, size // 2 + 1)
    ):
        return True
    runs = [tuple(texts[at : at + _RUN]) for at in range(size - _RUN + 1)]
    return len(runs) - len(set(runs)) > _REPEATED_SHARE * size


def _divides(cells: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether a column divides consecutive rows into texts without copies."""
    groups = [list(group) for _, group in itertools.groupby(range(len(cells)), cells.__getitem__)]
    return (
        len(groups) == len(set(cells))
        and 2 * len(groups) <= len(cells)
        and not any(_has_copies([texts[n] for n in group]) for group in groups)
    )
