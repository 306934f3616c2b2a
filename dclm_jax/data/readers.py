"""Text files to documents of tokenized sentences, with one document in memory at a time."""

import dataclasses
import functools
import io
import itertools
import logging
import operator
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from dclm_jax.data import formats, prose
from dclm_jax.data.documents import PLAIN, Document, TextFormat, TextOptions
from dclm_jax.data.formats import Text
from dclm_jax.data.markup import html_markup, without_html
from dclm_jax.data.notes import Notes, as_words, note_words
from dclm_jax.data.records import RECORDS, Record, records, require_characters
from dclm_jax.data.text_files import (
    LAYOUT_LINES,
    UTF8,
    EncodingError,
    TextLine,
    file_label,
    input_files,
    is_encoded,
    is_utf8_misread,
    layout_of,
    name_suffix,
    read_lines,
)
from dclm_jax.errors import InputError
from dclm_jax.log import logger

Parsed = TypeVar("Parsed")

_BY_NAME: dict[str, TextFormat] = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
}
_CHANGE_OF_WORDS = operator.attrgetter(
    "lowercase", "normalize", "strip_html", "language", "unicode"
)


def format_of_name(file: str | pathlib.Path) -> TextFormat | None:
    """The format that a file's extension determines; None if it determines none."""
    return _BY_NAME.get(name_suffix(pathlib.Path(file)))


def read_documents(
    path: str | pathlib.Path,
    options: TextOptions = PLAIN,
    *,
    encoding: str = UTF8,
    keep_empty: bool = False,
    joined_by: Sequence[str] = (),
) -> Iterator[Document]:
    """Reads documents as a stream.

    launch/text.md describes the formats. Files named .jsonl, .json, .csv and .tsv are read in these
    formats with any options. Any file may be compressed, NAME.gz or NAME.bz2.

    A document without a name is called FILE:LINE after its first line; duplicate names are refused.
    Empty sentences and documents without words (empty records) are omitted and counted.

    A line ends with LF, CR LF or CR. Every character that is not white space becomes part of a
    word, unless `TextOptions` or the format removes it. Notes in the log count omitted words.

    Args:
      path: a file, a folder, whose files are read recursively in the order of their names (without
        hidden files), or "-" for standard input.
      options: the format and how text becomes words.
      encoding: encoding of text.
      keep_empty: whether to yield documents without words.
      joined_by: columns of tables and keys of JSON lines with raw text: consecutive rows with equal
        cells in these columns are one document, named after these cells.
    """
    reader = TextReader(options, encoding, joined_by)
    yield from reader.documents(path, keep_empty=keep_empty)


class TextReader:
    """Reads one input, and counts omitted sentences and documents.

    Attributes:
      options, encoding: as for `read_documents`.
      formats: formats read so far.
      has_raw_text: whether raw text was read so far.
      empty_sentences: number of sentences without words so far.
      empty_documents: number of documents without words so far.
      notes: notes about omitted and unusual text.
    """

    def __init__(
        self,
        options: TextOptions = PLAIN,
        encoding: str = UTF8,
        joined_by: Sequence[str] = (),
    ):
        self.formats: set[TextFormat] = set()
        self.has_raw_text = False
        self.empty_sentences = self.empty_documents = 0
        self.options, self.encoding = options, encoding
        self._joined_by = joined_by
        self.notes = Notes()
        self._ids: dict[str, str] = {}
        self._num_documents = self._num_sentences = 0
        self._num_words = self._num_characters = 0

    @functools.cached_property
    def tokenizer(self) -> prose.Tokenizer:
        """The tokenizer of raw text, which other text does not need."""
        self.has_raw_text = True
        return prose.Tokenizer(self.options)

    def documents(
        self, path: str | pathlib.Path, *, keep_empty: bool = False, limit: int | None = None
    ) -> Iterator[Document]:
        """The documents of an input, at most the first `limit`; see `read_documents`."""
        texts = self._texts(path)
        documents = itertools.chain.from_iterable(itertools.starmap(self.parsed, texts))
        yield from itertools.islice(self.written(documents, keep_empty), limit)
        self.finish(path)

    def records(self, path: str | pathlib.Path) -> Iterator[Record]:
        """The rows of tables and the objects of JSON lines of an input."""
        for format, text in self._texts(path):
            if format not in RECORDS:
                raise InputError(
                    f"{text.source}: is neither a table nor JSON lines by its name; add "
                    "--format=jsonl, csv or tsv"
                )
            yield from records(text.lines, text.source, format, text.notes)

    def _texts(self, path: str | pathlib.Path) -> Iterator[tuple[TextFormat, Text]]:
        """The format and the lines of each text of an input."""
        files = input_files(path)
        for file in files:
            format = format_of_name(file) or self.options.format
            lines = self._lines(file, files)
            if format in ("lines", "prose"):
                lines = self._noted_layout(file, lines)
            yield format, self.text(lines, file_label(file, path), str(file))

    def _noted_layout(self, file: pathlib.Path, lines: Iterator[TextLine]) -> Iterator[TextLine]:
        """The lines of a file; notes count files with marks that would be read as words."""
        first = list(itertools.islice(lines, LAYOUT_LINES))
        layout = layout_of(first)
        if layout and not (layout[0] == "XML" and self.options.strip_html):
            self.notes.add_layout(*layout, str(file))
        return itertools.chain(first, lines)

    def _lines(self, file: pathlib.Path, files: Sequence[pathlib.Path]) -> Iterator[TextLine]:
        """The lines of a file of an input; notes count lines of UTF-8 that `encoding` misreads."""
        try:
            for line in read_lines(file, encoding=self.encoding):
                if is_utf8_misread(line.text, self.encoding):
                    self.notes.add("mojibake", line.text.strip())
                yield line
        except EncodingError as error:
            if self.encoding != UTF8 and len(files) > 1:
                raise InputError(
                    f"{str(error).rpartition('; ')[0]}; convert all files of the input to one "
                    "encoding, such as UTF-8, and set --encoding accordingly"
                ) from error
            are_encoded = [is_encoded(other, self.encoding) for other in files]
            if not any(are_encoded):
                raise
            fault, _, _ = str(error).rpartition("; ")
            raise InputError(
                f"{fault}; {are_encoded.count(False):,} of {len(files):,} files are not valid "
                f"{self.encoding}, and {are_encoded.count(True):,} have its characters, so that "
                f"no --encoding fits all: convert the former to {self.encoding}, such as "
                f"by iconv -f cp1252 -t {self.encoding}"
            ) from error

    def text(self, lines: Iterator[TextLine], label: str, source: str) -> Text:
        """A text of the input; see `formats.Text`."""
        return Text(
            lines,
            label,
            source,
            self.options,
            self._ids,
            self.notes,
            lambda: self.tokenizer,
            self.cleaned,
            self._joined_by,
        )

    def cleaned(self, text: str) -> str:
        """A text without HTML, if the options say so; otherwise notes count its HTML."""
        if self.options.strip_html:
            return without_html(text, self.notes, self.options.unknown_token)
        for markup in html_markup(text):
            self.notes.add("markup", markup)
        return text

    def parsed(self, format: TextFormat, text: Text) -> Iterator[Document]:
        """The documents of a text, with unchanged words."""
        self.formats.add(format)
        if self._joined_by and format not in RECORDS:
            raise InputError(
                f"{text.source}: is read as {format}, which has no rows to join; choose a table, "
                "or remove --join_rows"
            )
        return formats.PARSERS[format](text)

    def written(
        self, documents: Iterable[Document], keep_empty: bool = False
    ) -> Iterator[Document]:
        """Documents whose words have the options' normal form and case, without empty sentences."""
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
        if self.notes.has_paragraphs:
            logger.info(
                f"{self.size_text(name)}; a blank line ends a paragraph, and only a line that "
                "begins with = ends a document"
            )

    def size_text(self, name: str | pathlib.Path) -> str:
        """The numbers of documents and sentences that were read."""
        return f"{name}: documents: {self._num_documents:,}, with {self._num_sentences:,} sentences"


def _of_written(words: list[list[str]], values: list[list[Parsed]]) -> list[list[Parsed]]:
    """The values of words that are not empty: words of only format characters are removed."""
    pairs = zip(words, values, strict=True)
    return [
        [value for word, value in zip(*pair, strict=True) if word] for pair in pairs if any(pair[0])
    ]


def parse_documents(
    text: str,
    options: TextOptions,
    name: str = "text",
) -> list[Document]:
    """The documents in a string. Prose is one document, in which a line that begins with = ends a
    paragraph, as in a cell of a table. Other text is read as `read_documents` reads a file; its
    documents are named NAME:LINE, or NAME if there is only one. Notes are logged as warnings, which
    Python prints by default."""
    require_characters(text, name)
    reader = TextReader(options)
    lines = itertools.starmap(TextLine, enumerate(io.StringIO(text, newline=None), start=1))
    source = reader.text(lines, name, name)
    if options.format == "prose":
        parsed = iter([formats.text_document(source, name, text)])
    else:
        parsed = reader.parsed(options.format, source)
    documents = list(reader.written(parsed, keep_empty=options.format == "prose"))
    reader.finish(name, logging.WARNING)
    if len(documents) == 1 and documents[0].id.startswith(f"{name}:"):
        documents = [documents[0]._replace(id=name)]
    return documents


def corresponding(
    texts: Sequence[Iterable[Parsed]], paths: Sequence[str | pathlib.Path]
) -> Iterator[tuple[Parsed, ...]]:
    """Items at the same position in several texts, which must be read with `keep_empty`."""
    counts = [0] * len(texts)
    for items in itertools.zip_longest(*texts):
        counts = [count + (item is not None) for count, item in zip(counts, items, strict=True)]
        if None not in items:
            yield items
    if len(set(counts)) > 1:
        numbers = " and ".join(map("{} has {:,} documents".format, paths, counts))
        raise InputError(f"{numbers}; expected equal numbers, in the same order")


def options_like(trained: Sequence[TextOptions | None], changes: Mapping[str, Any]) -> TextOptions:
    """The options of the training texts of models, with changes; by default the options of `PLAIN`.

    Logs a note if the options change the text, and a warning if they differ from the training text.
    """
    first, *others = [options or PLAIN for options in trained] or [PLAIN]
    for other in others:
        if not _read_alike(other, first):
            raise InputError(
                f"the training texts of the runs were read differently ({first} and {other}); "
                "choose runs whose training texts were read alike"
            )
    options = dataclasses.replace(first, **changes)
    if trained and not _read_alike(options, first):
        logger.warning(f"text is read as {options}; the training text was {first}")
    elif dataclasses.replace(first, unknown_token=None) != PLAIN:
        logger.info(f"text is read as {options}, like the training text")
    return options


def _read_alike(options: TextOptions, trained: TextOptions) -> bool:
    """Whether these options make the same words of a text as the options of a training text. All
    formats of tokenized text are alike, JSON lines match tokenized and raw text, and keys
    and the unknown token do not matter."""
    are_raw = options.format in formats.RAW, trained.format in formats.RAW
    is_alike = options.format == "jsonl" or len(set(are_raw)) == 1
    return is_alike and _CHANGE_OF_WORDS(options) == _CHANGE_OF_WORDS(trained)
