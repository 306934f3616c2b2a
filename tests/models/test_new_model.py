"""The example of a model: registered, and equal to its equation in float64."""

import numpy as np
import pytest

from dclm_jax import models
from tests import oracles
from tests.models.mean_context import MeanContext
from tests.models.support import DOCUMENTS, likelihood, pack, random_params, scores, small_model

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(models.MODELS, "mean_context", MeanContext)


def by_hand(model, params, document) -> list[np.ndarray]:
    """Nats of every target. Sentences are read beside a mean of the words of earlier sentences, in
    which later sentences weigh more."""
    reader = oracles.Reader(model, params, None, ())
    context = np.zeros(model.embedding_dim)
    for t, sentence in enumerate(document):
        reader.sentence(t, sentence, reader.zero_states(params["stack"]), context)
        mean = np.mean([params["embedding"][word] for word in sentence], axis=0)
        context = (1 - model.memory) * mean + model.memory * context
    return reader.result().nll


@pytest.mark.parametrize("memory", [0.0, 0.3])
def test_it_equals_its_equation(memory):
    model = small_model("mean_context", memory=memory)
    params = random_params(model)
    batch = pack(DOCUMENTS)
    nll_BxSxN = scores(model, params, batch)
    expected = [by_hand(model, params, document) for document in DOCUMENTS]
    for b, document in enumerate(expected):
        for s, nll in enumerate(document):
            np.testing.assert_allclose(nll_BxSxN[b, s, : len(nll)], nll, rtol=1e-9)
    total = sum(nll.sum() for document in expected for nll in document)
    np.testing.assert_allclose(likelihood(model, params, batch).nll, total, rtol=1e-9)
