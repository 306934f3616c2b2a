"""Benchmarks without a comparison to other tools: input pipeline, memory, start of training and
coherence test."""

import pathlib
import statistics
import tempfile
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dclm_jax.benchmark import growth, workloads
from dclm_jax.benchmark.report import Goal, Row
from dclm_jax.benchmark.timing import alternate, alternate_work, stopwatch
from dclm_jax.benchmark.worker import Worker
from dclm_jax.benchmark.workloads import OURS, Setting, Size
from dclm_jax.coherence.compare import Bootstrap, compare
from dclm_jax.data.batches import Batch, TrainingBatches
from dclm_jax.evaluation.scoring import Scorer
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.reading.driver import read_sentences, weighted
from dclm_jax.reading.likelihoods import open_documents, output_inputs, time_major
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import TrainState, first_state, parallel_step

TEST_SETS, SAMPLE = 1_000, 64


def bootstrap_row(name: str, setting: Setting) -> list[Row]:
    """A benchmark of the bootstrap against scoring each of its permutations as a document."""
    size = setting.size
    model = size.model("codclm")
    documents = workloads.synthetic_documents(setting.seed, size.vocab_size, [15, 17, 18, 20])
    params = model.init(jax.random.key(setting.seed))
    scorer = Scorer(model, params)
    rng = np.random.default_rng(setting.seed)
    sample = [
        [document[sentence] for sentence in rng.permutation(len(document))]
        for document in documents
        for _ in range(SAMPLE // len(documents))
    ]

    def bootstrap() -> None:
        test = Bootstrap(replicates=TEST_SETS, seed=setting.seed)
        compare(scorer, documents, test)

    def plain() -> None:
        for _ in scorer.score(iter(sample)):
            pass

    rounds = alternate_work({"bootstrap": bootstrap, "plain": plain}, setting.rounds)
    seconds = rounds.seconds
    pairs = TEST_SETS * len(documents)
    extrapolated = seconds["plain"] * pairs / len(sample)
    return [
        Row(
            name,
            f"bootstrap coherence of codclm, {TEST_SETS:,} test sets of {len(documents)} documents",
            Goal(20, 40),
            extrapolated / seconds["bootstrap"],
            f"plain: each of {pairs:,} permutations scored as a document; extrapolated from "
            f"{len(sample)} permutations in full batches ({seconds['plain']:.2f} s)",
            {"bootstrap_seconds": seconds["bootstrap"], "plain_seconds": extrapolated},
            (f"bootstrap {seconds['bootstrap']:.2f} s, plain {extrapolated:.1f} s",),
            rounds.disturbed,
        )
    ]


INPUT_DOCUMENTS = 4_000


def input_row(batch_size: int, name: str, setting: Setting) -> list[Row]:
    """A benchmark of one epoch of TrainingBatches with shuffling, in this thread."""
    corpus = workloads.synthetic_corpus(
        setting.seed, setting.size.vocab_size, INPUT_DOCUMENTS, setting.directory
    )

    def epoch() -> None:
        batches = TrainingBatches(
            corpus,
            segment_length=setting.size.segment_length,
            batch_size=batch_size,
            seed=setting.seed,
        )
        for step in range(batches.steps_per_epoch):
            batches(step)

    epoch()
    seconds = statistics.median(stopwatch(epoch) for _ in range(setting.rounds))
    tokens = corpus.num_tokens + corpus.num_sentences
    work = f"input pipeline, batches of {batch_size} segments, one core"
    return [Row(name, work, Goal(2e6, 5e6, " targets/s"), tokens / seconds)]


LARGE = Size(vocab_size=120_000, embedding_dim=256, hidden_dim=256)
LARGE_BATCH = (16, 5, 64)
"""The largest batch of the benchmarks of training; it determines the memory of training."""


def output_memory_row(name: str, setting: Setting) -> list[Row]:
    """A benchmark of the temporary memory of a step with a large vocabulary. The step is compiled
    and never run."""
    del setting
    model = LARGE.model("ccdclm")
    ours_bytes = step_memory(model, LARGE_BATCH)
    plain = plain_step_memory(model, LARGE_BATCH)
    return [
        Row(
            name,
            "temporary memory of a ccdclm step, V = 120,000, H = 256, 16 segments of 5 x 64",
            Goal(1 / 8, 1 / 16, " of plain", at_most=True),
            ours_bytes / plain,
            "plain: one softmax over all positions, and updates of all rows of the embedding",
            {"memory_bytes": {OURS: ours_bytes, "plain softmax": plain}},
            (f"ours {ours_bytes / 2**20:,.0f} MiB, plain softmax {plain / 2**20:,.0f} MiB",),
        )
    ]


GROWTH_DOCUMENTS = 2_000


def growth_rows(name: str, setting: Setting) -> list[Row]:
    """Benchmarks of `prepare` and an epoch of batches: the growth of time and memory from a text to
    a text of ten times the length."""
    costs: dict[str, list[growth.Cost]] = {"small": [], "large": []}
    with tempfile.TemporaryDirectory(dir=setting.directory) as folder:
        texts = {
            kind: growth.write_text(pathlib.Path(folder, kind), documents, setting.seed)
            for kind, documents in (("small", GROWTH_DOCUMENTS), ("large", 10 * GROWTH_DOCUMENTS))
        }

        def turn(kind: str) -> float:
            with Worker("growth", "dclm_jax.benchmark.growth", texts[kind]) as worker:
                costs[kind].append(worker.call("cost"))
            return costs[kind][-1].seconds

        rounds = alternate({kind: partial(turn, kind) for kind in texts}, setting.rounds)
    seconds = rounds.seconds
    small, large = costs["small"][0], costs["large"][0]
    written = {kind: max(cost.anonymous for cost in costs[kind]) for kind in costs}
    total = {kind: max(cost.memory for cost in costs[kind]) for kind in costs}
    work = f"prepare and one epoch of batches: {small.tokens:,} and {large.tokens:,} targets"
    return [
        Row(
            f"{name}_time",
            work,
            Goal(10, 10, at_most=True),
            seconds["large"] / seconds["small"],
            "large / small, without the start of Python",
            {"seconds": seconds},
            (f"{seconds['small']:.2f} s and {seconds['large']:.2f} s",),
            rounds.disturbed,
        ),
        Row(
            f"{name}_memory",
            work,
            Goal(1.1, 1.1, at_most=True),
            written["large"] / written["small"],
            "large / small, peak of the memory that the process has written. Pages of mapped files "
            "(corpus and libraries) are excluded, because the system can reclaim them.",
            {"memory_bytes": written, "memory_with_files_bytes": total},
            (
                f"{written['small'] >> 20:,} MiB and {written['large'] >> 20:,} MiB; with pages of "
                f"mapped files {total['small'] >> 20:,} MiB and {total['large'] >> 20:,} MiB",
            ),
        ),
    ]


def startup_row(name: str, setting: Setting) -> list[Row]:
    """A benchmark of the time from the start of a process to the end of its first step, with an
    empty and with a filled compilation cache."""
    job = (setting.size.model("ccdclm"), setting.training_batches(16, 1))
    seconds = {}
    with tempfile.TemporaryDirectory(dir=setting.directory) as cache:
        environment = {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
            # The benchmark's process already holds most of an accelerator's memory.
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        for kind in ("cold", "warm"):
            start = time.perf_counter()
            with Worker("first step", "dclm_jax.benchmark.ours", job, environment) as worker:
                worker.call("turn")
                seconds[kind] = time.perf_counter() - start
    return [
        Row(
            name,
            "time to the first step of ccdclm, 16 segments, from the start of the process",
            details={"first_step_seconds": seconds},
            lines=(
                f"cold {seconds['cold']:.1f} s, warm compilation cache {seconds['warm']:.1f} s",
            ),
        )
    ]


def step_memory(model: DocumentModel, shape_BxSxN: tuple[int, int, int]) -> int:
    """Bytes that our training step needs besides its arguments, on one device."""
    optimizer = create_optimizer(OptimizerConfig(), 1)
    state, batch, key = _arguments(model, optimizer, shape_BxSxN)
    device_batch = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape), a.dtype), batch)
    return _temporary_bytes(parallel_step(model, optimizer).lower(state, device_batch, key))


def plain_step_memory(model: DocumentModel, shape_BxSxN: tuple[int, int, int]) -> int:
    """Bytes that a training step with `plain_nll` needs besides its arguments, on one device."""
    optimizer = create_optimizer(OptimizerConfig(), 1)

    def step(state: TrainState, batch: Batch) -> TrainState:
        gradients = jax.grad(lambda params: plain_nll(model, params, batch))(state.params)
        updates, optimizer_state = optimizer.update(gradients, state.optimizer_state, state.params)
        params = jax.tree.map(jnp.add, state.params, updates)
        return TrainState(state.step + 1, params, optimizer_state)

    state, batch, _ = _arguments(model, optimizer, shape_BxSxN)
    return _temporary_bytes(jax.jit(step, donate_argnums=0).lower(state, batch))


def plain_nll(model: DocumentModel, params: Params, batch: Batch) -> jax.Array:
    """Mean nats per target of a batch, from one softmax over all positions [S*N*B, V]."""
    tokens, targets, mask = time_major(batch)
    context = open_documents(model, params, tokens.shape[-1])
    read = read_sentences(model, params, context, tokens, mask)
    log_probs = jax.nn.log_softmax(
        output_inputs(model, weighted(model, params), read, tokens).logits()
    )
    chosen_F = jnp.take_along_axis(log_probs, targets.reshape(-1, 1), axis=-1)[:, 0]
    return -jnp.sum(jnp.where(mask.reshape(-1), chosen_F, 0)) / jnp.sum(mask)


def _arguments(
    model: DocumentModel,
    optimizer: optax.GradientTransformation,
    shape_BxSxN: tuple[int, int, int],
) -> tuple[Any, Any, Any]:
    """Shapes of state, batch and key, without arrays of these sizes."""

    def make() -> tuple[TrainState, Batch, jax.Array]:
        key, ids = jax.random.key(0), jnp.zeros(shape_BxSxN, jnp.int32)
        batch = Batch(tokens_BxSxN=ids, targets_BxSxN=ids, mask_BxSxN=ids > 0)
        return first_state(model.init(key), optimizer), batch, key

    return jax.eval_shape(make)


def _temporary_bytes(lowered: Any) -> int:
    return lowered.compile().memory_analysis().temp_size_in_bytes
