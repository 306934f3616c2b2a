"""Scored documents of one or several runs as JSON lines, TSV or HTML.

For several runs, JSON replaces each value by {RUN: value, ...}, and TSV has one column NAME:RUN per
run.
"""

import math
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dclm_jax.errors import InputError
from dclm_jax.experiments import html
from dclm_jax.files import json_text
from dclm_jax.score_types import DocumentScore, SentenceAttention, SentenceScore
from dclm_jax.tables import separated

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


def lines(
    file_format: str,
    labels: Sequence[str],
    documents: Iterable[tuple[Sequence[DocumentScore], Sequence[Attention]]],
    *,
    title: str,
    precisions: Sequence[str | None],
    compared: bool,
) -> Iterator[str]:
    """Yields the text of a file in parts, for streamed documents.

    Args:
      file_format: one of `FORMATS`.
      labels: labels of the runs.
      documents: for each document its scores by every run, and its attention weights by every run
        (empty if they are not written; TSV never has weights).
      title: title of an HTML file.
      precisions: the `matmul_precision` of every run.
      compared: whether scores include surprisals without context.
    """
    if file_format == "tsv":
        yield _tsv_header(labels, compared=compared)
    elif file_format == "html":
        yield html.head(title, compared=compared)
    for scores, attention in documents:
        if file_format == "tsv":
            yield from _tsv_lines(scores)
        elif file_format == "html":
            yield html.document(labels, scores, attention)
        else:
            yield _json_line(labels, precisions, scores, attention)
    if file_format == "html":
        yield html.foot()


def _json_line(
    labels: Sequence[str],
    precisions: Sequence[str | None],
    scores: Sequence[DocumentScore],
    attention: Sequence[Attention],
) -> str:
    """The JSON object of one document: its scores and attention weights by run."""

    def by_run(values: Sequence[Any]) -> Any:
        return values[0] if len(labels) == 1 else dict(zip(labels, values, strict=True))

    def surprisals(log_probs: Sequence[Sequence[float] | None]) -> Any:
        return by_run([[-log_prob for log_prob in sentence or ()] for sentence in log_probs])

    def sentence(number: int) -> dict[str, Any]:
        of_runs: list[SentenceScore] = [score.sentences[number] for score in scores]
        record = {
            "log_prob": by_run([score.log_prob for score in of_runs]),
            "tokens": of_runs[0].tokens,
            "surprisals": surprisals([score.log_probs for score in of_runs]),
        }
        if of_runs[0].log_probs_no_context is not None:
            record["surprisals_no_context"] = surprisals(
                [score.log_probs_no_context for score in of_runs]
            )
        record["known"] = of_runs[0].known
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
        "unit": "nats",
        "matmul_precision": by_run(precisions),
        "log_prob": by_run([score.log_prob for score in scores]),
        "sentences": [sentence(number) for number in range(len(scores[0].sentences))],
    }
    return json_text(record) + "\n"


def _tsv_header(labels: Sequence[str], *, compared: bool) -> str:
    """The line of column names; `compared` adds the surprisals without context."""

    def by_run(name: str) -> list[str]:
        return [name] if len(labels) == 1 else [f"{name}:{label}" for label in labels]

    surprisals = by_run("surprisal") + (by_run("surprisal_no_context") if compared else [])
    sums = by_run("sentence_log_prob") + by_run("document_log_prob")
    return separated(["document", "sentence", "position", "word", *surprisals, "known", *sums])


def _tsv_lines(scores: Sequence[DocumentScore]) -> Iterator[str]:
    """One row per target (word or END)."""

    def numbers(values: Sequence[float]) -> list[str | None]:
        return [None if math.isnan(value) else f"{value:.6f}" for value in values]

    document_sums = numbers([score.log_prob for score in scores])
    for rows in zip(*(score.rows() for score in scores), strict=True):
        name, sentence, position, word, *_, known = rows[0]
        surprisals = numbers([row.surprisal for row in rows])
        no_context = [row.surprisal_no_context for row in rows]
        surprisals += numbers([value for value in no_context if value is not None])
        sums = numbers([score.sentences[sentence - 1].log_prob for score in scores])
        cells = [name, sentence, position, word, *surprisals, int(known)]
        yield separated([*cells, *sums, *document_sums])
