"""What all readers share: documents, and files as lines of text."""

import bz2
import codecs
import contextlib
import dataclasses
import gzip
import io
import itertools
import os
import pathlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple, NoReturn

from dclm_jax import storage
from dclm_jax.data.oddities import FORMS, NO_FORM
from dclm_jax.errors import InputError, printable, shown
from dclm_jax.files import reading

UTF8 = "utf-8"
_UNPACK: dict[str, Callable[[BinaryIO], Any]] = {
    ".bz2": bz2.BZ2File,
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
}
LONGEST_LINE = 1 << 24
"""Bytes of a line, and characters of a cell of a table, at most: what is longer is no text, and
would fill the memory."""
_MOST_BLANK_LINES = 1_000_000
# A line of UTF-16 has a NUL in every other place or so, a word with one has few.
_NULS_OF_TEXT = 3
_LANGUAGE = re.compile("[a-z]{2,3}")


class Document(NamedTuple):
    """A document: its name and its sentences, each a list of words (none of them empty); of tagged
    text also the part of speech of every word."""

    id: str
    sentences: list[list[str]]
    tags: list[list[str]] | None = None


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """How text becomes documents of words. A run remembers the options of its training text, so
    that other text is read alike.

    Attributes:
      format: one of `readers.FORMATS`.
      lowercase: words are in lower case.
      normalize: quotes, dashes and other punctuation of raw text are first written as Moses does;
        words that are given as such stay as they are, since their spaces are those of the text.
      text_key: the key or column that holds raw text, None for "text".
      language: of raw text, as Wikipedia's code: en, de, pt, ckb.
      unicode: the normal form that words are written in, without format characters at their edges;
        one of `oddities.FORMS`.
      divider: the first word, once or repeated, of a line that ends a document in the formats
        lines, tagged and prose; "none" for no such line.
      quoted: cells of TSV are quoted where they hold tabulators, quotation marks or line breaks, as
        cells of CSV are.
    """

    format: str = "auto"
    lowercase: bool = False
    normalize: bool = False
    text_key: str | None = None
    language: str = "en"
    unicode: str = NO_FORM
    divider: str = "="
    quoted: bool = False

    def __post_init__(self):
        if not _LANGUAGE.fullmatch(self.language):
            raise InputError(
                f"language is {shown(self.language)}; expected a code of two or three small "
                "letters, such as en"
            )
        if self.unicode not in FORMS:
            raise InputError(
                f"unicode is {shown(self.unicode)}; expected one of {', '.join(FORMS)}"
            )
        if self.divider.split() != [self.divider]:
            raise InputError(f"divider is {shown(self.divider)}; expected one word, or none")

    def __str__(self) -> str:
        parts = ["lines of words" if self.format == "auto" else self.format]
        if self.normalize:
            parts.append("its punctuation normalised")
        if self.lowercase:
            parts.append("in lower case")
        if self.language != "en":
            parts.append(f"in the language {self.language}")
        if self.unicode != NO_FORM:
            parts.append(f"in the form {self.unicode.upper()}")
        return ", ".join(parts)


PLAIN = TextOptions()
"""Lines of words, as they stand."""


class Line(NamedTuple):
    """A line of a file, counted from 1."""

    number: int
    text: str


def input_files(path: str | pathlib.Path) -> list[pathlib.Path]:
    """The file itself, or the files of a folder in the order they are read."""
    if not str(path):
        raise InputError("the name of an input is empty; expected a file, a folder or -")
    path = pathlib.Path(path)
    with reading(path):
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        if not path.is_dir():
            return [path]
    files = []
    # It is told of a folder that cannot be listed, which others leave out.
    for folder, folders, names in os.walk(path, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found = [pathlib.Path(folder, name) for name in names if not name.startswith(".")]
        with reading(folder):
            files += [file for file in found if file.is_file()]
    files.sort()
    if not files:
        raise InputError(f"{path}: the folder holds no files")
    return files


def _refuse(error: OSError) -> NoReturn:
    raise InputError(f"{error.filename}: cannot be read: {error.strerror}") from error


def files_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files right in a folder, in the order of their names."""
    with reading(folder):
        return sorted(file for file in folder.iterdir() if file.is_file())


def file_label(file: pathlib.Path, root: str | pathlib.Path) -> str:
    """What documents of a file are called after: its place in `root`, as a line of text."""
    return printable(file.name if file == pathlib.Path(root) else file.relative_to(root).as_posix())


def name_suffix(file: pathlib.Path) -> str:
    """How the name of a file ends, in small letters, without what says that it is compressed."""
    is_packed = file.suffix.lower() in _UNPACK
    return pathlib.Path(file.stem if is_packed else file.name).suffix.lower()


def is_compressed(file: pathlib.Path) -> bool:
    """Whether a file is compressed, by its name: .gz or .bz2."""
    return file.suffix.lower() in _UNPACK


def read_lines(
    file: pathlib.Path,
    source: str | None = None,
    *,
    encoding: str = UTF8,
    fallbacks: tuple[str, ...] = (),
) -> Iterator[Line]:
    """The lines of a text file; one named .gz or .bz2 is unpacked.

    Args:
      file: the file.
      source: what to call it in messages instead of its name.
      encoding: of its text.
      fallbacks: encodings to try in turn for a line that is not in it, as in corpora that
        are older than UTF-8.
    """
    source = source or str(file)
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
    """The lines of a stream of text; see `read_lines`."""
    encoding = checked_encoding(encoding)
    number = blank = 0
    for number, text in enumerate(_decoded_lines(stream, source, encoding, *fallbacks), start=1):
        blank = blank + 1 if text.isspace() else 0
        if blank > _MOST_BLANK_LINES:
            raise InputError(
                f"{source}:{number}: {_MOST_BLANK_LINES:,} lines before this one are blank; "
                "expected text"
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
            f"there is no encoding {shown(encoding)}; expected one such as utf-8, cp1252, latin-1 "
            "or utf-16"
        ) from error


def _each_line(stream: BinaryIO, source: str, encoding: str) -> Iterator[str]:
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
            yield line if content is line else f"{content}\n"
    except UnicodeError as error:
        raise InputError(f"{source}: not valid {encoding} after line {number}: {error}") from error
    finally:
        text.detach()


def _decoded_lines(stream: BinaryIO, source: str, encoding: str, *fallbacks: str) -> Iterator[str]:
    # Latin-1 has a character for each byte, so that lines are found before they are decoded; but
    # the end of a line in UTF-16 is more than a byte.
    is_of_bytes = "\n".encode(encoding) == b"\n"
    read_as = "latin-1" if is_of_bytes else encoding
    for number, text in enumerate(_each_line(stream, source, read_as), start=1):
        line = text.encode("latin-1") if is_of_bytes else b""
        try:
            if is_of_bytes:
                text = _decoded(line, encoding, *fallbacks)
            if text.count("\0") * _NULS_OF_TEXT > len(text):
                raise InputError(
                    f"{source}:{number}: is no text in {encoding}: most of it is NUL bytes, as in "
                    "UTF-16 without a mark (--encoding=utf-16-le or utf-16-be)"
                )
            # Some encodings have signs for half a character, which no file of ours can hold.
            yield text if encoding == UTF8 else text.encode(UTF8).decode(UTF8)
        except UnicodeError as error:
            reason = str(error)
            if isinstance(error, UnicodeDecodeError):
                reason = (
                    f"the byte 0x{line[error.start]:02x} at {error.start + 1}; --encoding names "
                    "another, such as cp1252, latin-1 or utf-16"
                )
            called = encoding.upper() if encoding == UTF8 else encoding
            raise InputError(f"{source}:{number}: not valid {called}: {reason}") from error


def _decoded(line: bytes, encoding: str, *fallbacks: str) -> str:
    try:
        return line.decode(encoding)
    except UnicodeDecodeError:
        if not fallbacks:
            raise
        return _decoded(line, *fallbacks)


def ahead(lines: Iterable[Line], count: int) -> tuple[list[Line], Iterator[Line]]:
    """The first `count` lines, and an iterator over all lines, these included; an error among the
    first ones is raised only when the iterator comes to it."""
    lines, head = iter(lines), []

    def failing(error: InputError) -> Iterator[Line]:
        raise error
        yield

    try:
        for line in itertools.islice(lines, count):
            head.append(line)
    except InputError as error:
        lines = failing(error)
    return head, itertools.chain(head, lines)
