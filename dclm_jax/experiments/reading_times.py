"""Do the measures of a language model predict how long people read the words of a text?

A linear model predicts the mean reading time of each word from predictors of the word and of the
word before it: the length, the log frequency in the training text, and measures of language models.
The gain of a predictor is the log-likelihood of the reading times with the predictor minus the
log-likelihood without it (Goodkind and Bicknell 2018), both for stories that the linear model was
not fitted to. A gain above 0 means that the predictor helps to predict reading times.

Shapes: N words, X predictors, D sentences, R runs.
"""

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data.documents import Document, cell_text, column_names
from dclm_jax.data.formats import listed
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation import distributions, significance
from dclm_jax.experiments.figures import Figure, Line
from dclm_jax.score_types import DocumentScore
from dclm_jax.tables import aligned

LENGTH, LOG_FREQUENCY = "length", "log frequency"
BASELINE = (LENGTH, LOG_FREQUENCY)
"""Predictors of every linear model."""
SURPRISAL, NO_CONTEXT = "surprisal", "surprisal, no context"
ENTROPY, DIVERGENCE = "entropy", "divergence"
OF_WORDS = (SURPRISAL, ENTROPY, DIVERGENCE)
COLUMN = "column of the input"
OMITTED = (
    *("first of a story", "OOV, or after an OOV word", "without a reading time"),
    "without a predictor of the word or of the word before",
)
"""Reasons to omit a word."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LARGEST = 1e15


class Comparison(NamedTuple):
    """Two linear models: with and without `added`, both with BASELINE and with `given`."""

    added: str
    given: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.added} beyond {' and '.join(self.given)}" if self.given else self.added


COMPARISONS = (
    *map(Comparison, (NO_CONTEXT, SURPRISAL, ENTROPY, DIVERGENCE)),
    Comparison(SURPRISAL, (NO_CONTEXT,)),
    Comparison(ENTROPY, (SURPRISAL,)),
    Comparison(DIVERGENCE, (SURPRISAL,)),
)


class Words(NamedTuple):
    """The words of stories whose reading times are predicted.

    Attributes:
      times_N: mean reading times.
      stories_N, sentences_N: the numbers of each word's story, and of its sentence among the
        sentences of all stories.
      by_run: all predictors [N, 2] (of the word, of the word before) by name, one mapping per run.
      omitted: numbers of omitted words by reason.
    """

    times_N: np.ndarray
    stories_N: np.ndarray
    sentences_N: np.ndarray
    by_run: Sequence[Mapping[str, np.ndarray]]
    omitted: Mapping[str, int]

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of words, stories and sentences."""
        stories, sentences = (len(np.unique(x)) for x in (self.stories_N, self.sentences_N))
        return {"words": len(self.times_N), "stories": stories, "sentences": sentences}


class _Word(NamedTuple):
    """A row of the table: its time, the numbers of its story and sentence, whether it is in the
    vocabulary, whether it has all predictors of the text and the columns, and its predictors by
    run."""

    time: float
    story: int
    sentence: int
    known: bool
    has_predictors: bool
    by_run: Sequence[Mapping[str, float]]


def words_of(
    stories: Sequence[Document],
    scores: Iterable[Sequence[DocumentScore]],
    vocabulary: Vocabulary,
    time: str,
    columns: Sequence[str] = (),
    *,
    source: str = "the input",
) -> Words:
    """The words with a reading time that are, like the word before them, in the vocabulary and have
    a number in every column of predictors.

    Args:
      stories: documents joined from rows of a table, each row a word.
      scores: for each story its scores by every run, with OF_WORDS and with no context. They are
        read after all cells have been checked.
      vocabulary: vocabulary of the runs, with the counts of the training text.
      time: column of the mean reading times.
      columns: columns of further predictors.
      source: name of the table in messages.
    """
    total = sum(vocabulary.counts[len(SPECIAL_TOKENS) :])
    if not total:
        raise InputError(
            "the vocabulary has no word counts, which log frequencies require; train on a corpus "
            "that launch.prepare made without --vocabulary"
        )
    numbers = _numbers(stories, time, columns, source)
    omitted, pairs, num_sentences = dict.fromkeys(OMITTED, 0), [], 0
    for index, (story, by_run) in enumerate(zip(stories, scores, strict=True)):
        places: list[list[tuple[int, int]]] = [[] for _ in story.rows]
        one_row = [[0] * len(words) for words in story.sentences]
        for sentence, rows in enumerate(story.row_of_word or one_row):
            for position, row in enumerate(rows):
                places[row].append((sentence, position))
        before = None
        for (word_time, *others), tokens in zip(numbers[index], places, strict=True):
            if not tokens:
                continue
            words = [story.sentences[sentence][position] for sentence, position in tokens]
            # Of a row's words the rarest counts, so that punctuation has no effect.
            count = min(vocabulary.counts[word_id] for word_id in vocabulary.encode(words))
            predictors = {
                LENGTH: float(sum(map(len, words))),
                LOG_FREQUENCY: math.log(count) - math.log(total) if count else math.nan,
                **dict(zip(map(_column, columns), others, strict=True)),
            }
            word = _Word(
                word_time,
                index,
                num_sentences + tokens[0][0],
                all(by_run[0].sentences[s].known[position] for s, position in tokens),
                not any(map(math.isnan, predictors.values())),
                [predictors | _measures(score, tokens) for score in by_run],
            )
            if before is None:
                omitted[OMITTED[0]] += 1
            elif not (word.known and before.known):
                omitted[OMITTED[1]] += 1
            elif math.isnan(word.time):
                omitted[OMITTED[2]] += 1
            elif not (word.has_predictors and before.has_predictors):
                omitted[OMITTED[3]] += 1
            else:
                pairs.append((word, before))
            before = word
        num_sentences += len(story.sentences)
    if not pairs:
        raise InputError(
            f"no word remains; omitted: {_counted(omitted)}; choose runs trained on text like the "
            "stories, or fill the columns"
        )
    return Words(
        np.array([word.time for word, _ in pairs]),
        np.array([word.story for word, _ in pairs]),
        np.array([word.sentence for word, _ in pairs]),
        [
            {
                name: np.array([[word.by_run[run][name] for word in pair] for pair in pairs])
                for name in predictors
            }
            for run, predictors in enumerate(pairs[0][0].by_run)
        ],
        omitted,
    )


def _numbers(
    stories: Sequence[Document], time: str, columns: Sequence[str], source: str
) -> list[list[list[float]]]:
    """The reading time and further predictors of every row, by story; nan for an empty cell or NA.
    Stories that cannot be used are refused."""
    names = list(dict.fromkeys(name for story in stories for name in column_names(story)))
    for name in (time, *columns):
        if name not in names:
            raise InputError(
                f"{source} has no column {brief(name)} of numbers; choose --time and "
                f"--predictors from: {listed(names)}"
            )
    if len(stories) < 2:
        raise InputError(
            f"{source} has fewer than two stories, and every story is predicted from the others; "
            "add stories, or choose another --story"
        )

    def parse(row: Mapping[str, Any], name: str, where: str) -> float:
        cell = cell_text(row.get(name)).strip()
        if cell in ("", "NA"):
            return math.nan
        value = float(cell) if _NUMBER.fullmatch(cell) else math.inf
        if abs(value) > _LARGEST or (name == time and value <= 0):
            kind = "reading time above 0" if name == time else "number"
            raise InputError(
                f"{where}: {brief(cell)} in the column {brief(name)} is not a {kind}; correct the "
                "cell, or leave it empty"
            )
        return value

    return [
        [
            [parse(row, name, f"story {brief(story.id)}, row {n}") for name in (time, *columns)]
            for n, row in enumerate(story.rows, start=1)
        ]
        for story in stories
    ]


def _counted(omitted: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} ({reason})" for reason, number in omitted.items())


def _column(name: str) -> str:
    """The key of a column among predictors, which may have the name of another predictor."""
    return f"{COLUMN}: {name}"


def _measures(score: DocumentScore, tokens: Sequence[tuple[int, int]]) -> dict[str, float]:
    """The measures of a row: sums over its words, and the entropy before its first word."""
    no_context = f"{SURPRISAL}{distributions.NO_CONTEXT}"
    surprisal, surprisal_no_context, divergence = (
        sum(score.sentences[sentence].measures[name][position] for sentence, position in tokens)
        for name in (SURPRISAL, no_context, DIVERGENCE)
    )
    sentence, position = tokens[0]
    return {
        SURPRISAL: surprisal,
        NO_CONTEXT: surprisal_no_context,
        ENTROPY: score.sentences[sentence].measures[ENTROPY][position],
        DIVERGENCE: divergence,
    }


def log_likelihoods(
    times_N: np.ndarray, predictors_NxX: np.ndarray, stories_N: np.ndarray
) -> np.ndarray:
    """The log density of each reading time under a normal distribution, in nats, float64 [N].

    Mean and variance are of the linear model with an intercept that least squares fit to all other
    stories.
    """
    # Least squares would drop columns that are small beside others, and large offsets.
    deviation_X = predictors_NxX.std(axis=0)
    scaled_NxX = (predictors_NxX - predictors_NxX.mean(axis=0)) / np.where(
        deviation_X > 0, deviation_X, 1
    )
    design_NxX = np.column_stack([np.ones(len(times_N)), scaled_NxX])
    log_likelihoods_N = np.empty(len(times_N))
    for story in np.unique(stories_N):
        held_out_N = stories_N == story
        fitted = design_NxX[~held_out_N], times_N[~held_out_N]
        if len(fitted[1]) <= design_NxX.shape[1]:
            raise InputError(
                f"without one of the stories {len(fitted[1])} words remain, and the linear model "
                f"has {design_NxX.shape[1]} weights; add stories or words"
            )
        weights_X = np.linalg.lstsq(*fitted, rcond=None)[0]
        variance = np.mean((fitted[1] - fitted[0] @ weights_X) ** 2)
        if variance <= 1e-12 * np.mean(fitted[1] ** 2):
            raise InputError(
                "the linear model predicts all reading times exactly; choose other --predictors, "
                "or a --time whose values differ"
            )
        errors_N = times_N[held_out_N] - design_NxX[held_out_N] @ weights_X
        log_likelihoods_N[held_out_N] = -0.5 * (
            np.log(2 * np.pi * variance) + errors_N**2 / variance
        )
    return log_likelihoods_N


class Gain(NamedTuple):
    """The gain of a predictor.

    Attributes:
      label: the run, or the column of a further predictor.
      comparison: the two linear models.
      mean, low, high: mean gain per word in nats, and its 95% interval by a bootstrap over
        sentences.
    """

    label: str
    comparison: str
    mean: float
    low: float
    high: float


class Gains:
    """The gains of all predictors on the same words.

    Attributes:
      words: the words.
      labels: labels of the runs.
      gains: the gain of every comparison and run, then of every further column.
      differences: differences of the gain of the surprisal between runs, with tests.
    """

    def __init__(self, words: Words, labels: Sequence[str], columns: Sequence[str] = ()):
        self.words, self.labels = words, labels
        names, by_sentence = [], []
        _, sentence_N = np.unique(words.sentences_N, return_inverse=True)
        counts_D = np.bincount(sentence_N).astype(float)

        @functools.cache
        def fit(run: int, predictors: tuple[str, ...]) -> np.ndarray:
            arrays = [words.by_run[run][name] for name in (*BASELINE, *predictors)]
            predictors_NxX = np.concatenate(arrays, axis=1)
            return log_likelihoods(words.times_N, predictors_NxX, words.stories_N)

        for comparison in COMPARISONS:
            for run, label in enumerate(labels):
                names.append((label, str(comparison)))
                with_added = fit(run, (*comparison.given, comparison.added))
                by_sentence.append(with_added - fit(run, comparison.given))
        for name in columns:
            names.append((name, COLUMN))
            by_sentence.append(fit(0, (_column(name),)) - fit(0, ()))
        sums_DxX = np.stack([np.bincount(sentence_N, gain_N) for gain_N in by_sentence], axis=1)
        means_3xX = significance.means(sums_DxX, counts_D[:, None])
        surprisal_columns = [index for index, name in enumerate(names) if name[1] == SURPRISAL]
        self.gains = [
            Gain(*name, *values.tolist()) for name, values in zip(names, means_3xX.T, strict=True)
        ]
        sums = significance.Sums(sums_DxX[:, surprisal_columns], counts_D[:, None])
        self.differences = significance.differences(sums)

    def text(self) -> str:
        """The tables of gains and of differences, for a terminal."""
        counts = self.words.counts
        lines = [
            "gain in log-likelihood of reading times, nats per 1,000 words [95% interval]",
            *aligned(cells_of_gains(self.gains)),
            f"{counts['words']:,} words in {counts['sentences']:,} sentences of "
            f"{counts['stories']} stories; omitted: {_counted(self.words.omitted)}",
        ]
        differences = significance.difference_table(
            {SURPRISAL: self.differences},
            self.labels,
            group="predictor",
            unit="nats per 1,000 words",
            scale=1e3,
            digits=1,
        )
        if differences:
            lines += ["", *differences]
        return "\n".join(lines)

    def figure(self) -> Figure:
        """The gains with their intervals, one line per run or column."""
        ticks = list(dict.fromkeys(gain.comparison for gain in self.gains))
        lines = []
        for label in dict.fromkeys(gain.label for gain in self.gains):
            gains = [gain for gain in self.gains if gain.label == label]
            places = [ticks.index(gain.comparison) for gain in gains]
            values = [[1e3 * value for value in gain[2:]] for gain in gains]
            lines.append(Line(label, places, *np.array(values).T))
        y = "gain in log-likelihood, nats per 1,000 words"
        return Figure("Gain in log-likelihood of reading times", "predictor", y, lines, ticks)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.words.counts,
            "omitted": self.words.omitted,
            "gains": [gain._asdict() for gain in self.gains],
            "differences": [pair.to_json(self.labels) for pair in self.differences],
        }


def cells_of_gains(gains: Sequence[Gain]) -> list[list[str]]:
    """A table with a row per comparison and a column per label, for 1,000 words."""
    rows: dict[str, dict[str, str]] = {}
    for gain in gains:
        text = significance.interval_text([1e3 * value for value in gain[2:]], 1)
        rows.setdefault(gain.comparison, {})[gain.label] = text
    labels = list(dict.fromkeys(gain.label for gain in gains))
    cells = [[name, *(row.get(label, "") for label in labels)] for name, row in rows.items()]
    return [["predictor", *labels], *cells]
