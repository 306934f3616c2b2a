"""Tests how well surprisal and other measures of runs predict reading times.

    python -m launch.reading_times --workdirs=runs/rnnlm,runs/adclm --input=times.tsv \\
        --text_key=word --story=item --time=meanItemRT --predictors=gpt3 \\
        --metrics=gains.json --words=words.tsv

--input is a table with one row per word, in the order of the text: the word with its punctuation
(--text_key), its story (--story), and its mean reading time (--time). With --subject=COLUMN the
table has one row per word and subject, sorted by story and then by subject. Every subject has all
words of a story; a missing time is an empty cell. Linear models predict the mean time of each word.
--predictors names further columns of numbers that are predictors. Rows are tokenized as raw text;
a row may become several words, whose surprisals and divergences are added. The entropy of a row is
the entropy before its first word.

A linear model predicts the reading time of a word from predictors of this word and of the word
before it: the length (characters, punctuation included), the log frequency (of the rarest word or
punctuation mark of a row in the training text, without OOV words; with a vocabulary of subwords a
word that the training text lacks counts once), and measures of runs.
The gain of a predictor, such as the surprisal, is the log-likelihood of the reading times with the
predictor minus the log-likelihood without it (Goodkind and Bicknell 2018). Every story is predicted
by linear models fitted to the other stories.

The table has the gain of each predictor and run, in nats per 1,000 words, with its 95% interval
(bootstrap over sentences). "surprisal, no context" is the surprisal of each sentence as the first
sentence of a document. "surprisal, contexts of other stories" is the mean surprisal of each
sentence with the contexts of up to ten other stories (launch.score --other_contexts). "surprisal
beyond surprisal, contexts of other stories" compares a linear model with both surprisals with a
linear model with only the latter: it is the gain from the story's own earlier sentences. The gain
beyond the surprisal with no context is from any context. "divergence" is KL(with context || with no
context). Several runs, of one vocabulary, are compared by the gain of their surprisals (paired
permutation test over sentences; p (Holm) is corrected for all pairs). Intervals and p describe
other sentences of the same stories.

The last line counts the words that remain, all words, and OOV words (rows with a word that the
vocabulary lacks). These words are omitted: OOV words, words after an OOV word, first words of
stories, words without a reading time (an empty cell or NA), and words for which, or before which, a
--predictors column is empty.

--words=FILE writes all rows of --input as TSV, for other models: row (its number, from 1), document
(the story), sentence and position as in the output of launch.score, word, known (0 if it has an OOV
word), fitted (1 if the linear models predict it), time (the mean over subjects, in the unit of
--input), length (characters), log_frequency (natural logarithm), surprisal:RUN,
surprisal_other_context:RUN, surprisal_no_context:RUN, divergence:RUN and entropy:RUN (nats), and
input_NAME of the other columns of --input: for --predictors the mean over subjects, otherwise the
cell of the row, such as the subject or the subject's own time. NAME_before is the value of the
previous word.
"""

import dataclasses
import sys
from collections.abc import Sequence

from dclm_jax import files
from dclm_jax.evaluation import reading_times
from dclm_jax.evaluation.significance import interval_text
from dclm_jax.evaluation.stories import read_stories
from dclm_jax.language_model import LanguageModel
from dclm_jax.runs import run_json
from dclm_jax.tables import aligned, separated

from . import _app
from ._evaluation import BatchOptions, ReadingOptions, RunsOptions
from ._options import MetricsOptions


@dataclasses.dataclass(frozen=True)
class Options(MetricsOptions, BatchOptions, ReadingOptions, RunsOptions):
    """Options of `reading_times`.

    Attributes:
      input: table of words: a file, or '-' for standard input.
      story: columns that identify the story.
      subject: column of subjects, if the table has one row per word and subject.
      time: column of the reading times, in any unit.
      predictors: columns of further predictors.
      words: TSV file for the words and their predictors; '-' is standard output.
    """

    input: str | None = None
    story: Sequence[str] = ("story",)
    subject: str | None = None
    time: str = "time"
    predictors: Sequence[str] = ()
    words: str | None = None


def measure(options: Options) -> None:
    """Measures the gain of each predictor, and prints and writes gains and predictors."""
    path = options.required("input", "PATH, a table of words")
    models = options.restore_all(LanguageModel, without_source=True)
    identifying = [*options.story, *filter(None, [options.subject])]
    reader = options.reader([*models.values()], identifying)
    columns = [options.time, *options.predictors]
    stories = read_stories(reader.documents(path), options.story, options.subject, columns)
    words = reading_times.word_table(models, stories, options.predictors)
    fitted = reading_times.fitted(words)
    gains, differences = reading_times.gains_of(
        fitted, list(models), options.time, options.predictors
    )
    table = [("predictor", "run", "nats per 1,000 words [95% interval]", "p (Holm)")]
    for gain in gains:
        values = [1e3 * gain[name] for name in ("mean", "low", "high")]
        table.append((gain["comparison"], gain["label"], interval_text(values, 1), ""))
    for pair in differences:
        values = [1e3 * pair[name] for name in ("difference", "low", "high")]
        runs_compared, p = f"{pair['a']} - {pair['b']}", f"{pair['p_holm']:.4f}"
        table.append(("surprisal", runs_compared, interval_text(values, 1), p))
    to_stderr = files.STDOUT in (options.words, options.metrics)
    stream = sys.stderr if to_stderr else sys.stdout
    print(*aligned(table), sep="\n", file=stream)
    num_words, num_rows = len(fitted["word"]), len(words["word"])
    num_oov = int((words["known"] == 0).sum())
    print(f"{num_words:,} of {num_rows:,} words; OOV words: {num_oov:,}", file=stream)
    if options.words:
        with files.open_output(options.words) as file:
            table = reading_times.lines(words, stories, options.predictors)
            file.writelines(map(separated, [table, *zip(*table.values(), strict=True)]))
    if options.metrics:
        value = {
            "runs": list(map(run_json, models.values())),
            "input": path,
            "words": num_words,
            "rows": num_rows,
            "oov_rows": num_oov,
            "gains": gains,
            "differences": differences,
        }
        files.write_json(options.metrics, value)


if __name__ == "__main__":
    _app.run(measure, Options)
