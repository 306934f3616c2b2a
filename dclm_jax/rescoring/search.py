"""Search for the best hypotheses of documents, each scored given the hypotheses chosen before it.

As in Lin et al. (2015, section 6.3.2), the best translation of the first sentence is chosen, then
the best translation of the second sentence given the first translation, and so on. A hypothesis e
of segment t has the score

    sum_m w_m log P_m(e | chosen hypotheses before t) + sum_f w_f feature_f(e)

in a log-linear model with a feature for every language model m and the features f of the list. The
score of a document is the sum over its segments. Greedy search retains the best partial document
after each segment, and beam search retains several. Among partial documents with the same last
`context_order` hypotheses, only the best can be part of the best document, so that the other
partial documents are removed. Greedy search is therefore exact for models of order 0. For models of
order 1 an unbounded beam is Viterbi's algorithm, which Ji et al. (2015, section 2.2.1) name as the
advantage of CODCLM.

Each partial document reads its history once, not once per hypothesis.

Under a vocabulary of words a hypothesis with an OOV word has the probability of UNKNOWN, which all
OOV words share, and a misspelled hypothesis could win. The feature `oov` counts its OOV words.

A hypothesis without words (silence) has only the log P of END. An empty hypothesis does not enter
the history, because models are trained on documents without empty sentences. The next segment is
scored given the chosen hypotheses with words, and `context_order` counts only these hypotheses.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax import files
from dclm_jax.data.documents import PLAIN, OnDocument, TextOptions
from dclm_jax.data.encoding import Encoder
from dclm_jax.data.notes import as_words
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError, brief, require_at_least
from dclm_jax.log import logger
from dclm_jax.reading.continuations import (
    SentenceReader,
    StateT,
    filled_up,
    log_probs_after,
    read_after,
)
from dclm_jax.rescoring.nbest import SCORE, NBestList, Segment

_DOCUMENTS = 256
"""Maximum number of documents that are read at once."""
_WORDS = "words"
"""The name of the feature with the number of words of a hypothesis."""
_OOV, _OOV_WEIGHT = "oov", -10.0
"""The name of the feature with the number of OOV words, and its default weight: the log-probability
of an OOV word given UNKNOWN, if 22,000 OOV words were equally frequent."""

SegmentedDocument = Sequence[Segment[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class _WeightsFile:
    weights: dict[str, files.Number]


class Decoded(NamedTuple):
    """A document or partial document with chosen hypotheses.

    Attributes:
      choices: for each segment the index of a hypothesis.
      features: for each segment float64 [K, L + F], the features of all hypotheses given the
        hypotheses chosen before: log P in nats under L language models, then the list's features.
      score: the score of the chosen hypotheses.
      history: position and index of the chosen hypotheses with words.
      row: the row of the state that the last choice followed.
    """

    choices: tuple[int, ...]
    features: tuple[np.ndarray, ...]
    score: float
    history: tuple[tuple[int, int], ...]
    row: int


class Rescorer:
    """Language models with one vocabulary that choose the hypotheses of a list.

    Attributes:
      names: names of the L + F features: L models, the features of the list, "words" (number of
        words) and, under a vocabulary of words, "oov" (number of OOV words; the text's own spelling
        of OOV words does not count). A feature of the list with one of these names replaces the
        count.
      default_weights: float64 [L + F], 1 for models and the decoder's score, -10 for the number of
        OOV words, 0 for other features.
      segments: the segments of the list, with hypotheses as word ids and F features.
    """

    def __init__(
        self,
        readers: Mapping[str, SentenceReader[Any]],
        encoder: Encoder,
        nbest: NBestList,
        division: Sequence[range] | None = None,
        *,
        options: TextOptions = PLAIN,
    ):
        """Encodes the hypotheses, and logs the OOV words.

        Args:
          readers: the readers of the models by name of the feature.
          encoder: unused encoder with the vocabulary of all models.
          nbest: the list to rescore.
          division: the segments of each document, in order; by default the list is one document.
          options: case and normal form to which words are converted before they are encoded.
        """
        self._readers = list(readers.values())
        self._division = division or [range(len(nbest.segments))]
        vocabulary = encoder.vocabulary
        counts: dict[str, Callable[[Sequence[str]], int]] = {_WORDS: len}
        if not vocabulary.has_pieces:
            counts[_OOV] = lambda words: _num_oov(words, vocabulary)
        counted = [name for name in counts if name not in nbest.names]
        self.names = [*readers, *nbest.names, *counted]
        if repeated := readers.keys() & {*nbest.names, *counted}:
            raise InputError(
                f"{nbest.path}: {brief(min(repeated))} is the name of a feature and of a run; "
                "rename the feature"
            )
        defaults = dict.fromkeys([*readers, SCORE], 1.0)
        defaults |= {_OOV: _OOV_WEIGHT} if _OOV in counted else {}
        self.default_weights = np.array([defaults.get(name, 0.0) for name in self.names])
        self._counts_oov = _OOV in counted
        self.segments = []
        for segment in nbest.segments:
            written = [list(filter(None, as_words(words, options))) for words in segment.hypotheses]
            numbers = [list(map(counts[name], written)) for name in counted]
            features_KxF = np.column_stack([segment.features_KxF, *numbers])
            hypotheses = list(map(encoder.encode, written))
            self.segments.append(Segment(hypotheses, features_KxF, segment.id))
        encoder.log_oov()

    def weights(self, path: str) -> np.ndarray:
        """The weights of all features, float64 [L + F], in the order of `names`, from a JSON file
        with an object "weights" by name."""
        weights = files.read_json(path, _WeightsFile).weights
        if set(weights) != set(self.names):
            expected = ", ".join(self.names)
            raise InputError(f"{path}: has weights of {brief(list(weights))}; expected {expected}")
        if not any(weights.values()):
            raise InputError(f"{path}: all weights are 0; write a weight that is not 0")
        return np.array([weights[name] for name in self.names], np.float64)

    def decode(
        self,
        weights: np.ndarray,
        *,
        beam: int | None = 1,
        on_document: OnDocument = lambda done: None,
    ) -> tuple[list[int], list[np.ndarray]]:
        """For each segment of the list the index of the chosen hypothesis, and the features
        [K, L + F] of all hypotheses given the hypotheses chosen before; see `search`."""
        documents = [[self.segments[index] for index in part] for part in self._division]
        decoded = search(self._readers, documents, weights, beam=beam, on_document=on_document)
        choices = itertools.chain.from_iterable(document.choices for document in decoded)
        features = itertools.chain.from_iterable(document.features for document in decoded)
        return list(choices), list(features)

    def note_oov(self, choices: Sequence[int]) -> None:
        """Logs how many of the chosen hypotheses have more OOV words than the 1-best."""
        if not self._counts_oov:
            return
        # The last feature is the number of OOV words.
        pairs = zip(
            (segment.features_KxF[:, -1] for segment in self.segments), choices, strict=True
        )
        if count := sum(oov_K[choice] > oov_K[0] for oov_K, choice in pairs):
            logger.info(
                f"chosen hypotheses with more OOV words than the 1-best: {count:,} of "
                f"{len(choices):,}; to avoid them, lower the weight of {_OOV} in the JSON file of "
                "--weights"
            )


def _num_oov(words: Sequence[str], vocabulary: Vocabulary) -> int:
    known = [word for word in words if word != vocabulary.unknown_token]
    return int(vocabulary.is_unknown(known).sum())


def search(
    readers: Sequence[SentenceReader[Any]],
    documents: Sequence[SegmentedDocument],
    weights: np.ndarray,
    *,
    beam: int | None = 1,
    on_document: OnDocument = lambda done: None,
) -> list[Decoded]:
    """Chooses a hypothesis of every segment of every document.

    Args:
      readers: the readers of the language models, in the order of their weights.
      documents: documents of at least one segment, each with at least one hypothesis.
      weights: float [L + F].
      beam: beam width: the maximum number of partial documents. 1 is greedy search; None for no
        maximum, which is Viterbi's algorithm.
    """
    require_at_least("beam", beam, 1)
    orders = [reader.context_order for reader in readers]
    context_order = None if None in orders else max(order or 0 for order in orders)
    if beam is None and (context_order is None or context_order > 1):
        count = "all" if context_order is None else f"{context_order}"
        depends = f"{count} previous sentences"
        raise InputError(
            "Viterbi's algorithm needs a model that reads at most one previous sentence; this "
            f"model reads {depends}; choose a beam width"
        )
    decoded: dict[int, Decoded] = {}

    def on_ended(num_ended: int) -> None:
        on_document(len(decoded) + num_ended)

    # Documents of similar length share a batch, so that few rows end early.
    order = sorted(range(len(documents)), key=lambda index: len(documents[index]), reverse=True)
    for first in range(0, len(order), _DOCUMENTS):
        indices = order[first : first + _DOCUMENTS]
        batch = [documents[index] for index in indices]
        best = _search(readers, batch, weights, context_order, beam, on_ended)
        decoded.update(zip(indices, best, strict=True))
    return [decoded[index] for index in range(len(documents))]


def _search(
    readers: Sequence[SentenceReader[Any]],
    documents: Sequence[SegmentedDocument],
    weights: np.ndarray,
    context_order: int | None,
    beam: int | None,
    on_ended: OnDocument,
) -> list[Decoded]:
    """Searches one batch like `search`; calls `on_ended` with the number of ended documents after
    every position."""
    beams = [[Decoded((), (), 0.0, (), row)] for row in range(len(documents))]
    states = [reader.open(len(documents)) for reader in readers]
    for position in range(max(map(len, documents))):
        active = [index for index, document in enumerate(documents) if position < len(document)]
        # One row per partial document.
        partials = [(index, partial) for index in active for partial in beams[index]]
        if position:
            rows = [partial.row for _, partial in partials]
            sentences = [
                documents[index][position - 1].hypotheses[partial.choices[-1]]
                for index, partial in partials
            ]
            states = [
                _after(reader, state, rows, sentences)
                for reader, state in zip(readers, states, strict=True)
            ]
        segments = [documents[index][position] for index, _ in partials]
        counts = [len(segment.hypotheses) for segment in segments]
        rows = np.repeat(np.arange(len(partials)), counts).tolist()
        hypotheses = [words for segment in segments for words in segment.hypotheses]
        log_probs_RxL = np.column_stack(
            [
                log_probs_after(reader, state, rows, hypotheses)
                for reader, state in zip(readers, states, strict=True)
            ]
        )
        for index in active:
            beams[index] = []
        log_probs = np.split(log_probs_RxL, np.cumsum(counts)[:-1])
        for row, (index, partial) in enumerate(partials):
            segment = segments[row]
            features_KxE = np.hstack([log_probs[row], segment.features_KxF])
            scores = (features_KxE @ weights).tolist()
            for choice, (score, words) in enumerate(zip(scores, segment.hypotheses, strict=True)):
                extended = Decoded(
                    (*partial.choices, choice),
                    (*partial.features, features_KxE),
                    partial.score + score,
                    (*partial.history, (position, choice)) if len(words) else partial.history,
                    row,
                )
                beams[index].append(extended)
        for index in active:
            beams[index] = _survivors(beams[index], context_order, beam)
        on_ended(sum(len(document) <= position + 1 for document in documents))
    return [best for best, *_ in beams]


def _after(
    reader: SentenceReader[StateT],
    state: StateT,
    rows: Sequence[int],
    sentences: Sequence[np.ndarray],
) -> StateT:
    """The states of `read_after`, except that an empty sentence does not change the state."""
    after = read_after(reader, state, rows, sentences)
    filled = filled_up(range(len(rows)))
    has_words = np.array([len(sentences[i]) > 0 for i in filled])
    if has_words.all():
        return after
    return reader.select(has_words, after, state.take([rows[i] for i in filled]))


def _survivors(
    extended: list[Decoded], context_order: int | None, beam: int | None
) -> list[Decoded]:
    """The best partial documents, the best first; among equals, the earlier hypotheses first."""
    best: dict[tuple[tuple[int, int], ...], Decoded] = {}
    for partial in sorted(extended, key=lambda partial: partial.score, reverse=True):
        length = len(partial.history)
        context = length if context_order is None else min(context_order, length)
        best.setdefault(partial.history[length - context :], partial)
    return list(best.values())[:beam]
