"""A run's directory: what belongs to whom, and who may write.

WORKDIR/
  config.json       the configuration, enough to rebuild the model
  vocabulary.tsv    the vocabulary
  corpus.json       checksums of the prepared files that the run is trained on
  lock              empty, or the process that is writing here
  checkpoints/      see `training.checkpoints`
  metrics.jsonl     see `training.metrics`
  result.json       see `training.result`
"""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dclm_jax import files
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError, printable
from dclm_jax.training import config as configuration

CONFIG_FILE = "config.json"
VOCABULARY_FILE = "vocabulary.tsv"
CORPUS_FILE = "corpus.json"
LOCK_FILE = "lock"
_LONGEST_LOCK = 1000


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

    Raises:
      InputError: another job is writing there, or nothing can be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((workdir / LOCK_FILE).open("a+b", buffering=0))
            _lock(file, workdir)
            file.seek(0)
            if left_by := file.read(_LONGEST_LOCK):
                print(f"note: {workdir} was left locked by {_owner(left_by)}", file=sys.stderr)
            file.truncate(0)
            file.write(_myself())
        except OSError as error:
            raise InputError(f"{workdir}: cannot be written: {error.strerror}") from error
        stack.callback(file.truncate, 0)
        yield


def _lock(file: BinaryIO, workdir: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        raise InputError(
            f"{workdir} is in use by {_owner(file.read(_LONGEST_LOCK))}: "
            "stop that job, or choose another workdir"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise
        print(f"warning: {workdir} cannot be locked: see that one job writes", file=sys.stderr)


def _myself() -> bytes:
    since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    owner = _Owner(socket.gethostname(), os.getpid(), since)
    return json.dumps(dataclasses.asdict(owner)).encode()


def _owner(text: bytes) -> str:
    try:
        owner = files.parse_json(text, LOCK_FILE, _Owner)
        return printable(f"process {owner.process} on {owner.host} since {owner.since}")
    except InputError:
        return "a job that did not leave its name"


def claim(
    workdir: Path,
    config: Mapping[str, Any],
    vocabulary: Vocabulary,
    corpus: Mapping[str, Any],
    total_steps: int,
    trained_steps: int,
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

    Raises:
      InputError: the workdir holds a run with another configuration, vocabulary or corpus, or one
        that was trained for longer.
    """
    config_path, vocabulary_path = workdir / CONFIG_FILE, workdir / VOCABULARY_FILE
    directory = config["data"]["directory"]
    if config_path.exists() and vocabulary_path.exists():
        held = read_config(workdir)
        if different := configuration.obstacles(held, config):
            more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
            raise InputError(
                f"{workdir} holds a run with another configuration: {different[0]}{more}"
            )
        if Vocabulary.load(vocabulary_path).fingerprint != vocabulary.fingerprint:
            raise InputError(f"{workdir} holds a run with another vocabulary than {directory}")
        _check_corpus(workdir / CORPUS_FILE, corpus, directory)
        if configuration.differences(held, config):
            if trained_steps > total_steps:
                raise InputError(
                    f"{workdir} holds a run of {trained_steps:,} steps; training.epochs and "
                    f"training.max_steps make {total_steps:,} here, expected at least as many"
                )
            files.write_json(config_path, dict(config))
        return
    try:
        vocabulary.save(vocabulary_path)
    except OSError as error:
        raise InputError(f"{vocabulary_path}: cannot be written: {error.strerror}") from error
    files.write_json(workdir / CORPUS_FILE, dict(corpus))
    # Last: a workdir with a configuration is complete.
    files.write_json(config_path, dict(config))


def _check_corpus(path: Path, corpus: Mapping[str, Any], directory: str) -> None:
    before = files.read_json(path, dict[str, str])
    changed = sorted(name for name in before | dict(corpus) if before.get(name) != corpus.get(name))
    if changed:
        raise InputError(
            f"{directory} has changed since this run began: {changed[0]} has another checksum than "
            f"in {path}"
        )


def read_config(workdir: Path) -> dict[str, Any]:
    """The configuration a run was started with.

    Raises:
      InputError: the workdir is missing or holds none that can be read.
    """
    path = workdir / CONFIG_FILE
    if not path.is_file():
        raise InputError(f"{workdir} holds no run: {CONFIG_FILE} is missing")
    config = files.read_json(path, dict[str, Any])
    configuration.check_saved(config, str(path))
    return config
