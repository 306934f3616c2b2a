"""What a run leaves on disk, kept by the first process for all of them."""

import contextlib
from collections.abc import Mapping
from typing import Any

from dclm_jax import processes, storage
from dclm_jax.data.corpus import Corpus
from dclm_jax.models.base import Params
from dclm_jax.training.checkpoints import Checkpoints, trained_steps
from dclm_jax.training.metrics import MetricsLog
from dclm_jax.training.mirror import Workplace, workplace
from dclm_jax.training.result import Result, forget_result, keep_result
from dclm_jax.training.step import TrainState
from dclm_jax.training.workdir import claim, writing


class Records:
    """The workdir of a run that is going on.

    Every process makes one and calls its methods, which meet: an error on the first process is an
    error on all. Only `write` is the first one's alone, because it comes too often for a meeting.
    """

    _place: Workplace
    _checkpoints: Checkpoints
    _log: MetricsLog

    def __init__(
        self,
        workdir: storage.Location,
        config: Mapping[str, Any],
        corpus: Corpus,
        total_steps: int,
    ):
        """Takes possession of the workdir.

        Raises:
          InputError: it is in use, holds another run or a longer one, or cannot be written.
        """
        self._stack = contextlib.ExitStack()

        def take() -> None:
            self._place = self._stack.enter_context(workplace(workdir))
            directory = self._place.directory
            self._stack.enter_context(writing(directory))
            done = trained_steps(directory)
            claim(directory, config, corpus.vocabulary, corpus.checksums, total_steps, done)
            forget_result(directory)
            checkpoints = contextlib.closing(Checkpoints(directory))
            self._checkpoints = self._stack.enter_context(checkpoints)

        with self._stack:
            processes.on_first(take)
            self._stack = self._stack.pop_all()

    def restore(self, state: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """The newest sound state and its progress, or None in a new workdir.

        Args:
          state: any, for its shapes and dtypes.

        Raises:
          InputError: checkpoints exist and none is sound.
        """
        restored = state

        def read() -> dict[str, Any] | None:
            nonlocal restored
            found = self._checkpoints.restore(state)
            if found is None:
                return None
            restored, progress = found
            return progress

        progress = processes.on_first(read)
        return None if progress is None else (processes.from_first(restored), progress)

    def open_log(self, step: int) -> None:
        """Drops metrics after `step`, and takes new ones from now on.

        Raises:
          InputError: they cannot be written.
        """

        def make() -> None:
            self._log = self._stack.enter_context(MetricsLog(self._place.directory, step))
            self._place.keep(self._checkpoints.wait)

        processes.on_first(make)

    def write(self, kind: str, step: int, **values: float) -> None:
        """A line of metrics, as `MetricsLog.write`."""
        if processes.is_first():
            self._log.write(kind, step, **values)

    def save_latest(self, state: TrainState, progress: Mapping[str, Any]) -> None:
        """Saves for resuming; see `Checkpoints`. Everything else so far is kept with it."""

        def save() -> None:
            self._checkpoints.save_latest(state, progress)
            self._place.keep(self._checkpoints.wait)

        processes.on_first(save)

    def save_best(self, step: int, params: Params, info: Mapping[str, Any]) -> None:
        """Saves for use; see `Checkpoints`."""
        processes.on_first(lambda: self._checkpoints.save_best(step, params, info))

    def finish(self, result: Result) -> None:
        """Waits until everything is on disk, then keeps how the run ended."""

        def keep() -> None:
            self._checkpoints.wait()
            keep_result(self._place.directory, result)

        processes.on_first(keep)

    def __enter__(self) -> "Records":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        # A process that failed by itself would wait for ever for others to meet.
        if kind is None:
            processes.on_first(self._stack.close)
        else:
            self._stack.close()
