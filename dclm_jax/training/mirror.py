"""Workdirs under addresses such as gs://: copies on this machine, brought there to be kept."""

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path

from etils import epath

from dclm_jax import storage
from dclm_jax.training.checkpoints import CHECKSUMS_FILE
from dclm_jax.training.result import FILE as RESULT_FILE
from dclm_jax.training.workdir import CONFIG_FILE

# What says that something is complete, and so comes after it.
_SEALS = (CHECKSUMS_FILE, CONFIG_FILE, RESULT_FILE)


class Workplace:
    """The directory that a run writes into, in a `with` block."""

    def __init__(self, directory: Path):
        self.directory = directory

    def keep(self, finish: Callable[[], None]) -> None:
        """Sees to it that all that was written so far is there when the run goes on elsewhere.

        Args:
          finish: waits until it is on this machine's disk.

        Raises:
          InputError: it cannot be written.
        """

    def __enter__(self) -> "Workplace":
        return self

    def __exit__(self, *exception: object) -> None:
        pass


class _Mirror(Workplace):
    """A copy of what lies under an address. Files are told apart by size and time."""

    def __init__(self, location: epath.Path):
        self._location = location
        self._stack = contextlib.ExitStack()
        self._kept: dict[str, tuple[int, int] | None] = {}
        self._writes = False

    def __enter__(self) -> "_Mirror":
        with self._stack:
            self.directory = self._stack.enter_context(storage.scratch(self._location))
            names = [name for name in storage.list_files(self._location) if not _is_events(name)]
            # Those of a checkpoint that is not complete are there to be removed.
            self._kept = dict.fromkeys(names)
            for name in complete(names):
                storage.download(self._location / name, self.directory / name)
            self._kept |= self._files()
            self._stack = self._stack.pop_all()
        return self

    def _files(self) -> dict[str, tuple[int, int]]:
        files = [path for path in self.directory.rglob("*") if path.is_file()]
        # What was first to be written is first to be kept.
        stats = sorted(((path.stat(), path) for path in files), key=lambda one: one[0].st_mtime_ns)
        found = {
            str(path.relative_to(self.directory)): (stat.st_size, stat.st_mtime_ns)
            for stat, path in stats
        }
        return {name: found[name] for name in complete(found)}

    def keep(self, finish: Callable[[], None]) -> None:
        self._writes = True
        finish()
        files = self._files()
        changed = [name for name, state in files.items() if self._kept.get(name) != state]
        for name in sorted(changed, key=_is_seal):
            storage.upload(self.directory / name, self._location / name)
            self._kept[name] = files[name]
        gone = [name for name in self._kept if name not in files]
        for name in sorted(gone, key=_is_seal, reverse=True):
            storage.remove(self._location / name)
            del self._kept[name]

    def __exit__(self, *exception: object) -> None:
        with self._stack:
            # A run that was refused changes nothing.
            if self._writes:
                self.keep(lambda: None)


def workplace(workdir: storage.Location) -> Workplace:
    """The workdir itself, or if it has an address a copy of what lies there.

    Raises:
      InputError: (on entering) it cannot be read.
    """
    return Workplace(workdir) if isinstance(workdir, Path) else _Mirror(workdir)


def complete(names: Collection[str]) -> list[str]:
    """Without the files of checkpoints that were being copied or written."""
    return [name for name in names if (seal := _seal_of(name)) is None or seal in names]


def for_use(names: Collection[str]) -> list[str]:
    """Those files of a workdir that using its model takes."""
    return [
        name
        for name in complete(names)
        if not _is_events(name) and not name.startswith("checkpoints/latest/")
    ]


def _seal_of(name: str) -> str | None:
    """The file without which this one's checkpoint is none: checkpoints/KIND/STEP/..."""
    parts = name.split("/")
    if parts[0] != "checkpoints" or len(parts) < 4:
        return None
    # What is still being written has another name, and no file makes it complete.
    return "/".join([*parts[:3], CHECKSUMS_FILE]) if parts[2].isdecimal() else ""


def _is_seal(name: str) -> bool:
    return name.rpartition("/")[2] in _SEALS


def _is_events(name: str) -> bool:
    return name.startswith("tensorboard/")
