"""Context ablation: perplexity with the context exchanged or removed.

A model with more parameters may have a lower perplexity only because of its capacity. Scoring the
same sentences in other contexts shows the contribution of the context. The targets are equal, so
that the perplexities are comparable.
"""

from collections.abc import Callable, Sequence

import numpy as np

from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.perplexity import corpus_perplexities
from dclm_jax.evaluation.scoring import Document, WordScorer


def _shuffled(documents: Sequence[Document], rng: np.random.Generator) -> list[Document]:
    drawn = (Shuffle().draw(document, 1, rng)[0] for document in documents)
    return [[document[i] for i in order] for document, order in zip(documents, drawn, strict=True)]


def _mixed(documents: Sequence[Document], rng: np.random.Generator) -> list[Document]:
    sentences = [sentence for document in documents for sentence in document]
    mixed = iter(rng.permutation(len(sentences)))
    return [[sentences[next(mixed)] for _ in document] for document in documents]


ARRANGEMENTS: dict[str, Callable[[Sequence[Document], np.random.Generator], list[Document]]] = {
    "shuffled": _shuffled,
    "mixed": _mixed,
    "none": lambda documents, _: [[sentence] for document in documents for sentence in document],
}
"""Functions that arrange the sentences of documents:

shuffled: shuffled within their document.
mixed: with context from other documents, in documents of the original lengths.
none: with no context.
"""


def rearranged(
    scorer: WordScorer, documents: Sequence[Document], arrangement: str, seed: int
) -> float:
    """The perplexity of the sentences of `documents` in one of `ARRANGEMENTS`."""
    arranged = ARRANGEMENTS[arrangement](documents, np.random.default_rng(seed))
    (measured,) = corpus_perplexities([scorer], arranged)
    return measured.perplexity
