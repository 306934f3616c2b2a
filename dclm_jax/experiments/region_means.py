"""Means of the measures of words over regions.

A region is the set of the words that have equal cells in some columns, such as `region` and
`condition`. The mean of a region is the mean over its documents of the mean over the document's
words in the region. The 95% interval is from a bootstrap over these documents (`significance`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.data.formats import listed
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation import significance
from dclm_jax.experiments.score_files import Layout, number_cell
from dclm_jax.files import json_text
from dclm_jax.score_types import DocumentScore, TokenScore
from dclm_jax.tables import present, separated

_PLACES = ("document", "sentence", "position", "word")
"""Columns that the words of every text have."""
Cells = tuple[str, ...]


class _Mean(NamedTuple):
    """The means of one region.

    Attributes:
      cells: the cells of the region in the columns.
      documents: number of documents with a word of the region that has a surprisal.
      words: number of words of the region with a surprisal.
      values_3xX: mean, low and high end of its interval, of each measure; nan for no interval.
    """

    cells: Cells
    documents: int
    words: int
    values_3xX: np.ndarray


def lines(
    file_format: str, scores: Iterable[DocumentScore], by: Sequence[str], layout: Layout
) -> Iterator[str]:
    """The text of a file with one record per region.

    Args:
      file_format: "tsv" or "jsonl".
      scores: the scores of the documents, with the measures of `layout`.
      by: names of the columns whose cells make a region.
      layout: measures, columns and unit of the scores.
    """
    for name in by:
        if name not in (*layout.columns, *_PLACES):
            raise InputError(
                f"--by={','.join(by)}: {brief(name)} is not among the columns of words; choose "
                f"from {listed([*layout.columns, *_PLACES])}, or add a column of the input to "
                "--columns"
            )
    if file_format == "tsv":
        ends = [f"{name}{end}" for name in layout.measures for end in ("", "_low", "_high")]
        yield separated([*by, "documents", "words", *ends])
    for cells, documents, words, values_3xX in _means(scores, by, layout.measures):
        if file_format == "tsv":
            numbers = [number_cell(value) for values in values_3xX.T for value in values]
            yield separated([*(cell or None for cell in cells), documents, words, *numbers])
        else:
            record = dict(zip(by, cells, strict=True))
            counts = {"unit": layout.unit, "documents": documents, "words": words}
            values = significance.means_to_json(layout.measures, values_3xX)
            yield json_text({"by": record, **counts, **values}) + "\n"


def _means(
    scores: Iterable[DocumentScore], by: Sequence[str], measures: Sequence[str]
) -> Iterator[_Mean]:
    """The means of all regions, in the order in which regions appear. END is omitted."""
    documents_of: dict[Cells, list[np.ndarray]] = {}
    words_of: dict[Cells, int] = {}
    for score in scores:
        values: dict[Cells, list[list[float]]] = {}
        for row in score.rows():
            if row.position < len(score.sentences[row.sentence - 1].tokens):
                word_values = [row.measures[name] for name in measures]
                values.setdefault(_cells(row, by), []).append(word_values)
        for cells, words in values.items():
            words_MxX = np.array(words)
            is_scored_M = np.isfinite(words_MxX[:, 0])
            words_of[cells] = words_of.get(cells, 0) + int(is_scored_M.sum())
            documents_of.setdefault(cells, []).append(_means_of_words(words_MxX))
    for cells, documents in documents_of.items():
        values_DxX = np.stack(documents)
        counts_DxX = np.isfinite(values_DxX).astype(float)
        sums_DxX = np.where(counts_DxX > 0, values_DxX, 0)
        values_3xX = significance.means(sums_DxX, counts_DxX)
        # The first measure is the surprisal.
        scored_documents = int(counts_DxX[:, 0].sum())
        yield _Mean(cells, scored_documents, words_of[cells], values_3xX)


def _cells(row: TokenScore, by: Sequence[str]) -> Cells:
    """The cells of a word in the columns `by`."""
    return tuple(
        str(getattr(row, name)) if name in _PLACES else present(row.columns.get(name)) or ""
        for name in by
    )


def _means_of_words(values_MxX: np.ndarray) -> np.ndarray:
    """The means of the numbers of each column; nan for a column without numbers."""
    is_number_MxX = np.isfinite(values_MxX)
    with np.errstate(invalid="ignore"):
        return np.where(is_number_MxX, values_MxX, 0).sum(axis=0) / is_number_MxX.sum(axis=0)
