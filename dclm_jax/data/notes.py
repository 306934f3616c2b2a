"""Normal forms of words, and notes about omitted and unusual text.

A word with format characters differs from the word without these characters. Format characters
(Unicode's category Cf: the byte order mark U+FEFF, U+200B, U+00AD, marks of direction) are
invisible. A word with a decomposed accent differs from the word with a composed accent. Without a
normal form such words are not changed, and a note counts them.
"""

import collections
import functools
import unicodedata
from collections.abc import Iterable, Iterator

from dclm_jax.data.documents import NO_FORM, TextOptions

_NOTES = {
    "title": "lines that begin with {divider} and end a document: {count:,}; title words omitted: "
    "{size:,}, such as {example} (--divider names another first word, or none)",
    "attached": "punctuation is attached to words, such as {example}; if this is raw text, add "
    "--format=prose",
    "long cell": "cells over several lines: {count:,}, the longest in {example}; check for a "
    "missing closing quotation mark",
    "quoted cell": "cells in quotation marks, which are read as part of the text: {count:,} "
    "(--quoted removes them)",
    "removed": "format characters removed: {size:,}, such as {example}",
    "invisible": "words with invisible format characters: {count:,}, such as {example} "
    "(--unicode=nfc removes them at the edges of words)",
    "apart": "words with decomposed accents: {count:,}, such as {example} (--unicode=nfc composes "
    "them)",
}


class Notes:
    """Counts of omitted and unusual text in an input."""

    def __init__(self):
        self._counts: collections.Counter[str] = collections.Counter()
        self._sizes: collections.Counter[str] = collections.Counter()
        self._largest: dict[str, tuple[int, str]] = {}

    def add(self, kind: str, example: str = "", size: int = 1) -> None:
        """Counts an occurrence of a kind, a key of _NOTES, with the largest as the example."""
        self._counts[kind] += 1
        self._sizes[kind] += size
        if size > self._largest.get(kind, (0, ""))[0]:
            self._largest[kind] = size, example

    def lines(self, divider: str) -> Iterator[str]:
        """Notes for the user, most with the flag that changes the behaviour."""
        for kind, note in _NOTES.items():
            if count := self._counts[kind]:
                size, (_, example) = self._sizes[kind], self._largest[kind]
                yield note.format(divider=divider, count=count, size=size, example=example)


def as_words(words: Iterable[str], options: TextOptions, notes: Notes) -> list[str]:
    """Words in the normal form and the case of the options. A word of only format characters may
    become empty."""
    words = composed(words, options.unicode, notes)
    if not options.lowercase:
        return words
    # A lower-case letter may compose with an accent even if its capital letter does not.
    return composed([word.lower() for word in words], options.unicode, notes)


def composed(words: Iterable[str], form: str, notes: Notes) -> list[str]:
    """Words in a normal form, one of FORMS, without format characters at their edges."""
    words = list(words)
    if form == NO_FORM or all(map(str.isascii, words)):
        return words
    for index, word in enumerate(words):
        words[index], removed = _composed(word, form)
        if removed:
            notes.add("removed", _name(removed[0]), len(removed))
    return words


def note_unseen(words: Iterable[str], notes: Notes) -> None:
    """Counts invisible characters and decomposed accents in words of a document."""
    for word in words:
        if not word.isascii():
            invisible, is_apart = _unseen(word)
            if invisible:
                notes.add("invisible", f"{ascii(word)} with {_name(invisible)}")
            if is_apart:
                notes.add("apart", ascii(word))


def _is_format(character: str) -> bool:
    return unicodedata.category(character) == "Cf"


def _name(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, 'without a name')}"


@functools.lru_cache(1 << 16)
def _composed(word: str, form: str) -> tuple[str, str]:
    """A word in a normal form without format characters at its edges, and the removed characters.

    A compatibility form may contain spaces, as the form of U+00B4 does. The spaces are removed, so
    that the word remains one word.
    """
    word = "".join(unicodedata.normalize("NFC" if form == "nfc" else "NFKC", word).split())
    inner = word.strip("".join(filter(_is_format, word)))
    left, _, right = word.partition(inner) if inner else (word, "", "")
    return inner, left + right


@functools.lru_cache(1 << 16)
def _unseen(word: str) -> tuple[str, bool]:
    """The first format character of a word, or ""; and whether the word has a decomposed accent."""
    is_accent = unicodedata.category(word[0]).startswith("M")
    is_apart = is_accent or not unicodedata.is_normalized("NFC", word)
    return next(filter(_is_format, word), ""), is_apart
