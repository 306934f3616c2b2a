"""Measures how often a model prefers the right one of several sentences: minimal pairs.

    python -m launch.minimal_pairs --workdir=runs/ccdclm --input=blimp.jsonl --by=UID
    python -m launch.minimal_pairs --workdirs=runs/rnnlm,runs/ccdclm --input=pairs.csv \\
        --alternatives=grammatical,ungrammatical --by=item_type --output=pairs.tsv
    python -m launch.minimal_pairs --workdir=runs/ccdclm --input=stories.csv --answer=right \\
        --context_columns=s1,s2,s3,s4 --alternatives=ending1,ending2
    python -m launch.minimal_pairs --workdir=runs/ccdclm --input=lambada.jsonl \\
        --alternatives=text --last_word

--input is a table (.csv, .tsv) or JSON lines with one pair per row; for '-' add --format. The
default columns are those of BLiMP (Warstadt et al. 2020). --alternatives names any number of
columns. The first alternative is right, unless the column named by --answer has the number of the
right alternative, from 1. An alternative is one sentence. The sentences of the column "context", or
of --context_columns, are read before each alternative. Cells and strings are raw text, which is
tokenized. In JSON an alternative may also be a list of words, and a context a list of sentences,
each a list of words or a string of words with spaces between them.

The accuracy is the share of pairs in which the right alternative has the highest log P, in total
and per target (a word or <END>). If k alternatives share the highest log P, and the right one is
among them, the pair counts 1/k. Pairs whose right alternative differs from another only in OOV
words are excluded from the accuracy; the table has their number.

--last_word measures the rank of the last word of the right alternative among all entries of the
vocabulary, given everything before it, and how often the rank is 1. With one alternative and no
context, the alternative is a passage, whose last sentence has the last word (LAMBADA, Paperno et
al. 2016). Punctuation counts as a word: remove a full stop that follows the word. An OOV last word
excludes its pair.

--by=UID,field measures each group of pairs with equal cells in these columns. Intervals are from a
bootstrap over pairs. Several runs are compared by a paired permutation test over pairs; p (Holm) is
corrected for all pairs of runs.

The TSV file of --output has one row per pair. A row says whether the pair is excluded from each
accuracy (total, per target, last word). For each run it has log P in nats and the number of targets
of each alternative, and the outcomes (1, 0, or a share for ties). --metrics writes the accuracies
as JSON.
"""

import dataclasses
import sys
from collections.abc import Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.data.alternatives import PairColumns, read_alternatives
from dclm_jax.errors import InputError
from dclm_jax.evaluation.minimal_pairs import require_columns
from dclm_jax.experiments.pair_files import PairResults, require_free_names
from launch import _app, _evaluation
from launch._fields import define_fields, values_of

# --text_key and --divider, of texts in other formats, have no effect.
_evaluation.declare_flags(without=["text_key", "divider"])
_evaluation.define_workdirs()
_INPUT = flags.DEFINE_string("input", None, "Table or JSON lines of pairs; '-' is standard input.")
_COLUMNS = define_fields(PairColumns, names={"context": "context_columns"}, omitted=["is_passage"])
_LAST_WORD = flags.DEFINE_bool("last_word", False, "Measure the rank of the last word, too.")
_BY = flags.DEFINE_list("by", [], "Columns whose equal cells make a group of pairs.")
_OUTPUT = flags.DEFINE_string(
    "output", None, "TSV file for the outcome of every pair; '-' is standard output."
)
_METRICS = flags.DEFINE_string("metrics", None, "JSON file for the accuracies.")


def main(argv: Sequence[str]) -> None:
    del argv
    path = _app.required("input", "PATH, a table or JSON lines")
    if _OUTPUT.value not in (None, files.STDOUT) and not _OUTPUT.value.endswith(".tsv"):
        raise InputError(f"--output={_OUTPUT.value}: choose the extension .tsv")
    columns = _columns()
    runs = _evaluation.restore_all()
    _evaluation.require_language_models((run.lm for run in runs), "launch.minimal_pairs")
    first = runs[0].lm
    counted = _evaluation.counting_unknown(
        read_alternatives(path, columns, _evaluation.text_reader([run.lm for run in runs])),
        lambda record: map(first.vocabulary.encode, [*record.context, *record.alternatives]),
        first.text,
        path,
    )
    choices = list(counted)
    require_columns(choices, _BY.value)
    if _OUTPUT.value:
        require_free_names(choices, columns.alternatives)
    outcomes = [[] for _ in runs]
    with _evaluation.Progress("scoring", len(choices) * len(runs)) as progress:
        for run, run_outcomes in zip(runs, outcomes, strict=True):
            for outcome in run.lm.minimal_pairs(choices, last_word=_LAST_WORD.value):
                run_outcomes.append(outcome)
                progress(sum(map(len, outcomes)))
    results = PairResults([run.label for run in runs], columns.alternatives, _BY.value, outcomes)
    to_stderr = files.STDOUT in (_OUTPUT.value, _METRICS.value)
    print(results.text(), file=sys.stderr if to_stderr else sys.stdout)
    if _OUTPUT.value:
        with files.open_output(_OUTPUT.value) as file:
            file.writelines(results.lines())
    if _METRICS.value:
        value = {"runs": [run.to_json() for run in runs], "input": path, **results.to_json()}
        files.write_json(_METRICS.value, value)


def _columns() -> PairColumns:
    """The columns that flags name. Refuses names that leave no choice."""
    columns = PairColumns(**values_of(_COLUMNS))
    if not columns.alternatives:
        raise InputError(
            "--alternatives names no column; name two or more, or one with --last_word"
        )
    is_passage = _LAST_WORD.value and len(columns.alternatives) == 1 and not columns.context
    return dataclasses.replace(columns, is_passage=is_passage)


if __name__ == "__main__":
    _app.run(main)
