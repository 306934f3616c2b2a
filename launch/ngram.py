"""Estimates the count-based baseline of a prepared corpus: an n-gram model by the toolkit KenLM.

    bash launch/build_kenlm.sh                                # once: KenLM's programs
    export KENLM_BIN=$PWD/.kenlm/bin
    pip install -e '.[ngram]'                                 # once: KenLM's Python package

    python -m launch.ngram --data=data/ptb --order=5 --workdir=runs/ptb/kn5
    python -m launch.evaluate --workdir=runs/ptb/kn5

A word depends on the `order` - 1 words before it in its sentence, and on nothing else. Smoothing is
modified Kneser-Ney, interpolated, without pruning. The workdir works like the workdir of a neural
run: launch.evaluate, launch.coherence and launch.score take it as --workdir. Perplexity follows the
same rule: END is predicted and counted, UNKNOWN is a word like any other.

The workdir appears when it is complete. Run again, the command finds that it holds a model of the
same text and order, and leaves it as it is.
"""

import functools
from collections.abc import Sequence

from absl import flags

from dclm_jax import ngram
from launch import _app

_DATA = flags.DEFINE_string("data", None, "Prepared corpus, for its split train.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Directory to make.")
_ORDER = flags.DEFINE_integer("order", 5, "Maximum number of words per n-gram.")
flags.mark_flags_as_required(["data", "workdir"])


def main(argv: Sequence[str]) -> None:
    del argv
    workdir = _WORKDIR.value or ""
    report = functools.partial(print, flush=True)
    counts = ngram.train(_DATA.value or "", workdir, order=_ORDER.value, report=report)
    print(f"{workdir}: {sum(counts):,} n-grams of orders 1 to {len(counts)}")
    print(f"next: python -m launch.evaluate --workdir={workdir}")


if __name__ == "__main__":
    _app.run(main)
