"""What all readers share: documents, and files as lines of text."""

import codecs
import dataclasses
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from dclm_jax.errors import InputError, printable
from dclm_jax.files import reading


class Document(NamedTuple):
    """A document: its name and its sentences, each a list of words (none of them empty); of tagged
    text also the part of speech of every word."""

    id: str
    sentences: list[list[str]]
    tags: list[list[str]] | None = None


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """How text becomes words: what `readers.read_documents` takes by these names.

    A run remembers those of its training text, so that other text is read alike.
    """

    format: str = "auto"
    lowercase: bool = False

    def __str__(self) -> str:
        format = "lines of words" if self.format == "auto" else self.format
        return format + ", in lower case" * self.lowercase


PLAIN = TextOptions()
"""Lines of words, as they stand."""


class Line(NamedTuple):
    """A line of a file, counted from 1."""

    number: int
    text: str


def input_files(path: str | pathlib.Path) -> list[pathlib.Path]:
    """The file itself, or the files of a folder in the order they are read.

    Raises:
      InputError: there is no such file or folder, or the folder holds no files.
    """
    if not str(path):
        raise InputError("the name of an input is empty; expected a file, a folder or -")
    path = pathlib.Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if not path.is_dir():
        return [path]
    files = sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and not any(p.startswith(".") for p in file.relative_to(path).parts)
    )
    if not files:
        raise InputError(f"{path}: the folder holds no files")
    return files


def files_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files right in a folder, in the order of their names.

    Raises:
      InputError: it cannot be read.
    """
    with reading(folder):
        return sorted(file for file in folder.iterdir() if file.is_file())


def file_label(file: pathlib.Path, root: str | pathlib.Path) -> str:
    """What documents of a file are called after: its place in `root`, as a line of text."""
    return printable(file.name if file == pathlib.Path(root) else file.relative_to(root).as_posix())


def read_lines(
    file: pathlib.Path,
    source: str | None = None,
    *,
    fallbacks: tuple[str, ...] = (),
    unpack: Callable[..., Any] = open,
) -> Iterator[Line]:
    """The lines of a UTF-8 file.

    Args:
      file: the file.
      source: what to call it in messages instead of its name.
      fallbacks: encodings to try in turn for a line that is no UTF-8, as in corpora of before it.
      unpack: opens the file, as `gzip.open` does.

    Raises:
      InputError: (as the stream is read) it cannot be read, is empty, damaged or no UTF-8.
    """
    source = source or str(file)
    try:
        with unpack(file, "rb") as stream:
            yield from decode(stream, source, fallbacks)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{source}: cannot be read: {reason}") from error


def decode(stream: BinaryIO, source: str, fallbacks: tuple[str, ...] = ()) -> Iterator[Line]:
    """The lines of a stream of UTF-8; see `read_lines`.

    Raises:
      InputError: (as the stream is read) it is empty or no UTF-8.
    """
    line = b""
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield Line(number, _decoded(line, "utf-8", *fallbacks))
        except UnicodeDecodeError as error:
            raise InputError(f"{source}:{number}: not valid UTF-8: {error.reason}") from error
    if not line:
        raise InputError(f"{source}: is empty")


def _decoded(line: bytes, encoding: str, *fallbacks: str) -> str:
    try:
        return line.decode(encoding)
    except UnicodeDecodeError:
        if not fallbacks:
            raise
        return _decoded(line, *fallbacks)
