"""Linear models of the mean reading times of words, as launch.reading_times defines them.

Shapes: T tokens, N words (rows of the input, of one or more tokens), X predictors, D sentences.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from dclm_jax.data.documents import value_text
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation import significance
from dclm_jax.evaluation.stories import Story
from dclm_jax.language_model import LanguageModel, require_no_source
from dclm_jax.log import logger
from dclm_jax.scoring.other_contexts import OtherContexts
from dclm_jax.tables import present

BASELINE = ("length", "log_frequency")
COMPARISONS = {
    "surprisal, no context": ("surprisal_no_context",),
    "surprisal, contexts of other stories": ("surprisal_other_context",),
    "surprisal": ("surprisal",),
    "entropy": ("entropy",),
    "divergence": ("divergence",),
    "surprisal beyond surprisal, no context": ("surprisal_no_context", "surprisal"),
    "surprisal beyond surprisal, contexts of other stories": (
        "surprisal_other_context",
        "surprisal",
    ),
    "entropy beyond surprisal": ("surprisal", "entropy"),
    "divergence beyond surprisal": ("surprisal", "divergence"),
}
"""Predictors of a linear model after BASELINE; the other linear model lacks the last predictor."""
_OTHER_STORIES = 10
"""Maximum number of other stories whose contexts every story is scored in."""
_SURPRISALS = "surprisal", "surprisal_other_context", "surprisal_no_context"


def word_table(
    models: Mapping[str, LanguageModel],
    stories: Sequence[Story],
    columns: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """The columns [N] of all words by name: document, sentence, position, time and predictors, and
    "fitted": 1 if the word and the previous word are in the vocabulary and have all numbers.

    Args:
      models: language models with one vocabulary, by the labels of their runs.
      stories: stories whose numbers are the reading times and those of `columns`.
      columns: columns of further predictors.
    """
    documents = [story.document for story in stories]
    firsts = {tuple(document.sentences[0]) for document in documents if document.sentences}
    num_others = len(firsts) - 1
    if num_others < 1:
        logger.info(
            "no story has another first sentence, so that no surprisal is measured with the "
            "contexts of other stories"
        )
    scores = {}
    for label, lm in models.items():
        require_no_source(lm)
        of_run = lm.surprisals(
            documents,
            other_contexts=OtherContexts(min(_OTHER_STORIES, num_others)) if num_others else None,
            no_context_too=True,
            measures=["entropy", "divergence"],
        )
        # END belongs to no row.
        is_word = of_run["row"].astype(bool)
        scores[label] = {name: column[is_word] for name, column in of_run.items()}
    tokens, *_ = scores.values()
    first_N = np.flatnonzero(_changes(tokens["row"]))
    vocabulary = next(iter(models.values())).vocabulary
    counts_T = np.array([vocabulary.count_of(word) for word in tokens["word"]])
    if vocabulary.has_pieces:
        # A word that the training text lacks has a surprisal, and so needs a frequency.
        counts_T = np.maximum(counts_T, 1)
    # Measures of the tokens of a row are added. A row has the frequency of its rarest token,
    # because punctuation marks are frequent. An OOV word has no frequency.
    rarest_N = np.minimum.reduceat(counts_T * tokens["known"], first_N)
    with np.errstate(divide="ignore", invalid="ignore"):
        frequency_N = np.log(rarest_N) - np.log(vocabulary.num_words)
    lengths_T = np.array([len(word) for word in tokens["word"]], float)
    predictors = {"length": np.add.reduceat(lengths_T, first_N), "log_frequency": frequency_N}
    for label, of_run in scores.items():
        for name in filter(of_run.__contains__, (*_SURPRISALS, "divergence")):
            predictors[f"{name}:{label}"] = np.add.reduceat(of_run[name], first_N)
        predictors[f"entropy:{label}"] = of_run["entropy"][first_N]
    frequency_N = np.where(np.isfinite(frequency_N), frequency_N, np.nan)
    times_N, *others = np.concatenate([story.numbers_NxY for story in stories]).T
    predictors |= {f"input_{name}": column for name, column in zip(columns, others, strict=True)}
    predictors = {
        f"{name}{end}": np.roll(column, shift)
        for name, column in predictors.items()
        for shift, end in enumerate(("", "_before"))
    }
    # The first word of a story has no word before.
    is_first_N = _changes(tokens["document"][first_N])
    for name, column in predictors.items():
        if name.endswith("_before"):
            column[is_first_N] = np.nan
    table = {name: tokens[name][first_N] for name in ("document", "sentence", "position")}
    table["word"] = np.array([" ".join(part) for part in np.split(tokens["word"], first_N[1:])])
    table["known"] = np.minimum.reduceat(tokens["known"].astype(int), first_N)
    fitted_N = np.isfinite([times_N, *predictors.values()]).all(axis=0)
    return {**table, "fitted": fitted_N.astype(int), "time": times_N, **predictors}


def fitted(words: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The rows of a table of words that linear models are fitted to."""
    return {name: column[words["fitted"] == 1] for name, column in words.items()}


def lines(
    words: Mapping[str, np.ndarray], stories: Sequence[Story], columns: Sequence[str]
) -> dict[str, list[Any]]:
    """The columns of `launch.reading_times --words`, with one entry per row of the input: its
    number, the columns of `word_table` of its word, and the columns of the input other than
    predictors."""
    names = dict.fromkeys(name for story in stories for rows in story.readings for name in rows[0])
    others = [name for name in names if name not in columns]
    table: dict[str, list[Any]] = {name: [] for name in ("row", *words)}
    table |= {f"input_{name}": [] for name in others}
    columns_of_words, first = {name: column.tolist() for name, column in words.items()}, 0
    for story in stories:
        for word, row, cells in story.lines():
            table["row"].append(row)
            for name, values in columns_of_words.items():
                value = values[first + word]
                is_missing = isinstance(value, float) and math.isnan(value)
                table[name].append(None if is_missing else value)
            for name in others:
                table[f"input_{name}"].append(present(value_text(cells.get(name))))
        first += len(story.numbers_NxY)
    return table


def _changes(column_N: np.ndarray) -> np.ndarray:
    """Whether each value is the first, or differs from the value before, bool [N]."""
    return np.append(True, column_N[1:] != column_N[:-1])


def log_likelihoods(words: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """The log density of each reading time under a normal distribution, in nats, float64 [N].

    Mean and variance are of the linear model with an intercept, the named predictors and those of
    the word before, which least squares fit to all other stories.
    """
    times_N, log_likelihoods_N = words["time"], np.zeros(len(words["time"]))
    predictors = [words[f"{name}{end}"] for name in names for end in ("", "_before")]
    design_NxX = np.column_stack(predictors)
    for story in np.unique(words["document"]):
        is_fitted_N = words["document"] != story
        standard_NxX = _standardized(design_NxX, is_fitted_N)
        weights_X, *_ = np.linalg.lstsq(standard_NxX[is_fitted_N], times_N[is_fitted_N], rcond=None)
        means_N = standard_NxX @ weights_X
        deviation = np.sqrt(np.mean((times_N - means_N)[is_fitted_N] ** 2))
        densities_N = stats.norm.logpdf(times_N, means_N, deviation)
        log_likelihoods_N = np.where(is_fitted_N, log_likelihoods_N, densities_N)
    return log_likelihoods_N


def _standardized(design_NxX: np.ndarray, is_fitted_N: np.ndarray) -> np.ndarray:
    """An intercept, and the predictors with mean 0 and deviation 1 over the fitted words, so that
    units and origins have no effect on the least squares. A constant predictor becomes 0."""
    fitted = design_NxX[is_fitted_N]
    centred_NxX = design_NxX - fitted.mean(axis=0)
    # The deviation of a constant is only rounding.
    deviation_X = centred_NxX[is_fitted_N].std(axis=0)
    is_constant_X = np.ptp(fitted, axis=0) == 0
    scaled_NxX = centred_NxX / np.where(is_constant_X, 1, deviation_X)
    scaled_NxX = np.where(is_constant_X, 0, scaled_NxX)
    return np.column_stack([np.ones(len(scaled_NxX)), scaled_NxX])


def gains_of(
    words: Mapping[str, np.ndarray], labels: Sequence[str], time: str, columns: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Gains in nats per word for a result file: of every comparison and run, and of every column of
    the input, with the ends of their 95% intervals; and the differences of the gain of the
    surprisal between runs. Messages name the column `time`."""
    _, story_words = np.unique(words["document"], return_counts=True)
    if sum(story_words) - max(story_words, default=0) < 10:
        raise InputError(
            f"the reading times of {sum(story_words)} words in {len(story_words)} stories are too "
            "few for linear models; add stories, or choose runs trained on text like the stories"
        )
    for story in np.unique(words["document"]):
        if np.ptp(words["time"][words["document"] != story]) == 0:
            raise InputError(
                f"the reading times in the column {brief(time)} are equal in all stories other "
                f"than {brief(story)}, so that no linear model can be fitted; choose another --time"
            )
    sentence_N = np.cumsum(_changes(words["document"]) | _changes(words["sentence"])) - 1
    counts_Dx1 = np.bincount(sentence_N).astype(float)[:, None]

    @functools.cache
    def sums(names: tuple[str, ...]) -> np.ndarray:
        return np.bincount(sentence_N, log_likelihoods(words, (*BASELINE, *names)))

    compared = {
        (label, comparison): tuple(f"{name}:{label}" for name in names)
        for comparison, names in COMPARISONS.items()
        for label in labels
        if all(f"{name}:{label}" in words for name in names)
    }
    compared |= {(name, "column of the input"): (f"input_{name}",) for name in columns}
    sums_DxX = np.stack([sums(names) - sums(names[:-1]) for names in compared.values()], axis=1)
    of_surprisal_X = [comparison == "surprisal" for _, comparison in compared]
    gains = [
        {"label": label, "comparison": comparison, "mean": mean, "low": low, "high": high}
        for (label, comparison), (mean, low, high) in zip(
            compared, significance.means(sums_DxX, counts_Dx1).T.tolist(), strict=True
        )
    ]
    surprisals = significance.Sums(sums_DxX[:, of_surprisal_X], counts_Dx1)
    return gains, [pair.to_json(labels) for pair in significance.differences(surprisals)]
