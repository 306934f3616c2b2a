"""Tests how well surprisal and other measures of runs predict reading times.

    python -m launch.reading_times --workdirs=runs/rnnlm,runs/adclm --input=times.tsv \\
        --text_key=word --story=item --time=meanItemRT
    python -m launch.reading_times --workdir=runs/adclm --input=times.csv --predictors=gpt3 \\
        --output=gains.json --plot=gains.png

--input is a table with one row per word, in the order of the text: the word with its punctuation
(--text_key), its story (--story), and its mean reading time (--time). --predictors names further
columns of numbers that are predictors. Rows are tokenized as raw text; a row may become several
words of the vocabulary, whose surprisals and divergences are added. The entropy of a row is the
entropy before its first word.

A linear model predicts the reading time of a word from the length (characters) and the log
frequency (in the training text of the runs) of this word and of the word before it. A predictor
has two values: of this word, and of the word before it. The gain of a predictor, such as the
surprisal, is the log-likelihood of the reading times with the predictor minus the log-likelihood
without it (Goodkind and Bicknell 2018). Every story is predicted by linear models fitted to the
other stories.

The table has the gain of each predictor and run, in nats per 1,000 words, with its 95% interval
(bootstrap over sentences). "surprisal, no context" is the surprisal of each sentence as the first
sentence of a document. "surprisal beyond surprisal, no context" compares a linear model with both
surprisals with a linear model with only the surprisal with no context: it is the gain from the
document's earlier sentences. "divergence" is KL(with context || without); launch.score --help
defines all measures. Several runs, of one vocabulary, are compared by the gain of their surprisals
(paired permutation test over sentences; p (Holm) is corrected for all pairs).

Length counts characters, punctuation included; the frequency is of the rarest word of a row. Words
that are OOV, or follow an OOV word, are omitted for all predictors, as are first words of stories,
words without a reading time (an empty cell or NA), and words for which, or before which, a
--predictors column is empty. The numbers of omitted words are printed. Intervals and p describe
other sentences of the same stories.
"""

import itertools
from collections.abc import Iterator, Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.errors import InputError, brief
from dclm_jax.experiments import figures
from dclm_jax.experiments.reading_times import OF_WORDS, Gains, words_of
from dclm_jax.score_types import DocumentScore
from launch import _app, _evaluation

# --divider, of texts in other formats, has no effect.
for _name in ("workdir", "batch_size", "matmul_precision", "encoding", "format", "quoted"):
    flags.declare_key_flag(_name)
for _name in ("lowercase", "normalize", "text_key", "language", "unicode"):
    flags.declare_key_flag(_name)
_evaluation.define_workdirs()
_INPUT = flags.DEFINE_string("input", None, "Table of words; '-' is standard input.")
_STORY = flags.DEFINE_string("story", "story", "Column that identifies the story.")
_TIME = flags.DEFINE_string("time", "time", "Column of the mean reading times, such as ms.")
_PREDICTORS = flags.DEFINE_list("predictors", [], "Columns of further predictors.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the gains.")
_PLOT = flags.DEFINE_string("plot", None, "Figure of the gains (PNG, PDF or SVG).")


def main(argv: Sequence[str]) -> None:
    del argv
    path = _app.required("input", "PATH, a table of words")
    _check_names()
    if _PLOT.value:
        figures.check_target(_PLOT.value)
    runs = _evaluation.restore_all()
    models = [run.lm for run in runs]
    _evaluation.require_language_models(models, "launch.reading_times")
    for lm in models:
        lm.require_distribution()
    documents = list(_evaluation.read_text(models, path, joined_by=[_STORY.value]))
    by_model = (lm.score(documents, no_context_too=True, measures=OF_WORDS) for lm in models)
    with _evaluation.Progress("scoring", len(documents)) as progress:

        def scores() -> Iterator[Sequence[DocumentScore]]:
            for number, by_run in enumerate(zip(*by_model, strict=True), start=1):
                yield by_run
                progress(number)

        vocabulary = models[0].vocabulary
        time, predictors = _TIME.value, _PREDICTORS.value
        words = words_of(documents, scores(), vocabulary, time, predictors, source=path)
    gains = Gains(words, [run.label for run in runs], _PREDICTORS.value)
    print(gains.text())
    if _OUTPUT.value:
        value = {"runs": [run.to_json() for run in runs], "input": path, **gains.to_json()}
        files.write_json(_OUTPUT.value, value)
    if _PLOT.value:
        figures.plot(gains.figure(), _PLOT.value)


def _check_names() -> None:
    """Refuses columns with two uses."""
    columns = [(_STORY, _STORY.value), (_TIME, _TIME.value)]
    columns += [(_PREDICTORS, name) for name in _PREDICTORS.value]
    for (flag, name), (other_flag, other_name) in itertools.combinations(columns, 2):
        if name and name == other_name:
            problem = f"--{flag.name} and --{other_flag.name} both name"
            if flag is other_flag:
                problem = f"--{flag.name} repeats"
            raise InputError(f"{problem} {brief(name)}; name different columns")


if __name__ == "__main__":
    _app.run(main)
