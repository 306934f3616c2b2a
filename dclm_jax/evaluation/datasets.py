"""Documents to evaluate on: a split of a prepared corpus, or text."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data import corpus, readers
from dclm_jax.data.documents import PLAIN, TextOptions
from dclm_jax.data.text_files import UTF8
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError

Tagger = Callable[[readers.Document], list[list[str]]]
"""A function that returns the part of speech of every word of a document, one list per sentence."""


@dataclasses.dataclass(frozen=True, eq=False)
class Encoded:
    """A document.

    Attributes:
      sentences: word ids of each sentence.
      tags: tags of the words of each sentence; None without a tagger.
      source: word ids of each sentence of the source; None if the document is its own source.
      characters: number of characters of the words, each word with one space; 0 if unknown.
      id: name of the document.
    """

    sentences: list[np.ndarray]
    tags: list[list[str]] | None = None
    source: list[np.ndarray] | None = None
    characters: int = 0
    id: str = ""


class Dataset(NamedTuple):
    """Documents to evaluate on.

    Attributes:
      documents: the documents, which are streamed once.
      num_documents: number of documents; None if unknown.
      source: description of the documents' source, for results.
      counts: `characters` and `original_tokens` of `Perplexity`, if known for all documents.
    """

    documents: Iterable[Encoded]
    num_documents: int | None
    source: dict[str, Any]
    counts: Mapping[str, int] = {}


def open_split(
    vocabulary: Vocabulary,
    directory: str | pathlib.Path,
    split: str,
    *,
    tagger: Tagger | None = None,
) -> Dataset:
    """The split "train", "valid" or "test" of a prepared corpus.

    A tagger receives the words, with `<UNKNOWN>` in place of OOV words, and the parts of speech
    that were saved with the corpus, if any.
    """
    data = corpus.open_corpus(directory, split)
    require_vocabulary(data, directory, vocabulary)
    spelling = data.vocabulary.words

    def tagged(index: int, document: Encoded) -> Encoded:
        if tagger is None:
            return document
        words = [[spelling[word] for word in sentence] for sentence in document.sentences]
        tags = data.document_tags(index)
        return dataclasses.replace(document, tags=tagger(readers.Document(str(index), words, tags)))

    encoded = enumerate(documents_of(data, corpus.open_source(data, directory)))
    documents = itertools.starmap(tagged, encoded)
    source = {"data": str(directory), "split": split}
    counts = {"characters": data.manifest.splits[split].characters}
    counts["original_tokens"] = data.manifest.original_tokens(split)
    return Dataset(documents, data.num_documents, source, counts)


def require_vocabulary(
    data: corpus.Corpus, directory: str | pathlib.Path, vocabulary: Vocabulary
) -> None:
    """Raises an `InputError` if the corpus in `directory` has a different vocabulary."""
    if data.vocabulary.fingerprint != vocabulary.fingerprint:
        raise InputError(
            f"{directory} and the model have different vocabularies "
            f"({describe_vocabulary(data.vocabulary)}; {describe_vocabulary(vocabulary)}); choose "
            "the model's corpus, or pass text by --input"
        )


def documents_of(data: corpus.Corpus, source: corpus.Corpus) -> Iterator[Encoded]:
    """The documents of a split, with their sources (`corpus.open_source`)."""
    for index, name in enumerate(data.document_ids):
        sentences = None if source is data else source.document(index)
        yield Encoded(data.document(index), source=sentences, id=name)


def open_text(
    vocabulary: Vocabulary,
    path: str,
    options: TextOptions = PLAIN,
    *,
    encoding: str = UTF8,
    tagger: Tagger | None = None,
    report: readers.Report = lambda line: None,
) -> Dataset:
    """Text, streamed; "-" is standard input. See `readers.read_documents` for encoding and report.

    A tagger receives the words of the text, including OOV words.
    """

    def documents() -> Iterator[Encoded]:
        for document in readers.read_documents(path, options, encoding=encoding, report=report):
            encoded = encode(vocabulary, document.sentences, document.id)
            tags = None if tagger is None else tagger(document)
            yield dataclasses.replace(encoded, tags=tags)

    source = {"input": str(path), "split": None, "read_as": str(options)}
    return Dataset(documents(), None, source)


def encode(vocabulary: Vocabulary, sentences: list[list[str]], name: str = "") -> Encoded:
    """A document of words as word ids."""
    characters = sum(len(word) + 1 for words in sentences for word in words)
    return Encoded(
        [vocabulary.encode(words) for words in sentences], characters=characters, id=name
    )


def describe_vocabulary(vocabulary: Vocabulary) -> str:
    """The size and the fingerprint of a vocabulary, for messages."""
    return f"{len(vocabulary):,} entries, fingerprint {vocabulary.fingerprint}"
