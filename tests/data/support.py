"""What tests of text and prepared corpora share."""

from pathlib import Path

from dclm_jax.data import open_corpus
from dclm_jax.data.corpus import read_manifest
from dclm_jax.data.readers import TextReader


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def empty(reader: TextReader) -> tuple[int, int]:
    """The numbers of sentences and documents without words."""
    return reader.empty_sentences, reader.empty_documents


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
