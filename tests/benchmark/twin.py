"""A peer that needs no library: our own likelihood, times the option "factor"."""

import jax
import jax.numpy as jnp

from dclm_jax import models
from dclm_jax.data.batches import pack_sentences
from dclm_jax.reading.likelihoods import batch_likelihood
from launch.benchmark.timing import Turn
from launch.benchmark.worker import PeerJob


class Twin:
    def __init__(self, job: PeerJob):
        vocab_size, embedding_dim = job.params["embedding"].shape
        model = models.create(
            job.model,
            vocab_size=vocab_size,
            embedding_dim=embedding_dim,
            hidden_dim=embedding_dim,
            cell="lstm",
        )
        rows = job.batches[0]
        batch = pack_sentences(rows, max(map(len, rows)), 64)
        params = jax.tree.map(jnp.asarray, job.params)
        likelihood = jax.jit(lambda params, batch: batch_likelihood(model, params, batch))
        sums = likelihood(params, batch)
        self.nll = job.options["factor"] * float(sums.nll + sums.auxiliary)

    def turn(self) -> Turn:
        return Turn(1.0, self.nll)

    def device(self) -> str:
        return "cpu"

    def memory(self) -> int:
        return 1


def make_peer(job: PeerJob) -> Twin:
    return Twin(job)
