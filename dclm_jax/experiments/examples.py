"""Example documents for an HTML report, scored word by word by several models."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from dclm_jax.data.documents import Document
from dclm_jax.evaluation.score_types import DocumentScore
from dclm_jax.experiments.comparison import Row
from dclm_jax.text_scorer import TextScorer

DOCUMENTS, SENTENCES, CONFIGURATIONS = 3, 8, 5
"""Maximum numbers in an HTML report."""


def read(
    rows: Sequence[Row],
    models: Mapping[str, TextScorer],
    documents: Sequence[Sequence[np.ndarray]],
) -> list[list[DocumentScore]]:
    """The first SENTENCES sentences of the first DOCUMENTS documents with two or more sentences,
    scored by the first run of each of the first CONFIGURATIONS rows, with and without context.

    Args:
      rows: the rows of the report.
      models: models by the workdirs of their runs.
      documents: documents of the test set, as word ids.
    """
    lms = [models[row.results[0]["workdir"]] for row in rows[:CONFIGURATIONS]]
    eligible = (index for index, document in enumerate(documents) if len(document) > 1)
    examples = []
    for index in itertools.islice(eligible, DOCUMENTS):
        name = f"Test document {index + 1}"
        if (count := len(documents[index])) > SENTENCES:
            name += f", the first {SENTENCES} of {count} sentences"
        words = [lms[0].vocabulary.decode(ids.tolist()) for ids in documents[index][:SENTENCES]]
        document = Document(name, words)
        examples.append([next(lm.score([document], no_context_too=True)) for lm in lms])
    return examples
