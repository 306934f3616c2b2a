"""Costs of compiled programs on this machine's CPU, compared with sums by hand."""

import dataclasses

import pytest

from dclm_jax import models
from dclm_jax.data.batches import Shape
from dclm_jax.errors import InputError
from dclm_jax.nn.plan import GPU
from dclm_jax.planning import report
from dclm_jax.planning.programs import Workload, scoring_cost, training_cost
from dclm_jax.planning.targets import Device, parse_target
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.loop import first_shapes
from dclm_jax.training.optimizer import create_optimizer
from tests.exhaustive import also

V, K, H = 50, 8, 16
B, S, N = 4, 2, 8


def workload_of(name: str, **options) -> Workload:
    sizes = {"vocab_size": V, "embedding_dim": K, "hidden_dim": H}
    model = models.create(name=name, **sizes | options)
    optimizer = create_optimizer(OptimizerConfig(), 1)
    return Workload(model, optimizer, first_shapes(model, optimizer))


@pytest.fixture(scope="module")
def cpu():
    return parse_target("cpu")


def test_memory_and_flops_of_a_step(cpu):
    workload = workload_of("rnnlm", num_layers=1, cell="rnn")
    cost = training_cost(workload, Shape(B, S, N), cpu)
    # Embedding, input, recurrence, bias, output kernel and bias; AdaGrad has one sum each.
    parameters = 4 * (V * K + K * H + H * H + H + H * V + V)
    assert cost.parameters == parameters
    assert parameters <= cost.optimizer_state <= parameters + 64
    assert cost.donated
    assert cost.targets == B * S * N
    # The input's product, the recurrence and the output layer, forward; twice that, backward, with
    # the gradient of the output layer's bias; V is padded.
    padded = V + -V % GPU.vocab_multiple
    forward = 2 * B * S * N * (K * H + H * H + H * padded)
    assert cost.flops == 3 * forward + 2 * B * S * N * padded
    assert cost.peak >= cost.parameters + cost.optimizer_state + cost.temporary
    assert not cost.loops_are_known and cost.estimated_seconds is None


def test_scoring_costs_the_forward_pass(cpu):
    workload = workload_of("rnnlm", num_layers=1, cell="rnn")
    cost = scoring_cost(workload, Shape(B, S, N), cpu)
    assert cost.flops == 2 * B * S * N * (K * H + H * H + H * V)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rlm_bow_ef", {}),
        ("hierarchical_autoencoder", {}),
        *also([("adclm", {}), ("rnnslm", {"embedding_dim": H, "hash_size": 1000})]),
    ],
)
def test_models_of_every_kind_have_a_cost(cpu, name, options):
    workload = workload_of(name, **options)
    source = (S, N) if workload.model.reads_source else None
    earlier = workload.model.context_order or 0
    for cost in (training_cost, scoring_cost):
        assert cost(workload, Shape(B, S, N, earlier, source), cpu).flops > 0


def test_a_target_that_does_not_fit(cpu):
    small = dataclasses.replace(cpu, device=Device(memory=1000.0))
    workload = dataclasses.replace(workload_of("rnnlm"), shapes={Shape(B, S, N): 3}, steps=30)
    result = report.plan(workload, small)
    assert result.missing == max(row.cost.peak for row in result.rows) - 1000
    text = "\n".join(report.lines(result))
    assert "it does not fit" in text and report.ESTIMATE in text
    value = report.as_json(result)
    assert (value["fits"], value["missing_bytes"]) == (False, result.missing)


def test_a_roofline_takes_the_longest_of_three():
    device = Device(memory=1e9, flops=1e9, bandwidth=1e9, launch=1e-6)
    target = dataclasses.replace(parse_target("cpu"), device=device, plan=GPU)
    cost = training_cost(workload_of("rnnlm"), Shape(B, S, N), target)
    by_loop = [loop.trips * max(loop.kernels * 1e-6, loop.num_bytes / 1e9) for loop in cost.loops]
    assert cost.estimated_seconds == pytest.approx(max(sum(by_loop), cost.flops / 1e9))


def test_hours_of_a_run(cpu):
    workload = dataclasses.replace(workload_of("rnnlm"), shapes={Shape(B, S, N): 3}, steps=30)
    target = dataclasses.replace(cpu, device=Device(1e9, 1e9, 1e9), plan=GPU)
    result = report.plan(workload, target)
    seconds = result.rows[0].cost.estimated_seconds
    assert seconds and result.hours == pytest.approx(30 * seconds / 3600)


@pytest.mark.parametrize("name", ["tpu-v9:1x1", "tpu-v5e:3x3", "h100:0", "a100", ""])
def test_targets_that_do_not_exist(name):
    with pytest.raises(InputError, match="expected one of cpu, h100"):
        parse_target(name)
