"""Reading times of the Natural Stories corpus (Futrell et al. 2021), as launch.reading_times reads
them.

    python -m configs.reading_times.natural_stories naturalstories times.tsv

The command sorts the rows of `reading_times_by_word.tsv` in the folder: each word with its
punctuation, its position `zone` in the story `item`, and its mean self-paced reading time. If the
folder also has `gpt3_surprisal.csv` (log-probabilities of GPT-3's subwords), the column `gpt3` has
the surprisal of each word: the sum over its subwords, in nats. The corpus is published at
github.com/languageMIT/naturalstories. README.md has the results.
"""

import csv
import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from dclm_jax import files
from dclm_jax.errors import InputError

TIMES, SUBWORDS = "reading_times_by_word.tsv", "gpt3_surprisal.csv"


def table(folder: Path) -> Iterator[str]:
    """The lines of the table, in the order of the stories' words."""
    stories: dict[int, list[dict[str, str]]] = defaultdict(list)
    for row in sorted(_rows(folder / TIMES, "\t"), key=lambda row: int(row["zone"])):
        stories[int(row["item"])].append(row)
    subwords: dict[int, list[tuple[str, str]]] = defaultdict(list)
    if (folder / SUBWORDS).exists():
        for row in _rows(folder / SUBWORDS, ","):
            subwords[1 + int(row["story"])].append((row["token"], row["logprob"]))
    columns = ["item", "zone", "word", "meanItemRT"]
    yield _line([*columns, *(["gpt3"] if subwords else [])])
    for story, rows in sorted(stories.items()):
        surprisals = [None] * len(rows)
        if subwords:
            surprisals = word_surprisals([row["word"] for row in rows], subwords[story])
        for row, surprisal in zip(rows, surprisals, strict=True):
            last = "" if surprisal is None else f"{surprisal:.6f}"
            yield _line([*(row[name] for name in columns), *([last] if subwords else [])])


def _line(cells: Sequence[str]) -> str:
    """Cells as they are: launch.reading_times reads TSV without quotation marks."""
    return "\t".join(cells) + "\n"


def _rows(path: Path, delimiter: str) -> Iterator[dict[str, str]]:
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter=delimiter, quoting=quoting)


def word_surprisals(
    words: Sequence[str], subwords: Sequence[tuple[str, str]]
) -> list[float | None]:
    """The surprisals of words, from the log-probabilities of subwords of the same text.

    Args:
      words: words of a text, without spaces.
      subwords: parts of the text with their log-probabilities; a log-probability may be empty.

    Returns:
      Nats; None for a word that has a subword without log-probability.
    """
    # Characters, not spellings, place the subwords: one word is spelt differently in the two files.
    word_of_character = [index for index, word in enumerate(words) for _ in word]
    subwords = [(text, log_prob) for text, log_prob in subwords if text.strip()]
    lengths = [sum(map(len, text.split())) for text, _ in subwords]
    if sum(lengths) != len(word_of_character):
        raise InputError(f"{SUBWORDS} and {TIMES} are different texts; use files of one release")
    firsts = itertools.accumulate(lengths, initial=0)
    surprisals = [0.0] * len(words)
    for (_, log_prob), first in zip(subwords, firsts, strict=False):
        surprisals[word_of_character[first]] -= float(log_prob or "nan")
    return [None if math.isnan(surprisal) else surprisal for surprisal in surprisals]


def main(arguments: Sequence[str]) -> None:
    try:
        if len(arguments) != 2:
            raise InputError("expected two arguments, the folder of the corpus and the new table")
        lines = list(table(Path(arguments[0])))
        with files.open_output(arguments[1]) as file:
            file.writelines(lines)
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{arguments[0]}: {error!r} is no part of the corpus's files"
        print(f"error: {problem}; use {TIMES} and {SUBWORDS} as published", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
