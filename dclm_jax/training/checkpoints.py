"""Checkpoints of a run, the only module that knows orbax.

WORKDIR/checkpoints/
  latest/STEP   for resuming: state and progress, the two newest
  best/STEP     for use: parameters at the best validation perplexity, the two newest

Saves are asynchronous and atomic: a directory without `tmp` in its name is complete. It holds the
checksums of its files (checksums.json), which are compared before anything is read.
"""

import contextlib
import logging
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from dclm_jax import files, models, processes, storage
from dclm_jax.data.corpus import file_sha256
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError, printable
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.training.workdir import CHECKSUMS_FILE, VOCABULARY_FILE, read_config

_NOTES_FILE = "_CHECKPOINT_METADATA"
KINDS = {"latest": ("state", "progress"), "best": ("params", "info")}
"""Names of arrays and values in each kind of checkpoint."""


def trained_steps(workdir: storage.PathLike) -> int:
    """The step of the newest complete checkpoint for resuming; 0 of a run that has none yet."""
    # `storage` reports errors of epath, also of this machine's paths, but not those of pathlib.
    names = storage.list_files(epath.Path(workdir) / "checkpoints" / "latest")
    seals = (re.fullmatch(rf"([0-9]{{1,18}})/{re.escape(CHECKSUMS_FILE)}", name) for name in names)
    return max((int(match[1]) for match in seals if match), default=0)


class RestoredRun(NamedTuple):
    """A run as evaluation needs it; `info` is {"step", "perplexity", "vocabulary", ...}."""

    model: DocumentModel
    params: Params
    vocabulary: Vocabulary
    config: dict[str, Any]
    step: int
    info: dict[str, Any]


def restore_run(workdir: str | Path) -> RestoredRun:
    """Model, best parameters and vocabulary of a run, on whatever devices there are."""
    workdir = Path(workdir)
    config = read_config(workdir)
    vocabulary = Vocabulary.load(workdir / VOCABULARY_FILE)
    model = models.create(vocab_size=len(vocabulary), **config["model"])
    directory = workdir / "checkpoints" / "best"
    best = None
    if directory.is_dir():
        template = jax.eval_shape(model.init, jax.random.key(0))
        with contextlib.closing(Checkpoints(workdir, "best", read_only=True)) as checkpoints:
            best = checkpoints.restore(template)
    if best is None:
        raise InputError(
            f"{workdir} has no checkpoint to use yet: train until the first evaluation"
        )
    step, params, info = best
    if info.get("vocabulary") != vocabulary.fingerprint:
        raise InputError(
            f"{directory / str(step)} is for another vocabulary than {workdir / VOCABULARY_FILE}"
        )
    return RestoredRun(model, params, vocabulary, config, step, info)


class Checkpoints:
    """Checkpoints of one kind, of KINDS, each sealed with the checksums of its files."""

    def __init__(self, workdir: Path, kind: str, *, read_only: bool = False):
        # Orbax logs every save, and it and asyncio every damaged file: the run has its own lines.
        for name in ("absl", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._directory = (workdir / "checkpoints" / kind).absolute()
        self._tree_name, self._values_name = KINDS[kind]
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2,
            create=False,
            read_only=read_only,
            # The notes of a step are read with the step, so that other steps can be used.
            lightweight_initialize=True,
            async_options=ocp.AsyncOptions(post_finalization_callback=self._seal),
            # A process reads, and the first one writes, without the others.
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                primary_host=processes.index(), active_processes={processes.index()}
            ),
        )
        with _writing(self._directory):
            if not read_only:
                self._directory.mkdir(parents=True, exist_ok=True)
                # A killed process was writing these; the workdir's lock keeps living ones out.
                for unnamed in ocp.utils.tmp_checkpoints(self._directory):
                    shutil.rmtree(unnamed.get())
        # Orbax would wait for a pipe, and follow a link.
        for path in self._directory.rglob("*"):
            if not (path.is_file() or path.is_dir()) or path.is_symlink():
                raise InputError(f"{path}: is no regular file")
        try:
            self._manager = ocp.CheckpointManager(self._directory, options=options)
        # It reads orbax's notes, which no checksum covers, and raises whatever they lead to.
        except Exception as error:
            raise InputError(f"{self._directory}: cannot be read ({_one_line(error)})") from error

    def save(self, step: int, tree: Any, values: Mapping[str, Any]) -> None:
        """Saves arrays and JSON values, unless it was; returns before the files are written."""
        with _writing(self._directory):
            # The save before may have met a full disk.
            self._manager.wait_until_finished()
            if step in self._manager.all_steps():
                return
            # Copies: on CPU a device_get shares its buffer with the device, which the next step
            # reuses.
            copies = ocp.args.StandardSave(jax.tree.map(np.array, tree))
            plain = ocp.args.JsonSave(files.finite(dict(values)))
            items: Any = {self._tree_name: copies, self._values_name: plain}
            self._manager.save(step, args=ocp.args.Composite(**items), force=True)

    def _seal(self) -> None:
        """Runs when the files of a checkpoint are written, before its directory gets its name."""
        (unnamed,) = ocp.utils.tmp_checkpoints(self._directory)
        directory = Path(unnamed.get())
        files.write_json(directory / CHECKSUMS_FILE, _checksums(directory))

    def restore(self, template: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """Step, arrays and values of the newest sound checkpoint, with a line on stderr for each
        that is not; None where there is no checkpoint.

        Args:
          template: any such arrays, or their shapes and dtypes.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        for step in steps:
            try:
                tree, values = self._restore(step, template)
            # Damage that checksums do not cover makes some layer below raise anything.
            except Exception as error:
                where = self._directory / str(step)
                print(f"warning: {where} cannot be used: {_one_line(error)}", file=sys.stderr)
                continue
            if step != steps[0]:
                print(f"warning: using step {step} instead", file=sys.stderr, flush=True)
            return step, tree, values
        if steps:
            raise InputError(f"no checkpoint in {self._directory} can be used")
        return None

    def _restore(self, step: int, template: Any) -> tuple[Any, dict[str, Any]]:
        directory = self._directory / str(step)
        _compare_checksums(directory)
        # No checksum covers it, and orbax can do without.
        if (notes := directory / _NOTES_FILE).exists():
            files.read_json(notes, dict[str, Any])
        # On one local device, whatever devices wrote it.
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), template
        )
        items: Any = {
            self._tree_name: ocp.args.StandardRestore(shapes),
            self._values_name: ocp.args.JsonRestore(),
        }
        restored = self._manager.restore(step, args=ocp.args.Composite(**items))
        if not isinstance(restored[self._values_name], dict):
            raise InputError(f"{self._values_name} is no JSON object")
        return restored[self._tree_name], restored[self._values_name]

    def delete_after(self, step: int) -> None:
        """Removes the checkpoints that a run resumed at `step` is about to write again."""
        for later in [other for other in self._manager.all_steps() if other > step]:
            self._manager.delete(later)

    def wait(self) -> None:
        """Waits until everything is on disk."""
        with _writing(self._directory):
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, and lets go of the directory."""
        with _writing(self._directory):
            self._manager.close()


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Makes an `InputError` of what the storage layers raise for a disk that cannot be written."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{directory}: cannot be written ({_one_line(error)}); earlier checkpoints stay"
        ) from error


def _checksums(directory: Path) -> dict[str, str]:
    """Of all files but those of the directory itself, which are orbax's notes and not complete
    before it has its name."""
    paths = sorted(path for path in directory.glob("*/**/*") if path.is_file())
    return {str(path.relative_to(directory)): file_sha256(path) for path in paths}


def _compare_checksums(directory: Path) -> None:
    expected = files.read_json(directory / CHECKSUMS_FILE, dict[str, str])
    # Names are compared and never opened: they could lead anywhere.
    checksums = _checksums(directory)
    if checksums.keys() != expected.keys():
        raise InputError(f"its files are not those of {CHECKSUMS_FILE}")
    for name in checksums:
        if checksums[name] != expected[name]:
            raise InputError(f"{name} differs from its checksum")


def _one_line(error: Exception) -> str:
    return printable((str(error).splitlines() or [type(error).__name__])[0][:200])
