"""Directories that are either whole or absent."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from dclm_jax import storage
from dclm_jax.errors import InputError


@contextlib.contextmanager
def replacing(target: storage.Location, last: str) -> Iterator[pathlib.Path]:
    """As `Replacing`; what is to lie under an address is made here and copied when it is complete,
    the file called `last` after all others.

    Raises:
      InputError: a file or directory cannot be written.
    """
    if isinstance(target, pathlib.Path):
        with Replacing(target) as directory:
            yield directory
        return
    with storage.scratch(target) as made:
        with Replacing(made) as directory:
            yield directory
        storage.upload_directory(made, target, last)


class Replacing:
    """A temporary directory beside `target` that takes its place when all has gone well.

    Raises:
      InputError: a file or directory cannot be written.
    """

    def __init__(self, target: pathlib.Path):
        self._target = target

    def __enter__(self) -> pathlib.Path:
        parent = self._target.parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
            self._directory = pathlib.Path(
                tempfile.mkdtemp(prefix=f".{self._target.name}.", dir=parent)
            )
        except OSError as error:
            raise InputError(f"{self._target}: cannot be written: {error.strerror}") from error
        return self._directory

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *trace: object
    ) -> None:
        try:
            if isinstance(error, OSError):
                raise error
            if kind is None:
                self._replace()
        except OSError as failure:
            raise InputError(f"{self._target}: cannot be written: {failure.strerror}") from failure
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _replace(self) -> None:
        umask = os.umask(0)
        os.umask(umask)
        self._directory.chmod(0o777 & ~umask)
        if not self._target.exists():
            self._directory.rename(self._target)
            return
        # A directory in use cannot be replaced in one step: the old one is put aside first.
        aside = self._directory.with_name(self._directory.name + ".old")
        self._target.rename(aside)
        self._directory.rename(self._target)
        shutil.rmtree(aside)
