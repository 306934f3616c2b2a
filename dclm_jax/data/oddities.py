"""Counts of omitted or suspicious text, collected while a reader reads and reported at its end.

Some characters are not seen and make another word of the one they are in: format characters
(Unicode's category Cf: the byte order mark U+FEFF, U+200B, U+00AD, marks of direction), and accents
that are written apart from their letter. They stay, and a note counts them, unless a normal form is
asked for.
"""

import collections
import dataclasses
import functools
import unicodedata
from collections.abc import Iterable, Iterator

from dclm_jax.errors import shown

NO_FORM = "none"
FORMS = (NO_FORM, "nfc", "nfkc")
"""Normal forms of Unicode that words can be written in."""
_LISTED = 5


@dataclasses.dataclass
class Oddities:
    """The counts of one input.

    Attributes:
      form: the normal form of its words, one of FORMS.
      titles, title_words, title: lines that end a document and hold words, these words, the first
        such line.
      headings, heading_words: headings of articles that are left out, and their words.
      long_cells, longest_cell: cells of a table that go over several lines; the first and the last
        line of the longest one.
      quoted_cells: cells of an unquoted table that begin and end with a quotation mark.
      format_characters, removed_characters: occurrences of each that stay, or were removed.
      apart, word_apart: words whose accents are written apart, the first of them.
    """

    form: str = NO_FORM
    titles: int = 0
    title_words: int = 0
    title: str = ""
    headings: int = 0
    heading_words: int = 0
    long_cells: int = 0
    longest_cell: tuple[int, int] = (0, 0)
    quoted_cells: int = 0
    format_characters: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    removed_characters: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    apart: int = 0
    word_apart: str = ""

    def add_title(self, line: str, words: int) -> None:
        """Counts a line that ends a document and holds words that are left out."""
        self.titles += 1
        self.title_words += words
        self.title = self.title or line.strip()

    def add_heading(self, words: list[str]) -> None:
        """Counts the heading of an article that is left out."""
        self.headings += 1
        self.heading_words += len(words)

    def add_long_cell(self, first: int, last: int) -> None:
        """Counts a row of a table with a cell over the lines from `first` to `last`."""
        self.long_cells += 1
        self.longest_cell = max(
            self.longest_cell, (first, last), key=lambda lines: lines[1] - lines[0]
        )

    def mended(self, words: Iterable[str]) -> list[str]:
        """Words in the normal form, without format characters at their edges; as they are where no
        form is asked for. What is removed is counted; a word of nothing else becomes empty."""
        words = list(words)
        if self.form == NO_FORM or all(map(str.isascii, words)):
            return words
        mended = []
        for word in words:
            result, removed = _mended(word, self.form)
            self.removed_characters.update(removed)
            mended.append(result)
        return mended

    def count(self, words: Iterable[str]) -> None:
        """Counts invisible characters and decomposed accents in words of a document."""
        for word in words:
            if word.isascii():
                continue
            characters, is_apart = _unseen(word)
            self.format_characters.update(characters)
            self.apart += is_apart
            if is_apart:
                self.word_apart = self.word_apart or word

    def notes(self, divider: str) -> Iterator[str]:
        """Notes for the user, most with the flag that changes the behaviour."""
        if self.titles:
            yield (
                f"lines that begin with {divider} and end a document: {self.titles:,}; title words "
                f"omitted: {self.title_words:,}, such as {shown(self.title)} (--divider "
                "names another first word, or none)"
            )
        if self.headings:
            yield (
                f"headings left out: {self.headings:,}, of {self.heading_words:,} words "
                "(--format=articles keeps them)"
            )
        if self.long_cells:
            first, last = self.longest_cell
            yield (
                f"cells over several lines: {self.long_cells:,}, the longest in lines {first} to "
                f"{last}; check them for a quotation mark that is never closed"
            )
        if self.quoted_cells:
            yield (
                f"cells between quotation marks, which are part of the text: {self.quoted_cells:,} "
                "(--quoted reads them as quotation of the table)"
            )
        if self.removed_characters:
            yield f"format characters removed: {_named(self.removed_characters)}"
        if self.format_characters:
            yield (
                f"invisible format characters in words: {_named(self.format_characters)} "
                "(--unicode=nfc removes them at the edges of words)"
            )
        if self.apart:
            yield (
                f"words with decomposed accents: {self.apart:,}, such as "
                f"{ascii(self.word_apart)} (--unicode=nfc composes them)"
            )


def _is_format(character: str) -> bool:
    return unicodedata.category(character) == "Cf"


@functools.lru_cache(1 << 16)
def _mended(word: str, form: str) -> tuple[str, str]:
    """A word in a normal form without format characters at its edges; these characters.

    A compatibility form may hold spaces, as that of U+00B4: the parts stay one word.
    """
    word = "".join(unicodedata.normalize("NFC" if form == "nfc" else "NFKC", word).split())
    inner = word.strip("".join(filter(_is_format, word)))
    left, _, right = word.partition(inner) if inner else (word, "", "")
    return inner, left + right


@functools.lru_cache(1 << 16)
def _unseen(word: str) -> tuple[str, bool]:
    """The format characters of a word; whether its accents are apart, or it is such an accent."""
    is_accent = unicodedata.category(word[0]).startswith("M")
    is_apart = is_accent or not unicodedata.is_normalized("NFC", word)
    return "".join(filter(_is_format, word)), is_apart


def _named(characters: collections.Counter[str]) -> str:
    named = [
        f"U+{ord(character):04X} {unicodedata.name(character, 'without a name')} ({count:,})"
        for character, count in characters.most_common(_LISTED)
    ]
    others = len(characters) - _LISTED
    return ", ".join(named) + (f" and {others} other characters" if others > 0 else "")
