"""What a run leaves on disk, kept by the first process for all of them."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from dclm_jax import files, processes, storage
from dclm_jax.data.corpus import Corpus
from dclm_jax.models.base import Params
from dclm_jax.training.checkpoints import Checkpoints, trained_steps
from dclm_jax.training.metrics import MetricsLog
from dclm_jax.training.mirror import Workplace, workplace
from dclm_jax.training.step import TrainState
from dclm_jax.training.workdir import Result, claim, forget_result, keep_result, writing


@dataclasses.dataclass
class Progress:
    """What a run knows beside its state; saved with it.

    best_perplexity, best_step: of the best evaluation.
    evaluations_without_gain: since then.
    tokens: targets trained on.
    seconds: spent training, evaluation and compilation left out.
    skipped: steps left out because their gradient was not finite; `skipped_in_a_row` just now.
    """

    best_perplexity: files.Positive = math.inf
    best_step: files.Count = 0
    evaluations_without_gain: files.Count = 0
    tokens: files.Count = 0
    seconds: files.Finite = 0.0
    skipped: files.Count = 0
    skipped_in_a_row: files.Count = 0


class Records(contextlib.AbstractContextManager):
    """The workdir of a run that is going on.

    Every process makes one and calls its methods, which meet: an error on the first process is an
    error on all. Only `write` is the first one's alone, because it comes too often for a meeting.
    """

    _place: Workplace
    _latest: Checkpoints
    _best: Checkpoints
    _log: MetricsLog

    def __init__(
        self,
        workdir: storage.Location,
        config: Mapping[str, Any],
        corpus: Corpus,
        total_steps: int,
    ):
        self._stack = contextlib.ExitStack()

        @processes.by_first
        def take() -> None:
            self._place = self._stack.enter_context(workplace(workdir))
            directory = self._place.directory
            self._stack.enter_context(writing(directory))
            done = trained_steps(directory)
            claim(
                directory,
                config,
                corpus.vocabulary,
                corpus.checksums,
                total_steps,
                done,
                corpus.manifest.training_text,
            )
            forget_result(directory)
            self._best, self._latest = (
                self._stack.enter_context(contextlib.closing(Checkpoints(directory, kind)))
                for kind in ("best", "latest")
            )

        with self._stack:
            take()
            self._stack = self._stack.pop_all()

    def restore(self, state: TrainState) -> tuple[TrainState, Progress]:
        """The newest sound state and its progress, in all processes; where there is none, the first
        process's given state. From now on there are metrics.

        Everything ahead of it is removed: the run is about to write those steps again.
        """

        @processes.by_first
        def read() -> dict[str, Any]:
            nonlocal state
            progress, directory = Progress(), self._place.directory
            if (found := self._latest.restore(state)) is not None:
                step, state, values = found
                # An older checkpoint may lack a number, which then has its default.
                place = str(directory / "checkpoints" / "latest")
                progress = files.parse_json(files.json_text(values), place, Progress, exact=True)
                self._latest.delete_after(step)
                self._best.delete_after(step)
            self._log = self._stack.enter_context(MetricsLog(directory, int(state.step)))
            self._place.keep(self._wait)
            return dataclasses.asdict(progress)

        progress = Progress(**read())
        return processes.from_first(state), progress

    def write(self, kind: str, step: int, **values: float) -> None:
        """A line of metrics, as `MetricsLog.write`."""
        if processes.is_first():
            self._log.write(kind, step, **values)

    @processes.by_first
    def save_latest(self, state: TrainState, progress: Progress) -> None:
        """Saves for resuming; see `Checkpoints`. Everything else so far is kept with it."""
        self._latest.save(int(state.step), state, dataclasses.asdict(progress))
        self._place.keep(self._wait)

    @processes.by_first
    def save_best(self, step: int, params: Params, info: Mapping[str, Any]) -> None:
        """Saves for use; see `Checkpoints`."""
        self._best.save(step, params, info)

    @processes.by_first
    def finish(self, result: Result) -> None:
        """Waits until everything is on disk, then keeps how the run ended."""
        self._wait()
        keep_result(self._place.directory, result)

    def _wait(self) -> None:
        self._latest.wait()
        self._best.wait()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        # A process that failed by itself would wait for ever for others to meet.
        close = processes.by_first(self._stack.close) if kind is None else self._stack.close
        close()
