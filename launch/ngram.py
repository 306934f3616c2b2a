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

import dataclasses

from dclm_jax.ngram import train_ngram

from . import _app, _options


@dataclasses.dataclass(frozen=True)
class Options(_options.CommandOptions):
    """Options of `ngram`.

    Attributes:
      data: prepared corpus; its split train is the training text.
      workdir: directory of the n-gram model.
      order: maximum number of words per n-gram, or of pieces with a vocabulary of subwords.
    """

    data: str | None = None
    workdir: str | None = None
    order: int = 5


def train(options: Options) -> None:
    """Trains an n-gram model."""
    data = options.required("data", "DIR, a prepared corpus")
    workdir = options.required("workdir", "DIR, the directory of the model")
    counts = train_ngram(data, workdir, order=options.order)
    print(f"{workdir}: {sum(counts):,} n-grams of orders 1 to {len(counts)}")
    print(f"next: {_app.COMMANDS}evaluate --workdir={workdir}")


if __name__ == "__main__":
    _app.run(train, Options, log_on_stdout=True)
