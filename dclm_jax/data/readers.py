"""Text files into documents: lists of tokenised sentences, one document in memory at a time."""

import collections
import dataclasses
import io
import itertools
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from dclm_jax.data import detect_format, formats, prose
from dclm_jax.data.corpora import COLLECTIONS
from dclm_jax.data.documents import PLAIN, Document, TextOptions
from dclm_jax.data.formats import KEYED, RAW, TEXT_FORMATS, Text
from dclm_jax.data.notes import Notes, as_words, composed, note_unseen
from dclm_jax.data.text_files import (
    STDIN,
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
# Formats of files whose names do not say it; where several were read the first one counts.
_REMEMBERED = ("paragraphs", "prose", "tagged", "treebank", "articles", "articles_body")


def read_documents(
    path: str | pathlib.Path,
    options: TextOptions = PLAIN,
    *,
    encoding: str = UTF8,
    name: str | None = None,
    keep_empty: bool = False,
    report: Report = lambda line: None,
) -> Iterator[Document]:
    """Reads documents as a stream.

    launch/text.md describes the formats of `formats.TEXT_FORMATS`; the names of `corpora` are
    formats, too, of which `path` is the folder. Files named .jsonl, .json, .csv and .tsv are of
    these formats, whatever the options say, and any file may be compressed, NAME.gz or NAME.bz2.

    Documents without a name of their own are called FILE:LINE, after the line they begin on; two of
    the same name are refused. Empty sentences, and documents with no others, are left out and
    counted. The latter are records without words, and a blank line of `paragraphs`.

    A line ends with LF, CR LF or CR. Every character that is not white space becomes part of a
    word, except where `TextOptions` or the format removes it; omitted words are counted and
    reported.

    Args:
      path: a file, a folder (its files are read recursively in the order of their names, hidden
        ones left out), or "-" for standard input.
      options: the format and how text becomes words.
      encoding: encoding of text, but for `corpora`.
      name: name of a single file in ids and messages, if not its own.
      keep_empty: yield documents without words as well.
      report: called with a line for what is guessed, for what text seems to be instead, and at the
        end of the text for what was left out or is odd in it (`notes`).
    """
    yield from TextReader(options, encoding, report).documents(
        path, name=name, keep_empty=keep_empty
    )


class TextReader:
    """Reads an input, and counts what it reads.

    Attributes:
      formats: how its texts were read so far; `formats.RAW_JSONL` is one of them.
      empty_sentences: sentences without words so far.
      empty_documents: documents without words so far.
      notes: of what was left out or is odd.
    """

    def __init__(
        self,
        options: TextOptions = PLAIN,
        encoding: str = UTF8,
        report: Report = lambda line: None,
    ):
        if options.format not in FORMATS:
            raise InputError(
                f"unknown format {options.format!r}; expected one of {', '.join(FORMATS)}"
            )
        self.formats: set[str] = set()
        self.empty_sentences = self.empty_documents = 0
        self._options, self._encoding, self._report = options, encoding, report
        self.notes = Notes()
        self._ids: dict[str, str] = {}
        self._reported: set[str] = set()
        # The format that the first text seems to have, where none is given.
        self._guess: str | None = None
        self._has_documents = False

    def documents(
        self, path: str | pathlib.Path, *, name: str | None = None, keep_empty: bool = False
    ) -> Iterator[Document]:
        """The documents of an input; see `read_documents`."""
        if self._options.format in COLLECTIONS:
            documents = COLLECTIONS[self._options.format].read(path)
        else:
            texts = self._texts(path, name)
            documents = itertools.chain.from_iterable(itertools.starmap(self.parsed, texts))
        yield from self.written(documents, keep_empty)
        self.finish(name or path, self._report)

    def _texts(self, path: str | pathlib.Path, name: str | None) -> Iterator[tuple[str, Text]]:
        """The format and the lines of each text of an input."""
        format, encoding = self._options.format, self._encoding
        files = input_files(path)
        formats = [_BY_NAME.get(name_suffix(file), format) for file in files]
        if not RAW.isdisjoint(formats) or "jsonl" in formats:
            check_characters(path, encoding, name)
        for file, format in zip(files, formats, strict=True):
            source, label = name or str(file), printable(name) if name else file_label(file, path)
            yield format, self.text(read_lines(file, source, encoding=encoding), label, source)

    def text(self, lines: Iterator[Line], label: str, source: str) -> Text:
        return Text(lines, label, source, self._options, self._ids, self.notes)

    def parsed(self, format: str, text: Text) -> Iterator[Document]:
        """The documents of a text; what is guessed of its format is reported."""
        lines = text.lines
        if format == "jsonl":
            lines = (line for line in lines if line.text.strip())
        head = list(itertools.islice(lines, detect_format.FIRST_LINES))
        text = text._replace(lines=itertools.chain(head, lines))
        if format == "auto":
            self._guess = self._guess or ("tagged" if detect_format.is_tagged(head) else "lines")
            format = self._guess
            if format == "tagged":
                self._say("note", text, "read as tagged text: its words are WORD/TAG")
        if format == "jsonl" and detect_format.holds_raw_text(head, self._options.text_key):
            format = formats.RAW_JSONL
        self.formats.add(format)
        kind = format.removeprefix("raw ")
        if format in KEYED:
            self._say(
                "note", text, f"read as {kind.upper()}, the raw text of its {brief(text.key)}"
            )
        for warning in detect_format.warnings(head, kind):
            self._say("warning", text, warning)
        return formats.parse(format, text)

    def _say(self, kind: str, text: Text, message: str) -> None:
        """Reports what was not said of another text."""
        said, *_ = message.partition(", such as")
        if said not in self._reported:
            self._reported.add(said)
            self._report(f"{kind}: {text.source}: {message}")

    def written(
        self, documents: Iterable[Document], keep_empty: bool = False
    ) -> Iterator[Document]:
        """Documents of words as the options want them, without empty sentences."""
        for name, sentences, tags in documents:
            words = [as_words(sentence, self._options, self.notes) for sentence in sentences]
            if tags is not None:
                # Sentences and tags lose what became of words without other than format characters.
                pairs = [zip(*pair, strict=True) for pair in zip(words, tags, strict=True)]
                tags = _not_empty([tag for word, tag in pair if word] for pair in pairs)
            written = _not_empty(list(filter(None, sentence)) for sentence in words)
            for sentence in written:
                note_unseen(sentence, self.notes)
            self.empty_sentences += len(sentences) - len(written)
            self.empty_documents += not written
            if written or keep_empty:
                self._has_documents = True
                yield Document(name, written, tags)

    def finish(self, name: str | pathlib.Path, report: Report) -> None:
        """Refuses an input without documents, and reports what was left out or is odd."""
        if not self._has_documents:
            raise InputError(f"{name}: holds no documents")
        for note in self.notes.lines(self._options.divider):
            report(f"note: {name}: {note}")


def _not_empty(lists: Iterable[list[str]]) -> list[list[str]]:
    return [items for items in lists if items]


def parse_documents(
    text: str,
    options: TextOptions,
    name: str = "text",
    report: Report = lambda line: None,
) -> Iterator[Document]:
    """The documents in a text, named NAME:LINE; as `read_documents` reads a file. A text is too
    short to guess from: what is reported is only what was left out or is odd in it.
    """
    if options.format not in TEXT_FORMATS:
        expected = ", ".join(TEXT_FORMATS)
        raise InputError(f"unknown format {options.format!r}; expected one of {expected}")
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{name} holds half of a surrogate pair, which is no text") from error
    reader = TextReader(options)
    format = "lines" if options.format == "auto" else options.format
    lines = decode(io.BytesIO(content), name)
    yield from reader.written(reader.parsed(format, reader.text(lines, name, name)))
    reader.finish(name, report)


def read_candidates(
    path: str,
    options: TextOptions = PLAIN,
    encoding: str = UTF8,
    report: Report = lambda line: None,
) -> Iterator[list[str]]:
    """The words of each line of a file, or of standard input ("-"), a sentence each.

    They are found as in text that is read with these options: in raw text as Moses does, in lines
    of words between white space.
    """
    lines = read_lines(pathlib.Path(path), encoding=encoding)
    words = prose.Tokenizer(options).words if finds_words(remembered(options)) else str.split
    reader = TextReader(options, encoding)
    # As of documents, accents are composed before words are found.
    texts = ((at, composed(text.split(), options.unicode, reader.notes)) for at, text in lines)
    documents = (Document(f"{path}:{at}", [words(" ".join(text))]) for at, text in texts)
    for document in reader.written(documents, keep_empty=True):
        if not document.sentences:
            raise InputError(f"{document.id}: holds no words; expected a sentence a line")
        yield document.sentences[0]
    reader.finish(path, report)


def corresponding(
    texts: Sequence[Iterable[Read]], paths: Sequence[str | pathlib.Path]
) -> Iterator[tuple[Read, ...]]:
    """What is at the same place in several texts; to be read with `keep_empty`."""
    counts = [0] * len(texts)
    for items in itertools.zip_longest(*texts):
        counts = [count + (item is not None) for count, item in zip(counts, items, strict=True)]
        if None not in items:
            yield items
    if len(set(counts)) > 1:
        of_texts = " and ".join(map("{} holds {:,} documents".format, paths, counts))
        raise InputError(f"{of_texts}; expected as many, in the same order")


def check_characters(path: str | pathlib.Path, encoding: str, name: str | None = None) -> None:
    """Looks through a text before what takes long; pipes, which are read once, are left out."""
    for file in input_files(path):
        if file.is_file() and str(file) != STDIN:
            collections.deque(read_lines(file, name, encoding=encoding), maxlen=0)


def remembered(options: TextOptions, formats: Collection[str] = ()) -> TextOptions:
    """How text is read like that which was read so: raw text as that, tagged words, trees and
    articles as those, other words as lines of them.

    Args:
      options: what was asked for.
      formats: how the text was read, `TextReader.formats`.
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
    return dataclasses.replace(
        options, format=format, normalize=False, text_key=None, language=default
    )


def finds_words(options: TextOptions) -> bool:
    """Whether these `remembered` options find words in raw text, rather than take them as given."""
    return options.format in RAW


def read_alike(options: TextOptions, trained: TextOptions) -> bool:
    """Whether text of these options becomes words like that which `remembered` gave the others:
    words are words, whatever is beside them, JSON lines say themselves what they hold, and where
    text lies in a record or a document ends does not matter."""
    format = remembered(options).format
    if options.format == "jsonl" or not {format, trained.format} & RAW:
        format = trained.format
    return trained == dataclasses.replace(
        options,
        format=format,
        text_key=trained.text_key,
        divider=trained.divider,
        quoted=trained.quoted,
    )
