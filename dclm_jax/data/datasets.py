"""Documents of word ids to evaluate on: a prepared split, or text."""

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from dclm_jax.data import corpus
from dclm_jax.data.encoding import Encoded, Encoder
from dclm_jax.data.readers import TextReader
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Documents to evaluate on.

    Attributes:
      read: function that returns the documents for streaming. Text may be read only once.
      num_documents: number of documents; None if unknown.
      source: description of the documents' source, for results: "data", the directory of a corpus,
        and "split", its split; for text "input".
      counts: `characters` and `original_tokens` of `Perplexity`, if known for all documents.
    """

    read: Callable[[], Iterable[Encoded]]
    num_documents: int | None
    source: dict[str, Any]
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def documents(self) -> Iterable[Encoded]:
        """The documents, streamed."""
        return self.read()

    @property
    def name(self) -> str:
        """The name of the split, or of the text."""
        return self.source.get("split") or self.source["input"]

    @property
    def title(self) -> str:
        """The directory of the corpus and the split, or the text."""
        return self.name if self.is_text else f"{self.source['data']}, {self.name}"

    @property
    def is_text(self) -> bool:
        """Whether this is no split of a prepared corpus. Results of text are not saved."""
        return self.source.get("split") is None

    @functools.cached_property
    def sentences(self) -> list[list[np.ndarray]]:
        """The word ids of the sentences of each document."""
        return [document.sentences for document in self.documents]

    @functools.cached_property
    def fingerprint(self) -> str:
        """The checksum of the word ids of all documents."""
        digest = hashlib.sha256()
        for document in self.documents:
            for ids in document.sentences:
                digest.update(np.asarray(ids, np.int32).tobytes() + b"\n")
            digest.update(b"\n\n")
        return digest.hexdigest()[:16]


def open_split(vocabulary: Vocabulary, directory: str | pathlib.Path, split: str) -> Dataset:
    """The split "train", "valid" or "test" of a prepared corpus."""
    data = corpus.open_corpus(directory, split)
    require_vocabulary(data, directory, vocabulary)

    def read() -> Iterator[Encoded]:
        for index, document in enumerate(documents_of(data)):
            yield dataclasses.replace(document, tags=data.document_tags(index))

    source = {"data": str(directory), "split": split}
    counts = {"characters": data.manifest.splits[split].characters}
    counts["original_tokens"] = data.manifest.original_tokens(split)
    return Dataset(read, data.num_documents, source, counts)


def require_vocabulary(
    data: corpus.Corpus, directory: str | pathlib.Path, vocabulary: Vocabulary
) -> None:
    """Raises an `InputError` if the corpus in `directory` has a different vocabulary."""
    if data.vocabulary.fingerprint != vocabulary.fingerprint:
        raise InputError(
            f"{directory} and the model have different vocabularies "
            f"({data.vocabulary}; {vocabulary}); choose the model's corpus, or pass text by --input"
        )


def documents_of(data: corpus.Corpus) -> Iterator[Encoded]:
    """The documents of a split, without tags."""
    for index, name in enumerate(data.document_ids):
        yield Encoded(data.document(index), id=name)


def open_text(encoder: Encoder, path: str, reader: TextReader) -> Dataset:
    """Text, streamed once by an unused reader and an unused encoder; "-" is standard input."""
    source = {"input": str(path), "split": None, "read_as": str(reader.options)}
    return Dataset(lambda: encoder.documents(reader.documents(path)), None, source)
