"""N-best lists without a decoder: sentences of a corpus and their corruptions.

A corruption has one to `MAX_EDITS` edits. An edit swaps two neighbouring words, replaces a word by
a word of similar frequency, or deletes a word. A list has the sentence and different corruptions of
it, ordered by a simulated decoder score: minus the number of edits, plus normal noise. The 1-best
hypothesis is thus better than chance and worse than the oracle.
"""

from collections.abc import Sequence

import numpy as np

from dclm_jax.data.corpus import Corpus
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, UNKNOWN, Vocabulary
from dclm_jax.errors import require_at_least
from dclm_jax.files import open_output
from dclm_jax.rescoring.nbest import moses_line

MAX_EDITS = 3
NOISE = 2.0
"""Standard deviation of the noise of the score, in edits."""
_LIKE = 1.25
"""Maximum ratio of frequency ranks of similar words. The `_NEAREST` nearest words on each side are
always similar."""
_NEAREST = 5
_TRIES_PER_CANDIDATE = 20


def write_lists(
    data: Corpus, folder: str, *, candidates: int = 10, max_sentences: int = 0, seed: int = 0
) -> int:
    """Writes the lists of a split: nbest.txt in the format of Moses, documents.txt with each id's
    document, and references.txt with the sentences. Equal seeds give equal files.

    Args:
      candidates: maximum number of hypotheses per list.
      max_sentences: maximum number of sentences per document, from its start; 0 for all.

    Returns:
      The number of lists.
    """
    require_at_least("max_sentences", max_sentences, 0)
    require_at_least("seed", seed, 0)
    corruption, rng = Corruption(data.vocabulary, candidates), np.random.default_rng(seed)
    spelling = list(data.vocabulary.words)
    spelling[UNKNOWN] = data.vocabulary.unknown_token or spelling[UNKNOWN]
    count = 0
    with (
        open_output(f"{folder}/nbest.txt") as lists,
        open_output(f"{folder}/documents.txt") as documents,
        open_output(f"{folder}/references.txt") as references,
    ):
        for index in range(data.num_documents):
            for sentence in data.document(index)[: max_sentences or None]:
                references.write(" ".join([spelling[word] for word in sentence]) + "\n")
                documents.write(f"{count} {index}\n")
                for words, score in corruption.candidates(sentence, rng):
                    lists.write(moses_line(count, [spelling[word] for word in words], score))
                count += 1
    return count


class Corruption:
    """Makes lists of candidates for sentences under one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, candidates: int):
        """Takes the vocabulary, whose counts determine frequency ranks, and the maximum number of
        candidates per list; a short sentence may have fewer corruptions."""
        require_at_least("candidates", candidates, 2)
        self._candidates = candidates
        first = len(SPECIAL_TOKENS)
        self._by_frequency = first + np.argsort(-np.array(vocabulary.counts[first:]), kind="stable")
        self._rank = np.full(len(vocabulary), -1)
        self._rank[self._by_frequency] = np.arange(len(self._by_frequency))

    def candidates(
        self, sentence: np.ndarray, rng: np.random.Generator
    ) -> list[tuple[np.ndarray, float]]:
        """The list of a sentence of at least one word (ids int [M]): the sentence and its
        corruptions, int32 arrays, each with its simulated decoder score, the largest first."""
        edits_of = {tuple(sentence.tolist()): 0}
        for _ in range(_TRIES_PER_CANDIDATE * self._candidates):
            if len(edits_of) == self._candidates:
                break
            edits = int(rng.integers(1, MAX_EDITS + 1))
            words = sentence.tolist()
            for _ in range(edits):
                words = self._edited(words, rng)
            edits_of.setdefault(tuple(words), edits)
        scores = -np.array(list(edits_of.values())) + rng.normal(0, NOISE, len(edits_of))
        order = np.argsort(-scores, kind="stable")
        lists = list(edits_of)
        return [(np.array(lists[index], np.int32), float(scores[index])) for index in order]

    def _edited(self, words: Sequence[int], rng: np.random.Generator) -> list[int]:
        """The words after one more edit. A single word can only be replaced; a word without a
        frequency is never replaced."""
        words, position = list(words), int(rng.integers(len(words)))
        kind = rng.integers(3) if len(words) > 1 else 1
        if kind == 0:
            position = min(position, len(words) - 2)
            words[position : position + 2] = words[position + 1], words[position]
        elif kind == 1:
            words[position] = self._similar(words[position], rng)
        else:
            del words[position]
        return words

    def _similar(self, word: int, rng: np.random.Generator) -> int:
        rank = self._rank[word]
        if rank < 0:
            return word
        low = int(min(rank / _LIKE, rank - _NEAREST))
        high = int(max(rank * _LIKE, rank + _NEAREST))
        low, high = max(low, 0), min(high, len(self._by_frequency) - 1)
        return int(self._by_frequency[rng.integers(low, high + 1)])
