"""Makes n-best lists to rescore, without a decoder: each sentence among corruptions of it.

    python -m launch.corrupt --data=data/sotu --split=valid --max_sentences=10 --output=data/nbest

A corruption has one to three edits: neighbouring words swapped, a word replaced by one of like
frequency, a word deleted. The list of a sentence holds it and different corruptions of it, ordered
by a score that stands for a decoder's: minus the number of edits, and noise. So the 1-best is
better than chance, and not always the sentence itself. launch.rescore rescores such lists.

The folder gets nbest.txt (as Moses writes it), documents.txt (the document of each id) and
references.txt (the sentences). The same seed gives the same files.
"""

from collections.abc import Sequence

from absl import flags

from dclm_jax.data.corpus import SPLITS, open_corpus
from dclm_jax.rescoring import corruption
from launch import _app

_DATA = flags.DEFINE_string("data", None, "Prepared corpus.")
_SPLIT = flags.DEFINE_enum("split", "test", SPLITS, "Split of the corpus.")
_CANDIDATES = flags.DEFINE_integer("candidates", 10, "Maximum number of hypotheses per segment.")
_MAX_SENTENCES = flags.DEFINE_integer(
    "max_sentences", 0, "Maximum number of sentences per document, from its start; 0 for all."
)
_SEED = flags.DEFINE_integer("seed", 0, "Random seed for corruptions and noise.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the three files.")
flags.mark_flags_as_required(["data", "output"])


def main(argv: Sequence[str]) -> None:
    del argv
    data, folder = open_corpus(_DATA.value or "", _SPLIT.value), (_OUTPUT.value or "").rstrip("/")
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
