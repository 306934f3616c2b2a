"""The vocabulary: words, their ids and counts, and its file."""

import dataclasses
import functools
import hashlib
import io
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from dclm_jax import files
from dclm_jax.data.text_files import TextLine, decode
from dclm_jax.errors import InputError, brief
from dclm_jax.storage import PathLike

START, END, UNKNOWN = 0, 1, 2
START_TOKEN, END_TOKEN, UNKNOWN_TOKEN = "<START>", "<END>", "<UNKNOWN>"
SPECIAL_TOKENS = (START_TOKEN, END_TOKEN, UNKNOWN_TOKEN)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Words in the order of their ids; ids 0, 1 and 2 are START, END and UNKNOWN.

    Attributes:
      words: the words, the three special tokens first.
      counts: the number of occurrences of each word in the text or texts whose words were counted.
      unknown_token: the text's own spelling of OOV words (`<unk>` in the Penn Treebank), or None.
        This spelling is encoded as UNKNOWN.
    """

    words: tuple[str, ...] = SPECIAL_TOKENS
    counts: tuple[int, ...] = (0,) * len(SPECIAL_TOKENS)
    unknown_token: str | None = None

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} entries, fingerprint {self.fingerprint})"

    def __len__(self) -> int:
        return len(self.words)

    def extended(
        self,
        counter: Mapping[str, int],
        size: int | None,
        num_sentences: int = 0,
        min_count: int = 1,
    ) -> "Vocabulary":
        """The vocabulary followed by the most frequent other words of a text (ties in alphabetical
        order). The counts of all entries include the text.

        Args:
          counter: word -> occurrences in the text. Neither the unknown token nor the spelling of a
            special token becomes an entry.
          size: maximum number of words, so that there are at most `size + 3` entries; None for
            no maximum.
          num_sentences: number of sentences of the text, for the counts of START and END.
          min_count: minimum number of occurrences of a new word.
        """
        num_words = len(self) - len(SPECIAL_TOKENS)
        room = None if size is None else size - num_words
        if room is not None and room < 0:
            raise InputError(
                f"vocab_size is {size:,}; the vocabulary file has {num_words:,} words; choose at "
                "least this number, or remove --vocab_size"
            )
        others = counter.keys() - {*self.words, *SPECIAL_TOKENS, self.unknown_token}
        frequent = [word for word in others if counter[word] >= min_count]
        if others and not frequent and room != 0:
            highest = max(counter[word] for word in others)
            raise InputError(
                f"min_count is {min_count}; the most frequent{' other' * bool(num_words)} word "
                f"has the count {highest}; choose at most this number"
            )
        entries = sorted(frequent, key=lambda word: (-counter[word], word))[:room]
        words = (*self.words, *entries)
        counts = [counter.get(word, 0) for word in words[len(SPECIAL_TOKENS) :]]
        num_unknown = sum(counter.values()) - sum(counts)
        added = (num_sentences, num_sentences, num_unknown, *counts)
        before = (*self.counts, *(0,) * len(entries))
        return Vocabulary(words, tuple(map(operator.add, before, added)), self.unknown_token)

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the words and their order."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()[:16]

    @property
    def oov_rate(self) -> float | None:
        """The share of OOV words in the text whose words were counted; None without counts."""
        num_words = sum(self.counts[UNKNOWN:])
        return self.counts[UNKNOWN] / num_words if num_words else None

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        ids = {word: index for index, word in enumerate(self.words)}
        # Text that spells a special token must not forge a sentence boundary.
        ids.update(dict.fromkeys(SPECIAL_TOKENS, UNKNOWN))
        if self.unknown_token is not None:
            ids[self.unknown_token] = UNKNOWN
        return ids

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """int32 ids of `words`, UNKNOWN where a word is not in the vocabulary."""
        get = self._ids.get
        return np.fromiter((get(word, UNKNOWN) for word in words), np.int32, len(words))

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of `ids`; UNKNOWN becomes <UNKNOWN>."""
        return [self.words[index] for index in ids]

    def save(self, path: PathLike) -> None:
        """Writes `word<TAB>count` lines in UTF-8, the special tokens first.

        The line of UNKNOWN has the text's own spelling of OOV words, if any, as third column.
        """
        spelling = f"\t{self.unknown_token}" if self.unknown_token else ""
        with files.open_output(path) as file:
            for index, (word, count) in enumerate(zip(self.words, self.counts, strict=True)):
                file.write(f"{word}\t{count}{spelling if index == UNKNOWN else ''}\n")

    @classmethod
    def load(cls, path: PathLike) -> "Vocabulary":
        """Reads a file written by `save`."""
        counts: dict[str, int] = {}
        lines: dict[str, int] = {}
        unknown_token = None
        for number, text in _lines(path):
            line = text.removesuffix("\n")
            word, _, columns = line.partition("\t")
            count, *spelling = columns.split("\t")
            where = f"{path}:{number}"
            is_entry = word.split() == [word] and count.isdecimal()
            if not is_entry or (spelling and word != UNKNOWN_TOKEN):
                raise InputError(f"{where}: expected word<TAB>count, got {brief(line)}")
            if word in counts:
                raise InputError(
                    f"{where}: {brief(word)} is also on line {lines[word]}; remove one of the lines"
                )
            if spelling:
                unknown_token = spelling[0]
            counts[word], lines[word] = int(count), number
        words = tuple(counts)
        if words[: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS:
            raise InputError(
                f"{path}: does not begin with {', '.join(SPECIAL_TOKENS)}; restore the file from a "
                "copy"
            )
        return cls(words, tuple(counts.values()), unknown_token)


def _lines(path: PathLike) -> Iterator[TextLine]:
    return decode(io.BytesIO(files.read_bytes(path)), str(path))
