"""Paths of this machine and addresses, gs://bucket/run.

epath reads and writes files under both. Files that other libraries map or open are copied to this
machine.

Functions that access an address raise `InputError` if a package is missing, if the storage denies
access or cannot be reached, or if a copy cannot be written.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

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
        files = _files_below(location) if location.exists() else ()
        return sorted(str(file.relative_to(location)) for file in files)


def _files_below(folder: epath.Path) -> Iterator[epath.Path]:
    for entry in folder.iterdir():
        # Object names are arbitrary; this name would lead out of the folder.
        if entry.name == "..":
            continue
        if entry.is_dir():
            yield from _files_below(entry)
        else:
            yield entry


def download(location: epath.Path, file: pathlib.Path) -> None:
    """Copies a file from an address. A copy is complete, or the file is unchanged."""
    with reaching(location):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".") as folder:
            copy = pathlib.Path(folder, file.name)
            with location.open("rb") as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
            copy.replace(file)


def upload(file: pathlib.Path, location: epath.Path) -> None:
    """Copies a file to an address, where it is complete or absent."""
    with reaching(location), file.open("rb") as source, location.open("wb") as copy:
        shutil.copyfileobj(source, copy)


def upload_folder(folder: pathlib.Path, location: epath.Path, last: str) -> None:
    """Replaces the files under an address by the files of a folder. The file `last`, which marks
    the others as complete, is removed first and copied last."""
    for name in sorted(list_files(location), key=lambda name: name != last):
        with reaching(location):
            (location / name).unlink()
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    for name in sorted(names, key=lambda name: name == last):
        upload(folder / name, location / name)


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
        cache = cache_folder()
        if cache is None:
            raise InputError(
                f"{location} needs a folder for copies of its files, and the user has no home "
                "directory; set XDG_CACHE_HOME to a folder"
            )
        folder = _below(cache / "data", location)
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


def cache_folder() -> pathlib.Path | None:
    """The folder for copies that can be made again; None for a user without a home directory, such
    as an unknown user of a container."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    except RuntimeError:
        return None
    return pathlib.Path(cache) / "dclm_jax"


def _below(directory: pathlib.Path, location: epath.Path) -> pathlib.Path:
    return directory.joinpath(*(part for part in location.parts[1:] if part != ".."))


def file_sha256(path: pathlib.Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
