"""Corpora of prose: folders of text files, one document per file."""

import pathlib
from collections.abc import Callable, Iterator, Sequence

from dclm_jax.data import prose
from dclm_jax.data.documents import Document
from dclm_jax.data.text_files import files_in, read_lines
from dclm_jax.errors import InputError, printable

Files = Callable[[str | pathlib.Path], dict[str, list[pathlib.Path]]]
"""A function from the folder of a corpus to its files in reading order, by part; it refuses folders
with another layout."""


def text_files(title: str, names: Sequence[str], optional: Sequence[str] = ()) -> Files:
    """A function that lists the texts in these folders of a corpus; it ignores other files."""

    def files(root: str | pathlib.Path) -> dict[str, list[pathlib.Path]]:
        expected = f"expected the folder of {title}, which has {', '.join(names)}"
        parts = {}
        for name in names:
            folder = pathlib.Path(root) / name
            if not folder.is_dir() and name in optional:
                continue
            if not folder.is_dir():
                raise InputError(f"{folder}: no such folder; {expected}")
            texts = [file for file in files_in(folder) if file.suffix == ".txt"]
            parts[name] = [file for file in texts if not file.name.startswith(".")]
            if not parts[name]:
                raise InputError(f"{folder}: has no .txt files; {expected}")
        return parts

    return files


def reader(
    files: Files, divide: Callable[[str], Sequence[str]], fallbacks: tuple[str, ...] = ()
) -> Callable[[str | pathlib.Path], Iterator[Document]]:
    """A reader of text files in UTF-8 or an encoding of `fallbacks`; `divide` divides a text into
    paragraphs. Documents have the names of their files, without .txt."""

    def read(root: str | pathlib.Path) -> Iterator[Document]:
        parts = files(root)
        tokenizer = prose.Tokenizer()
        for folder, file in ((folder, file) for folder, part in parts.items() for file in part):
            text = "".join(text for _, text in read_lines(file, fallbacks=fallbacks))
            name = printable(str(pathlib.PurePosixPath(folder, file.stem)))
            yield Document(name, tokenizer.sentences(prose.nonempty_paragraphs(divide(text))))

    return read
