"""Context ablation: perplexity with the context exchanged or removed.

A model with more parameters may have a lower perplexity only because of its capacity. Scoring the
same sentences in other contexts shows the contribution of the context. The targets are equal, so
that the perplexities are comparable.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from dclm_jax import files
from dclm_jax.data.documents import OnDocument
from dclm_jax.evaluation.datasets import Dataset
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.perplexity import perplexity_of
from dclm_jax.evaluation.results import Evaluation
from dclm_jax.files import Positive
from dclm_jax.reading.blocks import Sentences


@dataclasses.dataclass(frozen=True)
class ContextPerplexities:
    """Perplexities of the same sentences in other contexts.

    Attributes:
      shuffled: the sentences of each document are shuffled.
      mixed: the context is from other documents: all sentences are in a random order, and documents
        have their original lengths. With D documents about one in D sentences of a context is from
        the same document. None for a single document.
      none: every sentence is a document.
    """

    shuffled: Positive
    mixed: Positive | None
    none: Positive


@dataclasses.dataclass(frozen=True)
class ContextAblation(Evaluation[ContextPerplexities]):
    """Perplexities in each of ARRANGEMENTS; for a model without context its perplexity.

    Attributes:
      seed: random seed for the arrangements, which are equal for every model.
    """

    seed: int = 0

    name: ClassVar[str] = "context"
    version: ClassVar[int] = 2

    @property
    def title(self) -> str:
        return "context ablation"

    def measure(self, lm: Any, dataset: Dataset, on_document: OnDocument) -> ContextPerplexities:
        if lm.scorer.context_order == 0:
            measured = perplexity_of(lm.scorer, dataset.documents, on_document=on_document)
            perplexities = ContextPerplexities(*[measured.perplexity] * len(ARRANGEMENTS))
        else:
            perplexities = ContextPerplexities(
                **{
                    name: perplexity_of(
                        lm.scorer, arrange(dataset.sentences, np.random.default_rng(self.seed))
                    ).perplexity
                    for name, arrange in ARRANGEMENTS.items()
                }
            )
        if len(dataset.sentences) == 1:
            return dataclasses.replace(perplexities, mixed=None)
        return perplexities

    def to_json(self, result: ContextPerplexities) -> dict[str, Any]:
        return dataclasses.asdict(result)

    def from_json(self, value: dict[str, Any]) -> ContextPerplexities:
        return files.converted(value, ContextPerplexities, self.title, "")


def _shuffled(documents: Sequence[Sentences], rng: np.random.Generator) -> list[Sentences]:
    drawn = (Shuffle().draw(document, 1, rng)[0] for document in documents)
    return [[document[i] for i in order] for document, order in zip(documents, drawn, strict=True)]


def _mixed(documents: Sequence[Sentences], rng: np.random.Generator) -> list[Sentences]:
    sentences = [sentence for document in documents for sentence in document]
    mixed = iter(rng.permutation(len(sentences)))
    return [[sentences[next(mixed)] for _ in document] for document in documents]


ARRANGEMENTS: dict[str, Callable[[Sequence[Sentences], np.random.Generator], list[Sentences]]] = {
    "shuffled": _shuffled,
    "mixed": _mixed,
    "none": lambda documents, _: [[sentence] for document in documents for sentence in document],
}
"""Functions that arrange the sentences of documents, by the names of `ContextPerplexities`."""
