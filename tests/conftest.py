"""Fixtures of the whole suite."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def x64() -> Iterator[None]:
    """64-bit arithmetic for one test; the rest of the suite keeps JAX's 32-bit default."""
    with jax.enable_x64(True):
        yield
