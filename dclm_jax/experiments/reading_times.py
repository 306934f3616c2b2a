"""Do the measures of a language model predict how long people read the words of a text?

A linear model predicts the mean reading time of each word from predictors of the word and of the
word before it: the length, the log frequency in the training text, and measures of language models.
The gain of a predictor is the log-likelihood of the reading times with the predictor minus the
log-likelihood without it (Goodkind and Bicknell 2018), both for stories that the linear model was
not fitted to. A gain above 0 means that the predictor helps to predict reading times.

Shapes: N words, X predictors, D sentences.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data.documents import Document, cell_text
from dclm_jax.data.vocabulary import SPECIAL_TOKENS
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation import significance
from dclm_jax.experiments.figures import Figure, Line
from dclm_jax.language_model import LanguageModel
from dclm_jax.tables import aligned, separated

SURPRISAL, NO_CONTEXT = "surprisal", "surprisal_no_context"
BASELINE = ("length", "log_frequency")
"""Predictors of every linear model."""
COMPARISONS = {
    "surprisal, no context": (NO_CONTEXT,),
    SURPRISAL: (SURPRISAL,),
    "entropy": ("entropy",),
    "divergence": ("divergence",),
    "surprisal beyond surprisal, no context": (NO_CONTEXT, SURPRISAL),
    "entropy beyond surprisal": (SURPRISAL, "entropy"),
    "divergence beyond surprisal": (SURPRISAL, "divergence"),
}
"""Predictors of a linear model after BASELINE; the other linear model lacks the last predictor."""
COLUMN = "column of the input"


class Words(NamedTuple):
    """The words whose reading times are predicted.

    Attributes:
      table: columns [N] by name: story, numbers of the sentence and of the word in it (from 1), the
        word, and its mean reading time.
      predictors: predictors [N, 2] (of the word, of the word before) by name. A measure of a run is
        called NAME:RUN, and a column of the input input_NAME.
      omitted: numbers of omitted words by reason.
    """

    table: Mapping[str, np.ndarray]
    predictors: Mapping[str, np.ndarray]
    omitted: Mapping[str, int]

    def lines(self) -> Iterator[str]:
        """The lines of a TSV file with one row per word; NAME_before is of the word before."""
        names = [f"{name}{end}" for name in self.predictors for end in ("", "_before")]
        yield separated([*self.table, *names])
        values_NxX = np.concatenate([*self.predictors.values()], axis=1)
        columns = [column.tolist() for column in (*self.table.values(), *values_NxX.T)]
        yield from map(separated, zip(*columns, strict=True))

    @property
    def sentence_N(self) -> np.ndarray:
        """The number of each word's sentence, from 0 without gaps, over all stories."""
        return np.cumsum(_changes(self.table["story"], self.table["sentence"])) - 1

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of words, stories and sentences."""
        stories, sentences = (len(np.unique(x)) for x in (self.table["story"], self.sentence_N))
        return {"words": len(self.sentence_N), "stories": stories, "sentences": sentences}


def words_of(
    models: Mapping[str, LanguageModel],
    stories: Sequence[Document],
    time: str,
    columns: Sequence[str] = (),
) -> Words:
    """The words with a reading time that are, like the word before them, in the vocabulary and have
    a number in every column of predictors.

    Args:
      models: language models with one vocabulary, by the labels of their runs.
      stories: documents joined from rows of a table, each row a word.
      time: column of the mean reading times.
      columns: columns of further predictors.
    """
    numbers, numbered = [], []
    for story in stories:
        rows = [{"row": str(len(numbers) + index)} for index in range(len(story.rows))]
        numbered.append(story._replace(rows=rows))
        for index, cells in enumerate(story.rows, start=1):
            where = f"story {brief(story.id)}, row {index}"
            numbers.append([_number(cells, name, where, name == time) for name in (time, *columns)])
    if len(stories) < 2:
        raise InputError(
            "the input has fewer than two stories, and every story is predicted from the others; "
            "add stories, or choose another --story"
        )
    vocabulary = next(iter(models.values())).vocabulary
    total = sum(vocabulary.counts[len(SPECIAL_TOKENS) :])
    if not total:
        raise InputError(
            "the vocabulary has no word counts, which log frequencies require; train on a corpus "
            "that launch.prepare made without --vocabulary"
        )
    scores = {
        label: lm.surprisals(numbered, no_context_too=True, measures=["entropy", "divergence"])
        for label, lm in models.items()
    }
    tokens, *_ = scores.values()
    # END closes a sentence.
    is_word = ~np.roll(_changes(tokens["document"], tokens["sentence"]), -1)
    scores = {run: {key: x[is_word] for key, x in of.items()} for run, of in scores.items()}
    tokens, *_ = scores.values()
    row_T = tokens["row"].astype(int)
    # The tokens of a row are added; of the rarest token is the frequency, so that punctuation has
    # no effect.
    first_N = np.flatnonzero(_changes(row_T))
    counts_T = np.array(vocabulary.counts)[vocabulary.encode(tokens["word"].tolist())]
    with np.errstate(divide="ignore"):
        frequency_N = np.log(np.minimum.reduceat(counts_T, first_N)) - np.log(total)
    values = {
        "length": np.add.reduceat(np.array([*map(len, tokens["word"])], float), first_N),
        "log_frequency": frequency_N,
    }
    for run, of_run in scores.items():
        for name in (SURPRISAL, NO_CONTEXT, "divergence"):
            values[f"{name}:{run}"] = np.add.reduceat(of_run[name], first_N)
        values[f"entropy:{run}"] = of_run["entropy"][first_N]
    times_N, *others = np.array(numbers)[row_T[first_N]].T
    values |= {f"input_{name}": column for name, column in zip(columns, others, strict=True)}
    known_N = np.logical_and.reduceat(tokens["known"], first_N)
    # The first word of the table is the first word of a story, and omitted.
    predictors = {name: np.stack([x, np.roll(x, 1)], axis=1) for name, x in values.items()}
    reasons = {
        "first of a story": _changes(tokens["document"][first_N]),
        "OOV, or after an OOV word": ~(known_N & np.roll(known_N, 1)),
        "without a reading time": np.isnan(times_N),
        "without a predictor of the word or of the word before": ~np.isfinite(
            [*predictors.values()]
        ).all(axis=(0, 2)),
    }
    omitted, remains_N = {}, np.ones(len(first_N), bool)
    for reason, applies_N in reasons.items():
        omitted[reason] = int((remains_N & applies_N).sum())
        remains_N &= ~applies_N
    if not remains_N.any():
        raise InputError(
            f"no word remains; omitted: {_counted(omitted)}; choose runs trained on text like the "
            "stories, or fill the columns"
        )
    texts = np.array([" ".join(part) for part in np.split(tokens["word"], first_N[1:])])
    table = {
        "story": tokens["document"][first_N],
        "sentence": tokens["sentence"][first_N],
        "position": tokens["position"][first_N],
        "word": texts,
        "time": times_N,
    }
    return Words(
        {name: column[remains_N] for name, column in table.items()},
        {name: pairs_Nx2[remains_N] for name, pairs_Nx2 in predictors.items()},
        omitted,
    )


def _changes(*columns: np.ndarray) -> np.ndarray:
    """Whether each row is the first, or differs from the row before in a column, bool [N]."""
    differs = [column[1:] != column[:-1] for column in columns]
    return np.append(True, np.any(differs, axis=0))


def _number(cells: Mapping[str, Any], name: str, where: str, is_time: bool) -> float:
    """The number in a cell; nan for an empty cell or NA."""
    if name not in cells:
        raise InputError(
            f"{where}: there is no column {brief(name)}; choose --time and --predictors from: "
            f"{', '.join(map(brief, cells))}"
        )
    text = cell_text(cells[name]).strip()
    try:
        value = np.nan if text in ("", "NA") else float(text)
    except ValueError:
        value = np.inf
    if abs(value) > 1e15 or (is_time and value <= 0):
        kind = "reading time above 0" if is_time else "number"
        raise InputError(
            f"{where}: {brief(text)} in the column {brief(name)} is not a {kind}; correct the "
            "cell, or leave it empty"
        )
    return value


def _counted(omitted: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} ({reason})" for reason, number in omitted.items())


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


class Gains(NamedTuple):
    """The gains of all predictors on the same words, and the differences of the gain of the
    surprisal between runs, with tests."""

    gains: Sequence[Gain]
    differences: Sequence[significance.Difference]


def gains_of(words: Words, labels: Sequence[str], columns: Sequence[str] = ()) -> Gains:
    """The gain of every comparison and run, then of every further column of the input."""

    @functools.cache
    def fit(names: tuple[str, ...]) -> np.ndarray:
        predictors_NxX = np.hstack([words.predictors[name] for name in (*BASELINE, *names)])
        return log_likelihoods(words.table["time"], predictors_NxX, words.table["story"])

    compared = {
        (label, comparison): tuple(f"{name}:{label}" for name in names)
        for comparison, names in COMPARISONS.items()
        for label in labels
    }
    compared |= {(name, COLUMN): (f"input_{name}",) for name in columns}
    sentence_N = words.sentence_N
    counts_Dx1 = np.bincount(sentence_N).astype(float)[:, None]
    gain_of = {key: fit(names) - fit(names[:-1]) for key, names in compared.items()}
    sums_DxX = np.stack([np.bincount(sentence_N, gain_N) for gain_N in gain_of.values()], axis=1)
    means_Xx3 = significance.means(sums_DxX, counts_Dx1).T.tolist()
    of_surprisal_X = [comparison == SURPRISAL for _, comparison in compared]
    return Gains(
        [Gain(*key, *values) for key, values in zip(compared, means_Xx3, strict=True)],
        significance.differences(significance.Sums(sums_DxX[:, of_surprisal_X], counts_Dx1)),
    )


def cells_of_gains(gains: Sequence[Gain]) -> list[list[str]]:
    """A table with a row per comparison and a column per label, for 1,000 words."""
    rows: dict[str, dict[str, str]] = {}
    for gain in gains:
        text = significance.interval_text([1e3 * value for value in gain[2:]], 1)
        rows.setdefault(gain.comparison, {})[gain.label] = text
    labels = list(dict.fromkeys(gain.label for gain in gains))
    cells = [[name, *(row.get(label, "") for label in labels)] for name, row in rows.items()]
    return [["predictor", *labels], *cells]


def text(words: Words, result: Gains, labels: Sequence[str]) -> str:
    """The tables of gains and of differences, for a terminal."""
    counts = words.counts
    lines = [
        "gain in log-likelihood of reading times, nats per 1,000 words [95% interval]",
        *aligned(cells_of_gains(result.gains)),
        f"{counts['words']:,} words in {counts['sentences']:,} sentences of "
        f"{counts['stories']} stories; omitted: {_counted(words.omitted)}",
    ]
    differences = significance.difference_table(
        {SURPRISAL: result.differences},
        labels,
        group="predictor",
        unit="nats per 1,000 words",
        scale=1e3,
        digits=1,
    )
    return "\n".join([*lines, *([""] if differences else []), *differences])


def figure(gains: Sequence[Gain]) -> Figure:
    """The gains with their intervals, one line per run or column."""
    ticks = list(dict.fromkeys(gain.comparison for gain in gains))
    lines = []
    for label in dict.fromkeys(gain.label for gain in gains):
        of_label = [gain for gain in gains if gain.label == label]
        places = [ticks.index(gain.comparison) for gain in of_label]
        values = 1e3 * np.array([gain[2:] for gain in of_label])
        lines.append(Line(label, places, *values.T))
    y = "gain in log-likelihood, nats per 1,000 words"
    return Figure("Gain in log-likelihood of reading times", "predictor", y, lines, ticks)
