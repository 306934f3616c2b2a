"""Text files to documents of tokenized sentences, with one document in memory at a time."""

import dataclasses
import io
import itertools
import logging
import operator
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from dclm_jax.data.documents import PLAIN, Document, TextFormat, TextOptions
from dclm_jax.data.formats import PARSERS, RAW, RawDocument, Text
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
from dclm_jax.data.words import WordMaker
from dclm_jax.errors import InputError, brief
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
    """Reads one input.

    Attributes:
      options, encoding, joined_by: as for `read_documents`.
      word_maker: makes the words of the input, and counts omitted and unusual text.
      formats: formats read so far.
    """

    def __init__(
        self,
        options: TextOptions = PLAIN,
        encoding: str = UTF8,
        joined_by: Sequence[str] = (),
    ):
        self.options, self.encoding, self.joined_by = options, encoding, joined_by
        self.word_maker = WordMaker(options)
        self.formats: set[TextFormat] = set()
        self._ids: dict[str, str] = {}

    def documents(
        self, path: str | pathlib.Path, *, keep_empty: bool = False, limit: int | None = None
    ) -> Iterator[Document]:
        """The documents of an input, at most the first `limit`; see `read_documents`."""
        documents = itertools.chain.from_iterable(itertools.starmap(self.parsed, self._texts(path)))
        yield from itertools.islice(self.word_maker.written(documents, keep_empty), limit)
        self.word_maker.finish(path)

    def records(self, path: str | pathlib.Path) -> Iterator[Record]:
        """The rows of tables and the objects of JSON lines of an input."""
        for format, text, _ in self._texts(path):
            if format not in RECORDS:
                raise InputError(
                    f"{text.source}: is neither a table nor JSON lines by its name; add "
                    "--format=jsonl, csv or tsv"
                )
            yield from records(text.lines, text.source, format, text.notes)

    def _texts(self, path: str | pathlib.Path) -> Iterator[tuple[TextFormat, Text, str]]:
        """The format of each text of an input, the text and the beginning of the names of its
        documents."""
        files = input_files(path)
        for file in files:
            format = format_of_name(file) or self.options.format
            lines = self._lines(file, files)
            if format in ("lines", "prose"):
                lines = self._noted_layout(file, lines)
            yield format, self.text(lines, str(file)), file_label(file, path)

    def _noted_layout(self, file: pathlib.Path, lines: Iterator[TextLine]) -> Iterator[TextLine]:
        """The lines of a file; notes count files with marks that would be read as words."""
        first = list(itertools.islice(lines, LAYOUT_LINES))
        layout = layout_of(first)
        if layout and not (layout[0] == "XML" and self.options.strip_html):
            self.word_maker.notes.add_layout(*layout, str(file))
        return itertools.chain(first, lines)

    def _lines(self, file: pathlib.Path, files: Sequence[pathlib.Path]) -> Iterator[TextLine]:
        """The lines of a file of an input; notes count lines of UTF-8 that `encoding` misreads."""
        try:
            for line in read_lines(file, encoding=self.encoding):
                if is_utf8_misread(line.text, self.encoding):
                    self.word_maker.notes.add("mojibake", line.text.strip())
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

    def text(self, lines: Iterator[TextLine], source: str) -> Text:
        """A text of the input, named `source` in messages."""
        return Text(lines, source, self.options, self.word_maker.notes, self.joined_by)

    def parsed(self, format: TextFormat, text: Text, label: str) -> Iterator[Document]:
        """The documents of a text, with unchanged words. Without an id a document is named
        LABEL:LINE."""
        self.formats.add(format)
        if self.joined_by and format not in RECORDS:
            raise InputError(
                f"{text.source}: is read as {format}, which has no rows to join; choose a table, "
                "or remove --join_rows"
            )
        for raw in PARSERS[format](text):
            document = self.word_maker.document(raw, self._name(raw, label))
            if document is not None:
                yield document

    def _name(self, raw: RawDocument, label: str) -> str:
        """The id of a document, which no earlier document has, or LABEL:LINE if it has no id."""
        (where, *_), value = raw.where, raw.name
        if value is None or value == "":
            return f"{label}:{raw.number}"
        name = str(value)
        if not isinstance(value, str | int) or name.splitlines() != [name]:
            raise InputError(
                f"{where}: 'id' is {brief(value)}; write one line of text or a whole number"
            )
        if name in self._ids and self.joined_by:
            raise InputError(
                f"{where}: {brief(name)} also has rows at {self._ids[name]}, and other rows are "
                f"between them; sort the rows by {', '.join(self.joined_by)}"
            )
        if name in self._ids:
            raise InputError(
                f"{where}: the id {brief(name)} is also at {self._ids[name]}; give each record "
                "its own id, or remove all ids"
            )
        self._ids[name] = where
        return name


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
    if options.format == "prose":
        raw = RawDocument([name], 1, texts=[text])
        parsed = filter(None, [reader.word_maker.document(raw, name)])
    else:
        parsed = reader.parsed(options.format, reader.text(lines, name), name)
    documents = list(reader.word_maker.written(parsed, keep_empty=options.format == "prose"))
    reader.word_maker.finish(name, logging.WARNING)
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
    are_raw = options.format in RAW, trained.format in RAW
    is_alike = options.format == "jsonl" or len(set(are_raw)) == 1
    return is_alike and _CHANGE_OF_WORDS(options) == _CHANGE_OF_WORDS(trained)
