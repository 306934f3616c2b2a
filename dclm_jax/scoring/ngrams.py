"""Scores of n-gram models, which the Python package `kenlm` computes from KenLM's files.

KenLM's unknown word `<unk>` does not occur in the training text. UNKNOWN is counted like any other
word of this text, so that perplexities are comparable with other models.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data.vocabulary import END, START, UNKNOWN, Vocabulary
from dclm_jax.errors import InputError, importing
from dclm_jax.scoring.scorer import Scored, Scorer, sentences_to_score

# KenLM's sentence boundaries and unknown word.
_RESERVED = ("<s>", "</s>", "<unk>", "<UNK>")
_TOO_LONG = re.compile(r"This model has order (\d+) but KenLM was compiled to support up to (\d+)")


class NGramState(NamedTuple):
    """The states of `rows` documents between two sentences, which are all equal."""

    rows: int

    def take(self, rows: Sequence[int]) -> "NGramState":
        """The states of these rows in this order."""
        return NGramState(len(rows))


class NGramScorer(Scorer):
    """Negative log-likelihoods of the ids of documents with independent sentences. The scorer is
    its own reader."""

    context_order = 0

    def __init__(self, path: str | os.PathLike[str], vocabulary: Vocabulary):
        """Maps a model into memory.

        Args:
          path: a file from `build_binary`, or an ARPA file.
          vocabulary: the vocabulary of the ids to score.
        """
        self._model = load_model(path)
        self._spellings = spellings(vocabulary)
        self.vocab_size, self._has_pieces = len(vocabulary), vocabulary.has_pieces
        self.first_word_end = vocabulary.first_word_end

    @property
    def reader(self) -> "NGramScorer":
        return self

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """Scores documents in their order, one at a time; see `Scorer.score`."""
        for document in documents:
            sentences, first_scored = sentences_to_score(document)
            yield document, [self._nll(sentence) for sentence in sentences[first_scored:]]

    def open(self, rows: int) -> NGramState:
        """The start of `rows` documents."""
        return NGramState(rows)

    def read(
        self,
        state: NGramState,
        sentences: Sequence[Sequence[np.ndarray]],
        unscored: Sequence[int] | None = None,
    ) -> tuple[NGramState, list[list[np.ndarray]]]:
        """Reads sentences like `Reader.read`, and always scores all targets."""
        del unscored
        return state, [[self._nll(sentence) for sentence in row] for row in sentences]

    def select(self, is_first_B: np.ndarray, first: NGramState, second: NGramState) -> NGramState:
        """Selects states like `Reader.select`; all states between sentences are equal."""
        del is_first_B, second
        return first

    def next(self, state: NGramState, prefixes: Sequence[np.ndarray]) -> np.ndarray:
        """log P [B, V] in nats of the next id, -inf for START, like `Reader.next`."""
        del state
        return np.stack(list(map(self._next, prefixes)))

    def _next(self, prefix: np.ndarray) -> np.ndarray:
        before, after = kenlm_package().State(), kenlm_package().State()
        self._model.BeginSentenceWrite(before)
        for index in prefix:
            self._model.BaseScore(before, self._spellings[index], after)
            before, after = after, before
        targets = list(self._spellings)
        targets[END] = "</s>"
        log10_V = np.array([self._model.BaseScore(before, target, after) for target in targets])
        log10_V[START] = -np.inf
        if self._has_pieces:
            log10_V[UNKNOWN] = -np.inf
        return (log10_V * math.log(10)).astype(np.float32)

    def vectors(self, state: NGramState) -> None:
        """None: an n-gram model has no vectors."""

    def _nll(self, sentence: np.ndarray) -> np.ndarray:
        """-log P in nats of the words of a sentence and its END, float32 [M + 1]."""
        text = " ".join([self._spellings[index] for index in np.asarray(sentence).tolist()])
        log10 = [prob for prob, _, _ in self._model.full_scores(text)]
        nats = (np.array(log10, np.float64) * -math.log(10)).astype(np.float32)
        if self._has_pieces:
            # The text's own spelling of OOV words is read and not predicted.
            nats[:-1][np.equal(sentence, UNKNOWN)] = 0
        return nats


def spellings(vocabulary: Vocabulary) -> list[str]:
    """KenLM's spellings of the words, in the order of their ids: all different, none reserved.

    A reserved word is preceded by a backslash, and any other backslash is doubled.
    """
    escaped = [word.replace("\\", "\\\\") for word in vocabulary.entries]
    return [f"\\{word}" if word in _RESERVED else word for word in escaped]


def kenlm_package() -> Any:
    """The package `kenlm`."""
    with importing("an n-gram model", "ngram"):
        import kenlm  # pyright: ignore[reportMissingImports]
    return kenlm


def load_model(path: str | os.PathLike[str]) -> Any:
    """KenLM's model in a file."""
    package = kenlm_package()
    options = package.Config()
    # KenLM otherwise prints a progress bar and a request for a binary file to standard error.
    options.show_progress = False
    options.arpa_complain = package.ARPALoadComplain.NONE
    try:
        return package.Model(os.fspath(path), options)
    # Exceptions of the C++ library in Cython; damaged text may not be valid UTF-8.
    except (OSError, RuntimeError, UnicodeDecodeError, MemoryError) as error:
        reason = " ".join(str(error).split())
        if orders := _TOO_LONG.search(reason):
            raise InputError(
                f"order is {orders[1]}; the installed package kenlm answers queries up to order "
                f"{orders[2]}; build it for higher orders: MAX_ORDER={orders[1]} pip install "
                "--force-reinstall --no-cache-dir kenlm"
            ) from error
        raise InputError(f"{path}: kenlm cannot read it ({reason[:300]}); retrain it") from error
