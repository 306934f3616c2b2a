"""Files as lines of text."""

import bz2
import codecs
import contextlib
import gzip
import io
import pathlib
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from dclm_jax import storage
from dclm_jax.errors import InputError, brief, printable
from dclm_jax.files import reading

UTF8 = "utf-8"
STDIN = "-"
LONGEST_LINE = 1 << 24
"""Bytes of a line, and characters of a cell of a table, at most: what is longer is no text, and
would fill the memory."""
_UNPACK: dict[str, Callable[[BinaryIO], Any]] = {
    ".bz2": bz2.BZ2File,
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
}
# A line of UTF-16 has a NUL in every other place or so, a word with one has few.
_NULS_OF_TEXT = 3


class Line(NamedTuple):
    """A line of a file, counted from 1."""

    number: int
    text: str


def input_files(path: str | pathlib.Path) -> list[pathlib.Path]:
    """The file itself, "-" as well, or the files of a folder and its subfolders in the order they
    are read, without hidden ones."""
    if str(path) == STDIN:
        return [pathlib.Path(path)]
    if not str(path):
        raise InputError("the name of an input is empty; expected a file, a folder or -")
    path = pathlib.Path(path)
    with reading(path):
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        if not path.is_dir():
            return [path]
    files, folders = [], [path]
    while folders:
        folder = folders.pop()
        with reading(folder):
            entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
            files += [entry for entry in entries if entry.is_file()]
            # A link to a folder above would be followed forever.
            folders += [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
    if not files:
        raise InputError(f"{path}: the folder holds no files")
    return sorted(files)


def files_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files right in a folder, in the order of their names."""
    with reading(folder):
        return sorted(file for file in folder.iterdir() if file.is_file())


def file_label(file: pathlib.Path, root: str | pathlib.Path) -> str:
    """The name for documents of a file: its path below `root`, as a line of text."""
    return printable(file.name if file == pathlib.Path(root) else file.relative_to(root).as_posix())


def is_compressed(file: pathlib.Path) -> bool:
    """Whether a file is compressed, by its name: .gz or .bz2."""
    return file.suffix.lower() in _UNPACK


def name_suffix(file: pathlib.Path) -> str:
    """The suffix of a file's name in lower case, before that of compression."""
    return pathlib.Path(file.stem if is_compressed(file) else file.name).suffix.lower()


def read_lines(
    file: pathlib.Path,
    source: str | None = None,
    *,
    encoding: str = UTF8,
    fallbacks: tuple[str, ...] = (),
) -> Iterator[Line]:
    """The lines of a text file; one named .gz or .bz2 is unpacked.

    Args:
      file: the file, or "-" for standard input.
      source: name of the file in messages, if not its path.
      encoding: encoding of its text.
      fallbacks: encodings to try in turn for a line that is not in it, as in corpora that
        are older than UTF-8.
    """
    source = source or str(file)
    if str(file) == STDIN:
        yield from decode(sys.stdin.buffer, source, encoding, fallbacks)
        return
    unpack = _UNPACK.get(file.suffix.lower(), contextlib.nullcontext)
    try:
        # Pipes are texts, too, and the length of a line has a limit.
        with storage.open_regular(file, or_stream=True) as packed, unpack(packed) as stream:
            yield from decode(stream, source, encoding, fallbacks)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{source}: cannot be read: {reason}") from error


def decode(
    stream: BinaryIO, source: str, encoding: str = UTF8, fallbacks: tuple[str, ...] = ()
) -> Iterator[Line]:
    """The lines of a stream of text, each with LF at its end; see `read_lines`."""
    encoding = checked_encoding(encoding)
    # Latin-1 has a character for each byte, so that lines are found before they are decoded; but
    # the end of a line in UTF-16 is more than a byte.
    encodings = (encoding, *fallbacks) if "\n".encode(encoding) == b"\n" else ()
    number = 0
    for number, line in _split_lines(stream, source, "latin-1" if encodings else encoding):
        text = _decoded(line, f"{source}:{number}", encodings) if encodings else line
        if text.count("\0") * _NULS_OF_TEXT > len(text):
            raise InputError(
                f"{source}:{number}: is no text in {encoding}: most of it is NUL bytes, as in "
                "UTF-16 without a mark (--encoding=utf-16-le or utf-16-be)"
            )
        # A mark of the order of bytes.
        yield Line(number, text.removeprefix("\ufeff") if number == 1 else text)
    if not number:
        raise InputError(f"{source}: is empty")


def checked_encoding(encoding: str) -> str:
    """The encoding, UTF-8 by one name. Raises an InputError unless there is one of text."""
    try:
        with contextlib.suppress(UnicodeDecodeError):
            # Of an odd number of bytes.
            b"\n\n".decode(encoding)
        return UTF8 if codecs.lookup(encoding).name == UTF8 else encoding
    # Also for names that are none at all.
    except (LookupError, ValueError) as error:
        raise InputError(
            f"there is no encoding {brief(encoding)}; expected one such as utf-8, cp1252, latin-1 "
            "or utf-16"
        ) from error


def _split_lines(stream: BinaryIO, source: str, encoding: str) -> Iterator[Line]:
    """The lines of a text, whose ends are LF, CR LF or CR: each with LF at its end."""
    text = io.TextIOWrapper(stream, encoding, newline="")
    number, before = 0, ""
    try:
        while line := text.readline(LONGEST_LINE + 1):
            # CR CR LF is one end: an editor has made CR LF of the LF in CR LF.
            if line == "\r\n" and before.endswith("\r"):
                before = line
                continue
            number, before = number + 1, line
            if len(line) > LONGEST_LINE:
                raise InputError(
                    f"{source}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB; "
                    "expected lines of text"
                )
            content = line.rstrip("\r\n")
            yield Line(number, line if content is line else f"{content}\n")
    except UnicodeError as error:
        raise InputError(f"{source}: not valid {encoding} after line {number}: {error}") from error
    finally:
        text.detach()


def _decoded(line: str, where: str, encodings: tuple[str, ...]) -> str:
    """A line of bytes, each given as a character, in the first of the encodings that it is in."""
    content, failure = line.encode("latin-1"), None
    for encoding in encodings:
        try:
            text = content.decode(encoding)
            # Some encodings have signs for half a character, which no file of ours can hold.
            return text if encoding == UTF8 else text.encode(UTF8).decode(UTF8)
        except UnicodeError as error:
            failure = error
    reason = str(failure)
    if isinstance(failure, UnicodeDecodeError):
        reason = (
            f"the byte 0x{content[failure.start]:02x} at {failure.start + 1}; --encoding names "
            "another, such as cp1252, latin-1 or utf-16"
        )
    name = encodings[-1]
    raise InputError(
        f"{where}: not valid {name.upper() if name == UTF8 else name}: {reason}"
    ) from failure
