"""What the context is worth: perplexity by position, and with the context exchanged or removed.

A model of more parameters may be better for its capacity alone. What it owes to the context shows
where the same sentences are scored after other ones: the targets stay, their perplexities compare.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.evaluation import coherence, perplexity
from dclm_jax.evaluation.perplexity import Perplexity
from dclm_jax.evaluation.scoring import Document, Progress, WordScorer


def _shuffled(documents: Sequence[Document], rng: np.random.Generator) -> list[Document]:
    orders = (coherence.random_orders(document, 1, rng)[1][0] for document in documents)
    return [[document[i] for i in order] for document, order in zip(documents, orders, strict=True)]


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
"""The sentences of documents in documents: as they are; in another order; all of them mixed, in as
many documents of the same lengths; each by itself."""


class Sums(NamedTuple):
    """Nats [X] and numbers [X] of the targets at each position, counted from 0."""

    nll: np.ndarray
    count: np.ndarray

    def perplexities(self, bounds: Sequence[int]) -> list[float]:
        """The perplexity of positions bounds[i] to bounds[i + 1] - 1, and after the last bound;
        nan where there is none."""
        starts = [bound for bound in bounds if bound < len(self.nll)]
        nll, count = (np.add.reduceat(array, starts) for array in self)
        values = np.exp(nll / count).tolist()
        return values + [float("nan")] * (len(bounds) - len(starts))

    def to_json(self) -> dict[str, list[float]]:
        """Lists by position; nats to three decimals."""
        return {"nll": self.nll.round(3).tolist(), "count": self.count.tolist()}


class Positions(NamedTuple):
    """Sums over documents: in all, by place in the sentence (START w1 is 0, END counts as a word),
    by place of the sentence in its document, and the nats of each document."""

    perplexity: Perplexity
    by_token: Sums
    by_sentence: Sums
    by_document: np.ndarray


def by_position(
    scorer: WordScorer, documents: Sequence[Document], *, on_document: Progress | None = None
) -> Positions:
    """Scores documents, each whole."""
    total = Perplexity(vocabulary_size=scorer.vocab_size, objective=scorer.objective)
    longest = max(len(ids) + 1 for document in documents for ids in document)
    most = max(map(len, documents))
    tokens, sentences = (Sums(np.zeros(size), np.zeros(size, int)) for size in (longest, most))
    nats = []
    for document, nll in scorer.score(documents):
        total = total.add(document, nll)
        if scorer.objective == "bags":
            nll = [words_and_end[:-1] for words_and_end in nll]
        for index, one in enumerate(nll):
            tokens.nll[: len(one)] += one
            tokens.count[: len(one)] += 1
            sentences.nll[index] += np.sum(one, dtype=np.float64)
            sentences.count[index] += len(one)
        nats.append(sum(float(np.sum(one, dtype=np.float64)) for one in nll))
        if on_document is not None:
            on_document(len(nats), len(documents))
    return Positions(total, tokens, sentences, np.array(nats))


def rearranged(
    scorer: WordScorer, documents: Sequence[Document], arrangement: str, seed: int
) -> float:
    """The perplexity of the sentences of `documents` in one of `ARRANGEMENTS`."""
    arranged = ARRANGEMENTS[arrangement](documents, np.random.default_rng(seed))
    return perplexity.measure(scorer, arranged).perplexity
