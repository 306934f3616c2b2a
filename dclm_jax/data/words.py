"""From raw documents to words: markup removed, text tokenized, words in their normal form and case.

A `WordMaker` counts the words, sentences and documents of an input, and holds the notes of its
reader and its parsers.
"""

import bisect
import functools
import io
import itertools
import logging
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from dclm_jax.data import prose
from dclm_jax.data.documents import PLAIN, Document, TextOptions
from dclm_jax.data.formats import RawDocument, is_divider
from dclm_jax.data.markup import html_markup, without_html
from dclm_jax.data.notes import Notes, as_words, composed, note_words
from dclm_jax.data.text_files import TextLine
from dclm_jax.errors import InputError
from dclm_jax.log import logger

Value = TypeVar("Value")
_PARAGRAPH_BREAK = re.compile(r"(?>\r\n?|\n)\s*(?:\r\n?|\n)")


class WordMaker:
    """Makes the words of the documents of one input, and counts omitted and unusual text.

    Attributes:
      options: options by which text becomes words.
      notes: notes about omitted and unusual text.
      has_raw_text: whether raw text was read so far.
      has_paragraphs: whether a block of lines of raw text had several paragraphs.
      empty_sentences: number of sentences without words so far.
      empty_documents: number of documents without words so far.
    """

    def __init__(self, options: TextOptions = PLAIN):
        self.options, self.notes = options, Notes()
        self.has_raw_text = self.has_paragraphs = False
        self.empty_sentences = self.empty_documents = 0
        self._num_documents = self._num_sentences = 0
        self._num_words = self._num_characters = 0

    @functools.cached_property
    def tokenizer(self) -> prose.Tokenizer:
        """The tokenizer of raw text, which other text does not need."""
        self.has_raw_text = True
        return prose.Tokenizer(self.options)

    def document(self, raw: RawDocument, name: str) -> Document | None:
        """The document of this name, with unchanged words; None for a block of only markup."""
        if raw.tags is not None:
            return Document(name, list(map(list, raw.sentences)), raw.tags)
        if not raw.texts:
            lines = (line if isinstance(line, str) else " ".join(line) for line in raw.sentences)
            return Document(name, [self._cleaned(line).split() for line in lines], rows=raw.rows)
        texts, row_of_word = list(map(self._cleaned, raw.texts)), None
        if raw.is_joined:
            self._require_words(raw.where, texts)
        # A block is without titles, and a part of a text may begin with =.
        has_titles = len(texts) == 1 and not raw.is_block
        paragraphs = self._paragraphs("\n".join(texts), has_titles=has_titles)
        if raw.is_block and not paragraphs:
            return None
        self.has_paragraphs |= raw.is_block and len(paragraphs) > 1
        sentences = self.tokenizer.sentences(paragraphs)
        if len(texts) > 1:
            normalized = self.tokenizer.normalized
            sizes = [sum(map(len, normalized(text).split())) for text in texts]
            row_of_word = _rows_of_words(sentences, sizes)
        return Document(name, sentences, rows=raw.rows, row_of_word=row_of_word)

    def sentences(self, text: str) -> prose.WordLists:
        """The sentences of words of a string without titles: raw text, or a sentence per line."""
        text = self._cleaned(text)
        if self.options.format == "prose":
            words = self.tokenizer.sentences(self._paragraphs(text, has_titles=False))
        else:
            words = [line.split() for line in io.StringIO(text, newline=None)]
        (document,) = self.written([Document("", words)], keep_empty=True)
        return document.sentences

    def written(
        self, documents: Iterable[Document], keep_empty: bool = False
    ) -> Iterator[Document]:
        """Documents whose words have the options' normal form and case, streamed, without empty
        sentences and, unless `keep_empty`, without empty documents."""
        for name, sentences, tags, rows, row_of_word in documents:
            words = [as_words(sentence, self.options) for sentence in sentences]
            tags = tags and _of_written(words, tags)
            row_of_word = row_of_word and _of_written(words, row_of_word)
            written = [list(filter(None, sentence)) for sentence in words if any(sentence)]
            for sentence in written:
                note_words(sentence, self.notes, self.options.unicode)
                self._num_words += len(sentence)
                self._num_characters += sum(map(len, sentence))
            self.empty_sentences += len(sentences) - len(written)
            self.empty_documents += not written
            if written or keep_empty:
                self._num_documents += 1
                self._num_sentences += len(written)
                yield Document(name, written, tags, rows, row_of_word)

    def finish(self, name: str | pathlib.Path, level: int = logging.INFO) -> None:
        """Refuses an input without documents, and logs the notes."""
        if not self._num_documents:
            raise InputError(f"{name}: has no documents; expected text")
        for note in self.notes.lines():
            logger.log(level, f"{name}: {note}")
        sizes = self._num_words, self._num_characters
        for warning in self.notes.warnings(*sizes, is_raw=self.has_raw_text):
            logger.warning(f"{name}: {warning}")
        if self.has_paragraphs:
            logger.info(
                f"{self.size_text(name)}; a blank line ends a paragraph, and only a line that "
                "begins with = ends a document"
            )

    def size_text(self, name: str | pathlib.Path) -> str:
        """The numbers of documents and sentences that were read."""
        return f"{name}: documents: {self._num_documents:,}, with {self._num_sentences:,} sentences"

    def _cleaned(self, text: str) -> str:
        """A text without HTML, if the options say so; otherwise notes count its HTML."""
        if self.options.strip_html:
            return without_html(text, self.notes, self.options.unknown_token)
        for markup in html_markup(text):
            self.notes.add("markup", markup)
        return text

    def _paragraphs(self, text: str, *, has_titles: bool) -> prose.Paragraphs:
        """The paragraphs of raw text, divided by blank lines and, if it has titles, by lines that
        begin with =."""
        if has_titles and "=" in text:
            lines = itertools.starmap(TextLine, enumerate(io.StringIO(text, newline=None), start=1))
            text = "".join("\n\n" if is_divider(line, self.notes) else line.text for line in lines)
        return prose.nonempty_paragraphs(_PARAGRAPH_BREAK.split(text))

    def _require_words(self, where: Sequence[str], texts: Sequence[str]) -> None:
        """Refuses a record without words among the records of a document."""
        for record, group in itertools.groupby(
            zip(where, texts, strict=True), lambda pair: pair[0]
        ):
            words = " ".join(text for _, text in group).split()
            if not any(composed(words, self.options.unicode)):
                raise InputError(f"{record}: the row has no word; add its text, or remove it")


def _of_written(words: list[list[str]], values: list[list[Value]]) -> list[list[Value]]:
    """The values of words that are not empty: words of only format characters are removed."""
    pairs = zip(words, values, strict=True)
    return [
        [value for word, value in zip(*pair, strict=True) if word] for pair in pairs if any(pair[0])
    ]


def _rows_of_words(sentences: prose.WordLists, sizes: Sequence[int]) -> list[list[int]]:
    """The row in which each word of a document begins, given the number of characters per row."""
    ends, first, indices = list(itertools.accumulate(sizes)), 0, []
    for words in sentences:
        starts = itertools.accumulate(map(len, words), initial=first)
        *begins, first = starts
        indices.append([bisect.bisect_right(ends, begin) for begin in begins])
    return indices
