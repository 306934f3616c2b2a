"""The writer of a run's directory: the first process writes for all of them."""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import math
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from etils import epath

from dclm_jax import files, processes, storage
from dclm_jax.data.corpus import Corpus
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError, printable
from dclm_jax.models.base import Params
from dclm_jax.training.checkpoints import KINDS, Checkpoints, trained_steps
from dclm_jax.training.config import differences, incompatible
from dclm_jax.training.metrics import MetricsLog
from dclm_jax.training.step import TrainState
from dclm_jax.training.workdir import (
    CHECKSUMS_FILE,
    CONFIG_FILE,
    CORPUS_FILE,
    EVENTS_FOLDER,
    LOCK_FILE,
    RESULT_FILE,
    TEXT_FILE,
    VOCABULARY_FILE,
    Result,
    complete,
    read_config,
)

_LONGEST_OWNER = 200


@dataclasses.dataclass
class Progress:
    """Numbers of a run beside its state, saved with it.

    best_perplexity, best_step: of the best evaluation.
    evaluations_without_gain: since then.
    tokens: targets trained on.
    seconds: spent training, without evaluation and compilation.
    skipped: steps skipped because their gradient was not finite; `skipped_in_a_row` just now.
    """

    best_perplexity: files.Positive = math.inf
    best_step: files.Count = 0
    evaluations_without_gain: files.Count = 0
    tokens: files.Count = 0
    seconds: files.Finite = 0.0
    skipped: files.Count = 0
    skipped_in_a_row: files.Count = 0


class RunWriter(contextlib.AbstractContextManager):
    """The workdir of a run in progress, which no other job writes to meanwhile.

    Every process makes one and calls its methods, which meet: an error on the first process is an
    error on all. Only `write` is the first one's alone, because it comes too often for a meeting.

    Under an address such as gs:// the run writes to a copy on this machine, and what has changed is
    uploaded with every checkpoint for resuming and at the end.
    """

    _directory: Path
    _mirror: storage.Mirror | None = None
    _has_uploaded = False
    _latest: Checkpoints
    _best: Checkpoints
    _metrics: MetricsLog

    def __init__(
        self,
        workdir: storage.Location,
        config: Mapping[str, Any],
        corpus: Corpus,
        total_steps: int,
    ):
        """Claims the workdir, which is made if it does not exist.

        Args:
          workdir: of the run.
          config: plain values.
          corpus: the split of the corpus that knows its vocabulary, text and checksums.
          total_steps: of the run.
        """
        self._stack = contextlib.ExitStack()

        @processes.by_first
        def claim() -> None:
            if isinstance(workdir, Path):
                self._directory = workdir
            else:
                self._directory = self._stack.enter_context(storage.scratch(workdir))
                self._mirror = _downloaded(workdir, self._directory)
                self._stack.callback(self._upload_last, self._mirror)
            self._stack.enter_context(locked(self._directory))
            _claim(self._directory, config, corpus, total_steps)
            with files.writing(self._directory / RESULT_FILE):
                (self._directory / RESULT_FILE).unlink(missing_ok=True)
            self._best, self._latest = (
                self._stack.enter_context(contextlib.closing(Checkpoints(self._directory, kind)))
                for kind in ("best", "latest")
            )

        with self._stack:
            claim()
            self._stack = self._stack.pop_all()

    def restore(self, state: TrainState) -> tuple[TrainState, Progress]:
        """The newest sound state and its progress, in all processes; where there is none, the first
        process's given state. From now on there are metrics.

        Later checkpoints and metrics are removed: the run is about to write those steps again.
        """

        @processes.by_first
        def read() -> dict[str, Any]:
            nonlocal state
            progress = Progress()
            if (restored := self._latest.restore(state)) is not None:
                step, state, values = restored
                place = str(self._directory / "checkpoints" / "latest")
                progress = files.parse_json(files.json_text(values), place, Progress, exact=True)
                self._latest.delete_after(step)
                self._best.delete_after(step)
            log = MetricsLog(self._directory, int(state.step))
            self._metrics = self._stack.enter_context(log)
            self._upload()
            return dataclasses.asdict(progress)

        progress = Progress(**read())
        return processes.from_first(state), progress

    def write(self, kind: str, step: int, **values: float) -> None:
        """A line of metrics, as `MetricsLog.write`."""
        if processes.is_first():
            self._metrics.write(kind, step, **values)

    @processes.by_first
    def save_latest(self, state: TrainState, progress: Progress) -> None:
        """Saves for resuming; see `Checkpoints`."""
        self._latest.save(int(state.step), state, dataclasses.asdict(progress))
        self._upload()

    @processes.by_first
    def save_best(self, step: int, params: Params, info: Mapping[str, Any]) -> None:
        """Saves for use; see `Checkpoints`."""
        self._best.save(step, params, info)

    @processes.by_first
    def finish(self, result: Result) -> None:
        """Waits until everything is on disk, then writes how a run ended that is not to resume."""
        self._wait()
        if result.ending != "interrupted":
            files.write_json(self._directory / RESULT_FILE, dataclasses.asdict(result))

    def _wait(self) -> None:
        self._latest.wait()
        self._best.wait()

    def _upload(self) -> None:
        if self._mirror is not None:
            self._has_uploaded = True
            self._wait()
            self._mirror.upload()

    def _upload_last(self, mirror: storage.Mirror) -> None:
        # A run that was refused before its first upload changes nothing.
        if self._has_uploaded:
            mirror.upload()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        # A process that failed alone would wait for ever for others to meet.
        close = processes.by_first(self._stack.close) if kind is None else self._stack.close
        close()


def _claim(workdir: Path, config: Mapping[str, Any], corpus: Corpus, total_steps: int) -> None:
    """Writes configuration, vocabulary and checksums into a new workdir; else compares them.

    The configuration of a run that is to have another length, and can, is replaced.
    """
    config_path, vocabulary_path = workdir / CONFIG_FILE, workdir / VOCABULARY_FILE
    checksums = dict(corpus.checksums)
    if not (config_path.exists() and vocabulary_path.exists()):
        files.write_json(workdir / TEXT_FILE, dataclasses.asdict(corpus.manifest.training_text))
        with files.writing(vocabulary_path):
            corpus.vocabulary.save(vocabulary_path)
        files.write_json(workdir / CORPUS_FILE, checksums)
        # Last: a workdir with a configuration is complete.
        files.write_json(config_path, dict(config))
        return
    saved, directory = read_config(workdir), config["data"]["directory"]
    if message := incompatible(saved, config, workdir):
        raise InputError(message)
    if Vocabulary.load(vocabulary_path).fingerprint != corpus.vocabulary.fingerprint:
        raise InputError(f"{workdir} holds a run with another vocabulary than {directory}")
    before = files.read_json(workdir / CORPUS_FILE, dict[str, str])
    for name in sorted(before | checksums):
        if before.get(name) != checksums.get(name):
            raise InputError(
                f"{directory} has changed since this run began: {name} has another checksum "
                f"than in {workdir / CORPUS_FILE}"
            )
    if differences(saved, config):
        if (done := trained_steps(workdir)) > total_steps:
            raise InputError(
                f"{workdir} holds a run of {done:,} steps; training.epochs and "
                f"training.max_steps make {total_steps:,} here, expected at least as many"
            )
        files.write_json(config_path, dict(config))


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Makes the directory if it does not exist, and keeps other jobs out of it meanwhile.

    The lock is the operating system's: it ends with its process, however that ends. The text of the
    file is for people.
    """
    with contextlib.ExitStack() as stack:
        with files.writing(workdir):
            workdir.mkdir(parents=True, exist_ok=True)
            _require_own_folders(workdir)
            file = stack.enter_context(storage.open_to_append(workdir / LOCK_FILE, buffering=0))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                in_use = f"{workdir} is in use by {_owner(file) or 'another job'}"
                raise InputError(f"{in_use}: stop that job, or choose another workdir") from error
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
                    raise
                warning = f"warning: {workdir} cannot be locked: see that one job writes"
                print(warning, file=sys.stderr)
            if owner := _owner(file):
                print(f"note: {workdir} was left locked by {owner}", file=sys.stderr)
            since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}".encode())
        stack.callback(file.truncate, 0)
        yield


def _require_own_folders(workdir: Path) -> None:
    """Refuses folders that lead elsewhere: what a killed process left is removed in them."""
    checkpoints = workdir / "checkpoints"
    for folder in (checkpoints, *(checkpoints / kind for kind in KINDS), workdir / EVENTS_FOLDER):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise InputError(f"{folder}: is a link or no folder; expected one of the run's own")


def _owner(file: BinaryIO) -> str:
    """The process that a lock names; nothing if it names none."""
    file.seek(0)
    return printable(file.read(_LONGEST_OWNER).decode(errors="replace"))


def _downloaded(workdir: epath.Path, directory: Path) -> storage.Mirror:
    """Copies the complete files of a workdir under an address; events stay there unseen."""
    events = f"{EVENTS_FOLDER}/"
    names = [name for name in storage.list_files(workdir) if not name.startswith(events)]
    for name in complete(names):
        storage.download(workdir / name, directory / name)
    seals = (CHECKSUMS_FILE, CONFIG_FILE, RESULT_FILE)
    return storage.Mirror(directory, workdir, names, seals, complete)
