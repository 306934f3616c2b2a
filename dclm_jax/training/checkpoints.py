"""Checkpoints of a run, under a path or an address. No other module uses orbax.

Saves are asynchronous and atomic: orbax lists a step when its files are complete.
"""

import contextlib
import logging
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import tensorstore
from etils import epath

from dclm_jax import files, processes, storage
from dclm_jax.errors import InputError, printable
from dclm_jax.log import logger

KINDS = {"latest": ("state", "progress"), "best": ("params", "info")}
"""Names of arrays and values in the checkpoints for resuming, and in the best checkpoints."""


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    """Whether a record is kept. Orbax logs every save, and orbax and asyncio log every damaged
    file; the run logs its own messages instead."""
    paths, trace = [record.pathname], record.exc_info and record.exc_info[2]
    while trace:
        paths.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return not any("orbax" in PurePath(path).parts for path in paths)


def newest_step(folder: storage.PathLike, kind: str) -> int:
    """The step of the newest complete checkpoint of one of KINDS; 0 if there is none."""
    directory = _directory(folder, kind)
    return max(ocp.utils.checkpoint_steps(directory), default=0) if directory.exists() else 0


def _directory(folder: storage.PathLike, kind: str) -> epath.Path:
    return epath.Path(storage.absolute(folder)) / kind


class Checkpoints:
    """The two newest checkpoints of one of KINDS."""

    def __init__(self, folder: storage.PathLike, kind: str, *, read_only: bool = False):
        """Opens FOLDER/KIND, which is made unless `read_only`."""
        for name in ("absl", "asyncio"):
            logging.getLogger(name).addFilter(_is_not_of_orbax)
        self._directory = _directory(folder, kind)
        self._tree_name, self._values_name = KINDS[kind]
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2,
            create=False,
            read_only=read_only,
            # A killed process left these directories; the lock of the workdir excludes a running
            # process.
            cleanup_tmp_directories=not read_only,
            # The notes of a step are read only with the step: damaged notes affect no other step.
            lightweight_initialize=True,
            # Processes do not meet: each process reads alone, and the first process writes alone.
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                primary_host=processes.index(), active_processes={processes.index()}
            ),
        )
        with _writing(self._directory):
            if not read_only:
                self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._manager = ocp.CheckpointManager(self._directory, options=options)
        # Damaged notes of orbax may raise any exception.
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

    def restore(self, template: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """Step, arrays and values of the newest checkpoint that can be read; None without a
        checkpoint. A warning names each checkpoint that cannot be read.

        Args:
          template: arrays of the same shapes and dtypes, or only their shapes and dtypes.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        for step in steps:
            try:
                tree, values = self._restore(step, template)
            # Damaged files may raise any exception in orbax.
            except Exception as error:
                where = self._directory / str(step)
                logger.warning(f"{where} cannot be used: {_one_line(error)}")
                continue
            if step != steps[0]:
                logger.warning(f"using step {step} instead")
            return step, tree, values
        if steps:
            raise InputError(
                f"no checkpoint in {self._directory} can be used with the configuration and the "
                "vocabulary of the run; restore the workdir from a copy, or choose a new workdir"
            )
        return None

    def _restore(self, step: int, template: Any) -> tuple[Any, dict[str, Any]]:
        values = self._restore_item(step, self._values_name, ocp.args.JsonRestore())
        if not isinstance(values, dict):
            raise InputError(f"{self._values_name} is not a JSON object")
        _require_readable(self._directory / str(step) / self._tree_name)
        # Arrays are restored to one local device, whatever devices saved them.
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), template
        )
        return self._restore_item(step, self._tree_name, ocp.args.StandardRestore(shapes)), values

    def _restore_item(self, step: int, name: str, args: Any) -> Any:
        return self._manager.restore(step, args=ocp.args.Composite(**{name: args}))[name]

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
def _writing(directory: epath.Path) -> Iterator[None]:
    """Turns errors of the storage libraries for a disk that cannot be written into `InputError`."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{directory}: cannot be written ({_one_line(error)}); make it writable and repeat the "
            "command (earlier checkpoints are kept)"
        ) from error


def _require_readable(arrays: epath.Path) -> None:
    """Raises an exception if an array of a checkpoint is missing or cut.

    Orbax reads all arrays at the same time, and prints a traceback for each array whose read it
    abandons after an error.
    """
    path = urllib.parse.quote(f"{arrays}/", safe=":/")
    base = path if storage.is_remote(arrays) else f"file://{path}"
    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": base}).result()
    names = store.list().result()
    if not names:
        raise InputError(f"{arrays} has no arrays")
    for name in names:
        # The content of a missing file is read as empty.
        if not store.read(name).result().value:
            raise InputError(f"the array {name.decode()} is missing")


def _one_line(error: Exception) -> str:
    return printable((str(error).splitlines() or [type(error).__name__])[0][:200])
