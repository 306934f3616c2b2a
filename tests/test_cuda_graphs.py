"""Options of XLA for CUDA graphs: where they are set, and that CPUs accept them."""

import importlib.util
import os
import subprocess
import sys

import pytest

from dclm_jax.cuda_graphs import as_flags, use_cuda_graphs


def flags_after(monkeypatch, platforms: str, plugins: tuple[str, ...], given: str | None) -> object:
    """XLA_FLAGS after `use_cuda_graphs`, with these plugins installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in plugins or None)
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if given is not None:
        monkeypatch.setenv("XLA_FLAGS", given)
    use_cuda_graphs()
    return os.environ.get("XLA_FLAGS")


@pytest.mark.parametrize("platforms", ["", "cuda", "gpu", "cuda,cpu"])
def test_options_are_set_for_a_gpu(monkeypatch, platforms):
    flags = flags_after(monkeypatch, platforms, ("jax_cuda13_plugin",), None)
    assert flags == as_flags()


@pytest.mark.parametrize(
    ("platforms", "plugins", "given"),
    [
        ("cpu", ("jax_cuda13_plugin",), None),
        ("", (), None),
        ("", ("jax_cuda12_plugin",), ""),
        ("cuda", ("jax_cuda12_plugin",), "--xla_force_host_platform_device_count=2"),
    ],
)
def test_other_platforms_and_flags_of_the_user_stay(monkeypatch, platforms, plugins, given):
    assert flags_after(monkeypatch, platforms, plugins, given) == given


def test_xla_on_cpus_knows_the_options():
    code = "import jax; print(jax.jit(lambda x: x + 1)(1.0))"
    environment = {**os.environ, "XLA_FLAGS": as_flags(), "JAX_PLATFORMS": "cpu"}
    finished = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert finished.stdout == "2.0\n"
