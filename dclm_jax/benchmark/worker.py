"""Contenders in separate processes, which take their turns on request.

Each peak of memory then belongs to one contender, and the threads and global settings of a
contender do not affect others. DyNet, which is configured once per process, can run with and
without autobatching. Requests and replies are pickles in a pipe; a process measures its own time.
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
    """The work of a contender.

    Attributes:
      task: "train" or "score".
      model: name of the model.
      params: tree of parameters as numpy arrays.
      batches: for each batch its documents; a document is a list of sentences of int32 word ids.
      accelerated: whether to use the peer's accelerator, if there is one.
      precision: precision of products on the accelerator: default, highest or bfloat16.
      options: options of the peer.
    """

    task: str
    model: str
    params: dict[str, Any]
    batches: list[list[list[Any]]]
    accelerated: bool = False
    precision: str = "default"
    options: Mapping[str, Any] = {}


class Worker:
    """A process with a contender made from a job; the end of a `with` block ends the process."""

    def __init__(
        self,
        name: str,
        module: str,
        job: Any,
        environment: Mapping[str, str] = {},
        *,
        keep_memory: bool = True,
    ):
        """Starts the process, in which `create(job)` of `module` makes the contender, and does not
        wait for it. With `keep_memory` the process keeps freed memory, as our commands do."""
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
        """The error that ended the process, from the last line of its output."""
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().split("\n")
        self.__exit__()
        return PeerError(f"{self._name} failed: {lines[-1] or 'it ended'}")


def serve(create: Callable[[Any], Any]) -> None:
    """Makes the contender inside the process, and answers calls until the pipe is closed."""
    replies = os.fdopen(os.dup(1), "wb")
    # Output of libraries must not be mixed with the replies.
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
    """The maximum number of bytes that this process has had in memory so far (Linux only).

    `ru_maxrss` is not suitable: a process inherits the value of the process that started it.
    """
    return _status("VmHWM")


class AnonymousPeak:
    """The maximum number of bytes in memory, without pages of files, of this process during a
    `with` block; measured at its ends and every few milliseconds (Linux only)."""

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
    """The bytes of a field of this process's status, which has lines "FIELD: KIBIBYTES kB"."""
    status = pathlib.Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    if "keep" in sys.argv[2:]:
        keep_freed_memory()
    serve(importlib.import_module(sys.argv[1]).create)
