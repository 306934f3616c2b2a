"""Context ablation: perplexity by position, and with the context exchanged or removed.

A model with more parameters may be better for its capacity alone. The contribution of the context
shows where the same sentences are scored after other ones: the targets are the same, so that their
perplexities compare.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.evaluation import perplexity
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.perplexity import Perplexity
from dclm_jax.evaluation.scoring import Document, Progress, WordScorer
from dclm_jax.evaluation.significance import Sums


def _shuffled(documents: Sequence[Document], rng: np.random.Generator) -> list[Document]:
    drawn = (Shuffle().draw(document, 1, rng)[0] for document in documents)
    return [[document[i] for i in order] for document, order in zip(documents, drawn, strict=True)]


def _mixed(documents: Sequence[Document], rng: np.random.Generator) -> list[Document]:
    sentences = [sentence for document in documents for sentence in document]
    mixed = iter(rng.permutation(len(sentences)))
    return [[sentences[next(mixed)] for _ in document] for document in documents]


ARRANGEMENTS: dict[str, Callable[[Sequence[Document], np.random.Generator], list[Document]]] = {
    "own": lambda documents, _: list(documents),
    "shuffled": _shuffled,
    "mixed": _mixed,
    "none": lambda documents, _: [[sentence] for document in documents for sentence in document],
}
"""The sentences of documents in their original context; shuffled within the document; with context
from other documents, in documents of the same lengths; with no context."""


BOUNDS = (0, 1, 2, 5, 10, 20)
"""First positions of the ranges that sums are taken over; 0 is the first. Range i is from bounds[i]
to bounds[i + 1] - 1, the last one to the end."""

PLACES = {
    "by_token": "Perplexity by position in the sentence",
    "by_sentence": "Perplexity by position of the sentence in the document",
}
"""Titles of the sums of `Positions`."""


def ranges() -> list[str]:
    """The ranges of BOUNDS as text, counted from 1."""
    ends = [*BOUNDS[1:], None]
    return [
        f"{first + 1}+" if end is None else str(end) if end == first + 1 else f"{first + 1}-{end}"
        for first, end in zip(BOUNDS, ends, strict=True)
    ]


class Positions(NamedTuple):
    """Sums over documents: in all, by range of places in the sentence (START w1 is 0, END counts as
    a word), of places of the sentence in its document, and the nats of each document [D]."""

    perplexity: Perplexity
    by_token: Sums
    by_sentence: Sums
    by_document: np.ndarray


def by_position(
    scorer: WordScorer,
    documents: Sequence[Document],
    *,
    bounds: Sequence[int] = BOUNDS,
    on_document: Progress = lambda done, of: None,
) -> Positions:
    """Scores documents, each whole."""
    total = Perplexity(vocabulary_size=scorer.vocab_size, objective=scorer.objective)
    by_token: list[tuple[np.ndarray, np.ndarray]] = []
    by_sentence: list[tuple[np.ndarray, np.ndarray]] = []
    for document, nll in scorer.score(documents):
        total = total.add(document, nll)
        if scorer.objective == "bags":
            nll = [words_and_end[:-1] for words_and_end in nll]
        lengths = list(map(len, nll))
        tokens = np.concatenate(list(map(np.arange, lengths)))
        sentences = np.repeat(np.arange(len(nll)), lengths)
        for places, sums in ((tokens, by_token), (sentences, by_sentence)):
            ranges = np.searchsorted(bounds, places, side="right") - 1
            nats = np.bincount(ranges, np.concatenate(nll), len(bounds))
            sums.append((nats, np.bincount(ranges, minlength=len(bounds))))
        on_document(len(by_token), len(documents))
    tokens, sentences = (
        Sums(*map(np.stack, zip(*sums, strict=True))) for sums in (by_token, by_sentence)
    )
    return Positions(total, tokens, sentences, tokens.nll.sum(axis=1))


def rearranged(
    scorer: WordScorer, documents: Sequence[Document], arrangement: str, seed: int
) -> float:
    """The perplexity of the sentences of `documents` in one of `ARRANGEMENTS`."""
    arranged = ARRANGEMENTS[arrangement](documents, np.random.default_rng(seed))
    return perplexity.measure(scorer, arranged).perplexity
