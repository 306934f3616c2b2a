"""Text files to documents of tokenized sentences, with one document in memory at a time."""

import dataclasses
import io
import itertools
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from dclm_jax.data import detect_format, formats
from dclm_jax.data.corpora import COLLECTIONS
from dclm_jax.data.documents import PLAIN, Document, TextOptions
from dclm_jax.data.formats import KEYED, RAW, TEXT_FORMATS, Text
from dclm_jax.data.notes import Notes, as_words, note_unseen
from dclm_jax.data.text_files import (
    UTF8,
    Line,
    decode,
    file_label,
    input_files,
    name_suffix,
    read_lines,
)
from dclm_jax.errors import InputError, brief, printable

FORMATS = (*TEXT_FORMATS, *COLLECTIONS)
Read = TypeVar("Read")
Report = Callable[[str], None]

_BY_NAME = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv"}
# Formats that file names do not show; if several were read, a run saves the first of these.
_REMEMBERED = ("paragraphs", "prose", "tagged", "treebank", "articles", "articles_body")


def format_of_name(file: str | pathlib.Path) -> str | None:
    """The format that a file's extension determines; None if it determines none."""
    return _BY_NAME.get(name_suffix(pathlib.Path(file)))


def read_documents(
    path: str | pathlib.Path,
    options: TextOptions = PLAIN,
    *,
    encoding: str = UTF8,
    keep_empty: bool = False,
    joined_by: Sequence[str] = (),
    report: Report = lambda line: None,
) -> Iterator[Document]:
    """Reads documents as a stream.

    launch/text.md describes the formats of `formats.TEXT_FORMATS`. The names of `corpora` are also
    formats, for which `path` is the folder of the corpus. Files named .jsonl, .json, .csv and .tsv
    are read in these formats with any options. Any file may be compressed, NAME.gz or NAME.bz2.

    A document without a name is called FILE:LINE after its first line; duplicate names are refused.
    Empty sentences and documents without words (empty records, blank lines of `paragraphs`) are
    omitted and counted.

    A line ends with LF, CR LF or CR. Every character that is not white space becomes part of a
    word, unless `TextOptions` or the format removes it; omitted words are counted and reported.

    Args:
      path: a file, a folder, whose files are read recursively in the order of their names (without
        hidden files), or "-" for standard input.
      options: the format and how text becomes words.
      encoding: encoding of text; `corpora` ignore it.
      keep_empty: whether to yield documents without words.
      joined_by: columns of tables and keys of JSON lines with raw text: consecutive rows with equal
        cells in these columns are one document, named after these cells.
      report: called with a line for each detected format, each warning about the format and, at the
        end of the text, each of the `notes`.
    """
    reader = TextReader(options, encoding, report, joined_by)
    yield from reader.documents(path, keep_empty=keep_empty)


class TextReader:
    """Reads one input, and counts omitted sentences and documents.

    Attributes:
      options, encoding, report: as for `read_documents`.
      formats: formats read so far, possibly `formats.RAW_JSONL`.
      empty_sentences: number of sentences without words so far.
      empty_documents: number of documents without words so far.
      notes: notes about omitted and unusual text.
    """

    def __init__(
        self,
        options: TextOptions = PLAIN,
        encoding: str = UTF8,
        report: Report = lambda line: None,
        joined_by: Sequence[str] = (),
    ):
        if options.format not in FORMATS:
            raise InputError(
                f"unknown format {options.format!r}; expected one of {', '.join(FORMATS)}"
            )
        self.formats: set[str] = set()
        self.empty_sentences = self.empty_documents = 0
        self.options, self.encoding, self.report = options, encoding, report
        self._joined_by = joined_by
        self.notes = Notes()
        self._ids: dict[str, str] = {}
        self._reported: set[str] = set()
        # The format detected in the first text.
        self._guess: str | None = None
        self._has_documents = False

    def documents(
        self, path: str | pathlib.Path, *, name: str | None = None, keep_empty: bool = False
    ) -> Iterator[Document]:
        """The documents of an input; see `read_documents`. `name` is the name of a single file in
        ids and messages, by default the file's name."""
        if self.options.format in COLLECTIONS:
            documents = COLLECTIONS[self.options.format].read(path)
        else:
            texts = self._texts(path, name)
            documents = itertools.chain.from_iterable(itertools.starmap(self.parsed, texts))
        yield from self.written(documents, keep_empty)
        self.finish(name or path, self.report)

    def records(self, path: str | pathlib.Path) -> Iterator[formats.Record]:
        """The rows of tables and the objects of JSON lines of an input."""
        for format, text in self._texts(path, None):
            if format not in _BY_NAME.values():
                raise InputError(
                    f"{text.source}: is neither a table nor JSON lines by its name; add "
                    "--format=jsonl, csv or tsv"
                )
            yield from formats.records(text, format)

    def _texts(self, path: str | pathlib.Path, name: str | None) -> Iterator[tuple[str, Text]]:
        """The format and the lines of each text of an input."""
        for file in input_files(path):
            format = format_of_name(file) or self.options.format
            source, label = name or str(file), printable(name) if name else file_label(file, path)
            lines = read_lines(file, source, encoding=self.encoding)
            yield format, self.text(lines, label, source)

    def text(self, lines: Iterator[Line], label: str, source: str) -> Text:
        return Text(lines, label, source, self.options, self._ids, self.notes, self._joined_by)

    def parsed(self, format: str, text: Text) -> Iterator[Document]:
        """The documents of a text; a detected format is reported."""
        lines = text.lines
        if format == "jsonl":
            lines = (line for line in lines if line.text.strip())
        head = list(itertools.islice(lines, detect_format.FIRST_LINES))
        text = text._replace(lines=itertools.chain(head, lines))
        if format == "auto":
            self._guess = self._guess or ("tagged" if detect_format.is_tagged(head) else "lines")
            format = self._guess
            if format == "tagged":
                self._say("note", text, "read as tagged text, WORD/TAG")
        if format == "jsonl" and detect_format.holds_raw_text(head, self.options.text_key):
            format = formats.RAW_JSONL
        self.formats.add(format)
        kind = format.removeprefix("raw ")
        if self._joined_by and format not in KEYED:
            raise InputError(
                f"{text.source}: is read as {kind}, which has no rows to join; choose a table, or "
                "remove --join_rows"
            )
        if format in KEYED:
            self._say("note", text, f"read as {kind.upper()} with raw text under {brief(text.key)}")
        for warning in detect_format.warnings(head, kind):
            self._say("warning", text, warning)
        return formats.parse(format, text)

    def _say(self, kind: str, text: Text, message: str) -> None:
        """Reports a message once for all texts."""
        claim, *_ = message.partition(", such as")
        if claim not in self._reported:
            self._reported.add(claim)
            self.report(f"{kind}: {text.source}: {message}")

    def written(
        self, documents: Iterable[Document], keep_empty: bool = False
    ) -> Iterator[Document]:
        """Documents whose words have the options' normal form and case, without empty sentences."""
        for name, sentences, tags, rows, row_of_word in documents:
            words = [as_words(sentence, self.options, self.notes) for sentence in sentences]
            tags, row_of_word = _of_written(words, tags), _of_written(words, row_of_word)
            written = _not_empty(list(filter(None, sentence)) for sentence in words)
            for sentence in written:
                note_unseen(sentence, self.notes)
            self.empty_sentences += len(sentences) - len(written)
            self.empty_documents += not written
            if written or keep_empty:
                self._has_documents = True
                yield Document(name, written, tags, rows, row_of_word)

    def finish(self, name: str | pathlib.Path, report: Report) -> None:
        """Refuses an input without documents, and reports the notes."""
        if not self._has_documents:
            raise InputError(f"{name}: has no documents; expected text")
        for note in self.notes.lines(self.options.divider):
            report(f"note: {name}: {note}")


def _of_written(words: list[list[str]], values: list[list[Read]] | None) -> list[list[Read]] | None:
    """The values of words that are not empty: words of only format characters are removed."""
    if values is None:
        return None
    pairs = [zip(*pair, strict=True) for pair in zip(words, values, strict=True)]
    return _not_empty([value for word, value in pair if word] for pair in pairs)


def _not_empty(lists: Iterable[list[Read]]) -> list[list[Read]]:
    return [items for items in lists if items]


def parse_documents(
    text: str,
    options: TextOptions,
    name: str = "text",
    report: Report = lambda line: None,
) -> Iterator[Document]:
    """The documents in a string, named NAME:LINE and read as `read_documents` reads a file. No
    format is detected, because a string may be short; `report` gets the notes."""
    if options.format not in TEXT_FORMATS:
        expected = ", ".join(TEXT_FORMATS)
        raise InputError(f"unknown format {options.format!r}; expected one of {expected}")
    formats.require_characters([text], name)
    reader = TextReader(options)
    format = "lines" if options.format == "auto" else options.format
    lines = decode(io.BytesIO(text.encode(UTF8)), name)
    yield from reader.written(reader.parsed(format, reader.text(lines, name, name)))
    reader.finish(name, report)


def corresponding(
    texts: Sequence[Iterable[Read]], paths: Sequence[str | pathlib.Path]
) -> Iterator[tuple[Read, ...]]:
    """Items at the same position in several texts, which must be read with `keep_empty`."""
    counts = [0] * len(texts)
    for items in itertools.zip_longest(*texts):
        counts = [count + (item is not None) for count, item in zip(counts, items, strict=True)]
        if None not in items:
            yield items
    if len(set(counts)) > 1:
        numbers = " and ".join(map("{} has {:,} documents".format, paths, counts))
        raise InputError(f"{numbers}; expected equal numbers, in the same order")


def remembered(options: TextOptions, formats: Collection[str] = ()) -> TextOptions:
    """Options by which a run reads other text like its training text. Raw text, tagged text, trees
    and articles keep their format; other words are read as lines of words.

    Args:
      options: the options of the training text.
      formats: the formats in which the training text was read, `TextReader.formats`.
    """
    if options.format in COLLECTIONS:
        formats = {COLLECTIONS[options.format].text_format}
    known = {options.format, *formats}
    format = next((format for format in _REMEMBERED if format in known), TextOptions.format)
    if not known.isdisjoint(KEYED):
        format = "prose"
    if format in RAW:
        return dataclasses.replace(options, format=format)
    default = TextOptions.language
    # The vocabulary stores the unknown token of tokenized text.
    return dataclasses.replace(
        options,
        format=format,
        normalize=False,
        text_key=None,
        language=default,
        unknown_token=None,
    )


def read_alike(options: TextOptions, trained: TextOptions) -> bool:
    """Whether these options make the same words of a text as the `remembered` options. All formats
    of tokenized text are alike, JSON lines match tokenized and raw text, and keys, dividers,
    quoting and the unknown token do not matter."""
    format = remembered(options).format
    if options.format == "jsonl" or not {format, trained.format} & RAW:
        format = trained.format
    return trained == dataclasses.replace(
        options,
        format=format,
        text_key=trained.text_key,
        divider=trained.divider,
        quoted=trained.quoted,
        unknown_token=trained.unknown_token,
    )
