"""Reading times of the Natural Stories corpus (Futrell et al. 2021), as launch.reading_times reads
them.

    python -m configs.reading_times.natural_stories naturalstories times.tsv

The command sorts the rows of `reading_times_by_word.tsv` in the folder: each word with its
punctuation, its position `zone` in the story `item`, and its mean self-paced reading time. If the
folder also has `gpt3_surprisal.csv` (log-probabilities of GPT-3's subwords), the column `gpt3` has
the surprisal of each word: the sum over its subwords, in nats. The corpus is published at
github.com/languageMIT/naturalstories. README.md has the results.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from dclm_jax import files
from dclm_jax.data.readers import TextReader
from dclm_jax.data.records import require_columns
from dclm_jax.errors import InputError, brief

Number = TypeVar("Number", int, float)
TIMES, SUBWORDS = "reading_times_by_word.tsv", "gpt3_surprisal.csv"


def table(folder: Path) -> Iterator[str]:
    """The lines of the table, in the order of the stories' words."""
    stories: dict[int, dict[int, list[str]]] = defaultdict(dict)
    for where, row in _rows(folder / TIMES, ("item", "zone", "word", "meanItemRT")):
        story, zone = (_number(row[name], int, where) for name in ("item", "zone"))
        if zone in stories[story]:
            raise InputError(f"{where}: zone {zone} of story {story} has two rows; remove one")
        stories[story][zone] = [row["word"], row["meanItemRT"]]
    subwords: dict[int, list[tuple[str, float]]] = defaultdict(list)
    if (folder / SUBWORDS).exists():
        for where, row in _rows(folder / SUBWORDS, ("story", "token", "logprob")):
            log_prob = _number(row["logprob"] or "nan", float, where)
            subwords[1 + _number(row["story"], int, where)].append((row["token"], log_prob))
    yield _line(["item", "zone", "word", "meanItemRT", *(["gpt3"] if subwords else [])])
    for story, words in sorted(stories.items()):
        surprisals: list[list[str]] = [[]] * len(words)
        if subwords:
            spelled = [words[zone][0] for zone in sorted(words)]
            nats = word_surprisals(spelled, subwords[story], f"story {story}")
            surprisals = [["" if math.isnan(value) else f"{value:.6f}"] for value in nats]
        for (zone, cells), surprisal in zip(sorted(words.items()), surprisals, strict=True):
            yield _line([str(story), str(zone), *cells, *surprisal])


def _line(cells: Sequence[str]) -> str:
    """Cells as they are: launch.reading_times reads TSV without quotation marks."""
    return "\t".join(cells) + "\n"


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The rows of a table that has these columns, each with its position for messages."""
    for where, _, row in TextReader().records(path):
        require_columns(columns, row, where)
        yield where, row


def _number(cell: str, kind: Callable[[str], Number], where: str) -> Number:
    try:
        return kind(cell)
    except ValueError:
        raise InputError(f"{where}: {brief(cell)} is not a number; correct the cell") from None


def word_surprisals(
    words: Sequence[str], subwords: Sequence[tuple[str, float]], text: str = "the text"
) -> list[float]:
    """The surprisals of words, from the log-probabilities of subwords of the same text.

    Args:
      words: words of a text, without spaces.
      subwords: parts of the text with their log-probabilities in nats; nan for none.
      text: name of the text in messages.

    Returns:
      Nats; nan for a word that has a subword without log-probability.
    """
    # Characters, not spellings, place the subwords: one word is spelt differently in the two files.
    word_of_character = [index for index, word in enumerate(words) for _ in word]
    surprisals, place = [0.0] * len(words), 0
    for subword, log_prob in subwords:
        if place < len(word_of_character) and subword.strip():
            surprisals[word_of_character[place]] -= log_prob
        place += sum(map(len, subword.split()))
    if place != len(word_of_character):
        raise InputError(
            f"{text} differs in {SUBWORDS} and {TIMES}; use files of one release of the corpus"
        )
    return surprisals


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


if __name__ == "__main__":
    main(sys.argv[1:])
