"""Makes n-best lists to rescore, without a decoder: sentences among corruptions of themselves.

    python -m launch.corrupt --data=data/sotu --split=valid --max_sentences=10 --output=data/nbest
    python -m launch.rescore --workdir=runs/tour --nbest=data/nbest/nbest.txt --tune \\
        --documents=data/nbest/documents.txt --references=data/nbest/references.txt \\
        --output=best.txt --metrics=tuned.json

A corruption has one to three edits: neighbouring words swapped, a word replaced by one of like
frequency, a word deleted. The list of a sentence holds it and different corruptions of it, ordered
by a score that stands for a decoder's: minus the number of edits, and noise. The first of a list
is thus better than chance, and the sentence itself is not always the first.

The folder gets nbest.txt (as Moses writes it), documents.txt (the document of each id) and
references.txt (the sentences). The same seed gives the same files.
"""

from collections.abc import Sequence

import numpy as np
from absl import flags

from dclm_jax.data import corruption, nbest
from dclm_jax.data.corpus import SPLITS, open_corpus
from dclm_jax.data.vocabulary import UNKNOWN
from dclm_jax.errors import InputError
from dclm_jax.files import open_output
from launch import _app

_DATA = flags.DEFINE_string("data", None, "Prepared corpus.")
_SPLIT = flags.DEFINE_enum("split", "test", SPLITS, "Its split.")
_CANDIDATES = flags.DEFINE_integer("candidates", 10, "Hypotheses of a segment, at most.")
_MAX_SENTENCES = flags.DEFINE_integer(
    "max_sentences", 0, "Only so many sentences of each document, from its start; 0 for all."
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the corruptions and of the noise.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the three files.")


def main(argv: Sequence[str]) -> None:
    del argv
    if not _DATA.value or not _OUTPUT.value:
        raise InputError("--data and --output: expected a prepared corpus and a folder")
    if min(_SEED.value, _MAX_SENTENCES.value) < 0:
        raise InputError("--seed and --max_sentences: expected 0 or more")
    data = open_corpus(_DATA.value, _SPLIT.value)
    makes = corruption.Corruption(data.vocabulary, _CANDIDATES.value)
    spelling = list(data.vocabulary.words)
    spelling[UNKNOWN] = data.vocabulary.unknown_token or spelling[UNKNOWN]
    rng = np.random.default_rng(_SEED.value)
    folder = _OUTPUT.value.rstrip("/")
    count = 0
    with (
        open_output(f"{folder}/nbest.txt") as lists,
        open_output(f"{folder}/documents.txt") as documents,
        open_output(f"{folder}/references.txt") as references,
    ):
        for index in range(data.num_documents):
            for sentence in data.document(index)[: _MAX_SENTENCES.value or None]:
                references.write(" ".join([spelling[word] for word in sentence]) + "\n")
                documents.write(f"{count} {index}\n")
                for words, score in makes.candidates(sentence, rng):
                    lists.write(nbest.moses_line(count, [spelling[i] for i in words], score))
                count += 1
    print(f"{folder}: lists for {count:,} sentences of {data.num_documents:,} documents")


if __name__ == "__main__":
    _app.run(main)
