"""Targets whose compilers are missing, of another version, or broken."""

import importlib.metadata

import jax
import pytest
from jax.experimental import topologies

from dclm_jax.errors import InputError
from dclm_jax.planning.targets import parse_target

COMPILERS = [("tpu-v5e:1x1", "libtpu"), ("h100", "jax-cuda13-plugin")]


def install(monkeypatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda package: version)


@pytest.mark.parametrize(("target", "package"), COMPILERS)
def test_a_missing_package(monkeypatch, target, package):
    def missing(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(
        InputError, match=rf"{package} is missing.*: pip install 'dclm_jax\[plan\]'"
    ):
        parse_target(target)


@pytest.mark.parametrize(("target", "package"), COMPILERS)
def test_a_package_of_another_version(monkeypatch, target, package):
    install(monkeypatch, "0.0.1")
    expected = rf"{package} 0.0.1 is installed; JAX {jax.__version__} needs {package}[<>=]+\d"
    with pytest.raises(InputError, match=expected):
        parse_target(target)


@pytest.mark.parametrize(("target", "package"), COMPILERS)
def test_a_package_that_does_not_work(monkeypatch, target, package):
    def fail(**options):
        raise RuntimeError("no such library\nand more")

    (required,) = {
        text.split(";")[0].partition("=")[2].strip("=").split(",")[0].replace("*", "1")
        for text in importlib.metadata.requires("jax") or ()
        if text.startswith((f"{package}=", f"{package}<"))
    }
    install(monkeypatch, required)
    monkeypatch.setattr(topologies, "get_topology_desc", fail)
    expected = rf"--target is {target}; JAX .* cannot compile for it: no such library\. Install"
    with pytest.raises(InputError, match=expected):
        parse_target(target)
