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
from dclm_jax.log import logger
from dclm_jax.tables import present

_RUN = 3
"""Number of words of a run; few runs of a text occur twice."""
_REPEATED_SHARE, _SHARED = 0.1, 0.4
"""Share of the words that begin a repeated run in a text with copies, and minimum share of the
pairs of neighbouring words of a copy that the text has."""


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
    """Refuses a story with copies of its text, such as those of several subjects, if a column tells
    the copies apart; warns of other copies."""
    texts = _texts(document)
    if not _has_copies(texts):
        return
    names = [name for name in document.rows[0] if name not in known]
    for name in names:
        if _tells_apart([value_text(row.get(name)) for row in document.rows], texts):
            raise InputError(
                f"the story {brief(document.id)} has its text several times, and words would be "
                f"read after their copies; the column {brief(name)} tells the copies apart: sort "
                f"the rows by it within a story, and add --subject={name} if subjects read one "
                "text, or add it to --story if the texts differ"
            )
    logger.warning(
        f"the story {brief(document.id)} repeats much of its text; if it has several texts, name "
        f"the column that distinguishes them by --subject or --story, from: {listed(names)}"
    )


def _has_copies(texts: Sequence[str]) -> bool:
    """Whether many runs of words of a text occur twice, or many words directly after themselves."""
    runs = _runs(texts, _RUN)
    repeated = len(runs) - len(set(runs))
    doubled = sum(first == second for first, second in itertools.pairwise(texts))
    return max(repeated, doubled) > _REPEATED_SHARE * len(texts)


def _runs(texts: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(texts[at : at + size]) for at in range(len(texts) - size + 1)]


def _tells_apart(cells: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether the rows with equal cells in a column are texts without copies, and all other texts
    share many pairs of words with the first."""
    groups: dict[str, list[str]] = {}
    for cell, text in zip(cells, texts, strict=True):
        groups.setdefault(cell, []).append(text)
    first, *others = (set(_runs(group, 2)) for group in groups.values())
    return (
        0 < len(others) < len(texts) / _RUN
        and not any(map(_has_copies, groups.values()))
        and all(len(first & other) > _SHARED * len(other) for other in others)
    )
