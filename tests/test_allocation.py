"""Memory that is not there is refused before it is taken."""

import resource

import pytest

from dclm_jax import allocation
from dclm_jax.allocation import machine_memory, require_memory
from dclm_jax.errors import InputError


def test_the_machine_has_some_memory_and_a_limit_counts(monkeypatch):
    whole = machine_memory()
    assert 2**28 < whole < 2**50
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2**28, 2**60))
    assert machine_memory() == 2**28
    monkeypatch.setattr(resource, "getrlimit", lambda which: (-1, -1))
    assert machine_memory() == whole


def test_more_than_there_is_is_refused(monkeypatch):
    monkeypatch.setattr(allocation, "machine_memory", lambda: 2**30)
    require_memory(2**30, "this")
    message = "^this would take at least 1.5 GiB of memory; this machine has 1.0 GiB; choose a "
    with pytest.raises(InputError, match=message):
        require_memory(3 * 2**29, "this")
