"""Targets whose compilers are missing, of another version, or broken."""

import importlib.metadata

import jax
import pytest
from jax.experimental import topologies

from dclm_jax.errors import InputError
from dclm_jax.planning.targets import parse_target


@pytest.mark.parametrize(
    ("target", "package"), [("tpu-v5e:1x1", "libtpu"), ("h100", "jax-cuda13-plugin")]
)
def test_a_compiler_is_named_and_its_fault(monkeypatch, target, package):
    (required,) = {
        text.split(";")[0].partition("=")[2].strip("=").split(",")[0].replace("*", "1")
        for text in importlib.metadata.requires("jax") or ()
        if text.startswith((f"{package}=", f"{package}<"))
    }

    def missing(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    def fail(**options):
        raise RuntimeError("no such library\nand more")

    monkeypatch.setattr(topologies, "get_topology_desc", fail)
    other = rf"{package} 0.0.1 is installed; JAX {jax.__version__} needs {package}[<>=]+\d"
    broken = rf"--target is {target}; JAX .* cannot compile for it: no such library\. Install"
    for version, message in (
        (missing, rf"{package} is missing.*: pip install 'dclm_jax\[plan\]'"),
        (lambda package: "0.0.1", other),
        (lambda package: required, broken),
    ):
        monkeypatch.setattr(importlib.metadata, "version", version)
        with pytest.raises(InputError, match=message):
            parse_target(target)
