"""Public corpora of raw text as they are unpacked: a folder of files, one document each."""

import codecs
import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterator

from dclm_jax.data import prose
from dclm_jax.data.documents import Document
from dclm_jax.errors import InputError, printable
from dclm_jax.files import reading

_LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a corpus lies in its folder.

    Attributes:
      title: what it is called in messages.
      folders: where its documents are, in the order they are read; all other files are ignored.
      optional: those of `folders` that may be absent.
      decode: a file's bytes -> its text; raises UnicodeDecodeError.
      paragraphs: a file's text -> its paragraphs.
    """

    title: str
    folders: tuple[str, ...]
    optional: frozenset[str]
    decode: Callable[[bytes], str]
    paragraphs: Callable[[str], prose.Paragraphs]

    def files(self, root: str | pathlib.Path) -> dict[str, list[pathlib.Path]]:
        """The documents' files of each folder that is there, in the order of their names.

        Raises:
          InputError: a folder is absent or holds no documents.
        """
        return {
            folder: _text_files(path, self)
            for folder in self.folders
            if (path := pathlib.Path(root) / folder).is_dir() or folder not in self.optional
        }


def read_texts(name: str, root: str | pathlib.Path) -> Iterator[Document]:
    """All documents of a corpus as a stream; sentences and words as `prose` finds them.

    A document is called as its file, without .txt.

    A core makes about 2,000 sentences a second: the 100,000 reviews of IMDB, with the 1.2 million
    sentences of Wang and Cho (2015), need about ten minutes of one core, the BBC half a minute.

    Args:
      name: one of `LAYOUTS`.
      root: the folder of the corpus.

    Raises:
      InputError: (as the stream is read) the folder is not of this layout, or a file is empty or
        cannot be read or decoded.
    """
    layout = LAYOUTS[name]
    files = [file for folder in layout.files(root).values() for file in folder]
    texts = (layout.paragraphs(_read(file, layout)) for file in files)
    for file, sentences in zip(files, prose.split_documents(texts), strict=True):
        yield Document(printable(file.relative_to(root).with_suffix("").as_posix()), sentences)


def _text_files(folder: pathlib.Path, layout: Layout) -> list[pathlib.Path]:
    expected = f"expected the folder of {layout.title}, which holds {', '.join(layout.folders)}"
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; {expected}")
    with reading(folder):
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if entry.name.endswith(".txt") and entry.name[0] != "." and entry.is_file()
            )
    if not names:
        raise InputError(f"{folder}: holds no .txt files; {expected}")
    return [folder / name for name in names]


def _read(file: pathlib.Path, layout: Layout) -> str:
    with reading(file):
        data = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    if not data:
        raise InputError(f"{file}: is empty")
    try:
        return layout.decode(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{file}:{line}: not valid UTF-8: {error.reason}") from error


def _review_paragraphs(text: str) -> prose.Paragraphs:
    pieces = (" ".join(piece.split()) for piece in _LINE_BREAK.split(text))
    return [piece for piece in pieces if piece]


def _decode_each_line(data: bytes) -> str:
    return "\n".join(map(_decode_line, data.split(b"\n")))


def _decode_line(line: bytes) -> str:
    for encoding in ("utf-8", "cp1252"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    # Five bytes mean nothing in cp1252; every byte is something in Latin-1.
    return line.decode("latin-1")


def _article_paragraphs(text: str) -> prose.Paragraphs:
    title, *lines = text.split("\n")
    paragraphs, open_lines = [title.strip()], []
    for line in [*map(str.strip, lines), ""]:
        if line:
            open_lines.append(line)
        elif open_lines:
            paragraphs.append(" ".join(open_lines))
            open_lines = []
    return [paragraph for paragraph in paragraphs if paragraph]


LAYOUTS = {
    # Maas et al. (2011), the folder aclImdb.
    "imdb": Layout(
        title="the IMDB reviews",
        folders=("train/pos", "train/neg", "train/unsup", "test/pos", "test/neg"),
        optional=frozenset({"train/unsup"}),
        decode=bytes.decode,
        paragraphs=_review_paragraphs,
    ),
    # Greene and Cunningham (2006), the folder bbc.
    "bbc": Layout(
        title="the BBC articles",
        folders=("business", "entertainment", "politics", "sport", "tech"),
        optional=frozenset(),
        decode=_decode_each_line,
        paragraphs=_article_paragraphs,
    ),
}
