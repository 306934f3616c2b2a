"""PyTorch computes our loss from our parameters. Skipped where PyTorch is not installed."""

import jax
import pytest

from dclm_jax import models
from dclm_jax.data.batches import pack_sentences
from dclm_jax.reading.likelihoods import batch_likelihood
from launch.benchmark.contest import WITH_PEER
from launch.benchmark.timing import require_same_loss
from launch.benchmark.worker import PeerJob
from launch.benchmark.workloads import synthetic_documents
from tests.models.support import random_params

DOCUMENTS = synthetic_documents(0, 30, [3, 1, 2])


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("name", WITH_PEER)
def test_pytorch(name, scores):
    pytest.importorskip("torch")
    from launch.benchmark import torch_peer

    model = models.create(name, vocab_size=30, embedding_dim=4, hidden_dim=6, cell="lstm")
    params = jax.device_get(random_params(model))
    likelihood = jax.jit(lambda params, batch: batch_likelihood(model, params, batch))
    batch = pack_sentences(DOCUMENTS, 3, 64)
    sums = likelihood(params, batch)
    ours = float(sums.nll + sums.auxiliary)
    contender = torch_peer.make_peer(
        PeerJob(scores, name, params, [DOCUMENTS], options={"compile": False})
    )
    require_same_loss("PyTorch", name, ours, contender.turn().nll)
    changed = abs(contender.turn().nll - ours) > 1e-3 * ours
    assert changed != scores
