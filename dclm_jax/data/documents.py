"""What all readers share: documents, and files as lines of text."""

import bz2
import gzip
import pathlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from dclm_jax.errors import InputError
from dclm_jax.files import reading

_BOM = b"\xef\xbb\xbf"


class Document(NamedTuple):
    """A document: its name and its sentences, each a list of words (none of them empty); of tagged
    text also the part of speech of every word."""

    id: str
    sentences: list[list[str]]
    tags: list[list[str]] | None = None


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


def read_lines(
    file: pathlib.Path, source: str | None = None, *, or_latin_1: bool = False
) -> Iterator[Line]:
    """The lines of a UTF-8 file, by default called by its own name in messages.

    With `or_latin_1` a line that is no UTF-8 is ISO 8859-1, as in corpora of before UTF-8.

    Raises:
      InputError: (as the stream is read) it cannot be read, is empty or no UTF-8.
    """
    source = source or str(file)
    with reading(source):
        with open(file, "rb") as stream:
            yield from decode(stream, source, or_latin_1=or_latin_1)


def read_compressed_lines(file: pathlib.Path, *, or_latin_1: bool = False) -> Iterator[Line]:
    """As `read_lines`, of a file that is compressed if its name ends in .bz2 or .gz.

    Raises:
      InputError: as `read_lines`; or it is damaged.
    """
    unpack = {".bz2": bz2.open, ".gz": gzip.open}.get(file.suffix)
    if unpack is None:
        yield from read_lines(file, or_latin_1=or_latin_1)
        return
    try:
        with unpack(file, "rb") as stream:
            yield from decode(stream, str(file), or_latin_1=or_latin_1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error


def decode(stream: BinaryIO, source: str, *, or_latin_1: bool = False) -> Iterator[Line]:
    """The lines of a stream of UTF-8; see `read_lines`.

    Raises:
      InputError: (as the stream is read) it is empty or no UTF-8.
    """
    number = 0
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(_BOM)
        try:
            yield Line(number, line.decode("utf-8"))
        except UnicodeDecodeError as error:
            if or_latin_1:
                yield Line(number, line.decode("latin-1"))
                continue
            raise InputError(f"{source}:{number}: not valid UTF-8: {error.reason}") from error
    if number == 0:
        raise InputError(f"{source}: is empty")
