"""Context ablation: perplexity with the context exchanged or removed.

A model with more parameters may have a lower perplexity only because of its capacity. Scoring the
same sentences in other contexts shows the contribution of the context. The targets are equal, so
that the perplexities are comparable.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dclm_jax import files
from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import OnDocument
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.results import Evaluation
from dclm_jax.files import Positive
from dclm_jax.language_model import LanguageModel
from dclm_jax.reading.blocks import Sentences
from dclm_jax.scoring.other_contexts import OtherContexts, has_others, in_other_contexts
from dclm_jax.scoring.perplexity import empty_sums, perplexity_of
from dclm_jax.scoring.scorer import Scorer, known_targets


@dataclasses.dataclass(frozen=True)
class ContextPerplexities:
    """Perplexities of the same sentences in other contexts.

    Attributes:
      shuffled: the sentences of each document are shuffled.
      other: the context is from another document (`scoring.other_contexts`, one context per
        document). None if no document has another first sentence.
      none: every sentence is a document.
    """

    shuffled: Positive
    other: Positive | None
    none: Positive


@dataclasses.dataclass(frozen=True)
class ContextAblation(Evaluation[ContextPerplexities]):
    """Perplexities in other contexts; for a model without context its perplexity.

    Attributes:
      seed: random seed for the contexts, which are equal for every model.
    """

    seed: int = 0

    name: ClassVar[str] = "context"
    version: ClassVar[int] = 3

    @property
    def title(self) -> str:
        return "context ablation"

    def measure(
        self, lm: LanguageModel, dataset: Dataset, on_document: OnDocument
    ) -> ContextPerplexities:
        scorer, documents = lm.scorer, dataset.sentences
        other = has_others(documents)
        if scorer.context_order == 0:
            measured = perplexity_of(scorer, dataset.documents, on_document=on_document)
            perplexity = measured.perplexity
            return ContextPerplexities(perplexity, perplexity if other else None, perplexity)
        alone = [[sentence] for document in documents for sentence in document]
        return ContextPerplexities(
            shuffled=perplexity_of(scorer, self._shuffled(documents)).perplexity,
            other=self._in_other_contexts(scorer, documents) if other else None,
            none=perplexity_of(scorer, alone).perplexity,
        )

    def _shuffled(self, documents: Sequence[Sentences]) -> list[Sentences]:
        rng = np.random.default_rng(self.seed)
        orders = [Shuffle().draw(document, 1, rng)[0] for document in documents]
        pairs = zip(documents, orders, strict=True)
        return [[document[index] for index in order] for document, order in pairs]

    def _in_other_contexts(self, scorer: Scorer, documents: Sequence[Sentences]) -> float:
        total = empty_sums([scorer])
        options = OtherContexts(1, seed=self.seed)
        for document, scores in in_other_contexts(scorer, documents, options):
            nll = [nats for nats, _ in scores]
            total = total.add(document, nll, known_targets(scorer, document))
        return total.perplexity

    def to_json(self, result: ContextPerplexities) -> dict[str, Any]:
        return dataclasses.asdict(result)

    def from_json(self, value: dict[str, Any]) -> ContextPerplexities:
        return files.converted(value, ContextPerplexities, self.title, "")
