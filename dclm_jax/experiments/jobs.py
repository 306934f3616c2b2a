"""Runs commands as processes of this machine, with a limit on their number."""

import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dclm_jax import storage

_POLL_SECONDS = 0.1


class Ended(NamedTuple):
    """A process that has ended: its name, its exit code, and the seconds since its start."""

    name: str
    code: int
    seconds: float


def run(
    commands: Mapping[str, Sequence[str]],
    logs: Path,
    *,
    at_once: int,
    interrupted: Callable[[], bool],
) -> Generator[Ended, None, None]:
    """Runs commands, and yields each process when it has ended.

    Once `interrupted()` is true, no further command is started, and running commands get one
    SIGTERM. A second SIGTERM would end training before it saves.

    Args:
      commands: program and arguments by name, in the order in which they are started.
      logs: folder for standard output, NAME.out, to which a later start appends, and for standard
        error of the last start, NAME.err.
      at_once: maximum number of commands that run at a time.
      interrupted: function that returns whether to stop.
    """
    logs.mkdir(parents=True, exist_ok=True)
    waiting = list(commands.items())
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    is_stopping = False
    try:
        while waiting or running:
            if interrupted() and not is_stopping:
                is_stopping = True
                waiting.clear()
                _terminate(running)
            elif waiting and len(running) < at_once:
                name, command = waiting.pop(0)
                running[name] = _start(command, logs / name), time.monotonic()
            for name, (process, start) in list(running.items()):
                if (code := process.poll()) is not None:
                    del running[name]
                    yield Ended(name, code, time.monotonic() - start)
            time.sleep(_POLL_SECONDS)
    finally:
        if not is_stopping:
            _terminate(running)
        for process, _ in running.values():
            process.wait()


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with (
        storage.open_to_append(log.with_name(f"{log.name}.out")) as output,
        storage.open_to_append(log.with_name(f"{log.name}.err")) as errors,
    ):
        errors.truncate(0)
        # Ctrl-C in a terminal then reaches only this process, which forwards it.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )


def _terminate(running: Mapping[str, tuple[subprocess.Popen[bytes], float]]) -> None:
    for process, _ in running.values():
        process.send_signal(signal.SIGTERM)
