"""Signals that stop training early."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dclm_jax import processes


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Turns the first SIGTERM or Ctrl-C into a flag, so that the work can be saved and stopped.

    A second signal acts as usual. In a job of several processes a signal to any process stops all
    processes, and further signals are ignored. Only the main thread of Python receives signals; in
    other threads nothing changes. Yields a function, to be called after every step, that returns
    whether to stop.
    """
    if threading.current_thread() is not threading.main_thread():
        yield processes.stop_agreed if processes.count() > 1 else bool
        return
    if processes.count() > 1:
        # JAX catches SIGTERM and notifies the other processes.
        handler = signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        try:
            yield processes.stop_agreed
        finally:
            signal.signal(signal.SIGINT, handler)
        return
    received: list[int] = []
    previous: dict[int, Any] = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}

    def note(number: int, frame: object) -> None:
        del frame
        received.append(number)
        # A second SIGTERM ends the process at once.
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else previous[number])

    for number in previous:
        signal.signal(number, note)
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
