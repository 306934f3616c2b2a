"""Tests how well surprisal and other measures of runs predict reading times.

    python -m launch.reading_times --workdirs=runs/rnnlm,runs/adclm --input=times.tsv \\
        --text_key=word --story=item --time=meanItemRT
    python -m launch.reading_times --workdir=runs/adclm --input=times.csv --predictors=gpt3 \\
        --output=gains.json --words=words.tsv --plot=gains.png

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

--words=FILE writes the words that the linear models predict as TSV: story, sentence and position
(as document, sentence and position in the output of launch.score), word, time (in the unit of
--input), length (characters), log_frequency (natural logarithm), surprisal:RUN,
surprisal_no_context:RUN, divergence:RUN and entropy:RUN (nats), and input_NAME of each column of
--predictors. NAME_before is the value of the word before.
"""

from collections.abc import Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.errors import InputError, brief
from dclm_jax.experiments import figures, reading_times
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
_WORDS = flags.DEFINE_string("words", None, "TSV file for the words and their predictors.")
_PLOT = flags.DEFINE_string("plot", None, "Figure of the gains (PNG, PDF or SVG).")


def main(argv: Sequence[str]) -> None:
    del argv
    path = _app.required("input", "PATH, a table of words")
    names = [_STORY.value, _TIME.value, *_PREDICTORS.value]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"--story, --time and --predictors name {brief(name)} twice; name different columns"
            )
    if _PLOT.value:
        figures.check_target(_PLOT.value)
    runs = _evaluation.restore_all()
    models = {run.label: run.lm for run in runs}
    _evaluation.require_language_models(models.values(), "launch.reading_times")
    stories = list(_evaluation.read_text([*models.values()], path, joined_by=[_STORY.value]))
    words = reading_times.words_of(models, stories, _TIME.value, _PREDICTORS.value)
    result = reading_times.gains_of(words, list(models), _PREDICTORS.value)
    print(reading_times.text(words, result, list(models)))
    if _WORDS.value:
        with files.open_output(_WORDS.value) as file:
            file.writelines(words.lines())
    if _OUTPUT.value:
        value = {
            "runs": [run.to_json() for run in runs],
            "input": path,
            **words.counts,
            "omitted": words.omitted,
            "gains": [gain._asdict() for gain in result.gains],
            "differences": [pair.to_json(list(models)) for pair in result.differences],
        }
        files.write_json(_OUTPUT.value, value)
    if _PLOT.value:
        figures.plot(reading_times.figure(result.gains), _PLOT.value)


if __name__ == "__main__":
    _app.run(main)
