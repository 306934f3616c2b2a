"""Files under addresses, gs://bucket/run, copied here and back through epath.

Everything that reads and writes works on this machine's files: what lies under an address is copied
here first, what is made goes there when it is whole. An object is there whole or not at all, but
there are no links, no locks, no appending and no renaming, and so nothing here relies on them.

All that reach for an address raise `InputError` where a package for it is missing, the storage
refuses or cannot be reached, or a copy cannot be written here.
"""

import contextlib
import errno
import hashlib
import os
import pathlib
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, cast

from etils import epath

from dclm_jax.errors import InputError

PathLike = str | os.PathLike[str]
Location = pathlib.Path | epath.Path


def locate(path: PathLike) -> Location:
    """A plain path, or what stands for an address."""
    text = os.fspath(path)
    if not re.match("[A-Za-z][A-Za-z0-9+.-]*://", text):
        return pathlib.Path(path)
    if not re.match("gs://[^/]", text):
        raise InputError(f"{text}: expected gs://BUCKET/... or a path of this machine")
    return epath.Path(path)


def is_remote(path: PathLike) -> bool:
    """Whether it is an address."""
    return not isinstance(locate(path), pathlib.Path)


def absolute(path: PathLike) -> str:
    """The path made absolute; an address stays as it is."""
    location = locate(path)
    return str(location.absolute() if isinstance(location, pathlib.Path) else location)


def resolve(path: PathLike) -> Location:
    """The absolute path with its symbolic links followed; an address, which has none, as it is."""
    location = locate(path)
    return location.resolve() if isinstance(location, pathlib.Path) else location


def size(location: Location) -> int:
    """The size of a file in bytes."""
    return epath.Path(location).stat().length


def open_regular(location: Location | PathLike, *, or_stream: bool = False) -> BinaryIO:
    """Opens a file to read, as bytes: what is always there to its end, and has one.

    Args:
      location: of the file.
      or_stream: a pipe or a device will do, which may never end; who reads it sets a limit.

    Raises:
      OSError: it cannot be opened, or is a device, a pipe or a directory.
    """
    if not isinstance(location, str | pathlib.Path):
        return cast(Any, location).open("rb")
    # A pipe that nobody writes to would be waited for.
    waiting = 0 if or_stream else os.O_NONBLOCK
    descriptor = os.open(location, os.O_RDONLY | waiting | os.O_CLOEXEC)
    _require_regular(descriptor, or_stream=or_stream)
    return os.fdopen(descriptor, "rb")


def open_to_append(path: pathlib.Path, buffering: int = -1) -> BinaryIO:
    """Opens a file to read and append to, made if it is not there; no link is followed.

    Raises:
      OSError: it cannot be opened, or is a link, a device, a pipe or a directory.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    _require_regular(descriptor)
    return cast(Any, os.fdopen(descriptor, "a+b", buffering))


def _require_regular(descriptor: int, *, or_stream: bool = False) -> None:
    """Closes what is another kind of file."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or (or_stream and not stat.S_ISDIR(mode)):
        return
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is no regular file")


def is_empty(directory: Location) -> bool:
    """Whether there is nothing in a directory."""
    if isinstance(directory, pathlib.Path):
        return not any(directory.iterdir())
    return not list_files(directory)


@contextlib.contextmanager
def reaching(location: Location) -> Iterator[None]:
    """Turns what the block raises into an `InputError` if the location is an address; errors of
    paths of this machine pass through."""
    try:
        yield
    except InputError:
        raise
    # Every backend has exceptions of its own, without a base.
    except Exception as error:
        if isinstance(location, pathlib.Path):
            raise
        if isinstance(error, ImportError):
            needed = "gs:// needs a package: pip install 'etils[epath-gcs]'"
            raise InputError(f"{location}: {needed}") from error
        reason = (str(error).splitlines() or [""])[0][:200]
        raise InputError(f"{location}: {type(error).__name__}: {reason}") from error


def list_files(location: epath.Path) -> list[str]:
    """The names of all files below an address; none if there is nothing."""
    with reaching(location):
        return sorted(set(_names(location, ""))) if location.exists() else []


def _names(folder: epath.Path, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        # Objects may be called anything, and would be copied to where their names lead.
        if entry.parent != folder or entry.name == "..":
            continue
        # An object "folder/", which some programs make, is listed as "folder/folder".
        if entry.name == folder.name and not entry.exists():
            continue
        if entry.is_dir():
            yield from _names(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}"


def download(location: epath.Path, file: pathlib.Path) -> None:
    """Copies a file here. It appears complete, or stays as it was."""
    with reaching(location):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".") as folder:
            copy = pathlib.Path(folder, file.name)
            with open_regular(location) as source, open_to_append(copy) as target:
                shutil.copyfileobj(source, target)
            copy.replace(file)


def upload(file: pathlib.Path, location: epath.Path) -> None:
    """Copies a file there."""
    with reaching(location), open_regular(file) as source, location.open("wb") as copy:
        shutil.copyfileobj(source, copy)


class Mirror:
    """A directory of this machine whose files are kept under an address.

    Seals are files that say that others are complete: they are the last to be uploaded and the
    first to be removed.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        location: epath.Path,
        names: Iterable[str],
        seals: Collection[str],
        choose: Callable[[Collection[str]], Iterable[str]] = iter,
    ):
        """Begins with the files that are here, as they are there.

        Args:
          directory: of this machine.
          location: the address.
          names: of the files there, those included that are not here and are to be removed.
          seals: their names without folders.
          choose: selects the names of the files here that are kept there.
        """
        self._directory, self._location = directory, location
        self._seals, self._choose = seals, choose
        # By name time and size of the file here, by which a change shows; None of those not here.
        self._uploaded = dict.fromkeys(names) | self._files()
        self.has_uploaded = False

    def upload(self) -> None:
        """Makes the files there those that are here."""
        self.has_uploaded = True
        here = self._files()
        foreign = [name for name, state in self._uploaded.items() if state is None]
        self._remove(filter(self._is_seal, foreign))
        for name in sorted(here, key=self._is_seal):
            if self._uploaded.get(name) != here[name]:
                upload(self._directory / name, self._location / name)
                self._uploaded[name] = here[name]
        gone = self._uploaded.keys() - here.keys()
        self._remove(sorted(gone, key=self._is_seal, reverse=True))

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with reaching(self._location):
                (self._location / name).unlink(missing_ok=True)
            del self._uploaded[name]

    def _is_seal(self, name: str) -> bool:
        return name.rpartition("/")[2] in self._seals

    def _files(self) -> dict[str, tuple[int, int]]:
        files = sorted(
            (path.stat().st_mtime_ns, path.stat().st_size, str(path.relative_to(self._directory)))
            for path in self._directory.rglob("*")
            if path.is_file()
        )
        selected = set(self._choose([name for _, _, name in files]))
        return {name: (time, size) for time, size, name in files if name in selected}


@contextlib.contextmanager
def fetched(
    directory: PathLike, choose: Callable[[Collection[str]], Iterable[str]]
) -> Iterator[pathlib.Path]:
    """The directory itself; of an address, for the time of the block, a copy of those files whose
    names `choose` selects."""
    location = locate(directory)
    if isinstance(location, pathlib.Path):
        yield location
        return
    with scratch(location) as copy:
        for name in choose(list_files(location)):
            download(location / name, copy / name)
        yield copy


@contextlib.contextmanager
def mirrored(
    directory: PathLike,
    choose: Callable[[Collection[str]], Iterable[str]],
    seals: Collection[str],
    unseen: str,
) -> Iterator[tuple[pathlib.Path, Mirror | None]]:
    """The directory itself; of an address, for the time of the block, a copy and its mirror, which
    uploads a last time at the end, also of a block that raises, if it has uploaded before.

    Args:
      directory: or its address.
      choose: selects the names of the files that are copied here, and of those that are kept there.
      seals: see `Mirror`.
      unseen: folder whose files stay there as they are, and are not copied here.
    """
    location = locate(directory)
    if isinstance(location, pathlib.Path):
        yield location, None
        return
    names = [name for name in list_files(location) if not name.startswith(f"{unseen}/")]
    with scratch(location) as copy:
        for name in choose(names):
            download(location / name, copy / name)
        mirror = Mirror(copy, location, names, seals, choose)
        try:
            yield copy, mirror
        finally:
            if mirror.has_uploaded:
                mirror.upload()


@contextlib.contextmanager
def scratch(location: epath.Path) -> Iterator[pathlib.Path]:
    """A temporary path of this machine for what has an address, removed after the block. It ends as
    the address does, because messages show it."""
    try:
        directory = tempfile.TemporaryDirectory(prefix="dclm_jax-", ignore_cleanup_errors=True)
    except OSError as error:
        raise InputError(f"{location}: no temporary directory here: {error.strerror}") from error
    with directory as root:
        yield _below(pathlib.Path(root), location)


def cached(directory: PathLike, checksums: Mapping[str, str | None]) -> pathlib.Path:
    """A directory, or one where copies of some of its files are kept from one time to the next.

    Args:
      directory: where they lie.
      checksums: by name the SHA-256 of each file, which is copied again unless its copy has it;
        None: copied again in any case.
    """
    location = locate(directory)
    if isinstance(location, pathlib.Path):
        return location
    with reaching(location):
        cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        folder = _below(pathlib.Path(cache) / "dclm_jax" / "data", location)
        for name, expected in checksums.items():
            copy = folder / name
            if expected is not None and copy.is_file() and file_sha256(copy) == expected:
                continue
            download(location / name, copy)
            if expected is not None and file_sha256(copy) != expected:
                raise InputError(f"{location / name}: its checksum differs from the manifest's")
        return folder


def _below(directory: pathlib.Path, location: epath.Path) -> pathlib.Path:
    return directory.joinpath(*(part for part in location.parts[1:] if part != ".."))


def file_sha256(path: Location) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
