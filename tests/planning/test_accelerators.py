"""Training steps and scoring, compiled for TPUs and H100s without such a device."""

import dataclasses
import functools
import importlib.util
from collections.abc import Iterator

import pytest

from dclm_jax import models
from dclm_jax.data.batches import Shape
from dclm_jax.errors import InputError
from dclm_jax.models import MODELS
from dclm_jax.planning.programs import Cost, Workload, scoring_cost, training_cost
from dclm_jax.planning.targets import Target, parse_target
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.loop import first_shapes
from dclm_jax.training.optimizer import create_optimizer
from tests.compiling import without_cache
from tests.exhaustive import pairs
from tests.models.support import LIN

# Four bytes per word are more than any array without an axis of words has in a loop.
V, H = 10_007, 8
# The output layer takes three chunks on one device, and one chunk on each of four.
B, S, N, CHUNK = 12, 2, 16, 128

TPU, H100 = "tpu-v5e:1x1", "h100"
FOUR_TPUS, FOUR_H100 = "tpu-v5e:2x2", "h100:4"
# A plain scan per sentence, and one with attention.
KINDS = ("ccdclm", "adclm")

# Maximum number of kernels in loops over tokens and sentences, per position of a sentence, on a TPU
# and on an H100. An H100 reads one sentence per round, so that kernels between sentences count. A
# fused scan on a TPU is one kernel and no loop. With hashed features a TPU also reads the logits of
# a chunk in a loop over its tokens: `rnn_lin`, `hrnnlm_two_step`.
KERNELS_PER_TOKEN = {
    "rnnlm": (0, 8),
    "drnnlm": (0, 19),
    "pointer_drnnlm": (0, 24),
    "hrnnlm": (3, 12),
    "ccdclm": (0, 20),
    "codclm": (1, 11),
    "adclm": (0, 54),
    "rlm": (0, 8),
    "rlm_bow_ef": (5, 12),
    "rlm_bow_lf": (5, 16),
    "rlm_seqbow_ef": (6, 12),
    "rlm_seqbow_lf": (6, 17),
    "rlm_seqbow_att_ef": (6, 21),
    "rlm_seqbow_att_lf": (6, 26),
    "rnn_lin": (48, 7),
    "rnnslm": (2, 3),
    "hrnnlm_two_step": (50, 9),
    "standard_autoencoder": (0, 31),
    "hierarchical_autoencoder": (0, 28),
    "hierarchical_attention_autoencoder": (0, 30),
}
# On TPUs the part of a chunk's logits that is gathered is then laid out anew, in VMEM.
GATHERED_LOGITS = ("codclm", "rnn_lin", "hrnnlm_two_step")
# On H100s the memory is copied for every sentence.
MEMORY = ("pointer_drnnlm",)


@pytest.fixture(scope="module", autouse=True)
def no_cache() -> Iterator[None]:
    """JAX would write these programs to its cache, and cannot load them."""
    with without_cache():
        yield


def is_tpu(target: str) -> bool:
    return target.startswith("tpu")


@functools.cache
def target_of(name: str) -> Target:
    package = "libtpu" if is_tpu(name) else "jax_cuda13_plugin"
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is missing: pip install -e '.[plan]'")
    target = parse_target(name)
    plan = dataclasses.replace(target.plan, chunk_logits=CHUNK * V, short_chunks=1, only_chunks=1)
    return dataclasses.replace(target, plan=plan)


def workload(name: str, vocab_size: int = V, hidden_dim: int = H) -> tuple[Workload, Shape]:
    model = models.create(
        name, vocab_size=vocab_size, embedding_dim=H, hidden_dim=hidden_dim, num_layers=1
    )
    optimizer = create_optimizer(OptimizerConfig(), 1)
    planned = Workload(model, optimizer, first_shapes(model, optimizer))
    source = (S, N) if model.reads_source else None
    # XLA moves a memory of 3 batch elements per device in loops on TPUs.
    rows = 4 * B if name in MEMORY else B
    return planned, Shape(rows, S, N, model.context_order or 0, source)


def kernels_per_token(cost: Cost) -> float:
    loops = [loop for loop in cost.loops if loop.name and not loop.is_over_chunks]
    return sum(loop.trips * loop.kernels for loop in loops) / N


def check_loops(cost: Cost, target: str, name: str) -> None:
    assert kernels_per_token(cost) <= KERNELS_PER_TOKEN[name][0 if is_tpu(target) else 1]
    if name not in (GATHERED_LOGITS if is_tpu(target) else MEMORY):
        assert all(loop.largest_copy < 4 * V for loop in cost.loops if loop.name)


@pytest.mark.parametrize(
    ("target", "name"),
    pairs(
        (TPU, H100),
        MODELS,
        [*((TPU, name) for name in MODELS), *((H100, name) for name in KINDS)],
    ),
)
def test_training_on_one_device(target, name):
    cost = training_cost(*workload(name), target_of(target))
    assert cost.donated
    assert cost.all_reduces == 0
    check_loops(cost, target, name)


@pytest.mark.parametrize(
    ("target", "name"),
    pairs(
        (FOUR_TPUS, FOUR_H100), MODELS, [*((target, KINDS[0]) for target in (FOUR_TPUS, FOUR_H100))]
    ),
)
def test_training_on_four_devices(target, name):
    cost = training_cost(*workload(name), target_of(target))
    assert cost.donated
    # Gradients of hashed slices have their own, and are smaller than the parameters.
    assert 1 <= cost.all_reduces <= (1 if is_tpu(target) else 2) + (name in LIN)
    assert name in LIN or cost.reduced >= cost.parameters
    check_loops(cost, target, name)


@pytest.mark.parametrize(
    ("target", "name"),
    pairs((TPU, H100), MODELS, [*((target, KINDS[1]) for target in (TPU, H100))]),
)
def test_scoring(target, name):
    cost = scoring_cost(*workload(name), target_of(target))
    assert cost.flops > 0
    check_loops(cost, target, name)


def test_a_run_that_the_compiler_for_tpus_refuses():
    """More parameters than memory."""
    target = target_of(TPU)
    planned, shape = workload("rnnlm", vocab_size=200_000_000)
    cost = training_cost(planned, shape, target)
    assert cost.peak > target.device.memory
    assert cost.estimated_seconds is None


def test_sizes_beyond_the_integers_of_xla_are_refused():
    planned, shape = workload("drnnlm", hidden_dim=10**9)
    with pytest.raises(InputError, match=r"cannot be compiled \(INVALID.*; use smaller sizes$"):
        training_cost(planned, shape, target_of(H100))
