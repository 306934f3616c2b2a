"""Raw prose to tokenized sentences: sentencex divides it into sentences, sacremoses into words.

With `normalize`, sacremoses first normalizes curly quotes, long dashes and other punctuation, as
the script normalize-punctuation.perl of Moses does. Without `normalize`, every character that is
not white space becomes part of a word.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from dclm_jax.data.documents import PLAIN, TextOptions
from dclm_jax.data.notes import composed
from dclm_jax.errors import importing

Paragraphs = list[str]
WordLists = list[list[str]]

# The time of sacremoses grows with the square of the number of words, and the time of sentencex
# with the square of the number of unclosed quotations.
_SENTENCE_WORDS, _PARAGRAPH_WORDS = 1_000, 5_000
_MARKS = {"Mn", "Mc", "Me", "Cf", "Cc"}
"""Categories of accents, vowel signs and format and control characters, which are read as
letters."""
_LETTERS = [chr(number) for number in range(0x250, 0x2B0)]
"""Rare letters; one stands for the unknown token while a sentence is tokenized."""


def detokenized(words: Sequence[str], language: str) -> str:
    """Words as running text, by the detokenizer of sacremoses."""
    with importing("running text", "text"):
        import sacremoses
    return sacremoses.MosesDetokenizer(language).detokenize(words, unescape=False)


def nonempty_paragraphs(pieces: Iterable[str]) -> Paragraphs:
    """The pieces of running text that have words, with single spaces between words."""
    return [" ".join(piece.split()) for piece in pieces if piece.strip()]


class Tokenizer:
    """Divides raw text of a language into sentences and words."""

    def __init__(self, options: TextOptions = PLAIN):
        with importing("raw prose", "text"):
            import regex
            import sacremoses
            import sentencex
        self._language, self._unicode = options.language, options.unicode
        self._lowercase = options.lowercase
        self._segment = cast(Any, sentencex).segment
        # What follows a joiner belongs to it, and a format character to what it follows.
        self._clusters = regex.compile(r"\X(?:(?<=\u200d)\X|[\p{Cf}\p{Cc}])*").findall
        self._moses = sacremoses.MosesTokenizer(options.language)
        self._normalize = str
        if options.normalize:
            self._normalize = sacremoses.MosesPunctNormalizer(options.language).normalize
        self._unknown, self._unknown_pattern = options.unknown_token, None
        if options.unknown_token is not None:
            case = re.IGNORECASE if options.lowercase else re.NOFLAG
            spelling = r"\s*".join(map(re.escape, self.normalized(options.unknown_token).split()))
            self._unknown_pattern = re.compile(spelling, case)

    def normalized(self, text: str) -> str:
        """A text with the Unicode form and the punctuation of the options."""
        # The tokenizer would make a word of a decomposed accent, such as the dot that lower case
        # removes.
        if self._lowercase:
            text = text.replace("I\u0307", "\u0130")
        return self._normalize(" ".join(composed(text.split(), self._unicode)))

    def sentences(self, paragraphs: Paragraphs) -> WordLists:
        """The tokenized sentences of a document; no sentence crosses a paragraph."""
        sentences = itertools.chain.from_iterable(map(self._sentences, paragraphs))
        return [words for words in map(self._words, sentences) if words]

    def words(self, sentence: str) -> list[str]:
        """The words of a single sentence."""
        return self._words(self.normalized(sentence))

    def _sentences(self, paragraph: str) -> Iterator[str]:
        last = ""
        for part in _parts(self.normalized(paragraph), _PARAGRAPH_WORDS):
            # The last sentence of a part may continue in the next part.
            *complete, last = _with_their_marks(self._segment(self._language, f"{last}{part} "))
            yield from complete
            if len(last) > len(part):
                yield last
                last = ""
        yield last

    def _words(self, sentence: str) -> list[str]:
        if self._unknown_pattern is None or not self._unknown_pattern.search(sentence):
            return self._tokens(sentence)
        # Moses would divide <unk> into <, unk and >, but no single letter.
        letter = next(letter for letter in _LETTERS if letter not in sentence)
        words = self._tokens(self._unknown_pattern.sub(letter, sentence))
        return [word.replace(letter, str(self._unknown)) for word in words]

    def _tokens(self, sentence: str) -> list[str]:
        # A grapheme cluster is a letter with its accents and joiners, or an emoji of several code
        # points. sacremoses would divide words at accents and joiners.
        if sentence.isascii() and sentence.isprintable():
            return self._divided(sentence)
        characters = list(map(self._clusters, sentence.split()))
        plain = " ".join("".join(map(_base, word)) for word in characters)
        whole = itertools.chain.from_iterable(characters)
        return ["".join(itertools.islice(whole, len(word))) for word in self._divided(plain)]

    def _divided(self, text: str) -> list[str]:
        parts = _parts(text, _SENTENCE_WORDS)
        return [word for part in parts for word in self._lossless(part)]

    def _lossless(self, text: str) -> list[str]:
        """The tokens of a text, or its words between white space where tokenizing lost a
        character."""
        # sacremoses deletes control characters and uses "DOTMULTI" as an internal mark.
        spaced = text.split()
        tokens = list(self._moses.tokenize(text, escape=False))
        # sacremoses splits an apostrophe from a word only between two characters.
        if tokens and len(tokens[-1]) > 1 and tokens[-1].endswith("'"):
            tokens[-1:] = tokens[-1][:-1], "'"
        if tokens and tokens[0].startswith("'") and not _ELISION.fullmatch(tokens[0]):
            tokens[:1] = filter(None, ("'", tokens[0][1:]))
        if "".join(tokens) == "".join(spaced):
            return tokens
        if len(spaced) == 1:
            return spaced
        return [token for word in spaced for token in self._lossless(word)]


_ELISION = re.compile(
    r"'((?-i:[stnmd])|\d.*|em|tis|twas|twere|twill|twould|til|cause|bout|round|cept|neath|nother|tween|"
    r"twenties|thirties|forties|fifties|sixties|seventies|eighties|nineties|ll|re|ve|ns)",
    re.IGNORECASE,
)
"""Words that begin with an apostrophe, as the first word of a text."""


def _with_their_marks(sentences: Sequence[str]) -> list[str]:
    """Sentences of a text; accents and joiners at the beginning of a sentence, such as U+FE0F after
    an exclamation mark, belong to the sentence before."""
    whole = [*sentences[:1]]
    for sentence in sentences[1:]:
        marks = "".join(itertools.takewhile(_is_mark, sentence))
        rest = sentence[len(marks) :]
        if marks:
            whole[-1] = f"{whole[-1].rstrip()}{marks} "
        if rest.strip() or not marks:
            whole.append(rest)
    return whole


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in _MARKS


@functools.lru_cache(1 << 16)
def _base(character: str) -> str:
    """One code point that is tokenized like a grapheme cluster."""
    composed = unicodedata.normalize("NFC", character)
    first = next(filter(str.isalnum, composed), composed[0])
    return "x" if _is_mark(first) else first


def _parts(text: str, max_words: int) -> Iterator[str]:
    """A text in parts of at most `max_words` words."""
    words = text.split()
    for at in range(0, len(words), max_words):
        yield " ".join(words[at : at + max_words])
