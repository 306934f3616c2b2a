"""The memory of the machine."""

import resource

from dclm_jax.allocation import machine_memory


def test_the_machine_has_some_memory_and_a_limit_counts(monkeypatch):
    whole = machine_memory()
    assert 2**28 < whole < 2**50
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2**28, 2**60))
    assert machine_memory() == 2**28
    monkeypatch.setattr(resource, "getrlimit", lambda which: (-1, -1))
    assert machine_memory() == whole
