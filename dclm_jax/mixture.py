"""Mixtures of two language models."""

from dclm_jax.data.datasets import Dataset
from dclm_jax.data.encoding import Documents
from dclm_jax.errors import InputError
from dclm_jax.language_model import LanguageModel, ModelFacts, require_no_source
from dclm_jax.scoring import interpolation
from dclm_jax.scoring.interpolation import MixedScorer


def mix(
    first: LanguageModel,
    second: LanguageModel,
    weight: float | None = None,
    *,
    tune_on: Documents | Dataset | None = None,
) -> LanguageModel:
    """The mixture p = w p_first + (1 - w) p_second for every target, which scores documents.

    Args:
      first, second: models with one vocabulary.
      weight: w, from 0 to 1.
      tune_on: documents, as `LanguageModel.score` takes them, on which the weight is tuned; they
        should differ from the measured documents.
    """
    for lm in (first, second):
        require_no_source(lm)
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
        weight = interpolation.tune(scorers, first.dataset(tune_on)).weight
    assert weight is not None
    facts = ModelFacts(
        name="mixture",
        num_parameters=first.facts.num_parameters + second.facts.num_parameters,
        config={"weight": weight, "first": first.facts.config, "second": second.facts.config},
        text=first.facts.text,
    )
    scorer = MixedScorer(first.scorer, second.scorer, weight)
    return LanguageModel(facts=facts, vocabulary=first.vocabulary, scorer=scorer)
