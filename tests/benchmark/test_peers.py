"""Peers compute our loss from our parameters. Skipped where a peer is not installed."""

import dataclasses
import importlib.util

import jax
import pytest

from dclm_jax.benchmark import dynet_peer
from dclm_jax.benchmark.rows import DYNET_AUTOBATCH, DYNET_BY_WORD, DYNET_ONLINE
from dclm_jax.benchmark.timing import require_same_loss
from dclm_jax.benchmark.worker import Job
from dclm_jax.benchmark.workloads import Size, synthetic_documents
from dclm_jax.data.batches import pack_sentences
from dclm_jax.reading.likelihoods import batch_likelihood
from tests.models.support import random_params

TINY = Size(vocab_size=30, embedding_dim=4, hidden_dim=6)
DOCUMENTS = synthetic_documents(0, TINY.vocab_size, [3, 1, 2])


def work(name: str, cell: str = "lstm") -> tuple[Job, float]:
    """A job of one batch, and our loss."""
    model = TINY.model(name, cell)
    params = jax.device_get(random_params(model))
    likelihood = jax.jit(lambda params, batch: batch_likelihood(model, params, batch))
    batch = pack_sentences(DOCUMENTS, 3, 64)
    ours = likelihood(params, dataclasses.replace(batch, source=batch))
    return Job("train", name, params, [DOCUMENTS]), float(ours.nll + ours.extra)


@pytest.mark.parametrize(
    "name",
    [
        "rnnlm",
        "ccdclm",
        "codclm",
        "adclm",
        "hierarchical_autoencoder",
        "hierarchical_attention_autoencoder",
    ],
)
def test_pytorch(name):
    pytest.importorskip("torch")
    from dclm_jax.benchmark import torch_peer

    job, ours = work(name)
    for task in ("train", "score"):
        contender = torch_peer.create(job._replace(task=task, options={"compile": False}))
        require_same_loss("PyTorch", name, ours, contender.turn().nll)
        changed = abs(contender.turn().nll - ours) > 1e-3 * ours
        assert changed == (task == "train")


@pytest.mark.skipif(importlib.util.find_spec("dynet") is None, reason="DyNet is not installed")
@pytest.mark.parametrize(
    ("peer", "name"),
    [
        (DYNET_ONLINE, "rnnlm"),
        (DYNET_ONLINE, "ccdclm"),
        (DYNET_BY_WORD, "ccdclm"),
        (DYNET_AUTOBATCH, "ccdclm"),
    ],
)
def test_dynet(peer, name):
    job, ours = work(name, "coupled_peephole_lstm")
    with peer.start(job) as worker:
        require_same_loss(peer.name, name, ours, worker.call("turn").nll)
        assert abs(worker.call("turn").nll - ours) > 1e-3 * ours


def test_dynet_gets_every_parameter_once():
    layer = random_params(TINY.model("ccdclm", "coupled_peephole_lstm"))["stack"][0]
    copied = dynet_peer.copied_layer(layer)
    assert [value.shape for value in copied] == [
        *2 * [(6, 10), (6, 6), (6, 6), (6,)],
        *[(6, 10), (6, 6), (6,)],
    ]
    assert sum(value.size for value in copied) == sum(value.size for value in layer.values())
