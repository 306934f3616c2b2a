"""Files under addresses, gs://bucket/run, copied from and to this machine through epath.

All reading and writing uses local files: a file under an address is first copied to this machine,
and a new file is copied to its address when it is complete. An object is whole or absent. This
module needs no links, locks, appending or renaming, which object stores lack.

Functions that access an address raise `InputError` if a package is missing, if the storage denies
access or cannot be reached, or if a copy cannot be written.
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
    """A local path, or the `epath.Path` of an address."""
    text = os.fspath(path)
    if not re.match("[A-Za-z][A-Za-z0-9+.-]*://", text):
        return pathlib.Path(path)
    if not re.match("gs://[^/]", text):
        raise InputError(f"{text}: expected gs://BUCKET/... or a local path")
    return epath.Path(path)


def is_remote(path: PathLike) -> bool:
    """Whether a path is an address."""
    return not isinstance(locate(path), pathlib.Path)


def absolute(path: PathLike) -> str:
    """The absolute path; an address is returned unchanged."""
    location = locate(path)
    return str(location.absolute() if isinstance(location, pathlib.Path) else location)


def resolve(path: PathLike) -> Location:
    """The absolute path with symbolic links resolved; an address is returned unchanged."""
    location = locate(path)
    return location.resolve() if isinstance(location, pathlib.Path) else location


def open_regular(location: Location | PathLike, *, or_stream: bool = False) -> BinaryIO:
    """Opens a regular file to read, as bytes.

    Args:
      location: location of the file.
      or_stream: whether to accept pipes and devices, which may never end; the reader sets a limit.

    Raises:
      OSError: the file cannot be opened, or is a device, a pipe or a directory.
    """
    if not isinstance(location, str | pathlib.Path):
        return cast(Any, location).open("rb")
    # Opening a pipe without a writer would block.
    waiting = 0 if or_stream else os.O_NONBLOCK
    descriptor = os.open(location, os.O_RDONLY | waiting | os.O_CLOEXEC)
    _require_regular(descriptor, or_stream=or_stream)
    return os.fdopen(descriptor, "rb")


def open_to_append(path: pathlib.Path, buffering: int = -1) -> BinaryIO:
    """Opens a file for reading and appending, and creates it if missing; no link is followed.

    Raises:
      OSError: the file cannot be opened, or is a link, a device, a pipe or a directory.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    _require_regular(descriptor)
    return cast(Any, os.fdopen(descriptor, "a+b", buffering))


def _require_regular(descriptor: int, *, or_stream: bool = False) -> None:
    """Closes a file that is not regular, and raises an `OSError`."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or (or_stream and not stat.S_ISDIR(mode)):
        return
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is not a regular file")


def is_empty(directory: Location) -> bool:
    """Whether a directory is empty."""
    if isinstance(directory, pathlib.Path):
        return not any(directory.iterdir())
    return not list_files(directory)


@contextlib.contextmanager
def reaching(location: Location) -> Iterator[None]:
    """Turns exceptions of the block into an `InputError` if the location is an address; exceptions
    for local paths pass through."""
    try:
        yield
    except InputError:
        raise
    # Backends have their own exceptions, without a common base class.
    except Exception as error:
        if isinstance(location, pathlib.Path):
            raise
        if isinstance(error, ImportError):
            needed = "gs:// needs a package: pip install 'etils[epath-gcs]'"
            raise InputError(f"{location}: {needed}") from error
        reason = (str(error).splitlines() or [""])[0][:200]
        raise InputError(f"{location}: {type(error).__name__}: {reason}") from error


def list_files(location: epath.Path) -> list[str]:
    """The names of all files below an address."""
    with reaching(location):
        return sorted(set(_names(location, ""))) if location.exists() else []


def _names(folder: epath.Path, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        # Object names are arbitrary; a name such as ".." would lead out of the folder.
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
    """Copies a file from an address. A copy is complete, or the file is unchanged."""
    with reaching(location):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".") as folder:
            copy = pathlib.Path(folder, file.name)
            with open_regular(location) as source, open_to_append(copy) as target:
                shutil.copyfileobj(source, target)
            copy.replace(file)


def upload(file: pathlib.Path, location: epath.Path) -> None:
    """Copies a file to an address."""
    with reaching(location), open_regular(file) as source, location.open("wb") as copy:
        shutil.copyfileobj(source, copy)


class Mirror:
    """Keeps files under an address equal to the files of a local directory.

    Seals are files that mark other files as complete: they are uploaded last and removed first.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        location: epath.Path,
        names: Iterable[str],
        seals: Collection[str],
        choose: Callable[[Collection[str]], Iterable[str]] = iter,
    ):
        """Assumes that the files of the directory equal the files under the address.

        Args:
          directory: a local directory.
          location: the address.
          names: names of the files under the address; the first upload removes files that the
            directory lacks.
          seals: names, without folders, of the files that are uploaded last.
          choose: selects the names of the files to upload.
        """
        self._directory, self._location = directory, location
        self._seals, self._choose = seals, choose
        # Time and size of each file, to detect changes; None for files that the directory lacks.
        self._uploaded = dict.fromkeys(names) | self._files()
        self.has_uploaded = False

    def upload(self) -> None:
        """Uploads new and changed files, and removes files that the directory lacks."""
        self.has_uploaded = True
        local = self._files()
        foreign = [name for name, state in self._uploaded.items() if state is None]
        self._remove(filter(self._is_seal, foreign))
        for name in sorted(local, key=self._is_seal):
            if self._uploaded.get(name) != local[name]:
                upload(self._directory / name, self._location / name)
                self._uploaded[name] = local[name]
        gone = self._uploaded.keys() - local.keys()
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
    """A context: the directory itself, or for an address a temporary copy of the files whose names
    `choose` selects."""
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
    """A context: the directory itself, or for an address a temporary copy and its mirror. A mirror
    that has uploaded uploads again after the block, also if the block raises.

    Args:
      directory: a local directory or an address.
      choose: selects the names of the files to copy, from the address and to it.
      seals: see `Mirror`.
      unseen: folder whose files under the address are neither copied nor changed.
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
    """A context: a temporary local path for an address, with the same last part, because messages
    show the path."""
    try:
        directory = tempfile.TemporaryDirectory(prefix="dclm_jax-", ignore_cleanup_errors=True)
    except OSError as error:
        raise InputError(
            f"{location}: cannot make a temporary directory ({error.strerror}); set TMPDIR to a "
            "folder with free space"
        ) from error
    with directory as root:
        yield _below(pathlib.Path(root), location)


def cached(directory: PathLike, checksums: Mapping[str, str | None]) -> pathlib.Path:
    """The directory itself, or for an address a local directory with copies of its files, which
    later calls reuse.

    Args:
      directory: a local directory or an address.
      checksums: SHA-256 of each file, by name; a file is copied again unless its copy has the
        checksum, or if the checksum is None.
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
                raise InputError(
                    f"{location / name}: its checksum differs from the manifest; prepare the "
                    "corpus again"
                )
        return folder


def _below(directory: pathlib.Path, location: epath.Path) -> pathlib.Path:
    return directory.joinpath(*(part for part in location.parts[1:] if part != ".."))


def file_sha256(path: Location) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
