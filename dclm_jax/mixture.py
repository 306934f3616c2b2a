"""Mixtures of two language models."""

import dataclasses

from dclm_jax.data.datasets import Dataset
from dclm_jax.data.encoding import Documents
from dclm_jax.errors import InputError
from dclm_jax.scoring import interpolation
from dclm_jax.scoring.interpolation import MixedScorer
from dclm_jax.text_scorer import TextScorer


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MixtureModel(TextScorer):
    """The mixture of two models, which only scores.

    Attributes:
      first, second: the models.
      weight: the weight of the first model.
    """

    first: TextScorer
    second: TextScorer
    weight: float

    def _make_scorer(self) -> MixedScorer:
        return MixedScorer(self.first.scorer, self.second.scorer, self.weight)


def mix(
    first: TextScorer,
    second: TextScorer,
    weight: float | None = None,
    *,
    tune_on: Documents | Dataset | None = None,
) -> MixtureModel:
    """The mixture p = w p_first + (1 - w) p_second for every target, which scores documents.

    Args:
      first, second: models with one vocabulary.
      weight: w, from 0 to 1.
      tune_on: documents, as `TextScorer.score` takes them, on which the weight is tuned; they
        should differ from the measured documents.
    """
    a, b = (str(lm.vocabulary) for lm in (first, second))
    if a != b:
        raise InputError(
            f"the models have different vocabularies ({a}; {b}); choose models of one corpus"
        )
    if (weight is None) == (tune_on is None):
        raise InputError(
            "a mixture needs either a weight or documents to tune it on; pass weight=W or "
            "tune_on=documents"
        )
    if tune_on is not None:
        scorers = first.scorer, second.scorer
        weight = interpolation.tune(scorers, first._dataset(tune_on)).weight
    assert weight is not None
    mixture = MixtureModel(
        name="mixture",
        num_parameters=first.num_parameters + second.num_parameters,
        vocabulary=first.vocabulary,
        config={"weight": weight, "first": first.config, "second": second.config},
        text=first.text,
        batch_size=first.batch_size,
        first=first,
        second=second,
        weight=weight,
    )
    # The scorer refuses a weight that is not between 0 and 1.
    _ = mixture.scorer
    return mixture
