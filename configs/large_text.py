"""Makes a text of many words from a small text, to measure time and memory on large corpora.

    python -m configs.large_text reviews.txt 100000000 large.txt
    python -m launch.prepare --input=large.txt --vocab_size=50000 --split=0.998,0.001,0.001 \\
        --output=data/large

The source has one sentence per line; empty lines separate its documents. In every repetition a word
gets the number of the repetition with a probability of 2%, so that no long document is repeated and
the number of distinct words grows.
"""

import sys
from collections.abc import Iterator

import numpy as np

from dclm_jax.data.readers import read_documents
from dclm_jax.files import open_output

REPLACED = 0.02
"""Probability of a replaced word."""


def repetitions(documents: list[list[list[str]]], num_words: int) -> Iterator[str]:
    """The documents again and again, with replaced words, until there are `num_words` words."""
    written, repetition, rng = 0, 0, np.random.default_rng(0)
    while written < num_words:
        for document in documents:
            for words in document:
                is_replaced = rng.random(len(words)) < (REPLACED if repetition else 0)
                varied = [
                    f"{word}{repetition}" if replaced else word
                    for word, replaced in zip(words, is_replaced, strict=True)
                ]
                yield " ".join(varied) + "\n"
                written += len(words)
            yield "\n"
            if written >= num_words:
                return
        repetition += 1


if __name__ == "__main__":
    source, size, target = sys.argv[1:]
    texts = [document.sentences for document in read_documents(source)]
    with open_output(target) as file:
        file.writelines(repetitions(texts, int(size)))
