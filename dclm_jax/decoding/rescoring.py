"""The best hypotheses of documents, each scored given those that are chosen before it.

Lin et al. (2015), 6.3.2: the best translation of the first sentence is chosen, then that of the
second given the first, and so on. A hypothesis e of segment t has the score

    sum_m w_m log P_m(e | chosen hypotheses before t) + sum_f w_f feature_f(e)

in a log-linear model with a feature for every language model m, then those of the list. The score
of a document is the sum over its segments. Greedy search keeps the best choice for every segment,
a beam some documents so far. Of documents so far that end in the same `context_order` hypotheses
only the best can be part of the best document, so that the others are dropped: for models of order
0 greedy search is exact, and for models of order 1 a beam without bound is Viterbi's algorithm,
which Ji et al. (2015), 2.2.1, hold to be the advantage of CODCLM.

The history is read once, by every document so far, and not once for every hypothesis.

A hypothesis without words (silence) has the log P of END alone. If it is chosen, it does not enter
the history: models are trained on documents without empty sentences, so the next segment is scored
given the chosen hypotheses that have words. `context_order` counts those alone.

In Python, with runs that `dclm_jax.restore` gives:

    lists = read_nbest("nbest.txt")
    task = rescoring_task({"tour": dclm_jax.restore("runs/tour")}, lists)
    choices, features = decode_list(task, default_weights(task))
    best = [s.hypotheses[choice] for s, choice in zip(lists.segments, choices)]
    lines = scored_lines(task, features)                    # the list with log P as feature "tour"
"""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data import nbest
from dclm_jax.data.documents import PLAIN, TextOptions
from dclm_jax.data.oddities import Oddities
from dclm_jax.data.readers import as_words
from dclm_jax.errors import InputError, require_at_least
from dclm_jax.reading.continuations import (
    PlaceT,
    SentenceReader,
    filled_up,
    log_probs_after,
    read_after,
)

_DOCUMENTS = 256
"""Documents that are read at once."""
_WORDS = "words"
"""The feature that is the number of words of a hypothesis."""


class Segment(NamedTuple):
    """K hypotheses to choose from: word ids, each int [M] without START and END, M = 0 for silence,
    and float64 [K, F] features of other models."""

    hypotheses: Sequence[np.ndarray]
    features_KxF: np.ndarray


class Decoded(NamedTuple):
    """A document that has been decided on.

    Attributes:
      chosen: for each segment the index of a hypothesis.
      features: for each segment float64 [K, L + F], those of all hypotheses given the chosen ones
        before it: log P in nats under each of L language models, then those of the segment.
      score: of the chosen hypotheses.
    """

    chosen: list[int]
    features: list[np.ndarray]
    score: float


class _Path(NamedTuple):
    """The first segments of a document decided on.

    Attributes:
      row: where its history is being read.
      score: of the chosen hypotheses.
      chosen, features: as of `Decoded`.
      history: position and index of the chosen hypotheses that have words.
    """

    row: int
    score: float
    chosen: tuple[int, ...]
    features: tuple[np.ndarray, ...]
    history: tuple[tuple[int, int], ...]


class Task(NamedTuple):
    """A list and the models that rescore it.

    Attributes:
      lists: the list.
      names: of all L + F features: L models, the features of the list, and the number of words if
        the list has no feature of that name.
      readers: of the L models.
      context_order: the largest of the models, None for all sentences before.
      documents: the segments of each document, in the order of the list.
    """

    lists: nbest.NBestList
    names: list[str]
    readers: list[SentenceReader[Any]]
    context_order: int | None
    documents: list[list[Segment]]

    @property
    def model_names(self) -> list[str]:
        """The names of the L models."""
        return self.names[: len(self.readers)]


def rescoring_task(
    models: Mapping[str, Any],
    lists: nbest.NBestList,
    division: Sequence[range] | None = None,
    *,
    options: TextOptions = PLAIN,
) -> Task:
    """A task of models of one vocabulary, its hypotheses encoded.

    Args:
      models: `LanguageModel`s by the names of their features; where a feature of the list has a
        name already, or it is "words" or "score", the model's ends in "_2".
      lists: to rescore.
      division: the segments of each document, in order; by default the list is one document.
      options: the case and the normal form that words are written in before they are encoded.
    """
    vocabulary = next(iter(models.values())).vocabulary
    counts_words = _WORDS not in lists.names
    taken = [*lists.names, nbest.SCORE, _WORDS]
    names: list[str] = []
    for name in models:
        names.append(_unused(name, [*taken, *names]))
    oddities = Oddities(options.unicode)

    def encode(words: list[str]) -> np.ndarray:
        return vocabulary.encode(list(filter(None, as_words(words, options, oddities))))

    segments = [
        Segment(
            [encode(words) for words in segment.hypotheses],
            np.column_stack(
                [segment.features_KxF, *[list(map(len, segment.hypotheses))] * counts_words]
            ),
        )
        for segment in lists.segments
    ]
    orders = [model.scorer.context_order for model in models.values()]
    return Task(
        lists,
        [*names, *lists.names, *[_WORDS] * counts_words],
        [model.reader for model in models.values()],
        None if None in orders else max(order or 0 for order in orders),
        [[segments[index] for index in part] for part in division or [range(len(segments))]],
    )


def _unused(name: str, taken: Collection[str]) -> str:
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if free not in taken)


def default_weights(task: Task) -> np.ndarray:
    """1 for the models and the decoder's score, 0 for all other features."""
    return np.array([float(name in [*task.model_names, nbest.SCORE]) for name in task.names])


def decode_list(
    task: Task,
    weights: np.ndarray,
    *,
    beam: int | None = 1,
    on_document: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[list[int], list[np.ndarray]]:
    """For each segment of the list the index of the chosen hypothesis, and the features [K, L + F]
    of all of them given those chosen before; see `search`."""
    decoded = search(
        task.readers,
        task.documents,
        weights,
        context_order=task.context_order,
        beam=beam,
        on_document=on_document,
    )
    chosen = [choice for document in decoded for choice in document.chosen]
    return chosen, [features for document in decoded for features in document.features]


def scored_lines(task: Task, features: Sequence[np.ndarray]) -> list[str]:
    """The lines of the list, each with log P of its hypothesis under every model as a feature, from
    the features that `decode_list` gives; see `nbest.extended_lines`."""
    log_probs = [features_KxE[:, : len(task.readers)] for features_KxE in features]
    return nbest.extended_lines(task.lists, task.model_names, log_probs)


def search(
    readers: Sequence[SentenceReader[Any]],
    documents: Sequence[Sequence[Segment]],
    weights: np.ndarray,
    *,
    context_order: int | None,
    beam: int | None = 1,
    on_document: Callable[[int, int], None] = lambda done, of: None,
) -> list[Decoded]:
    """Chooses a hypothesis of every segment of every document.

    Args:
      readers: of the language models, in the order of their weights.
      documents: of at least one segment, each of at least one hypothesis.
      weights: float [L + F].
      context_order: the largest of the models: the hypotheses before a segment that its scores
        depend on; None for all.
      beam: how many ways through a document are followed: 1 is greedy search; None for all that
        matter, which is Viterbi's algorithm.
      on_document: called with the documents done and in all, to show progress.
    """
    require_at_least("beam", beam, 1)
    if beam is None and (context_order is None or context_order > 1):
        depends = "all sentences" if context_order is None else f"{context_order} sentences"
        raise InputError(
            "Viterbi's algorithm needs scores that depend on the sentence before at most; this "
            f"model reads {depends} before; expected a beam"
        )
    decoded: list[Decoded] = [Decoded([], [], 0.0)] * len(documents)
    # Those of like length together, so that few rows run out early.
    order = sorted(range(len(documents)), key=lambda index: len(documents[index]), reverse=True)
    for first in range(0, len(order), _DOCUMENTS):
        some = order[first : first + _DOCUMENTS]

        def ended(count: int, before: int = first) -> None:
            on_document(before + count, len(documents))

        texts = [documents[index] for index in some]
        paths = _search(readers, texts, weights, context_order, beam, ended)
        for index, path in zip(some, paths, strict=True):
            decoded[index] = Decoded(list(path.chosen), list(path.features), path.score)
    return decoded


def _search(
    readers: Sequence[SentenceReader[Any]],
    documents: Sequence[Sequence[Segment]],
    weights: np.ndarray,
    context_order: int | None,
    beam: int | None,
    ended: Callable[[int], None],
) -> list[_Path]:
    """The best path through each document; says after every position how many have ended."""
    paths = [[_Path(row, 0.0, (), (), ())] for row in range(len(documents))]
    places = [reader.open(len(documents)) for reader in readers]
    for position in range(max(map(len, documents))):
        going = [index for index, one in enumerate(documents) if position < len(one)]
        if position:
            places = _read_on(readers, places, documents, paths, going)
        rows, hypotheses = [], []
        for index in going:
            for path in paths[index]:
                hypotheses += documents[index][position].hypotheses
                rows += [path.row] * len(documents[index][position].hypotheses)
        log_probs_RxL = np.stack(
            [
                log_probs_after(reader, place, rows, hypotheses)
                for reader, place in zip(readers, places, strict=True)
            ],
            axis=-1,
        )
        first = 0
        for index in going:
            segment, extended = documents[index][position], []
            for path in paths[index]:
                last = first + len(segment.hypotheses)
                features = np.hstack([log_probs_RxL[first:last], segment.features_KxF])
                extended += _extensions(path, segment, features, weights)
                first = last
            paths[index] = _survivors(extended, context_order, beam)
        ended(sum(len(one) <= position + 1 for one in documents))
    return [best for best, *_ in paths]


def _read_on(
    readers: Sequence[SentenceReader[Any]],
    places: Sequence[Any],
    documents: Sequence[Sequence[Segment]],
    paths: list[list[_Path]],
    going: Sequence[int],
) -> list[Any]:
    """The places after what each path has chosen last, whose rows these then are."""
    rows, sentences = [], []
    for index in going:
        for number, path in enumerate(paths[index]):
            paths[index][number] = path._replace(row=len(rows))
            segment = documents[index][len(path.chosen) - 1]
            rows.append(path.row)
            sentences.append(segment.hypotheses[path.chosen[-1]])
    return [
        _after(reader, place, rows, sentences)
        for reader, place in zip(readers, places, strict=True)
    ]


def _after(
    reader: SentenceReader[PlaceT],
    place: PlaceT,
    rows: Sequence[int],
    sentences: Sequence[np.ndarray],
) -> PlaceT:
    """As `read_after`, but that the place of an empty sentence is the one before it."""
    after = read_after(reader, place, rows, sentences)
    filled = filled_up(range(len(rows)))
    has_words = np.array([len(sentences[i]) > 0 for i in filled])
    if has_words.all():
        return after
    return reader.select(has_words, after, place.take([rows[i] for i in filled]))


def _extensions(
    path: _Path, segment: Segment, features_KxE: np.ndarray, weights: np.ndarray
) -> list[_Path]:
    features, position = (*path.features, features_KxE), len(path.chosen)
    scores = (features_KxE @ weights).tolist()
    return [
        _Path(
            path.row,
            path.score + score,
            (*path.chosen, choice),
            features,
            (*path.history, (position, choice)) if len(words) else path.history,
        )
        for choice, (score, words) in enumerate(zip(scores, segment.hypotheses, strict=True))
    ]


def _survivors(paths: list[_Path], context_order: int | None, beam: int | None) -> list[_Path]:
    """The best paths, the best one first; of equals the one with the earlier hypotheses."""
    best: dict[tuple[tuple[int, int], ...], _Path] = {}
    for path in sorted(paths, key=lambda path: path.score, reverse=True):
        length = len(path.history)
        remembered = length if context_order is None else min(context_order, length)
        best.setdefault(path.history[length - remembered :], path)
    return list(best.values())[:beam]
