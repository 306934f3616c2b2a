"""This project as a contender: its training step and its scoring function."""

import time
from typing import Any

import jax
import numpy as np

from dclm_jax.allocation import peak_memory
from dclm_jax.data.batches import Batch, length_bucket, pack_sentences
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.reading.driver import cast_params
from dclm_jax.reading.likelihoods import block_nll, open_documents
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import first_state, local_shards, parallel_step, replicate

from .timing import Turn
from .workloads import IdDocument


class Training:
    """Training steps as in `training/loop.py`, with donated state and numpy batches."""

    def __init__(self, model: DocumentModel, batches: list[Batch], seed: int = 0):
        optimizer = create_optimizer(OptimizerConfig(), len(batches))
        self._step = parallel_step(model, optimizer)
        state = first_state(model.init(jax.random.key(seed)), optimizer)
        self.params: Params = jax.device_get(state.params)
        self._state = replicate(state)
        self._batches = [local_shards(batch) for batch in batches]
        self._key = jax.random.key(seed)

    def turn(self) -> Turn:
        start = time.perf_counter()
        metrics = []
        for batch in self._batches:
            self._state, step_metrics = self._step(self._state, batch, self._key)
            metrics.append(step_metrics)
        jax.block_until_ready((self._state, metrics))
        seconds, first = time.perf_counter() - start, metrics[0]
        return Turn(seconds, float(first.nats + first.auxiliary))

    def memory(self) -> int:
        """Bytes that the largest compiled step holds on one device, with parameters, optimizer
        state and batch."""
        by_shape = {batch.mask_BxSxN.shape: batch for batch in self._batches}
        return max(
            _peak_memory(self._step, self._state, batch, self._key) for batch in by_shape.values()
        )


class Scoring:
    """Scoring of every target of whole documents; a batch is one block."""

    def __init__(self, model: DocumentModel, batches: list[list[IdDocument]], seed: int = 0):
        def nll(params: Params, batch: Batch) -> jax.Array:
            params = cast_params(model, params)
            context = open_documents(model, params, len(batch.mask_BxSxN))
            return block_nll(model, params, context, batch)[1]

        self._nll = jax.jit(nll)
        self._params = model.init(jax.random.key(seed))
        self.params: Params = jax.device_get(self._params)
        self._batches = [_pack(documents) for documents in batches]

    def turn(self) -> Turn:
        start = time.perf_counter()
        nll = jax.device_get([self._nll(self._params, batch) for batch in self._batches])
        return Turn(time.perf_counter() - start, float(nll[0].sum(dtype=np.float64)))

    def memory(self) -> int:
        """Bytes that the largest compiled block holds, with parameters and batch."""
        return max(_peak_memory(self._nll, self._params, batch) for batch in self._batches)


def _peak_memory(function: Any, *arguments: Any) -> int:
    return peak_memory(function.lower(*arguments).compile())


def _pack(documents: list[IdDocument]) -> Batch:
    longest = max(len(sentence) for document in documents for sentence in document)
    return pack_sentences(documents, max(map(len, documents)), length_bucket(longest + 1))
