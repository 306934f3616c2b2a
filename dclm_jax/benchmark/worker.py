"""Contenders in processes of their own, which take their turns when they are asked.

Peak memory then belongs to one contender, its threads and global settings disturb no other, and
DyNet, which is configured once a process, can run both with and without autobatching. Requests and
replies are pickles over a pipe; time is taken inside the process.
"""

import contextlib
import importlib
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dclm_jax.allocation import keep_freed_memory
from dclm_jax.benchmark.timing import PeerError


class Job(NamedTuple):
    """What a contender is made from.

    Attributes:
      task: "train" or "score".
      model: its name.
      params: the parameter tree as numpy arrays.
      batches: documents of each batch, each a list of sentences, each int32 ids of words.
      accelerated: use the peer's accelerator, if it has one.
      options: of the peer.
    """

    task: str
    model: str
    params: dict[str, Any]
    batches: list[list[list[Any]]]
    accelerated: bool = False
    options: Mapping[str, Any] = {}


class Worker:
    """A process that made a contender from a job; in a `with` block, which ends it."""

    def __init__(
        self,
        name: str,
        module: str,
        job: Any,
        environment: Mapping[str, str] = {},
        *,
        keep_memory: bool = True,
    ):
        """Starts the process, in which `create(job)` of `module` makes the contender; does not
        wait for it. With `keep_memory` the process keeps what it frees, as our launchers do."""
        self._name = name
        self._errors = tempfile.TemporaryFile()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dclm_jax.benchmark.worker", module, *["keep"] * keep_memory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
        self._send(job)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def call(self, method: str) -> Any:
        """Calls a method of the contender and returns its result.

        Raises:
          PeerError: the process died.
        """
        assert self._process.stdout is not None
        self._send(method)
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise self._failure() from None

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def _failure(self) -> PeerError:
        """The error that ended the process, in the last line it wrote."""
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().split("\n")
        self.__exit__()
        return PeerError(f"{self._name} failed: {lines[-1] or 'it ended'}")


def serve(create: Callable[[Any], Any]) -> None:
    """The process's side: makes the contender, then answers calls until the pipe is closed."""
    replies = os.fdopen(os.dup(1), "wb")
    # What libraries print must not get among the replies.
    os.dup2(2, 1)
    contender = create(pickle.load(sys.stdin.buffer))
    while True:
        try:
            method = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(getattr(contender, method)(), replies)
        replies.flush()


def peak_memory() -> int:
    """The most bytes this process has had in memory so far (Linux only).

    `ru_maxrss` would not do: a process inherits that of the one which started it.
    """
    return _status("VmHWM")


class AnonymousPeak:
    """In a `with` block: the most bytes that this process had in memory which are no pages of
    files, looked at when it begins, every few milliseconds and when it ends (Linux only)."""

    bytes = 0

    def __enter__(self) -> "AnonymousPeak":
        self._look()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self._look()

    def _look(self) -> None:
        self.bytes = max(self.bytes, _status("RssAnon"))


def _status(field: str) -> int:
    """Bytes, from this process's lines "FIELD: KIBIBYTES kB"."""
    status = pathlib.Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    if "keep" in sys.argv[2:]:
        keep_freed_memory()
    serve(importlib.import_module(sys.argv[1]).create)
