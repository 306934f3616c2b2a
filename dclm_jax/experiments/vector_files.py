"""Vectors of documents or sentences as an array of numpy, and a file with the names of its rows."""

from collections.abc import Iterable
from typing import BinaryIO

import numpy as np

from dclm_jax import files
from dclm_jax.data.documents import OnDocument
from dclm_jax.errors import InputError
from dclm_jax.score_types import DocumentVectors
from dclm_jax.tables import separated

UNITS = ("documents", "sentences")
_SUFFIX = ".npy"


def write(
    path: str,
    documents: Iterable[DocumentVectors],
    unit: str,
    *,
    on_document: OnDocument = lambda done: None,
) -> tuple[int, int]:
    """Writes the vectors as float32 to NAME.npy, and one line per row to NAME.ids.txt: the name of
    the document, and for sentences a tab and the number of the sentence, from 1. Returns the shape.

    Args:
      path: NAME.npy.
      documents: read one at a time.
      unit: one of `UNITS`, the unit of text per vector.

    Returns:
      The shape of the array.
    """
    if not path.endswith(_SUFFIX):
        raise InputError(f"output is {path!r}; choose a file NAME{_SUFFIX}")
    rows, width = 0, 0
    with (
        files.open_output(path.removesuffix(_SUFFIX) + ".ids.txt") as ids,
        files.open_binary(path) as file,
    ):
        for number, document in enumerate(documents, start=1):
            if unit == "documents":
                vectors_RxX, names = document.document[None], [[document.id]]
            else:
                vectors_RxX = document.sentences
                names = [[document.id, count] for count in range(1, len(vectors_RxX) + 1)]
            if not rows:
                width = vectors_RxX.shape[1]
                _write_header(file, rows, width)
            file.write(vectors_RxX.astype("<f4").tobytes())
            ids.writelines(map(separated, names))
            rows += len(vectors_RxX)
            on_document(number)
        file.seek(0)
        _write_header(file, rows, width)
    return rows, width


def _write_header(file: BinaryIO, rows: int, width: int) -> None:
    """The header of an array, whose length does not depend on the number of rows."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(file, header)
