"""Raw prose into tokenised sentences: sentencex finds the sentences, sacremoses the words.

Before that sacremoses may write curly quotes, long dashes and other punctuation in one way, as the
script normalize-punctuation.perl of Moses does. Otherwise every character that is not white space
is in a word.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator

from dclm_jax.data.documents import PLAIN, TextOptions
from dclm_jax.errors import importing

Paragraphs = list[str]
Sentences = list[list[str]]

# The time that sacremoses takes grows with the square of the number of words, and that of sentencex
# with the square of the number of quotations that are never closed.
_SENTENCE_WORDS, _PARAGRAPH_WORDS = 1_000, 5_000


def paragraphs(pieces: Iterable[str]) -> Paragraphs:
    """Pieces of running text that have words, with single spaces between these."""
    return [" ".join(piece.split()) for piece in pieces if piece.strip()]


def sentence_splitter(options: TextOptions = PLAIN) -> Callable[[Paragraphs], Sentences]:
    """A function from the paragraphs of a document to its tokenised sentences; no sentence crosses
    a paragraph."""
    sentencex, _ = _libraries()
    words, written = _word_tokenizer(options.language), _written(options)

    def sentences(paragraph: str) -> Iterator[str]:
        last = ""
        for part in _parts(written(paragraph), _PARAGRAPH_WORDS):
            # The last sentence of a part may continue in the next part.
            *complete, last = sentencex.segment(options.language, f"{last}{part} ")
            yield from complete
            if len(last) > len(part):
                yield last
                last = ""
        yield last

    def split(paragraphs: Paragraphs) -> Sentences:
        pieces = map(words, itertools.chain.from_iterable(map(sentences, paragraphs)))
        return [sentence for sentence in pieces if sentence]

    return split


def word_tokenizer(options: TextOptions = PLAIN) -> Callable[[str], list[str]]:
    """A function that splits a single sentence into words."""
    words, written = _word_tokenizer(options.language), _written(options)
    return lambda text: words(written(text))


def _libraries():
    with importing("raw prose", "text"):
        import sacremoses
        import sentencex
    return sentencex, sacremoses


def _written(options: TextOptions) -> Callable[[str], str]:
    if not options.normalize:
        return str
    _, sacremoses = _libraries()
    return sacremoses.MosesPunctNormalizer(options.language).normalize


def _word_tokenizer(language: str) -> Callable[[str], list[str]]:
    _, sacremoses = _libraries()
    tokenizer = sacremoses.MosesTokenizer(language)

    def tokens(text: str) -> list[str]:
        words: list[str] = tokenizer.tokenize(text, escape=False)
        return words

    def lossless(text: str) -> list[str]:
        """The tokens; the words between white space where the tokens have lost a character."""
        # sacremoses deletes control characters and takes "DOTMULTI" for its own sign of dots.
        given = text.split()
        words = tokens(text)
        if "".join(words) == "".join(given):
            return words
        return given if len(given) == 1 else [part for word in given for part in lossless(word)]

    return lambda text: [word for part in _parts(text, _SENTENCE_WORDS) for word in lossless(part)]


def _parts(text: str, most_words: int) -> Iterator[str]:
    """A text in parts of at most `most_words` words."""
    words = text.split()
    for at in range(0, len(words), most_words):
        yield " ".join(words[at : at + most_words])
