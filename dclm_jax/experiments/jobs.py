"""Runs commands as processes of this machine, with a limit on their number."""

import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
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
    is_closed = threading.Event()

    def run_command(name: str) -> Ended | None:
        """Runs a command to its end, or ends it by SIGTERM once `run` stops. The result is None if
        the command is not started."""
        if interrupted() or is_closed.is_set():
            return None
        start = time.monotonic()
        with (
            storage.open_to_append(logs / f"{name}.out") as output,
            storage.open_to_append(logs / f"{name}.err") as errors,
        ):
            errors.truncate(0)
            # Ctrl-C in a terminal then reaches only this process, which forwards it.
            process = subprocess.Popen(
                commands[name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        while process.poll() is None and not (interrupted() or is_closed.is_set()):
            time.sleep(_POLL_SECONDS)
        process.terminate()
        return Ended(name, process.wait(), time.monotonic() - start)

    with ThreadPoolExecutor(at_once) as pool:
        try:
            for future in as_completed([pool.submit(run_command, name) for name in commands]):
                if (end := future.result()) is not None:
                    yield end
        finally:
            is_closed.set()
