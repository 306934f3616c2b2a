"""Documents and permutations in files, one text per file (Barzilay and Lapata, 2008).

There are two layouts:

- One folder, as published by the authors: NAME.perm-1 is a document, and NAME.perm-2, NAME.perm-3
  and so on are its permutations.
- A folder of documents and a folder of permutations: NAME.perm-1, NAME-1 or NAME_1, and so on, are
  permutations of the document NAME.

Files of either folder may have an extension, such as NAME.perm-1.txt or NAME.txt.
"""

import pathlib
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from dclm_jax.coherence.kendall import matched
from dclm_jax.data.documents import Document
from dclm_jax.data.text_files import file_label, input_files
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation.datasets import Dataset, encode
from dclm_jax.evaluation.permutations import numbered

_EXTENSION = r"(?P<extension>(\.[^.\d/][^./]*)*)"
_PUBLISHED = re.compile(rf"(?P<name>.+)\.perm-(?P<number>\d+){_EXTENSION}")
_NUMBERED = re.compile(rf"(?P<name>.+)[-_](?P<number>\d+){_EXTENSION}")
_STEM = re.compile(_EXTENSION + "$")
_ORIGINAL = 1

Read = Callable[[str], Iterable[Document]]
"""Reads the documents of a folder, named as by `readers.read_documents`."""


class PermutedDocument(NamedTuple):
    """A document, and orders int [P, S] of its sentences."""

    document: Document
    orders: np.ndarray


def read_permutations(
    read: Read, permuted: str, originals: str | None = None
) -> list[PermutedDocument]:
    """Documents and their permutations, in the order of the documents' files.

    Args:
      read: the reader of a folder.
      permuted: the folder of permutations, and of documents if `originals` is None.
      originals: the folder of documents.
    """
    permutations, documents = _texts(read, permuted), {}
    if originals is not None:
        documents = _texts(read, originals)
    else:
        for label in list(permutations):
            name = _PUBLISHED.fullmatch(label)
            if name and int(name["number"]) == _ORIGINAL:
                documents[name["name"] + name["extension"]] = permutations.pop(label)
    by_stem = {_STEM.sub("", label): label for label in documents}
    orders: dict[str, list[np.ndarray]] = {label: [] for label in documents}
    for label, text in permutations.items():
        place = f"{permuted}/{label}"
        match = _PUBLISHED.fullmatch(label) or (originals and _NUMBERED.fullmatch(label))
        if not match:
            expected = "NAME.perm-2" if originals is None else "NAME.perm-2 or NAME-2"
            raise InputError(f"{place}: is not named as a permutation; rename it as {expected}")
        name = match["name"] + match["extension"]
        name = name if name in documents else by_stem.get(match["name"], match["name"])
        if name not in documents:
            where = f"{match['name']}.perm-{_ORIGINAL}" if originals is None else name
            raise InputError(f"{place}: has no document {where} in {originals or permuted}; add it")
        sentences = documents[name].sentences
        order = matched(list(map(tuple, sentences)), list(map(tuple, text.sentences)))
        if -1 in order:
            number = order.index(-1)
            unknown = brief(" ".join(text.sentences[number]))
            raise InputError(
                f"{place}: sentence {number + 1}, {unknown}, is not in its document; correct it"
            )
        if len(order) < len(sentences):
            raise InputError(
                f"{place}: has {len(order)} of {len(sentences)} sentences of its document; add all"
            )
        orders[name].append(np.array(order))
    for label, permutations in orders.items():
        if not permutations:
            raise InputError(
                f"{originals or permuted}/{label}: has no permutation; add one to {permuted}"
            )
    return [
        PermutedDocument(document, np.array(orders[label])) for label, document in documents.items()
    ]


def open_permutations(
    vocabulary: Vocabulary,
    read: Read,
    permuted: str,
    originals: str | None = None,
    *,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[Dataset, list[np.ndarray]]:
    """`read_permutations` as a dataset, and the orders of each of its documents. `report` is called
    with a note on permutations that are equal to their document."""
    permutations = read_permutations(read, permuted, originals)
    documents, orders, num_equal = [], [], 0
    for document, orders_PxS in permutations:
        documents.append(encode(vocabulary, document.sentences, document.id))
        orders.append(orders_PxS)
        original = numbered(documents[-1].sentences)
        num_equal += int(np.all(original[orders_PxS] == original, axis=1).sum())
    if num_equal:
        report(f"note: permutations with the same text as their document: {num_equal:,}")
    source = {"input": originals or permuted, "permuted": permuted, "split": None}
    return Dataset(lambda tagger: documents, len(documents), source), orders


def _texts(read: Read, folder: str) -> dict[str, Document]:
    """The document of each file of a folder, by file name."""
    if not pathlib.Path(folder).is_dir():
        raise InputError(f"{folder}: is not a folder; expected a folder with one document per file")
    labels = [file_label(file, folder) for file in input_files(folder)]
    documents: dict[str, list[Document]] = {label: [] for label in labels}
    for document in read(folder):
        label = document.id if document.id in documents else document.id.rpartition(":")[0]
        documents.get(label, []).append(document)
    for label, texts in documents.items():
        if len(texts) != 1:
            raise InputError(f"{folder}/{label}: has {len(texts)} documents; expected one per file")
    return {label: text for label, (text,) in documents.items()}
