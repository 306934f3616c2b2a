"""A run's directory: what belongs to whom, and who may write.

WORKDIR/
  config.json       the configuration, enough to rebuild the model
  vocabulary.tsv    the vocabulary
  corpus.json       checksums of the prepared files that the run is trained on
  text.json         how their text became words, and how many are unknown
  lock              empty, or the process that is writing here
  checkpoints/      see `training.checkpoints`
  metrics.jsonl     see `training.metrics`
  result.json       how the run ended, from its end on

All functions raise `InputError` where a file cannot be read or written, or holds something else.
"""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dclm_jax import files, storage
from dclm_jax.data.corpus import TrainingText
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError, printable, shown
from dclm_jax.training import config as configuration

CONFIG_FILE = "config.json"
VOCABULARY_FILE = "vocabulary.tsv"
CORPUS_FILE = "corpus.json"
TEXT_FILE = "text.json"
LOCK_FILE = "lock"
RESULT_FILE = "result.json"
_FINAL_ENDINGS = ("finished", "early_stop")
_FOLDERS = ("checkpoints", "checkpoints/best", "checkpoints/latest", "tensorboard")
_LONGEST_LOCK = 1000
_NAMELESS = "a job that did not leave its name"


@dataclasses.dataclass(frozen=True)
class _Owner:
    host: str
    process: files.Count
    since: str


@contextlib.contextmanager
def writing(workdir: Path) -> Iterator[None]:
    """Makes the directory if it is not there, and keeps other jobs out of it meanwhile.

    The lock is the operating system's: it ends with its process, however that ends. What the file
    says is for people.
    """
    with contextlib.ExitStack() as stack:
        with files.writing(workdir):
            workdir.mkdir(parents=True, exist_ok=True)
            _require_own_folders(workdir)
            file = stack.enter_context(storage.open_to_append(workdir / LOCK_FILE, buffering=0))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                in_use = f"{workdir} is in use by {_owner(file) or _NAMELESS}"
                raise InputError(f"{in_use}: stop that job, or choose another workdir") from error
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
                    raise
                told = f"warning: {workdir} cannot be locked: see that one job writes"
                print(told, file=sys.stderr)
            if left_by := _owner(file):
                print(f"note: {workdir} was left locked by {left_by}", file=sys.stderr)
            since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            owner = _Owner(socket.gethostname(), os.getpid(), since)
            file.truncate(0)
            file.write(files.json_text(dataclasses.asdict(owner)).encode())
        stack.callback(file.truncate, 0)
        yield


def _require_own_folders(workdir: Path) -> None:
    """Refuses folders that lead elsewhere: what a killed process left is removed in them."""
    for name in _FOLDERS:
        folder = workdir / name
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise InputError(f"{folder}: is a link or no folder; expected one of the run's own")


def _owner(file: BinaryIO) -> str:
    """Who a lock says that it belongs to; nothing if it says nothing."""
    file.seek(0)
    text = file.read(_LONGEST_LOCK)
    try:
        owner = files.parse_json(text, LOCK_FILE, _Owner)
        return printable(f"process {owner.process} on {owner.host} since {owner.since}")
    except InputError:
        return _NAMELESS if text else ""


def claim(
    workdir: Path,
    config: Mapping[str, Any],
    vocabulary: Vocabulary,
    corpus: Mapping[str, Any],
    total_steps: int,
    trained_steps: int,
    text: TrainingText,
) -> None:
    """Writes configuration, vocabulary and checksums into a new workdir; else checks them.

    The configuration of a run that is to have another length, and can, is written anew.

    Args:
      workdir: held by `writing`.
      config: plain values.
      vocabulary: of the corpus.
      corpus: names and checksums of its files.
      total_steps: of the run.
      trained_steps: of the run that the workdir may hold.
      text: what is kept of it.
    """
    config_path, vocabulary_path = workdir / CONFIG_FILE, workdir / VOCABULARY_FILE
    directory = config["data"]["directory"]
    if config_path.exists() and vocabulary_path.exists():
        held = read_config(workdir)
        if different := configuration.obstacles(held, config):
            more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
            another = f"{workdir} holds a run with another configuration"
            remedy = configuration.remedy(config)
            raise InputError(f"{another}: {different[0]}{more}; {remedy}")
        if Vocabulary.load(vocabulary_path).fingerprint != vocabulary.fingerprint:
            raise InputError(f"{workdir} holds a run with another vocabulary than {directory}")
        before = files.read_json(workdir / CORPUS_FILE, dict[str, str])
        for name in sorted(before | dict(corpus)):
            if before.get(name) != corpus.get(name):
                raise InputError(
                    f"{directory} has changed since this run began: {name} has another checksum "
                    f"than in {workdir / CORPUS_FILE}"
                )
        if configuration.differences(held, config):
            if trained_steps > total_steps:
                raise InputError(
                    f"{workdir} holds a run of {trained_steps:,} steps; training.epochs and "
                    f"training.max_steps make {total_steps:,} here, expected at least as many"
                )
            files.write_json(config_path, dict(config))
        return
    keep_text(workdir, text)
    with files.writing(vocabulary_path):
        vocabulary.save(vocabulary_path)
    files.write_json(workdir / CORPUS_FILE, dict(corpus))
    # Last: a workdir with a configuration is complete.
    files.write_json(config_path, dict(config))


def read_config(workdir: Path) -> dict[str, Any]:
    """The configuration a run was started with."""
    path = workdir / CONFIG_FILE
    if not path.is_file():
        raise InputError(f"{workdir} holds no run: {CONFIG_FILE} is missing")
    config = files.read_json(path, dict[str, Any])
    configuration.check_saved(config, str(path))
    return config


def keep_text(workdir: Path, text: TrainingText) -> None:
    """Writes what a run remembers of its text."""
    files.write_json(workdir / TEXT_FILE, dataclasses.asdict(text))


def read_text(workdir: Path) -> TrainingText:
    """What `keep_text` wrote; of an older run, which has no such file, nothing is known."""
    path = workdir / TEXT_FILE
    return files.read_json(path, TrainingText) if path.is_file() else TrainingText()


@dataclasses.dataclass(frozen=True)
class Result:
    """How a call of `train` ended: finished, early_stop or interrupted.

    step: of the last step made.
    best_step, best_perplexity: of the best evaluation on the development set.
    """

    ending: str
    step: files.Count
    best_step: files.Count
    best_perplexity: files.Positive


def forget_result(workdir: Path) -> None:
    """Removes what an earlier call of `train` left: the run goes on."""
    with files.writing(workdir / RESULT_FILE):
        (workdir / RESULT_FILE).unlink(missing_ok=True)


def keep_result(workdir: Path, result: Result) -> None:
    """Writes the result of a run that has ended for good; of an interrupted one nothing is kept."""
    if result.ending in _FINAL_ENDINGS:
        files.write_json(workdir / RESULT_FILE, dataclasses.asdict(result))


def read_result(workdir: Path) -> Result | None:
    """The result of a run that has ended for good; None while it has not."""
    path = workdir / RESULT_FILE
    if not path.exists():
        return None
    result = files.read_json(path, Result, exact=True)
    if result.ending not in _FINAL_ENDINGS:
        expected = " or ".join(_FINAL_ENDINGS)
        raise InputError(f"{path}: ending is {shown(result.ending)}; expected {expected}")
    return result
