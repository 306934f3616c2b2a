"""WikiText (Merity et al., 2017): articles of headings and tokenized paragraphs, one per line.

The folder has wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens, or train.txt and so on:

     = Title =

     A paragraph . It has sentences .
     = = Section = =

A line `= Title =` between empty lines begins an article. A line of a formula or table that looks
like a title is not a title, because the line before or after it is not empty. A sentence ends after
a full stop, exclamation or question mark and the closing brackets and quotes that follow. Published
perplexities count the words of all lines and one end per line, including empty lines.
"""

import itertools
import pathlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dclm_jax.data.corpus import SPLITS
from dclm_jax.data.documents import Document
from dclm_jax.data.text_files import TextLine, read_lines
from dclm_jax.errors import InputError

UNKNOWN_TOKEN = "<unk>"

_NAMES = ("wiki.{}.tokens", "{}.txt")
_HEADING = "="
_END_MARKS = {".", "!", "?"}
_CLOSING = {")", "]", "''", "'", "”", "’"}
_QUOTE = '"'


def article_files(root: str | pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """The file of each split."""
    parts = {}
    for split in SPLITS:
        names = [name.format(split) for name in _NAMES]
        files = [file for name in names if (file := pathlib.Path(root, name)).is_file()]
        if not files:
            raise InputError(
                f"{root} contains neither {' nor '.join(names)}; choose the WikiText folder"
            )
        parts[split] = files[:1]
    return parts


def count_tokens(root: str | pathlib.Path) -> dict[str, dict[str, int]]:
    """Per split: the number of articles, the number of tokens that published perplexities count
    (words and line ends), and the number of OOV words among these tokens."""
    articles, tokens, unknown = {}, {}, {}
    for split, (file,) in article_files(root).items():
        lines = list(_parsed(read_lines(file)))
        articles[split] = sum(line.is_title for line in lines)
        tokens[split] = sum(len(line.words) + 1 for line in lines)
        unknown[split] = sum(line.words.count(UNKNOWN_TOKEN) for line in lines)
    return {"articles": articles, "original_tokens": tokens, "original_unknown": unknown}


def read_articles(root: str | pathlib.Path, *, headings: bool) -> Iterator[Document]:
    """The articles as a stream, called SPLIT/LINE after the line of their title.

    Args:
      root: the folder.
      headings: whether titles and headings are sentences; otherwise they are omitted.

    Text before the first title is a separate article.
    """
    for split, (file,) in article_files(root).items():
        first, sentences = 1, []
        for line in _parsed(read_lines(file)):
            if line.is_title:
                if sentences:
                    yield Document(f"{split}/{first}", sentences)
                first, sentences = line.number, []
            if not line.is_heading:
                sentences += _sentences(line.words)
            elif headings:
                sentences.append(line.words)
        yield Document(f"{split}/{first}", sentences)


class _Line(NamedTuple):
    """The words of a line. A heading is between empty lines, and a title is a heading."""

    number: int
    words: list[str]
    is_heading: bool

    @property
    def is_title(self) -> bool:
        return self.is_heading and self.words[1] != _HEADING


def _parsed(lines: Iterable[TextLine]) -> Iterator[_Line]:
    before: list[str] = []
    end = TextLine(0, "")
    for line, after in itertools.pairwise(itertools.chain(lines, [end])):
        words = line.text.split()
        is_alone = not before and not after.text.split()
        is_heading = is_alone and len(words) > 2 and words[0] == words[-1] == _HEADING
        yield _Line(line.number, words, is_heading)
        before = words


def _sentences(words: list[str]) -> Iterator[list[str]]:
    """The sentences of a paragraph."""
    sentence: list[str] = []
    ended = is_open = False
    for word in words:
        closes = word in _CLOSING or (word == _QUOTE and is_open)
        if ended and not closes and word not in _END_MARKS:
            yield sentence
            sentence, ended = [], False
        is_open ^= word == _QUOTE
        sentence.append(word)
        ended |= word in _END_MARKS
    if sentence:
        yield sentence
