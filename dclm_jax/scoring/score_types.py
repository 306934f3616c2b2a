"""Results of a `LanguageModel`: scores of sentences and documents, generated texts, vectors and
attention weights.

Log-probabilities are natural logarithms (nats); a surprisal is a negative log-probability.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.data.documents import Columns
from dclm_jax.data.vocabulary import END_TOKEN, Vocabulary
from dclm_jax.scoring.distributions import OTHER_COLUMNS, SURPRISAL, SURPRISAL_NO_CONTEXT


@dataclasses.dataclass(frozen=True)
class SentenceScore:
    """The score of a sentence given the previous sentences.

    Attributes:
      tokens: the targets: the words as given, and END; empty for a sentence without words.
      known: whether each target is in the vocabulary; an OOV word has the probability of UNKNOWN.
        With a vocabulary of subwords only the text's own spelling of OOV words is not known, which
        is read and not predicted, and whose measures are NaN.
      measures: measures of each target by name (`scoring.distributions`): the surprisal in nats
        and, if requested, the surprisal without earlier sentences and others. A model of bags of
        words does not read the earlier words of the sentence, and does not predict END, which has
        surprisal 0.
    """

    tokens: list[str]
    known: list[bool]
    measures: Mapping[str, list[float]]

    @functools.cached_property
    def log_prob(self) -> float:
        """The sum of `log_probs` of predicted targets, in nats."""
        values = zip(self.measures[SURPRISAL], self.known, strict=True)
        return math.fsum(-nats for nats, known in values if known or not math.isnan(nats))

    @property
    def text(self) -> str:
        """The words, separated by spaces."""
        return " ".join(self.tokens[:-1])

    @property
    def log_probs(self) -> list[float]:
        """log P(target | all earlier words) of each target, in nats."""
        return [-value for value in self.measures[SURPRISAL]]

    @property
    def log_probs_no_context(self) -> list[float] | None:
        """`log_probs` without earlier sentences; None if not requested."""
        values = self.measures.get(SURPRISAL_NO_CONTEXT)
        return None if values is None else [-value for value in values]

    @property
    def log_probs_other_context(self) -> list[float] | None:
        """`log_probs` with the contexts of other documents, the mean over contexts; None if not
        requested."""
        values = self.measures.get(OTHER_COLUMNS[0])
        return None if values is None else [-value for value in values]

    @classmethod
    def of(
        cls,
        words: Sequence[str],
        vocabulary: Vocabulary,
        measures: Mapping[str, np.ndarray],
    ) -> "SentenceScore":
        """The score of a sentence from the measures [M + 1] of its words and END."""
        known = np.append(~vocabulary.is_unknown(words), True)
        if vocabulary.has_pieces:
            measures = {name: np.where(known, array, np.nan) for name, array in measures.items()}
        values = {name: array.astype(np.float64).tolist() for name, array in measures.items()}
        return cls([*words, END_TOKEN], known.tolist(), values)


class TokenScore(NamedTuple):
    """A row of a table of scores: sentence and position, both from 1; measures by name, surprisals
    in nats; and columns of the input by name."""

    document: str
    sentence: int
    position: int
    word: str
    known: bool
    measures: Mapping[str, float]
    columns: Mapping[str, str | None]


@dataclasses.dataclass(frozen=True)
class DocumentScore:
    """The score of a document.

    Attributes:
      id: name of the document.
      sentences: scores of the sentences.
      columns: the cells of the document's rows in its table, at every target of each sentence, by
        the names of the columns; see `data.documents.columns`.
    """

    id: str
    sentences: list[SentenceScore]
    columns: Columns = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def log_prob(self) -> float:
        """log P in nats."""
        return math.fsum(sentence.log_prob for sentence in self.sentences)

    def rows(self) -> Iterator[TokenScore]:
        """One row per target."""
        for number, score in enumerate(self.sentences, start=1):
            for index, (token, known) in enumerate(zip(score.tokens, score.known, strict=True)):
                measures = {name: values[index] for name, values in score.measures.items()}
                columns = {name: cells[number - 1][index] for name, cells in self.columns.items()}
                yield TokenScore(self.id, number, index + 1, token, known, measures, columns)


def common_columns(score: DocumentScore) -> tuple[Mapping[str, str], list[str]]:
    """The columns that have one cell in all words of a document, with this cell; and the names of
    the other columns."""
    cells_of = {
        name: {cell for sentence in sentences for cell in sentence}
        for name, sentences in score.columns.items()
    }
    common = {name: next(iter(cells)) or "" for name, cells in cells_of.items() if len(cells) == 1}
    return common, [name for name in cells_of if name not in common]


class SentenceAttention(NamedTuple):
    """Attention weights of a sentence, float32 [targets, positions]: for each word and END
    (`targets`), the weights of earlier text (`positions`). Rows with positions sum to 1.

    For adclm, positions are the inputs of the n previous sentences (by default one), <START> and
    their words, each for the hidden state after it; a document's first sentence has the position
    "c_0". For the models of Wang and Cho (2015) with attention, positions are the n previous
    sentences as texts, and the first sentence of a document has none. For pointer_drnnlm, positions
    are "softmax", with the share of the softmax, and the last targets of earlier sentences, which
    it copies. The oldest sentence is first.
    """

    targets: list[str]
    positions: list[str]
    weights: np.ndarray


class DocumentVectors(NamedTuple):
    """The vectors of a document: its name, its vector [X], and the vectors [S, X] after each of its
    sentences (`DocumentModel.vector`). The document's vector is the last sentence's vector; for a
    model that reads a source, it is the vector before the first sentence. A sentence without words
    is not read and repeats the previous vector."""

    id: str
    document: np.ndarray
    sentences: np.ndarray


@dataclasses.dataclass(frozen=True)
class GeneratedText:
    """A text generated by a model.

    Attributes:
      log_prob: log P(text | earlier text) in nats, including decisions to end the document.
      sentences: the sentences, scored as by `LanguageModel.score`.
      has_ended: whether the model has ended the document; otherwise a limit has ended the text.
    """

    log_prob: float
    sentences: list[SentenceScore]
    has_ended: bool
