"""Printed training progress (parameter table, rate, ETA), and signals that stop training early."""

import datetime
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dclm_jax import processes
from dclm_jax.models.base import Params
from dclm_jax.training.freezing import by_path


def parameter_table(
    params: Params, frozen: Collection[str] = (), notes: Mapping[str, str] | None = None
) -> str:
    """A table with one line per parameter array (path, shape, count, notes), the total, and the
    number of trained parameters if some are frozen.

    Args:
      frozen: paths of parameters that are not trained.
      notes: notes by path.
    """
    leaves, notes, rows = by_path(params), notes or {}, []
    for path, leaf in leaves.items():
        remarks = filter(None, (notes.get(path), "frozen" if path in frozen else None))
        rows.append((path, shape_text(leaf.shape), leaf.size, ", ".join(remarks)))
    rows.append(("total", "", count_parameters(leaves), ""))
    if frozen:
        trained = {path: leaf for path, leaf in leaves.items() if path not in frozen}
        rows.append(("trained", "", count_parameters(trained), ""))
    width, shape_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(
        f"  {path:{width}}  {shape:>{shape_width}}  {n:>12,}  {remark}".rstrip()
        for path, shape, n, remark in rows
    )


def shape_text(shape: Sequence[int]) -> str:
    """A shape as text, such as "128 x 384"."""
    return " x ".join(map(str, shape))


def count_parameters(params: Params) -> int:
    """The number of scalars in a parameter tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def duration(seconds: float) -> str:
    """Seconds as 1:02:03."""
    return str(datetime.timedelta(seconds=int(seconds)))


class ProgressLine:
    """Prints training progress as a live line on a terminal and as plain lines elsewhere, and
    measures training time without compilation."""

    def __init__(self, step: int, total_steps: int, report: Callable[[str], None], measure: str):
        """Starts the clock.

        Args:
          step: number of training steps so far.
          total_steps: number of training steps of the run.
          report: called with each permanent line.
          measure: name of the perplexity.
        """
        self._first, self._total, self._measure = step, total_steps, measure
        self._compilation = 0.0
        self._start = self.seconds()
        self.say, self._live = report, None
        if sys.stderr.isatty():
            console = Console(stderr=True)
            columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
            self._live = Progress(*columns, console=console, transient=True, get_time=self.seconds)
            self._task = self._live.add_task("starting", total=total_steps, completed=step)
            self._live.start()
            self.say = self._live.print

    def seconds(self) -> float:
        """Seconds since an arbitrary origin, excluding compilation time."""
        return time.monotonic() - self._compilation

    @contextmanager
    def compiling(self, text: str) -> Iterator[None]:
        """Prints a text, and stops the clock during the block."""
        if self._live:
            self._live.update(self._task, description=text)
        else:
            self.say(text)
        start = time.monotonic()
        try:
            yield
        finally:
            self._compilation += time.monotonic() - start

    def update(self, step: int, epoch: int, text: str) -> None:
        """Prints the step, the epoch, the text and the ETA."""
        text = f"step {step}/{self._total}  epoch {epoch}  train {self._measure} {text}"
        elapsed = self.seconds() - self._start
        left = elapsed / max(1, step - self._first) * (self._total - step)
        if self._live:
            self._live.update(self._task, completed=step, description=text)
        else:
            self.say(f"{text}  ETA {duration(left)}")

    def close(self) -> None:
        if self._live:
            self._live.stop()


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Turns the first SIGTERM or Ctrl-C into a flag, so that the work can be saved and stopped.

    A second signal acts as usual. Yields a function that returns True once a signal has been
    received.
    """
    received: list[int] = []
    previous: dict[int, Any] = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}

    def note(number: int, frame: object) -> None:
        del frame
        received.append(number)
        signal.signal(number, previous[number])

    for number in previous:
        signal.signal(number, note)
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def agreed_interruption() -> Iterator[Callable[[], bool]]:
    """Like `interruption`, but a signal to any process stops all processes of the job.

    Yields a function, to be called after every step, that returns whether to stop.
    """
    if processes.count() == 1:
        with interruption() as interrupted:
            yield interrupted
        return
    # JAX catches SIGTERM and notifies the other processes.
    previous = signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    try:
        yield processes.stop_agreed
    finally:
        signal.signal(signal.SIGINT, previous)
