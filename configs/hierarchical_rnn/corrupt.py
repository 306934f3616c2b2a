"""Makes n-best lists without a decoder: every sentence of a split with its corruptions.

    python -m configs.hierarchical_rnn.corrupt data/ptb valid lists/valid

The lists have ten hypotheses for each of the first ten sentences of every document. A corruption
has one to three edits: two neighbouring words swapped, a word replaced by a word of similar
frequency, or a word deleted. Hypotheses are ordered by a score in place of a decoder's score: minus
the number of edits, plus noise. The 1-best is therefore better than chance, but not always the
original sentence.

The folder gets nbest.txt (a list in the format of Moses), documents.txt (the document of each id)
and references.txt (the original sentences). launch.rescore reads these files.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from dclm_jax.data.corpus import SPLITS, open_corpus
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, UNKNOWN, Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.files import open_output
from dclm_jax.rescoring.nbest import moses_line

CANDIDATES, SENTENCES, SEED = 10, 10, 0
MAX_EDITS = 3
NOISE = 2.0
"""Standard deviation of the noise of the score, in edits."""
SIMILAR, NEAREST = 1.25, 5
"""Maximum ratio of frequency ranks of similar words. The nearest words on each side are always
similar."""
TRIES_PER_CANDIDATE = 20


class Corruption:
    """Makes lists of candidates for sentences under one vocabulary, whose counts determine
    frequency ranks."""

    def __init__(self, vocabulary: Vocabulary):
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
        for _ in range(TRIES_PER_CANDIDATE * CANDIDATES):
            if len(edits_of) == CANDIDATES:
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
        low = max(int(min(rank / SIMILAR, rank - NEAREST)), 0)
        high = min(int(max(rank * SIMILAR, rank + NEAREST)), len(self._by_frequency) - 1)
        return int(self._by_frequency[rng.integers(low, high + 1)])


def main(directory: str, split: str, folder: str) -> None:
    data = open_corpus(directory, split)
    if data.vocabulary.has_pieces:
        raise InputError(
            f"{directory}: has a vocabulary of subwords; prepare the corpus without --subwords"
        )
    corruption, rng = Corruption(data.vocabulary), np.random.default_rng(SEED)
    spelling = list(data.vocabulary.entries)
    spelling[UNKNOWN] = data.vocabulary.unknown_token or spelling[UNKNOWN]
    count = 0
    with (
        open_output(f"{folder}/nbest.txt") as lists,
        open_output(f"{folder}/documents.txt") as documents,
        open_output(f"{folder}/references.txt") as references,
    ):
        for index in range(data.num_documents):
            for sentence in data.document(index)[:SENTENCES]:
                references.write(" ".join([spelling[word] for word in sentence]) + "\n")
                documents.write(f"{count} {index}\n")
                for words, score in corruption.candidates(sentence, rng):
                    lists.write(moses_line(count, [spelling[word] for word in words], score))
                count += 1
    print(f"{folder}: lists for {count:,} sentences of {data.num_documents:,} documents")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", help="prepared corpus")
    parser.add_argument("split", choices=SPLITS)
    parser.add_argument("folder", help="folder for the three files")
    arguments = parser.parse_args()
    try:
        main(arguments.corpus, arguments.split, arguments.folder)
    except InputError as error:
        parser.error(str(error))
