"""Measures the accuracy of models on minimal pairs of a right and a wrong sentence.

    python -m launch.minimal_pairs --workdir=runs/ccdclm --input=blimp.jsonl --by=UID
    python -m launch.minimal_pairs --workdirs=runs/rnnlm,runs/ccdclm --input=pairs.csv \\
        --alternatives=grammatical,ungrammatical --by=item_type --output=pairs.tsv

--input is a table (.csv, .tsv) or JSON lines with one pair per row; for '-' add --format. The
default columns are the columns of BLiMP (Warstadt et al. 2020). --alternatives names two or more
columns, the column of the right alternative first. The sentences of the column "context", if the
table has one, are read before each alternative. Cells are raw text, which is divided into sentences
and words; log P of an alternative is the sum over its sentences.

The accuracy is the share of pairs in which the right alternative has the highest log P, in total
and per target (a word or <END>). If k alternatives share the highest log P, and the right one is
among them, the pair counts 1/k. Pairs whose right alternative differs from another only in OOV
words are excluded from the accuracy; the table has their number. An OOV word has the probability of
UNKNOWN, which stands for all rare words: a row has the accuracy of the pairs without OOV words.
With a vocabulary of subwords no word is OOV, and every pair counts. Pairs whose alternatives are
equal are left out, and a note counts them. An empty context is no context.

--by=UID,field measures each group of pairs with equal cells in these columns. A group with OOV
words has a second row, of its pairs without OOV words. Intervals are from a bootstrap over pairs.
Several runs are compared by a paired permutation test over pairs; p (Holm) is corrected for all
pairs of runs.

The TSV file of --output has one row per pair: its number, the columns of the input, the number of
OOV words of each alternative (oov_NAME), and whether the pair is excluded. For each run it has log
P in nats and the number of targets of each alternative, and the outcomes (1, 0, or a share for
ties). --metrics writes the accuracies as JSON.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dclm_jax import files
from dclm_jax.data.documents import PLAIN
from dclm_jax.errors import InputError
from dclm_jax.evaluation.minimal_pairs import (
    PairResults,
    minimal_pairs,
    read_alternatives,
    require_free_columns,
    require_group_columns,
)
from dclm_jax.language_model import LanguageModel
from dclm_jax.runs import run_json

from . import _app
from ._evaluation import UNSET, BatchOptions, ProgressBar, ReadingOptions, RunsOptions
from ._options import MetricsOptions, part


@dataclasses.dataclass(frozen=True)
class Options(MetricsOptions, BatchOptions, ReadingOptions, RunsOptions):
    """Options of `minimal_pairs`.

    Attributes:
      input: table or JSON lines of pairs: a file, or '-' for standard input.
      alternatives: columns of the alternatives, the right alternative first.
      by: columns of the input whose cells define groups.
      output: TSV file for the outcome of every pair; '-' is standard output.
    """

    # The column or key of the text, of texts in other formats, has no effect.
    text: Mapping[str, Any] = part(PLAIN, unset=UNSET, omitted=["unknown_token", "text_key"])
    input: str | None = None
    alternatives: Sequence[str] = ("sentence_good", "sentence_bad")
    by: Sequence[str] = ()
    output: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_ending("output", ".tsv")
        if len(self.alternatives) < 2:
            names = ",".join(self.alternatives)
            raise InputError(f"--alternatives={names}: name two or more columns")


def judge(options: Options) -> None:
    """Judges the pairs with every model, and prints and writes the outcomes."""
    path = options.required("input", "PATH, a table or JSON lines")
    names = options.alternatives
    models = options.restore_all(LanguageModel, without_source=True)
    choices = list(read_alternatives(path, names, options.reader([*models.values()])))
    require_group_columns(choices, options.by)
    if options.output:
        require_free_columns(choices, names)
    outcomes = [[] for _ in models]
    with ProgressBar("scoring", len(choices) * len(models)) as progress:
        for lm, run_outcomes in zip(models.values(), outcomes, strict=True):
            for outcome in minimal_pairs(lm, choices):
                run_outcomes.append(outcome)
                progress(sum(map(len, outcomes)))
    results = PairResults(list(models), names, options.by, outcomes)
    to_stderr = files.STDOUT in (options.output, options.metrics)
    print(results.text(), file=sys.stderr if to_stderr else sys.stdout)
    if options.output:
        with files.open_output(options.output) as file:
            file.writelines(results.lines())
    if options.metrics:
        value = {"runs": list(map(run_json, models.values())), "input": path, **results.to_json()}
        files.write_json(options.metrics, value)


if __name__ == "__main__":
    _app.run(judge, Options)
