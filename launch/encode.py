"""Writes vectors of documents or of their sentences: the contexts of a trained model.

    python -m launch.encode --workdir=runs/ccdclm --input=docs.txt --output=vectors.npy
    python -m launch.encode --workdir=runs/ccdclm --input=docs.txt --output=sentences.npy \\
        --unit=sentences

The vector of a sentence is the context of a language model after it, which encodes the sentences
before it too. The vector of a document is the context after its last sentence. vectors.npy is a
float array with one row per vector; vectors.ids.txt has one line per row: the name of the document,
and for sentences a tab and the number of the sentence, from 1. It is TSV without a
header, in which a backslash before NA, nan and other words for a missing value makes them text:
dclm_jax.tables.cell_text removes it. Both files appear when they are complete. The input is
streamed and may be larger than memory; models without contexts are refused.

The nearest neighbours of the first document, by the cosine of their vectors:

    import csv

    import numpy as np

    vectors = np.load("vectors.npy")
    with open("vectors.ids.txt", encoding="utf-8", newline="") as file:
        ids = [name for name, *number in csv.reader(file, delimiter="\\t")]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit[0]
    for row in np.argsort(-cosines)[1:6]:
        print(f"{cosines[row]:.3f}  {ids[row]}")
"""

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
from absl import flags

from dclm_jax import files
from dclm_jax.errors import InputError
from dclm_jax.tables import separated
from launch import _app, _evaluation

flags.adopt_module_key_flags(_evaluation)
_INPUT = flags.DEFINE_string("input", None, "Text to encode; '-' is standard input.")
_OUTPUT = flags.DEFINE_string(
    "output", None, "File to write, NAME.npy; beside it NAME.ids.txt, where NA is \\NA."
)
_UNIT = flags.DEFINE_enum(
    "unit", "documents", ("documents", "sentences"), "Unit that has one vector."
)
_SUFFIX = ".npy"


def main(argv: Sequence[str]) -> None:
    del argv
    source, output = _INPUT.value or "", _OUTPUT.value or ""
    if not source:
        raise InputError("--input is missing; expected a file, a folder or '-'")
    if not output.endswith(_SUFFIX):
        raise InputError(f"--output is {output!r}; expected the name of a file, NAME{_SUFFIX}")
    lm = _evaluation.restore().lm
    encoded = lm.vectors(_evaluation.read_text([lm], source))
    rows, width = 0, 0
    with (
        files.open_binary(output) as file,
        files.open_output(output.removesuffix(_SUFFIX) + ".ids.txt") as ids,
        _evaluation.Progress("encoding") as progress,
    ):
        for number, document in enumerate(encoded, start=1):
            if _UNIT.value == "documents":
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
            progress(number, None)
        file.seek(0)
        _write_header(file, rows, width)
    print(f"{rows:,} vectors of {width:,} numbers: {output}")


def _write_header(file: BinaryIO, rows: int, width: int) -> None:
    """The header of an array, whose length does not depend on the number of rows."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(file, header)


if __name__ == "__main__":
    _app.run(main)
