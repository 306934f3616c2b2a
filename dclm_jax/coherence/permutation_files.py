"""Documents and permutations in a folder, one text per file (Barzilay and Lapata, 2008).

NAME.perm-1 is a document, and NAME.perm-2, NAME.perm-3 and so on are its permutations. Files may
have an extension, such as NAME.perm-1.txt.
"""

import pathlib
import re

import numpy as np

from dclm_jax.coherence.kendall import matched
from dclm_jax.data.documents import Document
from dclm_jax.data.readers import TextReader
from dclm_jax.data.text_files import file_label, input_files
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation.datasets import Dataset, encode
from dclm_jax.evaluation.permutations import numbered

_NAME = re.compile(r"(.+\.perm-)\d+((?:\.[^.\d/][^./]*)*)")


def open_permutations(
    vocabulary: Vocabulary, folder: str, reader: TextReader
) -> tuple[Dataset, list[np.ndarray]]:
    """Documents of a folder in the order of their files, and the orders int [P, S] of each
    document. The reader also reports permutations that are equal to their document."""
    texts = _texts(folder, reader)
    orders: dict[str, list[list[int]]] = {}
    for label, text in texts.items():
        place, match = f"{folder}/{label}", _NAME.fullmatch(label)
        if not match:
            raise InputError(f"{place}: is not named as a permutation; rename it as NAME.perm-2")
        original = f"{match[1]}1{match[2]}"
        if original not in texts:
            raise InputError(f"{place}: has no document {original} in {folder}; add it")
        orders.setdefault(original, [])
        if label == original:
            continue
        sentences = texts[original].sentences
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
        orders[original].append(order)
    encoded, num_equal = [], 0
    for label, permutations in orders.items():
        if not permutations:
            raise InputError(f"{folder}/{label}: has no permutation; add one to {folder}")
        encoded.append(encode(vocabulary, texts[label].sentences, texts[label].id))
        numbers = numbered(encoded[-1].sentences)
        num_equal += int(np.all(numbers[np.array(permutations)] == numbers, axis=1).sum())
    if num_equal:
        reader.report(f"note: permutations with the same text as their document: {num_equal:,}")
    source = {"input": folder, "permuted": folder, "split": None}
    dataset = Dataset(lambda: encoded, len(encoded), source)
    return dataset, list(map(np.array, orders.values()))


def _texts(folder: str, reader: TextReader) -> dict[str, Document]:
    """The document of each file of a folder, by file name."""
    if not pathlib.Path(folder).is_dir():
        raise InputError(f"{folder}: is not a folder; expected a folder with one document per file")
    labels = [file_label(file, folder) for file in input_files(folder)]
    documents: dict[str, list[Document]] = {label: [] for label in labels}
    for document in reader.documents(folder):
        label = document.id if document.id in documents else document.id.rpartition(":")[0]
        documents.get(label, []).append(document)
    for label, texts in documents.items():
        if len(texts) != 1:
            raise InputError(f"{folder}/{label}: has {len(texts)} documents; expected one per file")
    return {label: text for label, (text,) in documents.items()}
