"""Fixtures of the whole suite."""

import os
from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="session", autouse=True)
def compilation(tmp_path_factory) -> None:
    """What one test or one of its subprocesses has compiled, the others load; and LLVM optimises
    little unless told, because compiling takes far longer here than running."""
    if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
        jax.config.update("jax_disable_most_optimizations", True)
    directory = str(tmp_path_factory.mktemp("xla"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = directory
    jax.config.update("jax_compilation_cache_dir", directory)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(scope="module", autouse=True)
def compiled_programs() -> Iterator[None]:
    """Forgets the programs of a file of tests: the mappings of thousands of them exhaust what Linux
    allows a process, and XLA dies of that."""
    yield
    jax.clear_caches()


@pytest.fixture
def x64() -> Iterator[None]:
    """64-bit arithmetic for one test; the rest of the suite keeps JAX's 32-bit default."""
    with jax.enable_x64(True):
        yield
