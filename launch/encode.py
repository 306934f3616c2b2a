"""Writes vectors of documents or sentences: the contexts of a trained model.

    python -m launch.encode --workdir=runs/ccdclm --input=docs.txt --output=vectors.npy
    python -m launch.encode --workdir=runs/ccdclm --input=docs.txt --unit=sentences \\
        --output=sentences.npy

The vector of a sentence is the context of the model after that sentence. This context also encodes
the earlier sentences. The vector of a document is the context after its last sentence. Models
without context have no vectors. Input may be larger than memory.

NAME.npy is a float array with one row per vector. NAME.ids.txt is a TSV file without a header, with
one line per vector: the document, and for sentences the number of the sentence, from 1. A document
named NA is written \\NA; dclm_jax.tables.cell_text removes the backslash.

The nearest neighbours of the first document, by cosine similarity:

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

from absl import flags

from dclm_jax.experiments import vector_files
from launch import _app, _evaluation

flags.adopt_module_key_flags(_evaluation)
_INPUT = flags.DEFINE_string("input", None, "Text to encode; '-' is standard input.")
_OUTPUT = flags.DEFINE_string(
    "output", None, "File NAME.npy for the vectors; NAME.ids.txt is written to the same folder."
)
_UNIT = flags.DEFINE_enum("unit", "documents", vector_files.UNITS, "Unit of text per vector.")


def main(argv: Sequence[str]) -> None:
    del argv
    source = _app.required("input", "PATH, a file, a folder or '-'")
    output = _OUTPUT.value or ""
    lm = _evaluation.restore().lm
    encoded = lm.vectors(_evaluation.read_text([lm], source))
    with _evaluation.Progress("encoding") as progress:
        rows, width = vector_files.write(output, encoded, _UNIT.value, on_document=progress)
    print(f"{rows:,} vectors of {width:,} numbers: {output}")


if __name__ == "__main__":
    _app.run(main)
