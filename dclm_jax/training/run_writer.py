"""The writer of a run's directory: the first process writes for all processes."""

import contextlib
import dataclasses
import importlib.util
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock

from dclm_jax import files, processes, storage
from dclm_jax.data.corpus import MANIFEST_FILE, Corpus
from dclm_jax.data.subwords import load_vocabulary
from dclm_jax.data.vocabulary import VOCABULARY_FILE
from dclm_jax.errors import InputError
from dclm_jax.models.base import Params
from dclm_jax.training.checkpoints import Checkpoints
from dclm_jax.training.config import changed_keys, incompatible
from dclm_jax.training.saved_model import BASE_FILE
from dclm_jax.training.step import TrainState
from dclm_jax.training.workdir import (
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    CORPUS_FILE,
    EVENTS_FOLDER,
    LOCK_FILE,
    METRICS_FILE,
    RESULT_FILE,
    TEXT_FILE,
    TrainingResult,
    read_config,
    trained_steps,
)


@dataclasses.dataclass
class RunProgress:
    """Numbers of a run, saved with its state.

    best_perplexity, best_step: value and step of the best validation perplexity.
    evaluations_without_gain: number of evaluations since `best_step`.
    tokens: number of targets trained on.
    seconds: training time, without evaluation and compilation.
    """

    best_perplexity: files.Positive = math.inf
    best_step: files.Count = 0
    evaluations_without_gain: files.Count = 0
    tokens: files.Count = 0
    seconds: files.Finite = 0.0


class RunWriter(contextlib.AbstractContextManager):
    """The workdir of a run in progress, locked against writes of other jobs.

    Every process makes a writer and calls its methods. All processes meet in every method except
    `write`, which is called too often: an error on the first process is an error on all processes.

    A workdir under an address has no lock and no TensorBoard events, and its metrics are written
    with every checkpoint for resuming and at the end.

    Attributes:
      workdir: the directory or its address.
      trained_steps: the step from which the run resumes; 0 for a new run.
    """

    _latest: Checkpoints
    _best: Checkpoints
    _metrics: "MetricsLog"

    def __init__(self, workdir: storage.PathLike):
        """Reads the last saved step of the workdir, if it exists, and changes nothing."""
        self._stack, self.workdir = contextlib.ExitStack(), workdir
        self._folder = storage.locate(workdir)

        @processes.on_primary
        def look() -> int:
            with files.writing(workdir), storage.reaching(self._folder):
                if (self._folder / MANIFEST_FILE).exists():
                    raise InputError(f"{workdir} is a prepared corpus; choose another workdir")
            return trained_steps(self._folder)

        self.trained_steps: int = look()

    def begin(
        self,
        config: Mapping[str, Any],
        corpus: Corpus,
        total_steps: int,
        state: TrainState,
        base: str = "",
    ) -> tuple[TrainState, RunProgress]:
        """Locks the workdir, writes the first files of a new run or compares existing files, and
        returns the newest sound state and its progress, in all processes.

        The saved configuration is replaced if the run resumes with a different length. Later
        checkpoints and metrics are removed: the run is about to write those steps again.

        Args:
          config: plain values.
          corpus: a split of the corpus, for its vocabulary, text options and checksums.
          total_steps: number of training steps of the run.
          state: the first state, which a run without a checkpoint gets from the first process.
          base: the section of the model card about the model from which a new run starts.
        """

        @processes.on_primary
        def open_run() -> dict[str, Any]:
            nonlocal state
            enter, folder = self._stack.enter_context, self._folder / CHECKPOINTS_FOLDER
            if isinstance(self._folder, Path):
                enter(locked(self._folder))
            self._write_first_files(config, corpus, total_steps, base)
            self._best = enter(contextlib.closing(Checkpoints(folder, "best")))
            self._latest = enter(contextlib.closing(Checkpoints(folder, "latest")))
            progress = RunProgress()
            if (restored := self._latest.restore(state)) is not None:
                step, state, values = restored
                text, place = files.json_text(values), str(folder / "latest")
                progress = files.parse_json(text, place, RunProgress, exact=True)
                self._latest.delete_after(step)
                self._best.delete_after(step)
            self._metrics = enter(MetricsLog(self._folder, int(state.step)))
            return dataclasses.asdict(progress)

        progress = RunProgress(**open_run())
        return processes.from_primary(state), progress

    def _write_first_files(
        self, config: Mapping[str, Any], corpus: Corpus, total_steps: int, base: str
    ) -> None:
        folder = self._folder
        if not ((folder / CONFIG_FILE).exists() and (folder / VOCABULARY_FILE).exists()):
            files.write_json(folder / TEXT_FILE, dataclasses.asdict(corpus.manifest.training_text))
            corpus.vocabulary.save(folder / VOCABULARY_FILE)
            files.write_json(folder / CORPUS_FILE, dict(corpus.checksums))
            if base:
                files.write_bytes(folder / BASE_FILE, base.encode())
            # This file is written last: a workdir with a configuration is complete.
            files.write_json(folder / CONFIG_FILE, dict(config))
        elif self._is_changed(config, corpus, total_steps):
            files.write_json(folder / CONFIG_FILE, dict(config))
        with files.writing(folder / RESULT_FILE), storage.reaching(folder):
            (folder / RESULT_FILE).unlink(missing_ok=True)

    def _is_changed(self, config: Mapping[str, Any], corpus: Corpus, total_steps: int) -> bool:
        """Whether the run resumes with a changed configuration. Refuses a different run."""
        folder, directory = self._folder, config["data"]["directory"]
        saved = read_config(folder)
        if reason := incompatible(saved, config):
            raise InputError(
                f"{self.workdir} already contains a different run ({reason}). Choose a new "
                f"--workdir, or add --config.training.start_from={self.workdir} to initialize "
                "from it"
            )
        if load_vocabulary(folder / VOCABULARY_FILE).fingerprint != corpus.vocabulary.fingerprint:
            raise InputError(
                f"{self.workdir} has a run whose vocabulary differs from {directory}; choose a "
                "new --workdir or the corpus of the run"
            )
        before = files.read_json(folder / CORPUS_FILE, dict[str, str])
        for name in sorted(before | corpus.checksums):
            if before.get(name) != corpus.checksums.get(name):
                raise InputError(
                    f"{directory} has changed since this run began: the checksum of {name} differs "
                    f"from {folder / CORPUS_FILE}; choose a new --workdir or restore the corpus"
                )
        is_changed = bool(changed_keys(saved, config))
        if is_changed and (done := trained_steps(folder)) > total_steps:
            raise InputError(
                f"{self.workdir} has a run of {done:,} steps, but training.epochs and "
                f"training.max_steps allow {total_steps:,}; allow at least {done:,}"
            )
        return is_changed

    def write(self, kind: str, step: int, **values: float) -> None:
        """Writes a line of metrics, see `MetricsLog.write`."""
        if processes.is_primary():
            self._metrics.write(kind, step, **values)

    @processes.on_primary
    def save_latest(self, state: TrainState, progress: RunProgress) -> None:
        """Saves a checkpoint for resuming; see `Checkpoints`."""
        self._latest.save(int(state.step), state, dataclasses.asdict(progress))
        self._metrics.upload()

    @processes.on_primary
    def save_best(self, step: int, params: Params, info: Mapping[str, Any]) -> None:
        """Saves the best parameters; see `Checkpoints`."""
        self._best.save(step, params, info)

    @processes.on_primary
    def finish(self, result: TrainingResult | None) -> None:
        """Waits until everything is on disk, then writes the result; None for an interrupted
        run."""
        self._latest.wait()
        self._best.wait()
        if result is not None:
            files.write_json(self._folder / RESULT_FILE, dataclasses.asdict(result))

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        # If only this process failed, a meeting would wait for the others for ever.
        close = processes.on_primary(self._stack.close) if kind is None else self._stack.close
        close()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes the directory if it does not exist, and locks out other jobs during the block.

    The operating system releases the lock when its process ends, however it ends.
    """
    with contextlib.ExitStack() as stack:
        with files.writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(filelock.FileLock(folder / LOCK_FILE, timeout=0))
            except filelock.Timeout as error:
                raise InputError(
                    f"{folder} is in use by another process; stop it, or choose another workdir"
                ) from error
        yield


@dataclasses.dataclass(frozen=True)
class _Step:
    step: files.Count


class MetricsLog(contextlib.AbstractContextManager):
    """Appends one JSON object per line to FOLDER/metrics.jsonl and mirrors numbers to TensorBoard.

    A resumed run removes the lines after the step from which it resumes, so no step appears twice.
    Under an address, which cannot be appended to, lines are in a copy until `upload`.
    """

    def __init__(self, folder: storage.Location, step: int):
        self._stack = contextlib.ExitStack()
        self._target, self._path, self._events = folder / METRICS_FILE, Path(), None
        if isinstance(self._target, Path):
            self._path = self._target
        else:
            self._path = self._stack.enter_context(storage.scratch(self._target))
            self._path.parent.mkdir(parents=True)
            with storage.reaching(self._target):
                if self._target.exists():
                    storage.download(self._target, self._path)
        with files.writing(self._path):
            self._file = self._path.open("a+b")
            size = self._size_until(step)
            # A finished run that is started again does not change the file and its date.
            if size < self._path.stat().st_size:
                self._file.truncate(size)
            if isinstance(folder, Path) and importlib.util.find_spec("tensorboardX") is not None:
                self._events = _Events(folder / EVENTS_FOLDER, step)

    def upload(self) -> None:
        """Copies the lines to the address of the workdir, if it has one."""
        if not isinstance(self._target, Path):
            storage.upload(self._path, self._target)

    def write(self, kind: str, step: int, **values: Any) -> None:
        """Writes one line {"kind", "step", ...}; kind is "train" or "valid"."""
        with files.writing(self._path):
            line = files.json_text({"kind": kind, "step": step, **values}) + "\n"
            self._file.write(line.encode())
            self._file.flush()
            if self._events:
                self._events.write(kind, step, values)

    def _size_until(self, step: int) -> int:
        """The number of bytes of sound lines up to a step; a crash may have cut the last line."""
        self._file.seek(0)
        size = 0
        for line in self._file:
            with contextlib.suppress(InputError):
                parsed = files.parse_json(line, METRICS_FILE, _Step)
                if line.endswith(b"\n") and parsed.step <= step:
                    size += len(line)
                    continue
            break
        return size

    def __exit__(self, *exception: object) -> None:
        with self._stack:
            with files.writing(self._path), self._file:
                if self._events:
                    self._events.close()
            self.upload()


class _Events:
    """A file of TensorBoard events, written without a thread.

    SummaryWriter of tensorboardX writes in a thread, and its queue waits for ever once the disk is
    full.
    """

    def __init__(self, folder: Path, step: int):
        from tensorboardX.proto import event_pb2
        from tensorboardX.record_writer import RecordWriter

        self._proto: Any = event_pb2
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}.{step}"
        self._writer = RecordWriter(str(folder / name))
        self.close = self._writer.close
        self._write(0, file_version="brain.Event:2")
        # TensorBoard then hides later events of a killed run.
        self._write(step + 1, session_log=self._proto.SessionLog(status="START"))

    def write(self, kind: str, step: int, values: dict[str, float]) -> None:
        from tensorboardX.summary import scalar

        for name, value in values.items():
            if math.isfinite(value):
                self._write(step, summary=scalar(f"{kind}/{name}", value))
        if kind == "valid":
            self._writer.flush()

    def _write(self, step: int, **content: Any) -> None:
        event = self._proto.Event(wall_time=time.time(), step=step, **content)
        self._writer.write(event.SerializeToString())
