"""Scored documents of one or several runs, and columns of their tables, as JSON lines, TSV or HTML.

For several runs, JSON replaces each value by {RUN: value, ...}, and TSV has one column NAME:RUN per
run.
"""

import itertools
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data.documents import Document, column_names
from dclm_jax.data.formats import listed
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation.distributions import NO_CONTEXT, SURPRISAL
from dclm_jax.experiments import html
from dclm_jax.files import json_text
from dclm_jax.score_types import (
    NATS,
    DocumentScore,
    SentenceAttention,
    SentenceScore,
    common_columns,
    is_rank,
    require_free_names,
)
from dclm_jax.tables import present, separated

FORMATS = ("jsonl", "tsv", "html")
Attention = list[SentenceAttention]
"""The attention weights of a document, by sentence."""


def format_of(path: str) -> str:
    """The format of the extension of a path; JSON lines for other extensions."""
    ending = pathlib.PurePath(path).suffix.removeprefix(".")
    if ending == "csv":
        raise InputError(
            f"--output={path}: CSV output is not supported; use the extension .jsonl, .tsv or .html"
        )
    return ending if ending in FORMATS else FORMATS[0]


def carry(
    documents: Iterable[Document],
    names: Sequence[str] | None,
    report: Callable[[str], None],
) -> tuple[list[str], Iterator[Document]]:
    """Names of columns, and documents whose rows have these columns of their tables.

    Args:
      documents: documents; the first is read at once.
      names: names of the columns; None for the columns of the first document. In later documents a
        missing cell is then empty, and further columns are omitted with a note.
      report: called with the note.
    """
    documents = iter(documents)
    first = list(itertools.islice(documents, 1))
    input_names = [name for document in first for name in column_names(document)]
    repeated = input_names if names is None else list(names)
    for name in repeated:
        if first and name not in input_names:
            raise InputError(
                f"the input has no column {brief(name)}; choose --columns from: "
                f"{listed(input_names)}"
            )
    require_free_names(repeated)

    def carried() -> Iterator[Document]:
        is_reported = False
        for document in itertools.chain(first, documents):
            omitted = [name for name in column_names(document) if name not in repeated]
            if omitted and names is None and not is_reported:
                is_reported = True
                report(
                    f"note: {document.id} has columns that the first document lacks, which are "
                    f"omitted: {listed(omitted)} (--columns names columns)"
                )
            rows = [{name: row.get(name, "") for name in repeated} for row in document.rows]
            yield document._replace(rows=rows if repeated else ())

    return repeated, carried()


class Layout(NamedTuple):
    """The content of a file.

    Attributes:
      labels: labels of the runs.
      precisions: the `matmul_precision` of every run.
      measures: names of all measures of every target, surprisals included.
      columns: names of the columns of the input.
      unit: unit of the scores.
      title: title of an HTML file.
    """

    labels: Sequence[str]
    precisions: Sequence[str | None]
    measures: Sequence[str]
    columns: Sequence[str] = ()
    unit: str = NATS
    title: str = ""


def lines(
    file_format: str,
    documents: Iterable[tuple[Sequence[DocumentScore], Sequence[Attention]]],
    layout: Layout,
) -> Iterator[str]:
    """Yields the text of a file in parts, for streamed documents.

    Args:
      file_format: one of `FORMATS`.
      documents: for each document its scores by every run, and its attention weights by every run
        (empty if they are not written; TSV never has weights).
      layout: the content of the file.
    """
    if file_format == "tsv":
        yield from _tsv_lines((scores for scores, _ in documents), layout)
    elif file_format == "jsonl":
        yield from (_json_line(*document, layout) for document in documents)
    else:
        compared = f"{SURPRISAL}{NO_CONTEXT}" in layout.measures
        yield html.head(layout.title, compared=compared, unit=layout.unit)
        for scores, attention in documents:
            yield html.document(layout.labels, scores, attention, unit=layout.unit)
        yield html.foot()


def _json_line(
    scores: Sequence[DocumentScore], attention: Sequence[Attention], layout: Layout
) -> str:
    """The JSON object of one document: its scores and attention weights by run."""

    def by_run(values: Sequence[Any]) -> Any:
        labels = layout.labels
        return values[0] if len(labels) == 1 else dict(zip(labels, values, strict=True))

    common, varying = common_columns(scores[0])

    def sentence(number: int) -> dict[str, Any]:
        sentence_scores: list[SentenceScore] = [score.sentences[number] for score in scores]
        record = {
            "log_prob": by_run([score.log_prob for score in sentence_scores]),
            "tokens": sentence_scores[0].tokens,
        }
        for name in sentence_scores[0].measures:
            key = name.replace(SURPRISAL, f"{SURPRISAL}s")
            record[key] = by_run([score.measures[name] for score in sentence_scores])
        record["known"] = sentence_scores[0].known
        if varying:
            record["columns"] = {name: scores[0].columns[name][number] for name in varying}
        if attention:
            record["attention"] = by_run(
                [
                    {
                        "positions": sentences[number].positions,
                        "weights": np.round(sentences[number].weights.astype(float), 6).tolist(),
                    }
                    for sentences in attention
                ]
            )
        return record

    record = {
        "id": scores[0].id,
        **({"columns": common} if common else {}),
        "unit": layout.unit,
        "matmul_precision": by_run(layout.precisions),
        "log_prob": by_run([score.log_prob for score in scores]),
        "sentences": [sentence(number) for number in range(len(scores[0].sentences))],
    }
    return json_text(record) + "\n"


def _tsv_lines(documents: Iterable[Sequence[DocumentScore]], layout: Layout) -> Iterator[str]:
    """The names of columns, and one row per target (word or END)."""

    def by_run(name: str) -> list[str]:
        labels = layout.labels
        return [name] if len(labels) == 1 else [f"{name}:{label}" for label in labels]

    def numbers(values: Sequence[float], digits: int = 6) -> list[str | None]:
        return [None if math.isnan(value) else f"{value:.{digits}f}" for value in values]

    measures = [column for name in layout.measures for column in by_run(name)]
    sums = by_run("sentence_log_prob") + by_run("document_log_prob")
    names = ["document", "sentence", "position", "word", *measures, "known", *sums]
    yield separated([*names, *layout.columns])
    for scores in documents:
        document_sums = numbers([score.log_prob for score in scores])
        for rows in zip(*(score.rows() for score in scores), strict=True):
            name, sentence, position, word, known, _, columns = rows[0]
            values = []
            for measure in layout.measures:
                digits = 0 if is_rank(measure) else 6
                values += numbers([row.measures[measure] for row in rows], digits)
            sums = numbers([score.sentences[sentence - 1].log_prob for score in scores])
            carried = [present(columns.get(column)) for column in layout.columns]
            cells = [name, sentence, position, word, *values, int(known)]
            yield separated([*cells, *sums, *document_sums, *carried])
