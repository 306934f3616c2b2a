"""The vocabulary of words: their ids and counts, and its file."""

import dataclasses
import functools
import hashlib
import io
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dclm_jax import files
from dclm_jax.data.text_files import TextLine, decode
from dclm_jax.errors import InputError, brief
from dclm_jax.storage import PathLike

START, END, UNKNOWN = 0, 1, 2
START_TOKEN, END_TOKEN, UNKNOWN_TOKEN = "<START>", "<END>", "<UNKNOWN>"
SPECIAL_TOKENS = (START_TOKEN, END_TOKEN, UNKNOWN_TOKEN)
FIRST_WORD = len(SPECIAL_TOKENS)
"""The id of the first word, or of the first piece of a vocabulary of subwords."""
VOCABULARY_FILE = "vocabulary.tsv"


def word_ends(ids: Any, first_word_end: int) -> Any:
    """Whether each id of an array of NumPy or JAX ends a word: UNKNOWN, and the ids from
    `first_word_end` on."""
    return (ids >= first_word_end) | (ids == UNKNOWN)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Entries in the order of their ids; ids 0, 1 and 2 are START, END and UNKNOWN. In this class
    every other entry is a word; the pieces of words are `data.subwords.Subwords`.

    Attributes:
      entries: the words, the three special tokens first.
      counts: the number of occurrences of each entry in the text or texts whose words were counted.
      unknown_token: the text's own spelling of OOV words (`<unk>` in the Penn Treebank), or None.
        This spelling is encoded as UNKNOWN.
    """

    entries: tuple[str, ...] = SPECIAL_TOKENS
    counts: tuple[int, ...] = (0,) * len(SPECIAL_TOKENS)
    unknown_token: str | None = None

    file_names: ClassVar[tuple[str, ...]] = (VOCABULARY_FILE,)
    """The names of the files that `save` writes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        return f"{self.size}, fingerprint {self.fingerprint}"

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, word: object) -> bool:
        """Whether a word is in the vocabulary, so that its probability is its own."""
        return isinstance(word, str) and bool(word) and not self.is_unknown([word])[0]

    @property
    def size(self) -> str:
        """The number of entries and their kind, for messages."""
        return f"{len(self):,} {'subwords' if self.has_pieces else 'entries'}"

    @property
    def first_word_end(self) -> int:
        """The first id from which all entries end a word; see `word_ends`."""
        return FIRST_WORD

    @property
    def has_pieces(self) -> bool:
        """Whether the entries are pieces of words, so that no word is OOV."""
        return self.first_word_end > FIRST_WORD

    @property
    def words(self) -> Sequence[str]:
        """The word of each entry; "" for an entry that is a part of words."""
        return self.entries

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
        num_words = len(self) - FIRST_WORD
        room = None if size is None else size - num_words
        if room is not None and room < 0:
            raise InputError(
                f"vocab_size is {size:,}; the vocabulary file has {num_words:,} words; choose at "
                "least this number, or remove --vocab_size"
            )
        others = counter.keys() - {*self.entries, *SPECIAL_TOKENS, self.unknown_token}
        frequent = [word for word in others if counter[word] >= min_count]
        if others and not frequent and room != 0:
            highest = max(counter[word] for word in others)
            raise InputError(
                f"min_count is {min_count}; the most frequent{' other' * bool(num_words)} word "
                f"has the count {highest}; choose at most this number"
            )
        entries = sorted(frequent, key=lambda word: (-counter[word], word))[:room]
        words = (*self.entries, *entries)
        counts = [counter.get(word, 0) for word in words[FIRST_WORD:]]
        num_unknown = sum(counter.values()) - sum(counts)
        added = (num_sentences, num_sentences, num_unknown, *counts)
        before = (*self.counts, *(0,) * len(entries))
        return Vocabulary(words, tuple(map(operator.add, before, added)), self.unknown_token)

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the encoding of words."""
        return hashlib.sha256("\n".join(self.entries).encode()).hexdigest()[:16]

    @property
    def oov_rate(self) -> float | None:
        """The share of OOV words in the text whose words were counted; None without counts."""
        num_words = sum(self.counts[UNKNOWN:])
        return self.counts[UNKNOWN] / num_words if num_words else None

    @property
    def num_words(self) -> int:
        """The number of in-vocabulary words of the text whose words were counted."""
        return sum(self.counts[FIRST_WORD:])

    def count_of(self, word: str) -> int:
        """The number of occurrences of a word in the text whose words were counted."""
        return self.counts[self._ids.get(word, UNKNOWN)]

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        ids = {word: index for index, word in enumerate(self.entries)}
        # Text that spells a special token must not forge a sentence boundary.
        ids.update(dict.fromkeys(SPECIAL_TOKENS, UNKNOWN))
        if self.unknown_token is not None:
            ids[self.unknown_token] = UNKNOWN
        return ids

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """int32 ids of `words`, UNKNOWN where a word is not in the vocabulary."""
        get = self._ids.get
        return np.fromiter((get(word, UNKNOWN) for word in words), np.int32, len(words))

    def pieces_of(self, word: str) -> list[int]:
        """The id of a word, as a list; a vocabulary of subwords has several ids per word."""
        return self.encode([word]).tolist()

    def encode_each(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The int32 ids of many different words, and int64 [M], the number of ids of each word."""
        return self.encode(words), np.ones(len(words), np.int64)

    def is_unknown(self, words: Sequence[str]) -> np.ndarray:
        """Whether each word is encoded as UNKNOWN, bool [M]."""
        return self.encode(words) == UNKNOWN

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of `ids`; UNKNOWN becomes <UNKNOWN>."""
        return [self.entries[index] for index in ids]

    def shown(self, words: Sequence[str]) -> list[str]:
        """The words for a reader: OOV words in [brackets]."""
        is_unknown = self.is_unknown(words)
        return [f"[{word}]" if oov else word for word, oov in zip(words, is_unknown, strict=True)]

    def save(self, path: PathLike) -> None:
        """Writes `entry<TAB>count` lines in UTF-8, the special tokens first.

        The line of UNKNOWN has the text's own spelling of OOV words, if any, as third column.
        """
        spelling = f"\t{self.unknown_token}" if self.unknown_token else ""
        with files.open_output(path) as file:
            for index, (entry, count) in enumerate(zip(self.entries, self.counts, strict=True)):
                file.write(f"{entry}\t{count}{spelling if index == UNKNOWN else ''}\n")

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
        if words[:FIRST_WORD] != SPECIAL_TOKENS:
            raise InputError(
                f"{path}: does not begin with {', '.join(SPECIAL_TOKENS)}; restore the file from a "
                "copy"
            )
        return cls(words, tuple(counts.values()), unknown_token)


def _lines(path: PathLike) -> Iterator[TextLine]:
    return decode(io.BytesIO(files.read_bytes(path)), str(path))
