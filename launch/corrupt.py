"""Makes n-best lists without a decoder: every sentence of a split with its corrupted copies.

    python -m launch.corrupt --data=data/sotu --split=valid --max_sentences=10 --output=data/nbest

A corruption has one to three edits: two neighbouring words swapped, a word replaced by a word of
similar frequency, or a word deleted. Hypotheses are ordered by a score in place of a decoder's
score: minus the number of edits, plus noise. The 1-best is therefore better than chance, but not
always the original sentence.

--output is a folder with nbest.txt (a list in the format of Moses), documents.txt (the document of
each id) and references.txt (the original sentences). launch.rescore reads these files.
"""

from collections.abc import Sequence

from absl import flags

from dclm_jax.data.corpus import SPLITS, open_corpus
from dclm_jax.rescoring import corruption
from launch import _app

_DATA = flags.DEFINE_string("data", None, "Prepared corpus whose sentences are corrupted.")
_SPLIT = flags.DEFINE_enum("split", "test", SPLITS, "Split of the corpus.")
_CANDIDATES = flags.DEFINE_integer("candidates", 10, "Maximum number of hypotheses per sentence.")
_MAX_SENTENCES = flags.DEFINE_integer(
    "max_sentences",
    0,
    "Maximum number of sentences per document, from its start; 0 for all.",
)
_SEED = flags.DEFINE_integer("seed", 0, "Random seed for corruptions and noise.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the three files.")


def main(argv: Sequence[str]) -> None:
    del argv
    directory = _app.required("data", "DIR, a prepared corpus")
    folder = _app.required("output", "DIR, the folder for the files").rstrip("/")
    data = open_corpus(directory, _SPLIT.value)
    count = corruption.write_lists(
        data,
        folder,
        candidates=_CANDIDATES.value,
        max_sentences=_MAX_SENTENCES.value,
        seed=_SEED.value,
    )
    print(f"{folder}: lists for {count:,} sentences of {data.num_documents:,} documents")


if __name__ == "__main__":
    _app.run(main)
