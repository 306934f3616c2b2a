"""Fixtures and options of the whole suite."""

import contextlib
import inspect
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pytest

from dclm_jax.data.batches import pack_sentences
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.log import logger
from dclm_jax.reading import blocks
from dclm_jax.training import loop
from tests import compiling, exhaustive
from tests.training import support


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive", action="store_true", help="also run what is marked so, and fuzz for longer"
    )


def pytest_configure(config: pytest.Config) -> None:
    exhaustive.asked = config.getoption("exhaustive")
    logger.setLevel(logging.INFO)
    compiling.compile_quickly()
    if not hasattr(config, "workerinput"):
        compiling.bound_cache(compiling.cache_directory())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if exhaustive.asked:
        return
    left = [item for item in items if item.get_closest_marker("exhaustive")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]


@pytest.fixture(scope="session", autouse=True)
def compilation() -> None:
    """What one test or one of its subprocesses has compiled, the others load, in later runs too, be
    it ever so small: small programs are many."""
    directory = str(compiling.cache_directory())
    os.environ["JAX_COMPILATION_CACHE_DIR"] = directory
    jax.config.update("jax_compilation_cache_dir", directory)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


@pytest.fixture(autouse=True)
def compiled_programs() -> Iterator[None]:
    """Forgets compiled programs once they have a third of the 65,530 memory mappings that Linux
    allows a process: XLA dies if none is left."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def no_warnings(request, caplog) -> Iterator[None]:
    """Warnings in the log are errors, like other warnings, in tests that neither read the log nor
    read random text."""
    yield
    if {"caplog", "place"}.isdisjoint(inspect.signature(request.function).parameters):
        records = caplog.get_records("call")
        assert not [record for record in records if record.levelno >= logging.WARNING]


@pytest.fixture
def warns(caplog) -> Callable[[str], contextlib.AbstractContextManager[None]]:
    """A context in which the library logs one warning, which matches a regular expression."""

    @contextlib.contextmanager
    def logging_one(pattern: str) -> Iterator[None]:
        yield
        (message,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert re.search(pattern, message)
        caplog.clear()

    return logging_one


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory for files that every example of a test writes anew."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> dict[str, str]:
    """A text for every split, which all tests read and none changes, like all that follow."""
    return support.write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="session")
def data(texts, tmp_path_factory) -> Path:
    """The prepared corpus of `texts`."""
    directory = tmp_path_factory.mktemp("data") / "prepared"
    prepare(texts, directory, options=PrepareOptions(vocab_size=20))
    return directory


@pytest.fixture(scope="session")
def uninterrupted(data, tmp_path_factory) -> Path:
    """A finished run of 12 steps on `data`."""
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    result = loop.train(support.config(data), workdir)
    assert (result.ending, result.step) == ("finished", 12)
    return workdir


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Path:
    """A workdir with a checkpoint for use and one for resuming, made without training."""
    return support.save_checkpoints(tmp_path_factory.mktemp("saved") / "run")


@pytest.fixture
def x64() -> Iterator[None]:
    """64-bit arithmetic for one test; the rest of the suite keeps JAX's 32-bit default."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def shapes(monkeypatch) -> list[tuple[int, int, int]]:
    """The shapes B, S and N of the blocks that are packed."""
    packed = []

    def spy(rows, size, length):
        packed.append((len(rows), size, length))
        return pack_sentences(rows, size, length)

    monkeypatch.setattr(blocks, "pack_sentences", spy)
    return packed
