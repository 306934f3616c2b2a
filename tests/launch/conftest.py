"""Fixtures of the command line tests."""

import pytest

from tests.launch.support import Workspace


@pytest.fixture(scope="session")
def space(tmp_path_factory) -> Workspace:
    """Read by all tests, and left as it is."""
    return Workspace(tmp_path_factory.mktemp("commands"))
