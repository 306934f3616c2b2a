"""`launch.plan` on this machine's CPU, and with the compilers for TPUs and H100s."""

import importlib.util
import subprocess
import sys

import jax
import pytest

from dclm_jax import models
from dclm_jax.data.batches import Shape
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.job import first_shapes
from dclm_jax.training.optimizer import create_optimizer
from launch import plan
from tests.training.support import config

V, K, H = 50, 8, 16
B, S, N = 4, 2, 8


def workload(name: str, **options) -> plan.Workload:
    options = {"vocab_size": V, "embedding_dim": K, "hidden_dim": H, **options}
    model = models.create(name=name, **options)
    optimizer = create_optimizer(OptimizerConfig(), 1)
    shape = Shape(B, S, N, model.context_order or 0, model.reads_source)
    return plan.Workload(model, optimizer, first_shapes(model, optimizer), "token", shape)


def test_memory_and_flops_of_a_step():
    work = workload("rnnlm", num_layers=1, cell="rnn")._replace(share_real=0.5)
    cost = plan.costs(work, jax.devices("cpu")[:1], memory=2**20)
    # Embedding, input, recurrence, bias, output kernel and bias; AdaGrad has one sum each.
    parameters = V * K + K * H + H * H + H + H * V + V
    assert cost["parameters"] == parameters
    assert cost["argument_bytes"] >= 2 * 4 * parameters
    assert cost["peak_bytes"] >= cost["argument_bytes"] + cost["temporary_bytes"]
    assert cost["fits"]
    # The input's product, the recurrence and the output layer, forward; twice that, backward, with
    # the gradient of the output layer's bias.
    forward = 2 * B * S * N * (K * H + H * H + H * V)
    assert cost["useful_flops"] == 0.5 * (3 * forward + 2 * B * S * N * V)
    assert not plan.costs(work, jax.devices("cpu")[:1], memory=1000)["fits"]


def test_useful_flops_have_no_recomputation_and_no_reading_of_the_previous_segment():
    work = workload("ccdclm")
    again = workload("ccdclm", remat=True)._replace(shape=work.shape._replace(earlier=S))
    useful, same = (
        plan.costs(step, jax.devices("cpu")[:1], memory=0)["useful_flops"] for step in (work, again)
    )
    assert useful == same


def test_the_share_of_targets_belongs_to_the_largest_batch(tmp_path):
    """Of three batches of four segments one has a long sentence."""
    documents = [["a b c"] * 5] * 11 + [["a b c"] * 4 + ["a b " * 10]]
    texts = {"train": "\n\n".join(map("\n".join, documents)), "valid": "c b a"}
    for split, text in texts.items():
        (tmp_path / split).write_text(text)
    sources = {split: str(tmp_path / split) for split in texts}
    prepare(sources, tmp_path / "prepared", options=PrepareOptions(vocab_size=10))
    # With this seed the largest batch is not the first.
    settings = config(tmp_path / "prepared", **{"training.seed": 1})
    work = plan._workload(plan.Options(config=settings))
    assert work.shape == (4, 5, 32, 0, False)
    assert work.share_real == (19 * 4 + 21) / (4 * 5 * 32)


@pytest.mark.parametrize("fits", [True, False])
def test_text(fits):
    work = workload("rnnlm")
    cost = plan.costs(work, jax.devices("cpu")[:1], memory=2**40 * fits)
    result = {"target": "h100", "devices": 1, "model": "rnnlm", "share_real": 1.0}
    *_, last = plan._lines({**result, "shape": work.shape._asdict(), **cost})
    assert last.startswith("it fits: " if fits else "it does not fit: ")


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["v5e", "h100"])
def test_every_model_compiles(target):
    """In a process of its own: the compilers set environment variables. Skipped without them: they
    take 1 GB, and the extra `test` does not have them."""
    package = {"v5e": "libtpu", "h100": "jax_cuda13_plugin"}[target]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is missing: pip install -e '.[plan]'")
    subprocess.run([sys.executable, "-m", "tests.launch.test_plan", target], check=True)


def compile_all(target: str) -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_compilation_cache", False)
    for count in (1, 4):
        devices = plan._devices(target, count)
        for name in models.MODELS:
            is_lin = name in ("rnn_lin", "rnnslm", "hrnnlm_two_step")
            work = workload(name, **({"hash_size": 1000, "embedding_dim": H} if is_lin else {}))
            cost = plan.costs(work, devices, plan.MEMORY[target])
            assert cost["fits"] and cost["useful_flops"] > 0, name


if __name__ == "__main__":
    compile_all(sys.argv[1])
