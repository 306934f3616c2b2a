"""Scored documents and columns of their tables, as JSON lines or TSV."""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from dclm_jax.data.documents import require_free_names
from dclm_jax.data.records import listed, require_columns
from dclm_jax.errors import brief
from dclm_jax.files import json_text
from dclm_jax.log import logger
from dclm_jax.scoring.distributions import (
    DIVERGENCE,
    NO_CONTEXT,
    OTHER_COLUMNS,
    SURPRISAL,
)
from dclm_jax.scoring.score_types import DocumentScore, TokenScore, common_columns
from dclm_jax.tables import present, separated

_TOKEN_COLUMNS = "document", "sentence", "position", "word"
_SUM_COLUMNS = "sentence_log_prob", "document_log_prob"
_OTHER_MEAN, _OTHER_SD = OTHER_COLUMNS


class _Measure(NamedTuple):
    """The form of a measure: its decimals in TSV, whether it is in nats or bits, and its value for
    a group of words: the sum, the value of the first word, or none."""

    digits: int = 6
    has_unit: bool = True
    of_group: Literal["sum", "first", "none"] = "first"


_MEASURES = {
    SURPRISAL: _Measure(of_group="sum"),
    _OTHER_MEAN: _Measure(of_group="sum"),
    # The standard deviation of a sum does not follow from those of words.
    _OTHER_SD: _Measure(of_group="none"),
    "entropy": _Measure(),
    "entropy_reduction": _Measure(),
    "rank": _Measure(digits=0, has_unit=False),
    DIVERGENCE: _Measure(of_group="sum"),
}
_COLUMNS = (*_TOKEN_COLUMNS, "known", *_SUM_COLUMNS, *_MEASURES)
RESULT_COLUMNS = (*_COLUMNS, *(f"{name}{NO_CONTEXT}" for name in _COLUMNS))
"""Names of columns of scores, which no column of the input may have."""


def _measure(column: str) -> _Measure:
    return _MEASURES[column.removesuffix(NO_CONTEXT)]


class Layout(NamedTuple):
    """The content of a file.

    Attributes:
      measures: names of all measures of every target, surprisals included.
      matmul_precision: precision of products in the model; None for n-gram models.
      unit: the unit of log-probabilities and measures, other than ranks: "nats" or "bits".
    """

    measures: Sequence[str]
    matmul_precision: str | None
    unit: str = "nats"


def in_bits(scores: Iterable[DocumentScore]) -> Iterator[DocumentScore]:
    """Scores in bits, streamed."""
    for score in scores:
        sentences = [
            dataclasses.replace(
                sentence,
                measures={
                    name: [x / math.log(2) for x in values] if _measure(name).has_unit else values
                    for name, values in sentence.measures.items()
                },
            )
            for sentence in score.sentences
        ]
        yield dataclasses.replace(score, sentences=sentences)


def json_lines(scores: Iterable[DocumentScore], layout: Layout) -> Iterator[str]:
    """The JSON object of each document, for streamed documents."""
    for score in scores:
        yield json_text(_json_object(score, layout)) + "\n"


def _json_object(score: DocumentScore, layout: Layout) -> dict[str, Any]:
    common, varying = common_columns(score)
    sentences = []
    for number, sentence in enumerate(score.sentences):
        record: dict[str, Any] = {"log_prob": sentence.log_prob, "tokens": sentence.tokens}
        for name, values in sentence.measures.items():
            record[name.replace(SURPRISAL, f"{SURPRISAL}s")] = values
        record["known"] = sentence.known
        if varying:
            record["columns"] = {name: score.columns[name][number] for name in varying}
        sentences.append(record)
    return {
        "id": score.id,
        **({"columns": common} if common else {}),
        "unit": layout.unit,
        "matmul_precision": layout.matmul_precision,
        "log_prob": score.log_prob,
        "sentences": sentences,
    }


def tsv_lines(scores: Iterable[DocumentScore], layout: Layout) -> Iterator[str]:
    """The names of columns, and one row per target (word or END). The columns of the input are the
    columns of the first document: a missing cell is empty, and a note names omitted columns."""
    scores = iter(scores)
    first = list(itertools.islice(scores, 1))
    repeated = [name for score in first for name in score.columns]
    require_free_names(repeated, RESULT_COLUMNS)
    yield separated([*_TOKEN_COLUMNS, *layout.measures, "known", *_SUM_COLUMNS, *repeated])
    is_noted = False
    for score in itertools.chain(first, scores):
        omitted = [name for name in score.columns if name not in repeated]
        if omitted and not is_noted:
            is_noted = True
            logger.info(
                f"{score.id} has columns that the first document lacks, which are omitted: "
                f"{listed(omitted)}"
            )
        for name, sentence, position, word, known, measures, columns in score.rows():
            values = [
                number_cell(measures[column], _measure(column).digits) for column in layout.measures
            ]
            log_probs = score.sentences[sentence - 1].log_prob, score.log_prob
            carried = [present(columns.get(column)) for column in repeated]
            cells = [name, sentence, position, word, *values, int(known)]
            yield separated([*cells, *map(number_cell, log_probs), *carried])


def group_lines(
    scores: Iterable[DocumentScore], layout: Layout, by: Sequence[str]
) -> Iterator[str]:
    """The names of columns, and one row per group of words of a document with equal cells in the
    columns `by`, such as a region: the cells, the number of words and of OOV words, the sums of
    surprisals and divergences, and the other measures of the first word but the standard deviation
    over other contexts. END, which belongs to no row of the input, is in no group."""
    measures = {name: _measure(name) for name in layout.measures}
    measures = {name: measure for name, measure in measures.items() if measure.of_group != "none"}
    results = ["words", "oov", *measures]
    require_free_names(by, ["document", *results])
    yield separated(["document", *by, *results])
    for score in scores:
        require_columns(by, score.columns, f"document {brief(score.id)}")
        groups: dict[tuple[str | None, ...], list[TokenScore]] = {}
        for row in score.rows():
            if row.position < len(score.sentences[row.sentence - 1].tokens):
                groups.setdefault(tuple(row.columns[name] for name in by), []).append(row)
        for cells, rows in groups.items():
            values = []
            for name, measure in measures.items():
                of_words = [row.measures[name] for row in rows]
                value = math.fsum(of_words) if measure.of_group == "sum" else of_words[0]
                values.append(number_cell(value, measure.digits))
            oov = sum(not row.known for row in rows)
            yield separated([score.id, *map(present, cells), len(rows), oov, *values])


def noted_oov(
    scores: Iterable[DocumentScore], by: Sequence[str] = (), *, has_pieces: bool = False
) -> Iterator[DocumentScore]:
    """The scores, streamed; at the end a note counts the OOV words of documents with columns, such
    as stimuli, and the documents that have them, also by the cells in the columns `by` that differ
    within documents. A vocabulary of subwords does not predict them."""
    num_words = num_oov = num_documents = num_affected = 0
    affected: collections.Counter[str] = collections.Counter()
    varying_names = dict.fromkeys(by, False)
    for score in scores:
        yield score
        if score.columns:
            oov = sum(sentence.known.count(False) for sentence in score.sentences)
            num_words += sum(len(sentence.known[:-1]) for sentence in score.sentences)
            num_oov += oov
            num_documents += 1
            num_affected += oov > 0
            _, varying = common_columns(score)
            names = [name for name in by if name in varying]
            varying_names |= dict.fromkeys(names, True)
            rows = [row for row in score.rows() if not row.known]
            affected.update({"/".join(str(row.columns[name]) for name in names) for row in rows})
    if num_oov:
        surprisal = "they have the surprisal of UNKNOWN"
        if has_pieces:
            surprisal = "they are not predicted"
        logger.info(
            f"OOV words: {num_oov:,} of {num_words:,} words, in {num_affected:,} of "
            f"{num_documents:,} documents; {surprisal} (known is 0): leave "
            "these documents out, or replace the words"
        )
        groups = [f"{cell} {count:,}" for cell, count in affected.most_common(20) if cell]
        if groups:
            columns = "/".join(name for name, varies in varying_names.items() if varies)
            logger.info(f"documents with OOV words by {columns}: {', '.join(groups)}")


def number_cell(value: float, digits: int = 6) -> str | None:
    """A number for a cell of TSV; None, for an empty cell, for NaN."""
    return None if math.isnan(value) else f"{value:.{digits}f}"
