"""Fixtures of the command line tests."""

import shutil
import signal

import pytest

from dclm_jax.evaluation import results
from tests.launch.support import Workspace


@pytest.fixture(scope="session")
def space(tmp_path_factory) -> Workspace:
    """Read by all tests, and left as it is."""
    return Workspace(tmp_path_factory.mktemp("commands"))


@pytest.fixture
def interruptible():
    """Programs end at SIGINT. A shell starts jobs in the background with SIGINT ignored, which
    programs inherit."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture(autouse=True)
def measured_anew(space, monkeypatch):
    """What runs of `space` have saved is not read, and removed: tests of other things measure."""
    monkeypatch.setattr(results, "_saved_value", lambda path, identity: None)
    yield
    for folder in space.root.glob("*/results"):
        shutil.rmtree(folder)
