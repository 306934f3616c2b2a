"""Parsers of text formats: from lines to raw documents, whose text is not yet words."""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dclm_jax.data.documents import TextFormat, TextOptions, value_text
from dclm_jax.data.notes import Notes
from dclm_jax.data.records import TABLES, Record, listed, records, require_columns
from dclm_jax.data.text_files import TextLine
from dclm_jax.errors import InputError, brief
from dclm_jax.tables import has_text

RAW = ("prose", *TABLES)
"""Formats of raw text. JSON lines have raw or tokenized text."""
DEFAULT_TEXT_KEY = "text"
SENTENCES, _ID = "sentences", "id"
_PART = "text_key"
"""Name of the column of results that says from which column of the input a word is."""
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
_DIVIDER = re.compile(r"=+(?!\S)")
ATTACHED = re.compile(r"\w{2,}[,;!?]")
"""A word with attached punctuation, which is rare in tokenized text."""
_FIRST_LINES = 100


class Text(NamedTuple):
    """A text to parse.

    Attributes:
      lines: lines of the text.
      source: name of the text in messages.
      options: text options; the parsers use the keys of records.
      notes: notes of the input that the text belongs to.
      joined_by: columns of a table; consecutive rows with equal cells in these columns are joined
        into one document. Empty for one document per row.
    """

    lines: Iterator[TextLine]
    source: str
    options: TextOptions
    notes: Notes
    joined_by: Sequence[str] = ()

    @property
    def keys(self) -> list[str]:
        """The keys or columns that have raw text, the parts of a text in their order."""
        return list(map(str.strip, (self.options.text_key or DEFAULT_TEXT_KEY).split(",")))


class RawDocument(NamedTuple):
    """A document of a text: raw text, or tokenized sentences.

    Attributes:
      where: position of each part for messages, FILE:LINE.
      number: its first line.
      name: the id of its record; None without an id.
      texts: parts of raw text: a block of lines, or cells of one or more records.
      sentences: tokenized sentences, each a line or a list of words.
      tags: the part of speech of each word, for tagged text.
      rows: the other values of the record, or of each part of a text with several parts.
      is_block: whether the raw text is a block of lines of the format prose.
      is_joined: whether consecutive records are joined by their cells; each must have a word.
    """

    where: Sequence[str]
    number: int
    name: Any = None
    texts: Sequence[str] = ()
    sentences: Sequence[str | Sequence[str]] = ()
    tags: list[list[str]] | None = None
    rows: Sequence[Mapping[str, Any]] = ()
    is_block: bool = False
    is_joined: bool = False


# Lines.


def _blocks(
    lines: Iterable[TextLine], is_boundary: Callable[[TextLine], bool]
) -> Iterator[list[TextLine]]:
    """Runs of lines between boundaries."""
    for at_boundary, block in itertools.groupby(lines, is_boundary):
        if not at_boundary:
            yield list(block)


def _is_blank(line: TextLine) -> bool:
    return not line.text.strip()


def is_divider(line: TextLine, notes: Notes) -> bool:
    """Whether a line ends a document; notes count a title in it."""
    mark = _DIVIDER.match(line.text)
    if mark is None:
        return False
    if title := line.text[mark.end() :].split():
        notes.add("title", brief(line.text.strip()), len(title))
    return True


def _sentence_blocks(text: Text) -> Iterator[tuple[RawDocument, list[TextLine]]]:
    """The documents of the formats lines and tagged without their sentences, and their lines."""
    for block in _blocks(text.lines, lambda line: _is_blank(line) or is_divider(line, text.notes)):
        number = block[0].number
        yield RawDocument([f"{text.source}:{number}"], number), block


def _note_attached(first: Iterable[str], notes: Notes, kind: str) -> None:
    """Notes attached punctuation in the first tokenized lines or sentences of a text."""
    tokens = [token for line in first for token in line.split()]
    attached = list(filter(ATTACHED.fullmatch, tokens))
    if len(attached) >= max(5, len(tokens) / 100, 4 * tokens.count(",")):
        notes.add(kind, brief(attached[0]))


def _parse_lines(text: Text) -> Iterator[RawDocument]:
    first = list(itertools.islice(text.lines, _FIRST_LINES))
    _note_attached((line for _, line in first), text.notes, "attached")
    text = text._replace(lines=itertools.chain(first, text.lines))
    for document, block in _sentence_blocks(text):
        yield document._replace(sentences=[line for _, line in block])


def _parse_tagged(text: Text) -> Iterator[RawDocument]:
    for document, block in _sentence_blocks(text):
        sentences, tags = [], []
        for number, line in block:
            tokens = line.split()
            pairs = [token.rpartition("/")[::2] for token in tokens]
            for token, pair in zip(tokens, pairs, strict=True):
                if not all(pair):
                    raise InputError(
                        f"{text.source}:{number}: the token {brief(token)} has no word or no tag; "
                        "write WORD/TAG, or add --format=lines to read words without tags"
                    )
            sentences.append([word for word, _ in pairs])
            tags.append([tag for _, tag in pairs])
        yield document._replace(sentences=sentences, tags=tags)


def _parse_prose(text: Text) -> Iterator[RawDocument]:
    for block in _blocks(text.lines, lambda line: is_divider(line, text.notes)):
        if numbers := [line.number for line in block if not _is_blank(line)]:
            string = "".join(line for _, line in block)
            where = [f"{text.source}:{numbers[0]}"]
            yield RawDocument(where, numbers[0], texts=[string], is_block=True)


# JSON lines and tables.


def _parse_table(text: Text, kind: str) -> Iterator[RawDocument]:
    return _raw_documents(text, kind, records(text.lines, text.source, kind, text.notes))


def _parse_jsonl(text: Text) -> Iterator[RawDocument]:
    """Documents of JSON lines {"id": ..., "sentences": [...]} or of raw text."""

    def is_tokenized(record: Record) -> bool:
        has_raw_text = text.options.text_key and set(text.keys) <= record.cells.keys()
        return SENTENCES in record.cells and not has_raw_text

    all_records = records(text.lines, text.source, "jsonl", text.notes)
    for are_tokenized, group in itertools.groupby(all_records, is_tokenized):
        if not are_tokenized:
            yield from _raw_documents(text, "jsonl", group)
            continue
        first = list(itertools.islice(group, _FIRST_LINES))
        sentences = (sentence for record in first for sentence in _listed(record.cells[SENTENCES]))
        strings = (sentence for sentence in sentences if isinstance(sentence, str))
        _note_attached(strings, text.notes, "attached in strings")
        yield from (_tokenized(text, record) for record in itertools.chain(first, group))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _tokenized(text: Text, record: Record) -> RawDocument:
    """The document of a JSON object with "sentences"."""
    where, number, values = record
    if text.joined_by:
        raise InputError(
            f"{where}: the record has 'sentences', and only raw text can be joined; remove "
            "--join_rows"
        )
    sentences = values[SENTENCES]
    if not isinstance(sentences, list):
        raise InputError(f"{where}: 'sentences' is {brief(sentences)}; write a list of sentences")
    cells = _without(values, (SENTENCES, _ID))
    words = [_words_of(sentence, where) for sentence in sentences]
    rows = [cells] if cells else ()
    return RawDocument([where], number, values.get(_ID), sentences=words, rows=rows)


def _without(record: Mapping[str, Any], others: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in others}


def _words_of(sentence: Any, where: str) -> list[str]:
    """The words of a sentence in a record: of a string or a list."""
    if isinstance(sentence, str):
        return sentence.split()
    if isinstance(sentence, list) and all(isinstance(word, str) for word in sentence):
        for word in sentence:
            if word.split() != [word]:
                raise InputError(
                    f"{where}: a word is {brief(word)}; write characters without white space"
                )
        return sentence
    raise InputError(f"{where}: a sentence is {brief(sentence)}; write a string or a list of words")


def _raw_documents(text: Text, kind: str, group: Iterable[Record]) -> Iterator[RawDocument]:
    """Documents of records with raw text under a key. A document is a record, named after its value
    of "id", or a run of consecutive records with equal values of `joined_by`, named after them."""

    def joined(record: Record) -> Sequence[Any]:
        return [value_text(record.cells[name]) for name in text.joined_by] or [record.number]

    checked = (_with_raw_text(text, kind, record) for record in group)
    for key, group_of_key in itertools.groupby(checked, joined):
        regions = list(group_of_key)
        parts = [(where, cells, key) for where, _, cells in regions for key in text.keys]
        rows = [
            {
                **_without(cells, (*text.keys, _ID)),
                **({_PART: key} if len(text.keys) > 1 else {}),
            }
            for _, cells, key in parts
        ]
        name = "/".join(key) if text.joined_by else None
        if not text.joined_by and _ID not in text.keys:
            name = regions[0].cells.get(_ID)
        yield RawDocument(
            [where for where, _, _ in parts],
            regions[0].number,
            name,
            texts=[cells[key] for _, cells, key in parts],
            rows=rows if any(rows) else (),
            is_joined=bool(text.joined_by),
        )


def _with_raw_text(text: Text, kind: str, record: Record) -> Record:
    """The record, which must have raw text and the columns `joined_by`; without tokenized text."""
    is_table = kind in TABLES
    where, number, cells = record
    for key in text.keys:
        if key not in cells:
            lacking = f"column {brief(key)}" if is_table else f"key {brief(key)} and no 'sentences'"
            raise InputError(
                f"{where}: the record has no {lacking}; set --text_key to one column, or to the "
                f"parts of a text such as context,target, from: {listed(cells)}"
            )
        if not isinstance(cells[key], str):
            raise InputError(f"{where}: {brief(key)} is {brief(cells[key])}; write a string")
        # A row that is joined may be a word of a text.
        if is_table and not text.joined_by and cells[key].strip() and not has_text(cells[key]):
            if len(text.keys) == 1:
                text.notes.add("no text", where)
            cells = {**cells, key: ""}
        if kind == "tsv" and _QUOTED.fullmatch(cells[key]):
            text.notes.add("quoted cell")
    if len(set(text.keys)) < len(text.keys):
        raise InputError(f"--text_key={text.options.text_key} names a column twice; remove one")
    if len(text.keys) > 1 and _PART in cells:
        raise InputError(
            f"{where}: the column {_PART} has the name of a column of the result; rename it"
        )
    require_columns(text.joined_by, cells, where)
    return Record(where, number, cells if is_table else _without(cells, (SENTENCES,)))


PARSERS: dict[TextFormat, Callable[[Text], Iterator[RawDocument]]] = {
    "lines": _parse_lines,
    "tagged": _parse_tagged,
    "jsonl": _parse_jsonl,
    "csv": functools.partial(_parse_table, kind="csv"),
    "tsv": functools.partial(_parse_table, kind="tsv"),
    "prose": _parse_prose,
}
"""For each format the function from a text to its raw documents."""
