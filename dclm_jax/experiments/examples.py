"""Example documents for an HTML report: chosen by a rule, and scored word by word by several
models."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.data.documents import Document
from dclm_jax.experiments.comparison import Row, paired
from dclm_jax.language_model import LanguageModel
from dclm_jax.score_types import DocumentScore, SentenceAttention

DOCUMENTS, SENTENCES, CONFIGURATIONS = 3, 8, 5
"""Maximum numbers in an HTML report."""
_ELIGIBLE = "documents with two or more sentences"


class Example(NamedTuple):
    """The first sentences of a document: the reason for its selection, the labels of rows, the
    scores of each row's model, with and without context, and the attention weights of each model
    (empty for a model without attention)."""

    why: str
    labels: list[str]
    scores: list[DocumentScore]
    attention: list[list[SentenceAttention]]


def read(
    all_rows: Sequence[Row],
    models: Mapping[str, LanguageModel],
    documents: Sequence[Sequence[np.ndarray]],
    baseline: str,
) -> list[Example]:
    """Example documents for an HTML report.

    Args:
      all_rows: the measurements; the report shows the first run of the first CONFIGURATIONS rows.
      models: models by the workdirs of their runs.
      documents: documents of the test set.
      baseline: as for `comparison.paired`.
    """
    rows = [(row.label, models[row.results[0]["workdir"]]) for row in all_rows[:CONFIGURATIONS]]
    examples = []
    for index, why in choose(all_rows, documents, baseline):
        name = f"Test document {index + 1}"
        if (count := len(documents[index])) > SENTENCES:
            name += f", the first {SENTENCES} of {count} sentences"
        scores, attention = [], []
        for _, lm in rows:
            words = [lm.vocabulary.decode(ids.tolist()) for ids in documents[index][:SENTENCES]]
            scores += lm.score([Document(name, words)], no_context_too=True)
            attends = lm.model is not None and lm.model.attends_to
            attention.append(lm.attention(words) if attends else [])
        examples.append(Example(why, [label for label, _ in rows], scores, attention))
    return examples


def choose(
    all_rows: Sequence[Row], documents: Sequence[Sequence[np.ndarray]], baseline: str
) -> list[tuple[int, str]]:
    """Indices of documents with two or more sentences, each with the reason for its selection: the
    first document, and the documents with the largest and the smallest surprisal reduction of the
    row with the lowest test perplexity compared with its baseline. If no row has a baseline, these
    are the first DOCUMENTS documents. A reason is a clause, such as "it is the first document"."""
    eligible = [index for index, document in enumerate(documents) if len(document) > 1]
    firsts = [(index, f"it is one of the first {_ELIGIBLE}") for index in eligible[:DOCUMENTS]]
    pairs = [
        (row.mean("test", "perplexity"), pair)
        for row in all_rows
        if (pair := paired(row, all_rows, baseline)) is not None
    ]
    if not pairs or not eligible:
        return firsts
    _, (row, other, *_) = min(pairs, key=lambda pair: pair[0])
    targets_D = row.values("by_token", "count")[0].sum(axis=1)
    nats_D = [each.values("by_document").mean(axis=0) for each in (other, row)]
    saved_D = (nats_D[0] - nats_D[1]) / np.maximum(targets_D, 1)
    order = sorted(eligible, key=lambda index: saved_D[index])
    reduction = f"surprisal reduction of {row.label} compared with {other.label}"
    wanted = [
        (eligible[0], "it is the first document with two or more sentences"),
        (order[-1], f"it has the largest {reduction}: {saved_D[order[-1]]:.2f} nats per target"),
        (order[0], f"it has the smallest {reduction}: {saved_D[order[0]]:.2f} nats per target"),
    ]
    reasons: dict[int, list[str]] = {}
    for index, why in wanted:
        reasons.setdefault(index, []).append(why)
    return [(index, ", and because ".join(whys)) for index, whys in reasons.items()]
