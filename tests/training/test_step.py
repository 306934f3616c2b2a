"""One step by hand, and the same step on one device and on two with unequal token counts."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import pytest

from dclm_jax.allocation import peak_memory
from dclm_jax.data import batches
from dclm_jax.data.batches import Batch, Shape, shard_rows
from dclm_jax.reading.likelihoods import batch_likelihood, earlier_sentences
from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.freezing import by_path
from dclm_jax.training.job import first_shapes
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import (
    TrainState,
    first_state,
    local_shards,
    parallel_step,
    replicate,
)
from tests.compiling import TWO_DEVICES
from tests.exhaustive import some
from tests.models.support import (
    DOCUMENTS,
    pack,
    random_params,
    simple_model,
)

CLIP = 0.2
RATE = 0.1
AUTOENCODER = "hierarchical_attention_autoencoder"
SOURCES = DOCUMENTS[1:] + DOCUMENTS[:1]


def run_steps(
    name: str,
    dropout: float,
    loss_per: str = "token",
    frozen: Sequence[str] = (),
    **options: Any,
) -> tuple[TrainState, list[float]]:
    """Two steps over DOCUMENTS on all local devices, each step waited for.

    Models of the n sentences before a segment have other documents' sentences there, and documents
    that are made of a source another document.
    """
    model = simple_model(name, dropout=dropout, **options)
    optimizer = create_optimizer(OptimizerConfig(learning_rate=RATE, clip_norm=CLIP), 2)
    state = first_state(random_params(model), optimizer, frozenset(frozen))
    state, step = replicate(state), parallel_step(model, optimizer, loss_per)
    batch = local_shards(make_batch(name))
    norms = []
    for _ in range(2):
        state, metrics = jax.block_until_ready(step(state, batch, jax.random.key(7)))
        norms.append(float(metrics.gradient_norm))
    return jax.device_get(state), norms


def make_batch(name: str) -> Batch:
    if name == AUTOENCODER:
        return pack(DOCUMENTS, sources=SOURCES)
    batch = pack(DOCUMENTS)
    if not earlier_sentences(simple_model(name)):
        return batch
    return dataclasses.replace(batch, earlier=pack(DOCUMENTS[::-1]))


@pytest.mark.parametrize(
    ("name", "loss_per"),
    [("ccdclm", "token"), ("hrnnlm", "token"), ("rlm_bow_lf", "sentence")],
)
def test_two_steps_of_clipped_adagrad_by_hand(name, loss_per):
    """Gradient of the mean, clipped to the norm; squares summed from 0; rate / root of them."""
    exact = {"matmul_precision": "highest"}
    state, norms = run_steps(name, dropout=0.0, loss_per=loss_per, **exact)
    model, batch = simple_model(name, **exact), make_batch(name)
    count = {"token": batch.mask_BxSxN.sum(), "sentence": sum(map(len, DOCUMENTS))}[loss_per]

    def loss(params):
        likelihood = batch_likelihood(model, params, batch)
        return (likelihood.nll + likelihood.auxiliary) / count

    params = random_params(model)
    gradient_of = jax.jit(jax.grad(loss))
    squares = jax.tree.map(np.zeros_like, params)
    for step in range(2):
        with jax.default_matmul_precision("highest"):
            gradient = jax.tree.map(np.asarray, gradient_of(params))
        norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in jax.tree.leaves(gradient)))
        np.testing.assert_allclose(norms[step], norm, rtol=1e-5)
        assert norm > CLIP, "the test must clip to be able to fail"
        gradient = jax.tree.map(lambda g, n=norm: g * min(1.0, CLIP / n), gradient)
        squares = jax.tree.map(lambda s, g: s + g**2, squares, gradient)
        params = jax.tree.map(
            lambda p, g, s: p - RATE * np.where(s > 0, g / np.sqrt(np.where(s > 0, s, 1)), 0),
            params,
            gradient,
            squares,
        )
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-6),
        state.params,
        params,
    )


MICROBATCHES: list[tuple[str, float, dict[str, Any]]] = [
    ("adclm", 0.0, {"loss_per": "sentence"}),
    ("ccdclm", 0.4, {"variational_dropout": True, "recurrent_dropout": 0.3}),
    ("rlm_bow_lf", 0.4, {"frozen": ["embedding"]}),
    ("hrnnlm_two_step", 0.4, {}),
    (AUTOENCODER, 0.4, {}),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("name", "dropout", "options"), some(MICROBATCHES[1:2], all=MICROBATCHES))
def test_microbatches_take_the_same_step_as_the_batch(monkeypatch, name, dropout, options):
    segments, sentences, positions = make_batch(name).mask_BxSxN.shape
    shape = Shape(segments, sentences, positions)
    assert (segments, shape.microbatches) == (4, 1)
    state, norms = run_steps(name, dropout, **options)
    for positions, count in ((shape.positions - 1, 2), (shape.positions // 2 - 1, 3), (1, 4)):
        monkeypatch.setattr(batches, "MICROBATCH_POSITIONS", positions)
        assert shape.microbatches == count
        in_microbatches, norms_in_microbatches = run_steps(name, dropout, **options)
        np.testing.assert_allclose(norms_in_microbatches, norms, rtol=1e-9)
        jax.tree.map(
            lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-9),
            in_microbatches.params,
            state.params,
        )


def test_long_sentences_do_not_determine_the_memory_of_a_step():
    model = simple_model("adclm")
    optimizer = create_optimizer(OptimizerConfig(), 1)
    state = first_shapes(model, optimizer)

    def memory(positions: int) -> int:
        batch = Shape(8, 3, positions).batch(1)
        step = parallel_step(model, optimizer)
        return peak_memory(step.lower(state, batch, jax.random.key(0)).compile())

    assert memory(2048) < 1.2 * memory(256)


def test_shard_rows_fills_up_with_empty_rows():
    batch = pack(DOCUMENTS)
    sharded = shard_rows(batch, 3)
    assert sharded.tokens_BxSxN.shape == (3, 2, *batch.tokens_BxSxN.shape[1:])
    flat = sharded.mask_BxSxN.reshape(6, *batch.mask_BxSxN.shape[1:])
    np.testing.assert_array_equal(flat[:4], batch.mask_BxSxN)
    assert not flat[4:].any()


def scores_of_documents(name: str) -> list[float]:
    """On all local devices, a document a row, which is its own source."""
    model = simple_model(name)
    scorer = NeuralScorer(model, random_params(model), batch_size=4)
    documents = [[np.array(words) for words in document] for document in DOCUMENTS]
    return [float(nat) for _, nll in scorer.score(documents) for nats in nll for nat in nats]


SCRIPT = """
import json, sys
import jax, numpy as np
sys.path.insert(0, sys.argv[1])
from tests.training.test_step import AUTOENCODER, run_steps, scores_of_documents
assert jax.local_device_count() == 2, jax.devices()
results = {}
for name, dropout, options in json.loads(sys.argv[2]):
    state, norms = run_steps(name, dropout, **options)
    leaves = [np.asarray(leaf).ravel().tolist() for leaf in jax.tree.leaves(state.params)]
    results[f"{name} {dropout}"] = {"leaves": leaves, "norms": norms}
results["scores"] = scores_of_documents(AUTOENCODER)
print(json.dumps(results))
"""


@pytest.mark.usefixtures("x64")
def test_two_devices_take_the_same_step_as_one():
    """Four documents of 11, 2, 15 and 4 targets: the devices hold 13 and 19 of them."""
    names = some(
        ["hrnnlm_two_step"],
        all=["hrnnlm", "adclm", "codclm", "rlm_bow_lf", "hrnnlm_two_step"],
    )
    cases: list[tuple[str, float, dict[str, Any]]] = [(name, 0.0, {}) for name in names]
    options = {"variational_dropout": True, "recurrent_dropout": 0.3}
    cases.append(("ccdclm", 0.4, {**options, "frozen": ["embedding", "output/bias"]}))
    cases.append((AUTOENCODER, 0.4, {}))
    environment = os.environ | TWO_DEVICES | {"JAX_ENABLE_X64": "1"}
    root = Path(__file__).parents[2]
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(root), json.dumps(cases)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    results = json.loads(finished.stdout)
    np.testing.assert_allclose(results["scores"], scores_of_documents(AUTOENCODER), rtol=1e-9)
    for name, dropout, options in cases:
        state, norms = run_steps(name, dropout, **options)
        two = results[f"{name} {dropout}"]
        np.testing.assert_allclose(two["norms"], norms, rtol=1e-9)
        before = by_path(random_params(simple_model(name, dropout=dropout)))
        after = by_path(state.params)
        for path, leaf in zip(after, two["leaves"], strict=True):
            np.testing.assert_allclose(leaf, np.ravel(after[path]), rtol=1e-7, atol=1e-9)
            if path in options.get("frozen", ()):
                np.testing.assert_array_equal(leaf, np.ravel(before[path]))
