"""Estimates an n-gram language model of a prepared corpus with the toolkit KenLM.

    bash launch/build_kenlm.sh                                # once: the programs of KenLM
    export KENLM_BIN=$PWD/.kenlm/bin
    pip install -e '.[ngram]'                                 # once: the Python package of KenLM

    python -m launch.ngram --data=data/ptb --order=5 --workdir=runs/ptb/kn5
    python -m launch.evaluate --workdir=runs/ptb/kn5

The probability of a word depends on the `order` - 1 words before it in its sentence. Smoothing is
interpolated modified Kneser-Ney without pruning. The command prints the number of n-grams.

launch.evaluate, coherence, score and rescore take the workdir like the workdir of a neural run.
Perplexity is counted as for a neural run: END is predicted and counted, and UNKNOWN counts as a
word. A repeated command with the same text and order changes nothing.
"""

from collections.abc import Sequence

from absl import flags

from dclm_jax import ngram

from . import _app

_DATA = flags.DEFINE_string("data", None, "Prepared corpus; its split train is the training text.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the n-gram model.")
_ORDER = flags.DEFINE_integer(
    "order", 5, "Maximum number of words per n-gram, or of pieces with a vocabulary of subwords."
)


def main(argv: Sequence[str]) -> None:
    del argv
    data = _app.required("data", "DIR, a prepared corpus")
    workdir = _app.required("workdir", "DIR, the directory of the model")
    counts = ngram.train_ngram(data, workdir, order=_ORDER.value)
    print(f"{workdir}: {sum(counts):,} n-grams of orders 1 to {len(counts)}")
    print(f"next: {_app.COMMANDS}evaluate --workdir={workdir}")


if __name__ == "__main__":
    _app.run(main, log_on_stdout=True)
