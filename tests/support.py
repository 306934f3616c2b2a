"""Language models for tests, without runs."""

import dataclasses
from typing import Any

from dclm_jax.language_model import ModelFacts
from dclm_jax.neural_language_model import Autoencoder, NeuralLanguageModel
from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.scoring.scorer import SummedScorer


def neural_lm(model, params, vocabulary, **facts: Any) -> Any:
    """A neural language model, or an autoencoder."""
    kind: Any = Autoencoder if model.reads_source else NeuralLanguageModel
    return kind(
        facts=ModelFacts(**{"name": model.name, "num_parameters": 0, "config": {}, **facts}),
        vocabulary=vocabulary,
        scorer=SummedScorer(NeuralScorer(model, params)),
        validation_perplexity=1.0,
    )


def changed(lm, *, model=None, params=None, batch_size=None, **facts: Any) -> Any:
    """A model with another model, parameters, batch size or facts."""
    scorer = NeuralScorer(
        lm.model if model is None else model,
        lm.params if params is None else params,
        batch_size=batch_size or lm.scorer.ids.batch_size,
    )
    return dataclasses.replace(
        lm, facts=dataclasses.replace(lm.facts, **facts), scorer=SummedScorer(scorer)
    )
