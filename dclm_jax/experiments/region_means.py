"""Means of the measures of words over regions.

A region is the set of the words that have equal cells in some columns, such as `region` and
`condition`. The mean of a region is the mean over its documents of the mean over the document's
words in the region. The 95% interval is from a bootstrap over these documents (`significance`).
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.data.formats import listed
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation import significance
from dclm_jax.experiments.figures import Figure, Line
from dclm_jax.files import json_text
from dclm_jax.score_types import DocumentScore, TokenScore
from dclm_jax.tables import present, separated

PLACES = ("document", "sentence", "position", "word")
"""Columns that the words of every text have."""
Cells = tuple[str, ...]


class Mean(NamedTuple):
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


class RegionMeans:
    """Sums of measures by region, to which documents are added.

    Attributes:
      by: names of the columns whose cells make a region.
      labels: labels of the runs.
      measures: names of the measures of a word.
    """

    def __init__(self, by: Sequence[str], labels: Sequence[str], measures: Sequence[str]):
        self.by, self.labels, self.measures = by, labels, measures
        self._documents: dict[Cells, list[np.ndarray]] = {}
        self._words: dict[Cells, int] = {}

    def require(self, columns: Sequence[str]) -> None:
        """Raises an `InputError` if a column of `by` is not among these columns or in PLACES."""
        for name in self.by:
            if name not in (*columns, *PLACES):
                raise InputError(
                    f"--by={','.join(self.by)}: {brief(name)} is not among the columns of words; "
                    f"choose from {listed([*columns, *PLACES])}, or add a column of the input to "
                    "--columns"
                )

    def add(self, scores: Sequence[DocumentScore]) -> None:
        """Adds the scores of a document by all runs. END is omitted."""
        values: dict[Cells, list[list[float]]] = {}
        for rows in zip(*(score.rows() for score in scores), strict=True):
            first = rows[0]
            if first.position == len(scores[0].sentences[first.sentence - 1].tokens):
                continue
            word_values = [row.measures[name] for name in self.measures for row in rows]
            values.setdefault(self._cells(first), []).append(word_values)
        for cells, words in values.items():
            words_MxX = np.array(words)
            is_scored_M = np.isfinite(words_MxX[:, 0])
            self._words[cells] = self._words.get(cells, 0) + int(is_scored_M.sum())
            self._documents.setdefault(cells, []).append(_means(words_MxX))

    def _cells(self, row: TokenScore) -> Cells:
        return tuple(
            str(getattr(row, name)) if name in PLACES else present(row.columns.get(name)) or ""
            for name in self.by
        )

    def means(self) -> list[Mean]:
        """The means of all regions, in the order in which regions appear."""
        means = []
        for cells, documents in self._documents.items():
            values_DxX = np.stack(documents)
            counts_DxX = np.isfinite(values_DxX).astype(float)
            sums_DxX = np.where(counts_DxX > 0, values_DxX, 0)
            values_3xX = significance.means(sums_DxX, counts_DxX)
            # The first measure is the surprisal.
            scored_documents = int(counts_DxX[:, 0].sum())
            means.append(Mean(cells, scored_documents, self._words[cells], values_3xX))
        return means

    def lines(self, file_format: str, unit: str) -> Iterator[str]:
        """The text of a file: TSV, or JSON lines."""
        names = [
            name if len(self.labels) == 1 else f"{name}:{label}"
            for name in self.measures
            for label in self.labels
        ]
        if file_format == "tsv":
            ends = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
            yield separated([*self.by, "documents", "words", *ends])
        for cells, documents, words, values_3xX in self.means():
            if file_format == "tsv":
                numbers = [_cell(value) for values in values_3xX.T for value in values]
                yield separated([*(cell or None for cell in cells), documents, words, *numbers])
            else:
                record = dict(zip(self.by, cells, strict=True))
                counts = {"unit": unit, "documents": documents, "words": words}
                values = significance.means_to_json(names, values_3xX)
                yield json_text({"by": record, **counts, **values}) + "\n"

    def figure(self, measure: str, unit: str) -> Figure:
        """The means of a measure by the first column, one line per run and combination of the other
        columns, with their intervals."""
        means = self.means()
        ticks = list(dict.fromkeys(cells[0] for cells, *_ in means))
        points: dict[str, dict[str, np.ndarray]] = {}
        first = self.measures.index(measure) * len(self.labels)
        for index, label in enumerate(self.labels, start=first):
            for cells, _, _, values_3xX in means:
                run = label if len(self.labels) > 1 or len(cells) == 1 else ""
                name = ", ".join(filter(None, [run, *cells[1:]]))
                points.setdefault(name, {})[cells[0]] = values_3xX[:, index]
        lines = []
        for name, by_tick in points.items():
            places = [ticks.index(tick) for tick in by_tick]
            lines.append(Line(name, places, *np.stack([*by_tick.values()], axis=1)))
        name = measure.replace("_", " ")
        title = f"Mean {name} by {' and '.join(self.by)}"
        y = name if name == "rank" else f"{name}, {unit} per word"
        return Figure(title, self.by[0], y, lines, ticks)


def _means(values_MxX: np.ndarray) -> np.ndarray:
    """The means of the numbers of each column; nan for a column without numbers."""
    is_number_MxX = np.isfinite(values_MxX)
    with np.errstate(invalid="ignore"):
        return np.where(is_number_MxX, values_MxX, 0).sum(axis=0) / is_number_MxX.sum(axis=0)


def _cell(value: float) -> str | None:
    return None if math.isnan(value) else f"{value:.6f}"
