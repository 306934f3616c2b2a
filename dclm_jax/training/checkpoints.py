"""Checkpoints of a run. No other module uses orbax.

Saves are asynchronous and atomic: a directory DIRECTORY/STEP without `tmp` in its name is complete.
Its file checksums.json has the checksums of its other files, which are compared before arrays are
read.
"""

import contextlib
import logging
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from dclm_jax import files, processes, storage
from dclm_jax.errors import InputError, printable

CHECKSUMS_FILE = "checksums.json"
"""The last file of a checkpoint to be written."""
_NOTES_FILE = "_CHECKPOINT_METADATA"
KINDS = {"latest": ("state", "progress"), "best": ("params", "info")}
"""Names of arrays and values in the checkpoints for resuming, and in the best checkpoints."""


class Checkpoints:
    """The two newest checkpoints of one of KINDS, each sealed with the checksums of its files."""

    def __init__(self, folder: Path, kind: str, *, read_only: bool = False):
        """Opens FOLDER/KIND, which is made unless `read_only`."""
        # Orbax logs every save, and orbax and asyncio log every damaged file. The run prints its
        # own messages instead.
        for name in ("absl", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._directory = (folder / kind).absolute()
        self._tree_name, self._values_name = KINDS[kind]
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2,
            create=False,
            read_only=read_only,
            # The notes of a step are read only with the step: damaged notes affect no other step.
            lightweight_initialize=True,
            async_options=ocp.AsyncOptions(post_finalization_callback=self._seal),
            # Processes do not meet: each process reads alone, and the first process writes alone.
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                primary_host=processes.index(), active_processes={processes.index()}
            ),
        )
        with _writing(self._directory):
            if not read_only:
                self._directory.mkdir(parents=True, exist_ok=True)
                # A killed process left these directories; the lock of the workdir excludes a
                # running process.
                for unnamed in ocp.utils.tmp_checkpoints(self._directory):
                    shutil.rmtree(unnamed.get())
        # Orbax would wait for a pipe, and follow a link.
        for path in self._directory.rglob("*"):
            if not (path.is_file() or path.is_dir()) or path.is_symlink():
                raise InputError(f"{path}: is not a regular file; remove it")
        try:
            self._manager = ocp.CheckpointManager(self._directory, options=options)
        # The manager reads notes of orbax, which no checksum covers, and may raise any exception.
        except Exception as error:
            raise InputError(f"{self._directory}: cannot be read ({_one_line(error)})") from error

    def save(self, step: int, tree: Any, values: Mapping[str, Any]) -> None:
        """Saves arrays and JSON values, unless the step is already saved. Returns before the files
        are written."""
        with _writing(self._directory):
            # The disk may have been full at the previous save.
            self._manager.wait_until_finished()
            if step in self._manager.all_steps():
                return
            # Copies: on CPUs the result of device_get shares its buffer with the device, which the
            # next step reuses.
            copies = ocp.args.StandardSave(jax.tree.map(np.array, tree))
            plain = ocp.args.JsonSave(files.finite(dict(values)))
            items: Any = {self._tree_name: copies, self._values_name: plain}
            self._manager.save(step, args=ocp.args.Composite(**items), force=True)

    def _seal(self) -> None:
        """Writes the checksums after the files of a checkpoint, before its directory is renamed."""
        (unnamed,) = ocp.utils.tmp_checkpoints(self._directory)
        directory = Path(unnamed.get())
        files.write_json(directory / CHECKSUMS_FILE, _checksums(directory))

    def restore(self, template: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """Step, arrays and values of the newest sound checkpoint; None without a checkpoint. Prints
        a warning for each damaged checkpoint.

        Args:
          template: arrays of the same shapes and dtypes, or only their shapes and dtypes.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        for step in steps:
            try:
                tree, values = self._restore(step, template)
            # Damage that checksums do not cover may raise any exception in orbax.
            except Exception as error:
                where = self._directory / str(step)
                print(f"warning: {where} cannot be used: {_one_line(error)}", file=sys.stderr)
                continue
            if step != steps[0]:
                print(f"warning: using step {step} instead", file=sys.stderr, flush=True)
            return step, tree, values
        if steps:
            raise InputError(
                f"no checkpoint in {self._directory} can be used with the configuration and the "
                f"vocabulary of the run; restore the workdir from a copy, or remove "
                f"{self._directory}"
            )
        return None

    def _restore(self, step: int, template: Any) -> tuple[Any, dict[str, Any]]:
        directory = self._directory / str(step)
        _compare_checksums(directory)
        # No checksum covers this file, which orbax does not require.
        if (notes := directory / _NOTES_FILE).exists():
            files.read_json(notes, dict[str, Any])
        # Arrays are restored to one local device, whatever devices saved them.
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
            raise InputError(f"{self._values_name} is not a JSON object")
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
        """Waits until everything is on disk, and closes the directory."""
        with _writing(self._directory):
            self._manager.close()


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Turns errors of the storage libraries for a disk that cannot be written into `InputError`."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{directory}: cannot be written ({_one_line(error)}); make it writable and repeat the "
            "command (earlier checkpoints are kept)"
        ) from error


def _checksums(directory: Path) -> dict[str, str]:
    """SHA-256 by path of all files in folders of a checkpoint. Files outside these folders are
    notes of orbax, which are complete only after the checkpoint is renamed."""
    paths = sorted(path for path in directory.glob("*/**/*") if path.is_file())
    return {str(path.relative_to(directory)): storage.file_sha256(path) for path in paths}


def _compare_checksums(directory: Path) -> None:
    expected = files.read_json(directory / CHECKSUMS_FILE, dict[str, str])
    # Names are compared and never opened: they could lead anywhere.
    checksums = _checksums(directory)
    if checksums.keys() != expected.keys():
        raise InputError(f"its files differ from the list in {CHECKSUMS_FILE}")
    for name in checksums:
        if checksums[name] != expected[name]:
            raise InputError(f"{name} differs from its checksum")


def _one_line(error: Exception) -> str:
    return printable((str(error).splitlines() or [type(error).__name__])[0][:200])
