"""Documents to evaluate on: a split of a prepared corpus, or text read as it is."""

import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data import corpus, readers
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError


class Input(NamedTuple):
    """Documents as word ids, how many there are (None: not known yet), and where they are from."""

    documents: Iterable[list[np.ndarray]]
    num_documents: int | None
    source: dict[str, Any]


def open_split(vocabulary: Vocabulary, directory: str | pathlib.Path, split: str) -> Input:
    """A split of a prepared corpus.

    Raises:
      InputError: it is not there, or its vocabulary is not the model's.
    """
    data = corpus.open_corpus(directory, split)
    if data.vocabulary.fingerprint != vocabulary.fingerprint:
        raise InputError(
            f"{directory} was prepared with another vocabulary ({_describe(data.vocabulary)}) than "
            f"the model's ({_describe(vocabulary)}); expected the same, or text by --input"
        )
    documents = map(data.document, range(data.num_documents))
    return Input(documents, data.num_documents, {"data": str(directory), "split": split})


def open_text(
    vocabulary: Vocabulary, path: str, *, format: str = "auto", lowercase: bool = False
) -> Input:
    """Text in any format of `dclm_jax.data.readers`, streamed; "-" is standard input.

    Raises:
      InputError: (as it is read) it is missing or malformed.
    """

    def documents() -> Iterator[list[np.ndarray]]:
        for document in readers.read_documents(path, format, lowercase=lowercase):
            yield [vocabulary.encode(words) for words in document.sentences]

    return Input(documents(), None, {"input": str(path), "split": None})


def _describe(vocabulary: Vocabulary) -> str:
    return f"{len(vocabulary):,} entries, fingerprint {vocabulary.fingerprint}"
