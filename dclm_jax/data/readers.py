"""Text files into documents: lists of tokenised sentences, one document in memory at a time."""

import collections
import dataclasses
import functools
import io
import itertools
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from dclm_jax.data import detect_format, prose, records, treebank, wikitext
from dclm_jax.data.documents import (
    PLAIN,
    UTF8,
    Document,
    Line,
    TextOptions,
    ahead,
    decode,
    file_label,
    input_files,
    name_suffix,
    read_lines,
)
from dclm_jax.data.known_corpora import COLLECTIONS
from dclm_jax.data.oddities import Oddities
from dclm_jax.data.records import Text
from dclm_jax.errors import InputError, printable, shown

STDIN = "-"

Read = TypeVar("Read")

Report = Callable[[str], None]

RAW_JSONL = "raw jsonl"
KEYED = ("csv", "tsv", RAW_JSONL)
"""Formats of records that hold raw text under a key."""
_RAW = {"prose", "paragraphs", *KEYED}
_BY_NAME = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv"}
_DETAILS = re.compile(r"[(:;,]| with ")
# Formats of files whose names do not say it; where several were read the first one counts.
_REMEMBERED = ("paragraphs", "prose", "tagged", "treebank", "articles", "articles_body")
_NO_DIVIDER = "none"
_ONE_WORD, _LONGEST_WORD = re.compile(r"\S+"), 1_000_000
_TAG = "/"


@dataclasses.dataclass
class ReadStatistics:
    """What has been read so far; `read_documents` counts in it."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    empty_sentences: int = 0
    empty_documents: int = 0
    formats: set[str] = dataclasses.field(default_factory=set, compare=False)
    """How texts were read; RAW_JSONL is one of them."""


def read_documents(
    path: str | pathlib.Path,
    options: TextOptions = PLAIN,
    *,
    encoding: str = UTF8,
    statistics: ReadStatistics | None = None,
    name: str | None = None,
    keep_empty: bool = False,
    report: Report = lambda line: None,
) -> Iterator[Document]:
    """Reads documents as a stream.

    Formats:
      lines: a tokenised sentence a line; a blank line or a divider ends a document (several in a
        row count as one). A divider is a line that begins with the word of the options, once or
        repeated: "=", "====" or "= Title"; the words of a title are left out and counted.
      tagged: as lines, of tokens WORD/TAG; a word may hold slashes, a tag may not.
      jsonl: an object a line, {"id": ..., "sentences": [...]}; a sentence is a string of words
        separated by spaces or a list of words; the id is optional, and so are "tags", written as
        the sentences are and with one tag a word. Or an object with raw text, {"id": ..., "text":
        "..."}, split as prose; the first one says which they are.
      treebank: bracketed trees of the Penn Treebank, ( (S (NP (PRP It)) (VP (VBD slept))) ); a file
        is a document and is called as such. Words and tags as `treebank` finds them.
      articles, articles_body: lines of words as those of WikiText, which are paragraphs under
        headings, divided as `wikitext` does; of articles_body without their headings.
      prose: raw text, split into sentences by sentencex and words by sacremoses; a blank line ends
        a paragraph, a divider a document.
      paragraphs: raw text with one document per line, split as prose.
      csv, tsv: a table with a header, its cells separated by commas or tabulators; those of csv,
        and of tsv if the options say so, are quoted where they hold such or line breaks. One column
        is raw text, split as prose; a blank line ends a paragraph. Names are in the column "id", if
        there is one.
      the names of `known_corpora`: their texts, of which `path` is the folder.
      auto: tagged, if nearly all tokens of the first lines are WORD/TAG, otherwise lines.

    Files named .jsonl or .json, .csv and .tsv are of these formats, whatever is said. Any of them
    may be compressed, NAME.gz or NAME.bz2.

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
      encoding: of text, but for `known_corpora`.
      statistics: counts are added to it while documents are read.
      name: what to call a single file in ids and messages, instead of its own name.
      keep_empty: yield documents without words as well.
      report: called with a line for what is guessed, for what text seems to be instead, and at the
        end of the text for what was left out or is odd in it (`oddities`).
    """
    if options.format not in FORMATS:
        raise InputError(f"unknown format {options.format!r}; expected one of {', '.join(FORMATS)}")
    reading = _Reading(options, statistics or ReadStatistics(), Oddities(options.unicode), report)
    if options.format in COLLECTIONS:
        blocks = COLLECTIONS[options.format].read(path)
    else:
        texts = _texts(path, reading, name, encoding)
        blocks = itertools.chain.from_iterable(itertools.starmap(reading.parse, texts))
    yield from reading.kept(blocks, keep_empty)
    reading.finish(name or path, report)


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
    # What is guessed is not reported.
    reading = _Reading(options, ReadStatistics(), Oddities(options.unicode), lambda line: None)
    format = "lines" if options.format == "auto" else options.format
    whole = reading.text(decode(io.BytesIO(content), name), name, name)
    yield from reading.kept(reading.parse(format, whole))
    reading.finish(name, report)


def remembered(options: TextOptions, formats: Collection[str] = ()) -> TextOptions:
    """How text is read like that which was read so: raw text as that, tagged words, trees and
    articles as those, other words as lines of them.

    Args:
      options: what was asked for.
      formats: how the text was read, `ReadStatistics.formats`.
    """
    if options.format in COLLECTIONS:
        formats = {COLLECTIONS[options.format].text_format}
    found = {options.format, *formats}
    is_keyed = not found.isdisjoint(KEYED)
    format = next((one for one in _REMEMBERED if one in found), TextOptions.format)
    if is_keyed:
        format = "prose"
    is_raw = format in _RAW
    return dataclasses.replace(
        options,
        format=format,
        normalize=options.normalize and is_raw,
        text_key=options.text_key if is_keyed or is_raw else None,
        language=options.language if is_raw else TextOptions.language,
    )


def finds_words(options: TextOptions) -> bool:
    """Whether these `remembered` options find words in raw text, rather than take them as given."""
    return options.format in _RAW


def read_alike(options: TextOptions, trained: TextOptions) -> bool:
    """Whether text of these options becomes words like that which `remembered` gave the others:
    words are words, whatever is beside them, JSON lines say themselves what they hold, and where
    text lies in a record or a document ends does not matter."""
    format = remembered(options).format
    if options.format == "jsonl" or _RAW.isdisjoint((format, trained.format)):
        format = trained.format
    return trained == dataclasses.replace(
        options,
        format=format,
        text_key=trained.text_key,
        divider=trained.divider,
        quoted=trained.quoted,
    )


def as_words(words: Iterable[str], options: TextOptions, oddities: Oddities) -> list[str]:
    """Words as the options want them: in their normal form, and in lower case. A word of nothing
    but format characters may become empty."""
    words = oddities.mended(words)
    if not options.lowercase:
        return words
    # A letter in lower case may compose with an accent that it has no capital for.
    return oddities.mended([word.lower() for word in words])


def corresponding(
    texts: Sequence[Iterable[Read]], paths: Sequence[str | pathlib.Path]
) -> Iterator[tuple[Read, ...]]:
    """What is at the same place in several texts; to be read with `keep_empty`."""
    counts = [0] * len(texts)
    for found in itertools.zip_longest(*texts):
        counts = [count + (one is not None) for count, one in zip(counts, found, strict=True)]
        if None not in found:
            yield found
    if len(set(counts)) > 1:
        of_texts = " and ".join(map("{} holds {:,} documents".format, paths, counts))
        raise InputError(f"{of_texts}; expected as many, in the same order")


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
    if path == STDIN:
        lines = decode(sys.stdin.buffer, STDIN, encoding)
    else:
        lines = read_lines(pathlib.Path(path), encoding=encoding)
    words = str.split
    if finds_words(remembered(options)):
        words = prose.word_tokenizer(options)
    oddities = Oddities(options.unicode)
    reading = _Reading(options, ReadStatistics(), oddities, report)
    # As of documents, accents are composed before words are found.
    composed = ((number, " ".join(oddities.mended(text.split()))) for number, text in lines)
    documents = (Document(f"{path}:{number}", [words(text)]) for number, text in composed)
    for document in reading.kept(documents, keep_empty=True):
        if not document.sentences:
            raise InputError(f"{document.id}: holds no words; expected a sentence a line")
        yield document.sentences[0]
    reading.finish(path, report)


def check_characters(path: str | pathlib.Path, encoding: str, name: str | None = None) -> None:
    """Looks through a text before what takes long; pipes, which are read once, are left out."""
    for file in [] if str(path) == STDIN else input_files(path):
        if file.is_file():
            collections.deque(read_lines(file, name, encoding=encoding), maxlen=0)


@dataclasses.dataclass
class _Reading:
    """What the texts of an input share while they are read.

    Attributes:
      options: how text becomes words.
      statistics: of what has been read.
      oddities: of what has been read.
      report: called with a line for what is guessed.
      ids: the ids that documents have given themselves so far, and where.
      told: what has been reported, which is not said again of another text.
      guessed: the format that the first text seems to have, where none is given.
      is_empty: whether there was no document so far.
    """

    options: TextOptions
    statistics: ReadStatistics
    oddities: Oddities
    report: Report
    ids: dict[str, str] = dataclasses.field(default_factory=dict)
    told: set[str] = dataclasses.field(default_factory=set)
    guessed: str | None = None
    is_empty: bool = True

    def text(self, lines: Iterator[Line], label: str, source: str) -> Text:
        return Text(lines, label, source, self.options, self.ids, self.oddities)

    def parse(self, format: str, text: Text) -> Iterator[Document]:
        """The documents of a text."""
        lines = text.lines
        if format == "jsonl":
            lines = (line for line in lines if not _is_blank(line))
        head, lines = ahead(lines, detect_format.FIRST_LINES)
        text = text._replace(lines=lines)
        if format == "auto":
            self.guessed = self.guessed or ("tagged" if detect_format.is_tagged(head) else "lines")
            format = self.guessed
            if format == "tagged":
                self._tell("note", text, "read as tagged text: its words are WORD/TAG")
        if format == "jsonl" and detect_format.holds_raw_text(head, self.options.text_key):
            format = RAW_JSONL
        self.statistics.formats.add(format)
        kind = format.removeprefix("raw ")
        if format in KEYED:
            key = shown(self.options.text_key or records.DEFAULT_TEXT_KEY)
            self._tell("note", text, f"read as {kind.upper()}, the raw text of its {key}")
        for warning in detect_format.warnings(head, kind):
            self._tell("warning", text, warning)
        documents = _PARSERS[format](text)
        if format not in _RAW:
            return documents
        language = self.options.language
        if not prose.has_abbreviations(language):
            self._tell(
                "note",
                text,
                f"sacremoses has no abbreviations of the language {shown(language)} and takes "
                "English ones to find words",
            )
        return _split(documents, text)

    def kept(self, documents: Iterable[Document], keep_empty: bool = False) -> Iterator[Document]:
        """Documents of words as the options want them, without empty sentences."""
        statistics = self.statistics
        for identifier, sentences, tags in documents:
            mended = [as_words(words, self.options, self.oddities) for words in sentences]
            if tags is not None:
                # Sentences and tags lose what became of words without other than format characters.
                tags = [
                    [tag for word, tag in zip(words, of_words, strict=True) if word]
                    for words, of_words in zip(mended, tags, strict=True)
                ]
                tags = [of_words for of_words in tags if of_words]
            kept = [list(filter(None, words)) for words in mended]
            kept = [words for words in kept if words]
            for words in kept:
                self.oddities.count(words)
            statistics.empty_sentences += len(sentences) - len(kept)
            statistics.empty_documents += not kept
            if kept or keep_empty:
                self.is_empty = False
                statistics.documents += 1
                statistics.sentences += len(kept)
                statistics.tokens += sum(map(len, kept))
                yield Document(identifier, kept, tags)

    def finish(self, name: str | pathlib.Path, report: Report) -> None:
        """Refuses an input without documents, and reports what was left out or is odd."""
        if self.is_empty:
            raise InputError(f"{name}: holds no documents")
        for note in self.oddities.notes(self.options.divider):
            report(f"note: {name}: {note}")

    def _tell(self, kind: str, text: Text, message: str) -> None:
        said = _DETAILS.split(message)[0]
        if said not in self.told:
            self.told.add(said)
            self.report(f"{kind}: {text.source}: {message}")


def _texts(
    path: str | pathlib.Path, reading: _Reading, name: str | None, encoding: str
) -> Iterator[tuple[str, Text]]:
    """The format and the lines of each text of an input."""
    format = reading.options.format
    if str(path) == STDIN:
        lines = decode(sys.stdin.buffer, STDIN, encoding)
        yield format, reading.text(lines, name or STDIN, STDIN)
        return
    files = input_files(path)
    formats = [_BY_NAME.get(name_suffix(file), format) for file in files]
    if not _RAW.isdisjoint(formats) or "jsonl" in formats:
        check_characters(path, encoding, name)
    for file, format in zip(files, formats, strict=True):
        source, label = name or str(file), printable(name) if name else file_label(file, path)
        yield format, reading.text(read_lines(file, source, encoding=encoding), label, source)


def _blocks(lines: Iterable[Line], is_boundary: Callable[[Line], bool]) -> Iterator[list[Line]]:
    """Runs of lines, without the boundaries between them."""
    for at_boundary, block in itertools.groupby(lines, is_boundary):
        if not at_boundary:
            yield list(block)


def _is_blank(line: Line) -> bool:
    return not line.text.strip()


def _divider(text: Text) -> Callable[[Line], bool]:
    """Whether a line ends a document by its first word; a title after that is counted."""
    divider = text.options.divider
    pattern = re.compile(rf"(?:{re.escape(divider)})+(?!\S)")

    def is_divider(line: Line) -> bool:
        mark = pattern.match(line.text)
        if divider == _NO_DIVIDER or mark is None:
            return False
        title = line.text[mark.end() :].split()
        if title:
            text.oddities.add_title(line.text, len(title))
        return True

    return is_divider


def _parse_lines(text: Text) -> Iterator[Document]:
    is_divider = _divider(text)
    for block in _blocks(text.lines, lambda line: _is_blank(line) or is_divider(line)):
        yield Document(f"{text.label}:{block[0].number}", [line.split() for _, line in block])


def _parse_tagged(text: Text) -> Iterator[Document]:
    is_divider = _divider(text)
    for block in _blocks(text.lines, lambda line: _is_blank(line) or is_divider(line)):
        sentences, tags = [], []
        for number, line in block:
            pairs = [token.rpartition(_TAG)[::2] for token in line.split()]
            for (word, tag), token in zip(pairs, line.split(), strict=True):
                if not word or not tag:
                    raise InputError(
                        f"{text.source}:{number}: expected a word and its tag as WORD/TAG, got "
                        f"{shown(token)} (--format=lines reads words without tags)"
                    )
            sentences.append([word for word, _ in pairs])
            tags.append([tag for _, tag in pairs])
        yield Document(f"{text.label}:{block[0].number}", sentences, tags)


def _parse_treebank(text: Text) -> Iterator[Document]:
    yield treebank.document(text.label, treebank.read_trees(text.lines, text.source))


def _parse_articles(text: Text, headings: bool) -> Iterator[Document]:
    leave_out = None if headings else text.oddities.add_heading
    for first, sentences in wikitext.articles(text.lines, leave_out):
        yield Document(f"{text.label}:{first}", sentences)


def _parse_prose(text: Text) -> Iterator[records.RawDocument]:
    for block in _blocks(text.lines, _divider(text)):
        if paragraphs := list(_blocks(block, _is_blank)):
            texts = [" ".join(line.strip() for _, line in lines) for lines in paragraphs]
            yield f"{text.label}:{paragraphs[0][0].number}", texts


def _parse_paragraphs(text: Text) -> Iterator[records.RawDocument]:
    for number, line in text.lines:
        yield f"{text.label}:{number}", [line.strip()]


def _split(documents: Iterable[records.RawDocument], text: Text) -> Iterator[Document]:
    """Named documents of raw text, split into sentences and words."""
    split = prose.sentence_splitter(text.options)
    for name, paragraphs in documents:
        # It would be cut into thousands of sentences.
        if any(map(_has_long_word, paragraphs)):
            raise InputError(
                f"{text.source}: the document {shown(name)} holds a word of more than "
                f"{_LONGEST_WORD:,} characters; expected prose"
            )
        # An accent that is apart from its letter would be a word of its own.
        mended = (text.oddities.mended(paragraph.split()) for paragraph in paragraphs)
        yield Document(name, split([" ".join(words) for words in mended]))


def _has_long_word(text: str) -> bool:
    if len(text) <= _LONGEST_WORD:
        return False
    words = _ONE_WORD.finditer(text)
    return any(word.end() - word.start() > _LONGEST_WORD for word in words)


_PARSERS: dict[str, Callable[[Text], Iterator[Any]]] = {
    "lines": _parse_lines,
    "tagged": _parse_tagged,
    "jsonl": records.read_sentences,
    "treebank": _parse_treebank,
    "articles": functools.partial(_parse_articles, headings=True),
    "articles_body": functools.partial(_parse_articles, headings=False),
    "prose": _parse_prose,
    "paragraphs": _parse_paragraphs,
    "csv": functools.partial(records.read_rows, kind="csv"),
    "tsv": functools.partial(records.read_rows, kind="tsv"),
    RAW_JSONL: records.read_objects,
}
"""By format, a text -> its documents; of the formats in _RAW each is its name and paragraphs."""
TEXT_FORMATS = ("auto", *(format for format in _PARSERS if format != RAW_JSONL))
FORMATS = (*TEXT_FORMATS, *COLLECTIONS)
