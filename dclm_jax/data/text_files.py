"""Files as lines of text."""

import bz2
import codecs
import contextlib
import functools
import gzip
import io
import pathlib
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from dclm_jax.errors import InputError, brief, printable
from dclm_jax.files import reading

UTF8 = "utf-8"
STDIN = "-"
_UNPACK: dict[str, Callable[[BinaryIO], Any]] = {
    ".bz2": bz2.BZ2File,
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
}

_NO_TEXT = {
    "\x1f\x8b": "is compressed by gzip; add .gz to its name, or unpack it (gunzip)",
    "BZh": "is compressed by bzip2; add .bz2 to its name, or unpack it (bunzip2)",
    "\xfd7zXZ": "is compressed by xz; unpack it (unxz)",
    "\x28\xb5\x2f\xfd": "is compressed by Zstandard; unpack it (unzstd)",
    "\x04\x22\x4d\x18": "is compressed by LZ4; unpack it (unlz4)",
    "\x5d\0\0": "is compressed by LZMA; unpack it (unlzma)",
    "\x1f\x9d": "is compressed by compress; unpack it (uncompress)",
    "7z\xbc\xaf": "is an archive of 7-Zip; unpack it (7z x)",
    "PK\x03\x04": "is a zip archive, as .docx and .xlsx files are; unpack it (unzip), or save its "
    "content as text",
    "\xd0\xcf\x11\xe0": "is an older Office document, such as .doc and .xls files; save its "
    "content as text",
    "{\\rtf": "is a document in Rich Text Format; save its content as text",
    "%PDF-": "is a PDF document; save its content as text (pdftotext)",
    "PAR1": "is a Parquet file; convert it to CSV or JSON lines",
}
"""The first bytes of files that are no text, as Latin-1, with what to do."""
_LAYOUTS = {
    "subtitles": (
        re.compile(r"WEBVTT(?![^\s])|(\d+\n)?\d+:\d\d:\d\d[,.]\d+( --> |,\d+:\d\d:)"),
        "remove the lines of numbers and times (sed -E '/^[0-9]+\\r?$|-->|^WEBVTT/d')",
    ),
    "CoNLL": (
        re.compile(
            r"(#.*\n)*(# (sent_id|text|newdoc id) = .*\n|-DOCSTART- |1(-\d+)?(\t[^\t\n]*){9}\n)"
        ),
        "write its second column, a sentence per line "
        "(awk -F'\\t' '/^[0-9]+\\t/ {printf \"%s \", $2} /^$/ {print \"\"}')",
    ),
    "a transcript of CHAT": (
        re.compile(r"@(UTF8|Begin)\b"),
        "keep the words of its utterances, the lines that begin with *",
    ),
    "XML": (
        re.compile(r"<\?xml\b|<!DOCTYPE\b|<[A-Za-z][\w.:-]*\s[^<>]*=\s*[\"'][^<>]*>"),
        "add --strip_html to remove its tags",
    ),
}
"""Layouts of files whose marks would be read as words: their first lines, and what to do."""
LAYOUT_LINES = 20
"""Number of lines that `layout_of` needs."""
_TAR_MARK = slice(257, 262)


class TextLine(NamedTuple):
    """A line of a file, counted from 1."""

    number: int
    text: str


def input_files(path: str | pathlib.Path) -> list[pathlib.Path]:
    """The file, or "-", or the files of a folder and its subfolders in reading order, without
    hidden files."""
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
            # A link to a parent folder would be followed forever.
            folders += [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
    if not files:
        raise InputError(f"{path}: the folder has no files; expected files of text")
    return sorted(files)


def files_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files in a folder, without subfolders, sorted by name."""
    with reading(folder):
        return sorted(file for file in folder.iterdir() if file.is_file())


def file_label(file: pathlib.Path, root: str | pathlib.Path) -> str:
    """The name for documents of a file: its path below `root`, as a line of text."""
    return printable(file.name if file == pathlib.Path(root) else file.relative_to(root).as_posix())


def is_compressed(file: pathlib.Path) -> bool:
    """Whether a file is compressed, by its name: .gz or .bz2."""
    return file.suffix.lower() in _UNPACK


def name_suffix(file: pathlib.Path) -> str:
    """The lower-case suffix of a file's name, without the suffix of compression."""
    return pathlib.Path(file.stem if is_compressed(file) else file.name).suffix.lower()


def read_lines(
    file: pathlib.Path,
    *,
    encoding: str = UTF8,
    fallbacks: tuple[str, ...] = (),
) -> Iterator[TextLine]:
    """The lines of a text file; files named .gz or .bz2 are decompressed.

    Args:
      file: the file, or "-" for standard input.
      encoding: encoding of the text.
      fallbacks: encodings to try for lines that are not valid in `encoding`, as in corpora older
        than UTF-8.
    """
    if str(file) == STDIN:
        yield from decode(sys.stdin.buffer, str(file), encoding, fallbacks)
        return
    unpack = _UNPACK.get(file.suffix.lower(), contextlib.nullcontext)
    try:
        with file.open("rb") as packed, unpack(packed) as stream:
            yield from decode(stream, str(file), encoding, fallbacks)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{file}: cannot be read: {reason}") from error


def decode(
    stream: BinaryIO, source: str, encoding: str = UTF8, fallbacks: tuple[str, ...] = ()
) -> Iterator[TextLine]:
    """The lines of a stream with ends LF, CR LF or CR; each returned line ends in LF. See
    `read_lines`."""
    encoding = checked_encoding(encoding)
    # Latin-1 has a character for each byte, so that lines are divided before they are decoded. In
    # UTF-16 the end of a line is more than a byte.
    encodings = (encoding, *fallbacks) if "\n".encode(encoding) == b"\n" else ()
    text = io.TextIOWrapper(stream, "latin-1" if encodings else encoding, newline=None)
    number = 0
    try:
        for number, line in enumerate(text, start=1):
            if encodings:
                if number == 1:
                    _require_text(line, source)
                line = _decoded(line, f"{source}:{number}", encodings)
            # The byte order mark.
            yield TextLine(number, line.removeprefix("\ufeff") if number == 1 else line)
    except UnicodeError as error:
        raise EncodingError(
            f"{source}: not valid {encoding} after line {number} ({error}); change --encoding"
        ) from error
    finally:
        text.detach()
    if not number:
        raise InputError(f"{source}: is empty; expected text")


def _require_text(line: str, source: str) -> None:
    """Raises an `InputError` if the first line of a file, as Latin-1, is that of no text."""
    for mark, remedy in _NO_TEXT.items():
        if line.startswith(mark):
            raise InputError(f"{source}: {remedy}")
    if line[_TAR_MARK] == "ustar":
        raise InputError(f"{source}: is a tar archive; unpack it (tar -xf)")


def layout_of(lines: Iterable[TextLine]) -> tuple[str, str] | None:
    """The layout of a file that is no plain text, by its first lines, and what to do."""
    text = "".join(line.text for line in lines).lstrip()
    for layout, (first, remedy) in _LAYOUTS.items():
        if first.match(text):
            return layout, remedy
    return None


class EncodingError(InputError):
    """A file whose bytes are no text in the encoding."""


def is_encoded(file: pathlib.Path, encoding: str) -> bool | None:
    """Whether a text file is valid in an encoding; None if it has only ASCII characters."""
    is_ascii = True
    try:
        for line in read_lines(file, encoding=encoding):
            is_ascii = is_ascii and line.text.isascii()
    except EncodingError:
        return False
    except InputError:
        # Another fault is found when the file is read.
        return None
    return None if is_ascii else True


@functools.cache
def _has_single_bytes(encoding: str) -> bool:
    """Whether most bytes are a character each, as in cp1252 and not in gb18030."""
    letters = bytes(range(0xA1, 0x100))
    return len(letters.decode(encoding, "ignore")) > 0.8 * len(letters)


def is_utf8_misread(text: str, encoding: str) -> bool:
    """Whether text that was decoded by another encoding is valid UTF-8 with other characters."""
    if text.isascii() or encoding == UTF8 or not _has_single_bytes(encoding):
        return False
    try:
        text.encode(encoding).decode(UTF8)
    except UnicodeError:
        return False
    return True


def checked_encoding(encoding: str) -> str:
    """The encoding, with one name for UTF-8. Raises an InputError if no encoding of text has this
    name."""
    try:
        "".encode(encoding)
    except LookupError as error:
        raise InputError(
            f"encoding {brief(encoding)} is unknown; expected an encoding such as utf-8, cp1252, "
            "latin-1 or utf-16"
        ) from error
    return UTF8 if codecs.lookup(encoding).name == UTF8 else encoding


def _decoded(line: str, where: str, encodings: tuple[str, ...]) -> str:
    """A line of Latin-1 characters, one per byte, decoded by the first encoding that accepts it."""
    content = line.encode("latin-1")
    for encoding in encodings[:-1]:
        with contextlib.suppress(UnicodeDecodeError):
            return content.decode(encoding)
    name = encodings[-1]
    try:
        return content.decode(name)
    except UnicodeDecodeError as error:
        raise EncodingError(
            f"{where}: not valid {name.upper() if name == UTF8 else name}: the byte "
            f"0x{content[error.start]:02x} at position {error.start + 1}; set --encoding, such as "
            "cp1252, latin-1 or utf-16"
        ) from error
