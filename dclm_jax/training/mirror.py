"""Workdirs under addresses such as gs://: copies on this machine, brought there to be kept."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from dclm_jax import storage
from dclm_jax.training.checkpoints import CHECKSUMS_FILE
from dclm_jax.training.workdir import CONFIG_FILE, RESULT_FILE

# What says that something is complete, and so comes after it.
_SEALS = (CHECKSUMS_FILE, CONFIG_FILE, RESULT_FILE)


class Workplace(NamedTuple):
    """The directory that a run writes into.

    Attributes:
      keep: sees to it that all that was written so far is there when the run goes on elsewhere,
        once its argument has waited until that is on this machine's disk. Raises `InputError` if
        it cannot be written.
    """

    directory: Path
    keep: Callable[[Callable[[], None]], None]


@contextlib.contextmanager
def workplace(workdir: storage.Location) -> Iterator[Workplace]:
    """The workdir itself, or a local copy of a workdir with an address, synchronized at the end."""
    if isinstance(workdir, Path):
        yield Workplace(workdir, lambda finish: None)
        return
    with storage.scratch(workdir) as directory:
        names = [name for name in storage.list_files(workdir) if not _is_events(name)]
        for name in complete(names):
            storage.download(workdir / name, directory / name)
        # Those of a checkpoint that is not complete are there to be removed.
        kept = dict.fromkeys(names) | _states(directory)
        writes = False

        def keep(finish: Callable[[], None]) -> None:
            nonlocal writes
            writes = True
            finish()
            states = _states(directory)
            changed = [name for name, state in states.items() if kept.get(name) != state]
            for name in sorted(changed, key=_is_seal):
                storage.upload(directory / name, workdir / name)
                kept[name] = states[name]
            gone = [name for name in kept if name not in states]
            for name in sorted(gone, key=_is_seal, reverse=True):
                storage.remove(workdir / name)
                del kept[name]

        try:
            yield Workplace(directory, keep)
        finally:
            # A run that was refused changes nothing.
            if writes:
                keep(lambda: None)


def _states(directory: Path) -> dict[str, tuple[int, int]]:
    """Time and size of every complete file, by which files are told apart. What was first to be
    written is first, and so the first to be kept."""
    stats = [(path.stat(), path) for path in directory.rglob("*") if path.is_file()]
    found = {
        str(path.relative_to(directory)): (stat.st_mtime_ns, stat.st_size)
        for stat, path in sorted(stats, key=lambda one: one[0].st_mtime_ns)
    }
    return {name: found[name] for name in complete(found)}


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
