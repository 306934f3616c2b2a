"""Normal forms of words, and notes about omitted and unusual text.

A word with format characters differs from the word without these characters. Format characters
(Unicode's category Cf: the byte order mark U+FEFF, U+200B, U+00AD, marks of direction) are
invisible. A word with a decomposed accent differs from the word with a composed accent. Without a
normal form such words are not changed, and a note counts them.
"""

import collections
import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator

from dclm_jax.data.documents import NO_FORM, TextOptions
from dclm_jax.errors import brief

_NOTES = {
    "title": "titles in lines that begin with =: {count:,}; title words "
    "omitted: {size:,}, such as {example}",
    "attached": "punctuation is attached to words, such as {example}; if this is raw text, add "
    "--format=prose",
    "attached in strings": "punctuation is attached to words in 'sentences', such as {example}; if "
    "these are raw text, write them under the key 'text'",
    "long cell": "cells over several lines: {count:,}, the longest in {example}; check for a "
    "missing closing quotation mark",
    "reference": "character references that remain: {count:,}, such as {example}; the text was "
    "escaped twice: unescape it once, such as by html.unescape of Python, before it is read",
    "no text": "rows whose text is NA, NaN, null or another missing value: {count:,}, such as "
    "{example}; their documents have no words",
    "quoted cell": "cells in quotation marks, which are read as part of the text: {count:,} "
    "(only CSV has quoted cells)",
    "unseen": "words with invisible characters or decomposed accents: {count:,}, such as {example} "
    "(--unicode=nfc composes accents, and removes format characters at the edges of words)",
}

_DOTLESS = frozenset("tr tur az aze azj crh gag tly".split())
"""Codes of languages that write i with and without a dot, such as Turkish and Azerbaijani."""
_UNSPACED = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Characters of scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Japanese,
Chinese."""
_UNSPACED_SHARE, _UNDIVIDED_LETTERS = 0.5, 6
"""Minimum share of these letters in the characters of a text of such a language, and a mean number
of these letters per word that is above the mean of each language."""
_MOST_TAGS = 8
_LEAST_MARKUP, _MARKUP_SHARE = 3, 1e-3
"""Minimum number of HTML tags, in total and per word, of a warning."""


class Notes:
    """Counts of omitted and unusual text in an input."""

    def __init__(self):
        self._counts: collections.Counter[str] = collections.Counter()
        self._sizes: collections.Counter[str] = collections.Counter()
        self._largest: dict[str, tuple[int, str]] = {}
        self._layouts: dict[tuple[str, str], list[str]] = {}
        self._tags: collections.Counter[str] = collections.Counter()

    def add(self, kind: str, example: str = "", size: int = 1) -> None:
        """Counts a kind: a key of _NOTES, "markup", "mojibake" or "unspaced"; the largest is the
        example."""
        self._counts[kind] += 1
        self._sizes[kind] += size
        if size > self._largest.get(kind, (0, ""))[0]:
            self._largest[kind] = size, example

    def add_layout(self, layout: str, remedy: str, file: str) -> None:
        """Counts a file in the layout of another format."""
        self._layouts.setdefault((layout, remedy), []).append(file)

    def add_tag(self, name: str) -> None:
        """Counts a tag that was removed although it is not HTML's."""
        self._tags[name] += 1

    def warnings(self, num_words: int, num_characters: int, *, is_raw: bool) -> Iterator[str]:
        """Warnings of frequent HTML, wrong characters and text that is not divided into words.

        Args:
          num_words: number of words of the text.
          num_characters: number of characters of the words.
          is_raw: whether the text is raw; the tokenizer divides words at spaces.
        """
        count = self._counts["markup"]
        if count >= max(_LEAST_MARKUP, num_words * _MARKUP_SHARE):
            yield (
                f"HTML tags and character references: {count:,} in {num_words:,} words, such as "
                f"{self._largest['markup'][1]}; add --strip_html to remove them"
            )
        for (layout, remedy), files in self._layouts.items():
            yield (
                f"files that begin like {layout}, whose marks are read as words: {len(files):,}, "
                f"such as {files[0]}; {remedy}"
            )
        if count := self._counts["mojibake"]:
            yield (
                f"lines of UTF-8 that --encoding turns into wrong characters: {count:,}, such as "
                f"{brief(self._largest['mojibake'][1])}; remove --encoding, or convert the other "
                "files to UTF-8"
            )
        words, letters = self._counts["unspaced"], self._sizes["unspaced"]
        is_undivided = is_raw or letters > words * _UNDIVIDED_LETTERS
        if is_undivided and letters > num_characters * _UNSPACED_SHARE:
            example = brief(self._largest["unspaced"][1])
            yield (
                f"the text is not divided into words: {letters:,} of {num_characters:,} characters "
                f"are letters of scripts without spaces, as in {example}; divide the words by "
                "spaces, and read the text with --format=lines, or as JSON lines with 'sentences'"
            )

    def lines(self) -> Iterator[str]:
        """Notes for the user, most with the flag that changes the behaviour."""
        for kind, note in _NOTES.items():
            if count := self._counts[kind]:
                size, (_, example) = self._sizes[kind], self._largest[kind]
                yield note.format(count=count, size=size, example=example)
        if self._tags:
            names = ", ".join(
                f"<{name[:40]}> {count:,}" for name, count in self._tags.most_common(_MOST_TAGS)
            )
            yield (
                f"removed tags that are not HTML's: {self._tags.total():,}, most often {names}; "
                "they leave no space; if such tags divide words or sentences, replace them by "
                "spaces or blank lines"
            )


def as_words(words: Iterable[str], options: TextOptions) -> list[str]:
    """Words in the normal form and the case of the options. A word of only format characters may
    become empty."""
    words = composed(words, options.unicode)
    if not options.lowercase:
        return words
    # A lower-case letter may compose with an accent even if its capital letter does not.
    return composed([lowered(word, options.language) for word in words], options.unicode)


def lowered(word: str, language: str) -> str:
    """A word in the lower case of a language: with a dotless ı, it writes I as ı. The
    lower case of İ is i in every language, without a combining dot."""
    if language in _DOTLESS:
        word = word.replace("I\u0307", "i").replace("I", "ı")
    return word.lower().replace("i\u0307", "i")


def composed(words: Iterable[str], form: str) -> list[str]:
    """Words in a normal form of `TextOptions.unicode`, without format characters at their edges."""
    words = list(words)
    if form == NO_FORM or all(map(str.isascii, words)):
        return words
    return list(map(_composed, words))


def note_words(words: Iterable[str], notes: Notes, form: str) -> None:
    """Counts words with invisible characters or decomposed accents, and words in scripts without
    spaces. In the normal form `form` joiners within words are usual, as in Persian."""
    for word in words:
        if word.isascii():
            continue
        plain = word if form == NO_FORM else re.sub("[\u200c\u200d]", "", word)
        if plain and _is_unseen(plain):
            notes.add("unseen", ascii(word))
        if letters := _unspaced_letters(word):
            notes.add("unspaced", word, letters)


def _is_format(character: str) -> bool:
    return unicodedata.category(character) == "Cf"


@functools.lru_cache(1 << 16)
def _composed(word: str) -> str:
    """A word in the form NFC without format characters at its edges."""
    word = unicodedata.normalize("NFC", word)
    return word.strip("".join(filter(_is_format, word)))


@functools.lru_cache(1 << 16)
def _unspaced_letters(word: str) -> int:
    """The number of letters, without vowel signs and tone marks, of scripts without spaces."""
    return sum(unicodedata.category(letter)[0] == "L" for letter in _UNSPACED.findall(word))


@functools.lru_cache(1 << 16)
def _is_unseen(word: str) -> bool:
    """Whether a word has a format character or a decomposed accent."""
    is_accent = unicodedata.category(word[0]).startswith("M")
    return is_accent or not unicodedata.is_normalized("NFC", word) or any(map(_is_format, word))
