"""Parsers of text formats, from lines to documents.

A parser of tokenised text yields documents. A parser of raw text (a format in `RAW`) yields names
and paragraphs, which `prose` divides into sentences and words.
"""

import collections
import csv
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from dclm_jax.data import prose
from dclm_jax.data.corpora import treebank, wikitext
from dclm_jax.data.documents import NO_DIVIDER, Document, TextOptions
from dclm_jax.data.notes import Notes, composed
from dclm_jax.data.text_files import LONGEST_LINE, Line
from dclm_jax.errors import InputError, brief
from dclm_jax.files import parse_json

RawDocument = tuple[str, prose.Paragraphs]
"""A name and paragraphs of running text."""
Value = TypeVar("Value")

RAW_JSONL = "raw jsonl"
KEYED = ("csv", "tsv", RAW_JSONL)
"""Formats of records that have raw text under a key."""
RAW = {"prose", "paragraphs", *KEYED}
DEFAULT_TEXT_KEY = "text"
SENTENCES, _ID = "sentences", "id"
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
_PARAGRAPH_BREAK = re.compile(r"(?>\r\n?|\n)\s*(?:\r\n?|\n)")
_ONE_WORD, _LONGEST_WORD = re.compile(r"\S+"), 1_000_000


class Text(NamedTuple):
    """A text to parse.

    Attributes:
      lines: lines of the text.
      label: first part of the names of the documents.
      source: name of the text in messages.
      options: options for reading words.
      ids: ids of the input's records so far, with the positions of the records.
      notes: notes of the input that the text belongs to.
    """

    lines: Iterator[Line]
    label: str
    source: str
    options: TextOptions
    ids: dict[str, str]
    notes: Notes

    @property
    def key(self) -> str:
        """The key or column that has raw text."""
        return self.options.text_key or DEFAULT_TEXT_KEY

    def named(self, value: Any, number: int) -> str:
        """The name of a record's document: the record's id, or LABEL:LINE if there is no id."""
        where = f"{self.source}:{number}"
        if value is None or value == "":
            return f"{self.label}:{number}"
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InputError(f"{where}: expected 'id' to be a string or a whole number")
        name = str(value)
        if name.splitlines() != [name]:
            raise InputError(f"{where}: expected 'id' to be one line of text")
        if name in self.ids:
            raise InputError(
                f"{where}: the id {brief(name)} is also at {self.ids[name]}; expected different "
                "ids, or none"
            )
        self.ids[name] = where
        return name


def parse(format: str, text: Text) -> Iterator[Document]:
    """The documents of a text, with unchanged words."""
    if format not in RAW:
        yield from _PARSERS[format](text)
        return
    tokenizer = prose.Tokenizer(text.options)
    for name, paragraphs in _PARSERS[format](text):
        # Such a word would become thousands of sentences.
        if any(map(_has_long_word, paragraphs)):
            raise InputError(
                f"{text.source}: the document {brief(name)} has a word of more than "
                f"{_LONGEST_WORD:,} characters; expected prose"
            )
        # The tokenizer would make a word of a decomposed accent.
        words = (composed(part.split(), text.options.unicode, text.notes) for part in paragraphs)
        yield Document(name, tokenizer.sentences(list(map(" ".join, words))))


def _has_long_word(text: str) -> bool:
    words = _ONE_WORD.finditer(text) if len(text) > _LONGEST_WORD else ()
    return any(word.end() - word.start() > _LONGEST_WORD for word in words)


# Lines.


def _blocks(lines: Iterable[Line], is_boundary: Callable[[Line], bool]) -> Iterator[list[Line]]:
    """Runs of lines between boundaries."""
    for at_boundary, block in itertools.groupby(lines, is_boundary):
        if not at_boundary:
            yield list(block)


def _is_blank(line: Line) -> bool:
    return not line.text.strip()


def _divider(text: Text) -> Callable[[Line], bool]:
    """Whether the first word of a line ends a document; notes count a title after it."""
    divider = text.options.divider
    pattern = re.compile(rf"(?:{re.escape(divider)})+(?!\S)")

    def is_divider(line: Line) -> bool:
        mark = pattern.match(line.text)
        if divider == NO_DIVIDER or mark is None:
            return False
        if title := line.text[mark.end() :].split():
            text.notes.add("title", brief(line.text.strip()), len(title))
        return True

    return is_divider


def _sentence_blocks(text: Text) -> Iterator[list[Line]]:
    """The lines of each document of the formats lines and tagged."""
    is_divider = _divider(text)
    return _blocks(text.lines, lambda line: _is_blank(line) or is_divider(line))


def _parse_lines(text: Text) -> Iterator[Document]:
    for block in _sentence_blocks(text):
        yield Document(f"{text.label}:{block[0].number}", [line.split() for _, line in block])


def _parse_tagged(text: Text) -> Iterator[Document]:
    for block in _sentence_blocks(text):
        sentences, tags = [], []
        for number, line in block:
            tokens = line.split()
            pairs = [token.rpartition("/")[::2] for token in tokens]
            for token, pair in zip(tokens, pairs, strict=True):
                if not all(pair):
                    raise InputError(
                        f"{text.source}:{number}: expected a word and its tag as WORD/TAG, got "
                        f"{brief(token)} (--format=lines reads words without tags)"
                    )
            sentences.append([word for word, _ in pairs])
            tags.append([tag for _, tag in pairs])
        yield Document(f"{text.label}:{block[0].number}", sentences, tags)


def _parse_treebank(text: Text) -> Iterator[Document]:
    yield treebank.document(text.label, treebank.read_trees(text.lines, text.source))


def _parse_articles(text: Text, headings: bool) -> Iterator[Document]:
    def omit(words: list[str]) -> None:
        text.notes.add("heading", size=len(words))

    for first, sentences in wikitext.articles(text.lines, None if headings else omit):
        yield Document(f"{text.label}:{first}", sentences)


def _parse_prose(text: Text) -> Iterator[RawDocument]:
    for block in _blocks(text.lines, _divider(text)):
        if paragraphs := list(_blocks(block, _is_blank)):
            texts = [" ".join(line.strip() for _, line in lines) for lines in paragraphs]
            yield f"{text.label}:{paragraphs[0][0].number}", texts


def _parse_paragraphs(text: Text) -> Iterator[RawDocument]:
    for number, line in text.lines:
        yield f"{text.label}:{number}", [line.strip()]


# Records: JSON lines and tables.


@dataclasses.dataclass(frozen=True)
class _Record:
    sentences: list[Any]
    tags: list[Any] | None = None
    id: Any = None


def _json_records(text: Text, kind: type[Value]) -> Iterator[tuple[int, str, Value]]:
    """For each record the number of its line, its position for messages, and the record."""
    for number, line in text.lines:
        content = line.strip()
        if not content:
            continue
        where = f"{text.source}:{number}"
        if not (content.startswith("{") and content.endswith("}")):
            raise InputError(
                f"{where}: is {brief(content)}; expected JSON lines: an object on each line, with "
                "'text' or 'sentences' (jq -c '.[]' converts an array, jq -c . other JSON)"
            )
        yield number, where, parse_json(line, where, kind)


def _require_characters(texts: Iterable[str], where: str) -> None:
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where}: has half of a surrogate pair, which is not a character; remove it"
        ) from error


def _parse_jsonl(text: Text) -> Iterator[Document]:
    """Documents of JSON lines {"id": ..., "sentences": [...], "tags": [...]}."""
    for number, where, record in _json_records(text, _Record):
        sentences = [_words(sentence, "word", where) for sentence in record.sentences]
        tags = None
        if record.tags is not None:
            tags = [_words(sentence, "tag", where) for sentence in record.tags]
            _check_tags(sentences, tags, where)
        name = text.named(record.id, number)
        _require_characters(itertools.chain([name], *sentences, *(tags or [])), where)
        yield Document(name, sentences, tags)


def _words(sentence: Any, kind: str, where: str) -> list[str]:
    if isinstance(sentence, str):
        return sentence.split()
    if isinstance(sentence, list) and all(isinstance(word, str) for word in sentence):
        for word in sentence:
            if word.split() != [word]:
                raise InputError(
                    f"{where}: a {kind} is {brief(word)}; expected characters without white space"
                )
        return sentence
    of = "" if kind == "word" else f"the {kind}s of "
    raise InputError(f"{where}: expected {of}each sentence to be a string or a list of {kind}s")


def _check_tags(sentences: list[list[str]], tags: list[list[str]], where: str) -> None:
    if len(tags) != len(sentences):
        raise InputError(
            f"{where}: has {len(sentences)} sentences but tags for {len(tags)}; write one list of "
            "tags per sentence"
        )
    for number, (words, word_tags) in enumerate(zip(sentences, tags, strict=True), start=1):
        if len(words) != len(word_tags):
            raise InputError(
                f"{where}: sentence {number} has {len(words)} words but {len(word_tags)} tags; "
                "write one tag per word"
            )


def _parse_raw_jsonl(text: Text) -> Iterator[RawDocument]:
    """Names and paragraphs of JSON lines {"id": ..., "text": "..."}."""
    key = text.key
    for number, where, record in _json_records(text, dict[str, Any]):
        if key not in record and SENTENCES in record:
            raise InputError(
                f"{where}: has 'sentences', but the first record of the file has raw text; put "
                "records of both kinds into different files"
            )
        if key not in record:
            raise InputError(
                f"{where}: has no key {brief(key)} and no 'sentences'; name the key of its text by "
                f"--text_key, one of: {_listed(record)}"
            )
        if not isinstance(record[key], str):
            raise InputError(f"{where}: {brief(key)} is {brief(record[key])}; expected text")
        name = text.named(record.get(_ID), number)
        _require_characters((name, record[key]), where)
        yield name, prose.paragraphs(_PARAGRAPH_BREAK.split(record[key]))


def _parse_table(text: Text, kind: str) -> Iterator[RawDocument]:
    """Names and paragraphs of a table with a header. One column has the text; the column "id", if
    there is one, has the names. A quoted cell may span several lines. Cells of TSV are quoted only
    if the options say so.

    Args:
      text: the table.
      kind: "csv" or "tsv".
    """
    key = text.key
    is_quoted = kind == "csv" or text.options.quoted
    rows = _rows(text, kind, is_quoted)
    where, _, header = next(rows, ("", 0, []))
    for name, times in collections.Counter(header).items():
        if times > 1:
            raise InputError(
                f"{where}: has {times} columns {brief(name)}; expected different names"
            )
    if header and key not in header:
        raise InputError(
            f"{where}: has no column {brief(key)}; name the column of the text by --text_key, one "
            f"of: {_listed(header)}"
        )
    for where, number, row in rows:
        if len(row) != len(header):
            advice = "" if is_quoted else " (add --quoted if quoted cells contain line breaks)"
            raise InputError(
                f"{where}: has {len(row)} cells and the header {len(header)}; expected equal "
                f"numbers{advice}"
            )
        cells = dict(zip(header, row, strict=True))
        if not is_quoted and _QUOTED.fullmatch(cells[key]):
            text.notes.add("quoted cell")
        name = text.named(None if key == _ID else cells.get(_ID), number)
        yield name, prose.paragraphs(_PARAGRAPH_BREAK.split(cells[key]))


def _rows(text: Text, kind: str, is_quoted: bool) -> Iterator[tuple[str, int, list[str]]]:
    """For each row of a table its position for messages, its first line, and its cells."""
    # The default maximum of the module is shorter than many texts.
    csv.field_size_limit(LONGEST_LINE)
    rows = csv.reader(
        (line.text for line in text.lines),
        delimiter=_DELIMITERS[kind],
        quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        number = rows.line_num + 1
        where = f"{text.source}:{number}"
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise InputError(
                f"{where}: the row that begins here is not valid {kind.upper()} ({error}); correct "
                "its quotation marks"
            ) from error
        if row is None:
            return
        if rows.line_num > number:
            example = f"lines {number} to {rows.line_num}"
            text.notes.add("long cell", example, rows.line_num - number)
        if row:
            yield where, number, row


def _listed(names: Iterable[str]) -> str:
    return ", ".join(brief(name)[:40] for name in itertools.islice(names, 30)) or "none"


_PARSERS: dict[str, Callable[[Text], Iterator[Any]]] = {
    "lines": _parse_lines,
    "tagged": _parse_tagged,
    "jsonl": _parse_jsonl,
    "treebank": _parse_treebank,
    "articles": functools.partial(_parse_articles, headings=True),
    "articles_body": functools.partial(_parse_articles, headings=False),
    "prose": _parse_prose,
    "paragraphs": _parse_paragraphs,
    "csv": functools.partial(_parse_table, kind="csv"),
    "tsv": functools.partial(_parse_table, kind="tsv"),
    RAW_JSONL: _parse_raw_jsonl,
}
"""For each format a function from a text to documents, or for formats in RAW to raw documents."""
TEXT_FORMATS = ("auto", *(format for format in _PARSERS if format != RAW_JSONL))
