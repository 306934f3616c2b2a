"""The parameter table, shapes and durations as text, and signals that stop training early."""

import datetime
import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax

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


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Turns the first SIGTERM or Ctrl-C into a flag, so that the work can be saved and stopped.

    A second signal acts as usual. In a job of several processes a signal to any process stops all
    processes, and further signals are ignored. Yields a function, to be called after every step,
    that returns whether to stop.
    """
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
