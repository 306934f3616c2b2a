"""Result files that are either whole or absent; the first process of a job writes them."""

import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from dclm_jax import processes, storage
from dclm_jax.errors import InputError

STDOUT = "-"


@contextlib.contextmanager
def open_output(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """A UTF-8 text file to write; "-" is standard output.

    It is written as PATH.tmp and renamed at the end. If the block raises, the temporary file is
    removed and what was at `path` before stays.

    Raises:
      InputError: the file cannot be created or written.
    """
    if os.fspath(path) == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    with _whole(path, "w", encoding="utf-8", newline="\n") as file:
        yield file


def write_json(path: str | os.PathLike[str], value: dict[str, Any]) -> None:
    """Writes an object as indented JSON; "-" is standard output.

    Raises:
      InputError: the file cannot be written.
    """
    with open_output(path) as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a binary file.

    Raises:
      InputError: the file cannot be written.
    """
    with _whole(path, "wb") as file:
        file.write(content)


@contextlib.contextmanager
def _whole(path: str | os.PathLike[str], mode: str, **options: Any) -> Iterator[Any]:
    if not processes.is_first():
        with open(os.devnull, mode, **options) as nowhere:
            yield nowhere
        return
    with storage.uploading(path) as target, _replacing(target, path, mode, **options) as file:
        yield file


@contextlib.contextmanager
def _replacing(
    target: pathlib.Path, path: str | os.PathLike[str], mode: str, **options: Any
) -> Iterator[Any]:
    temporary = target.with_name(target.name + ".tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file = open(temporary, mode, **options)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
