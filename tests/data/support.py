"""What tests of text and prepared corpora share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dclm_jax.data.corpora import COLLECTIONS
from dclm_jax.data.corpus import Corpus, Manifest, open_corpus, read_manifest
from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.data.readers import TextReader, read_documents
from dclm_jax.data.words import WordMaker


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_lines(path: Path, documents: Iterable[Iterable[list[str]]]) -> Path:
    """Writes documents as lines of words, with a blank line between two."""
    texts = ["\n".join(map(" ".join, document)) for document in documents]
    return write(path, "\n\n".join(texts) + "\n")


def read(path: Path, format: Any = "lines", encoding: str = "utf-8", **options) -> list[Document]:
    """The documents of a text that is read with these `TextOptions`, or of a named corpus."""
    if format in COLLECTIONS:
        return list(WordMaker(TextOptions(**options)).written(COLLECTIONS[format].read(path)))
    return list(read_documents(path, TextOptions(format, **options), encoding=encoding))


def sentences_of(path: Path, *format: str, **options) -> list[list[list[str]]]:
    """The sentences of each document of a text."""
    return [document.sentences for document in read(path, *format, **options)]


def make_corpus(
    source: Any,
    directory: Path,
    format: Any = "lines",
    lowercase: bool = False,
    unknown_token: str | None = None,
    **options: Any,
) -> Manifest:
    """Prepares a corpus with these text options and `PrepareOptions`; `format` may also be the name
    of a corpus."""
    collection = format if format in COLLECTIONS else None
    format = "lines" if collection else format
    text = TextOptions(format, lowercase, unknown_token=unknown_token)
    return prepare(source, directory, text, PrepareOptions(**options), collection=collection)


def corpus_of(directory: Path, text: str, **options: Any) -> Corpus:
    """The corpus of a training text, which is written and prepared in `directory`."""
    make_corpus({"train": write(directory / "text", text)}, directory / "corpus", **options)
    return open_corpus(directory / "corpus", "train")


def empty(reader: TextReader) -> tuple[int, int]:
    """The numbers of sentences and documents without words."""
    return reader.word_maker.empty_sentences, reader.word_maker.empty_documents


def contents(directory: Path, split: str) -> dict[str, list[list[str]]]:
    """The documents of a split of a prepared corpus by their names, in their order."""
    corpus = open_corpus(directory, split)
    return {
        name: list(map(corpus.vocabulary.decode, corpus.document(index)))
        for index, name in enumerate(corpus.document_ids)
    }


def ids_of(directory: Path) -> dict[str, list[str]]:
    """The names of the documents of each split."""
    splits = read_manifest(directory).splits
    return {split: open_corpus(directory, split).document_ids for split in splits}


def snapshot(directory: Path) -> dict[str, tuple[bytes, int]]:
    """The content and the time of the last change of each file."""
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in directory.iterdir()}
