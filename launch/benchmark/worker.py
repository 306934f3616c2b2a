"""Peers in separate processes, which take their turns on request.

Each peak of memory then belongs to one peer, and the threads and global settings of a peer do not
affect others.
"""

import importlib
import multiprocessing
import os
import pathlib
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

from dclm_jax.allocation import keep_freed_memory

from .timing import PeerError


class PeerJob(NamedTuple):
    """The work of a peer.

    Attributes:
      scores: whether the peer scores or trains.
      model: name of the model.
      params: tree of parameters as numpy arrays.
      batches: for each batch its documents; a document is a list of sentences of int32 word ids.
      accelerated: whether to use the peer's accelerator, if there is one.
      precision: precision of products on the accelerator: default, highest or bfloat16.
      options: options of the peer.
    """

    scores: bool
    model: str
    params: dict[str, Any]
    batches: list[list[list[Any]]]
    accelerated: bool = False
    precision: str = "default"
    options: Mapping[str, Any] = {}


class Worker:
    """A process with the peer that `make_peer(job)` of a module makes; the end of a `with` block
    ends the process."""

    def __init__(self, name: str, module: str, job: PeerJob, *, keep_memory: bool):
        """Prepares the process. With `keep_memory` it keeps freed memory, as our commands do."""
        self._name = name
        self._pool = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_create,
            initargs=(module, job, keep_memory),
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()

    def call(self, method: str) -> Any:
        """Calls a method of the peer and returns its result.

        Raises:
          PeerError: the method failed, or the process died.
        """
        try:
            return self._pool.submit(_call, method).result()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise PeerError(f"{self._name} failed: {reason}") from error


_PEER: list[Any] = []
"""The peer of this process."""


def _create(module: str, job: PeerJob, keep_memory: bool) -> None:
    if keep_memory:
        keep_freed_memory()
    _PEER.append(importlib.import_module(module).make_peer(job))


def _call(method: str) -> Any:
    return getattr(_PEER[0], method)()


def process_memory() -> int:
    """The maximum number of bytes that this process has had in memory so far (Linux only).

    `ru_maxrss` is not suitable: a process inherits the value of the process that started it.
    """
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
