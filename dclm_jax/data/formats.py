"""Parsers of text formats, from lines to documents with unchanged words.

`prose` divides raw text, in the format prose or under a key of a record, into sentences and words.
"""

import bisect
import functools
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dclm_jax.data import prose
from dclm_jax.data.documents import Document, TextFormat, TextOptions, value_text
from dclm_jax.data.notes import Notes, composed
from dclm_jax.data.records import (
    TABLES,
    Record,
    listed,
    records,
    require_columns,
)
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
_PARAGRAPH_BREAK = re.compile(r"(?>\r\n?|\n)\s*(?:\r\n?|\n)")
ATTACHED = re.compile(r"\w{2,}[,;!?]")
"""A word with attached punctuation, which is rare in tokenized text."""
_FIRST_LINES = 100


class Text(NamedTuple):
    """A text to parse.

    Attributes:
      lines: lines of the text.
      label: first part of the names of the documents.
      source: name of the text in messages.
      options: options for reading words.
      ids: ids of the input's records so far, with the positions of the records.
      notes: notes of the input that the text belongs to.
      tokenizer: function that returns the tokenizer of raw text.
      cleaned: function from a text to the text without HTML, if the options say so.
      joined_by: columns of a table; consecutive rows with equal cells in these columns are joined
        into one document. Empty for one document per row.
    """

    lines: Iterator[TextLine]
    label: str
    source: str
    options: TextOptions
    ids: dict[str, str]
    notes: Notes
    tokenizer: Callable[[], prose.Tokenizer]
    cleaned: Callable[[str], str]
    joined_by: Sequence[str] = ()

    @property
    def keys(self) -> list[str]:
        """The keys or columns that have raw text, the parts of a text in their order."""
        return list(map(str.strip, (self.options.text_key or DEFAULT_TEXT_KEY).split(",")))

    def named(self, value: Any, number: int) -> str:
        """The name of a record's document: the record's id, or LABEL:LINE if there is no id."""
        where = f"{self.source}:{number}"
        if value is None or value == "":
            return f"{self.label}:{number}"
        name = str(value)
        if not isinstance(value, str | int) or name.splitlines() != [name]:
            raise InputError(
                f"{where}: 'id' is {brief(value)}; write one line of text or a whole number"
            )
        if name in self.ids:
            raise InputError(
                f"{where}: the id {brief(name)} is also at {self.ids[name]}; give each record "
                "its own id, or remove all ids"
            )
        self.ids[name] = where
        return name


# Raw text.


def _divided(
    text: Text,
    name: str,
    paragraphs: prose.Paragraphs,
    rows: Sequence[Mapping[str, Any]] = (),
    parts: Sequence[str] = (),
) -> Document:
    """A document of raw text; from a table also the other values of its row or of the rows that
    were joined, and `parts`, the texts of joined rows."""
    sentences, row_of_word = text.tokenizer().sentences(paragraphs), None
    if len(parts) > 1:
        normalized = text.tokenizer().normalized
        sizes = [sum(map(len, normalized(part).split())) for part in parts]
        row_of_word = _rows_of_words(sentences, sizes)
    return Document(name, sentences, rows=rows, row_of_word=row_of_word)


def _rows_of_words(sentences: prose.WordLists, sizes: Sequence[int]) -> list[list[int]]:
    """The row in which each word of a document begins, given the number of characters per row."""
    ends, first, indices = list(itertools.accumulate(sizes)), 0, []
    for words in sentences:
        starts = itertools.accumulate(map(len, words), initial=first)
        *begins, first = starts
        indices.append([bisect.bisect_right(ends, begin) for begin in begins])
    return indices


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


def _is_divider(line: TextLine, notes: Notes) -> bool:
    """Whether a line ends a document; notes count a title in it."""
    mark = _DIVIDER.match(line.text)
    if mark is None:
        return False
    if title := line.text[mark.end() :].split():
        notes.add("title", brief(line.text.strip()), len(title))
    return True


def _sentence_blocks(text: Text) -> Iterator[list[TextLine]]:
    """The lines of each document of the formats lines and tagged."""
    return _blocks(text.lines, lambda line: _is_blank(line) or _is_divider(line, text.notes))


def _note_attached(first: Iterable[str], notes: Notes, kind: str) -> None:
    """Notes attached punctuation in the first tokenized lines or sentences of a text."""
    tokens = [token for line in first for token in line.split()]
    attached = list(filter(ATTACHED.fullmatch, tokens))
    if len(attached) >= max(5, len(tokens) / 100, 4 * tokens.count(",")):
        notes.add(kind, brief(attached[0]))


def _parse_lines(text: Text) -> Iterator[Document]:
    first = list(itertools.islice(text.lines, _FIRST_LINES))
    _note_attached((line for _, line in first), text.notes, "attached")
    text = text._replace(lines=itertools.chain(first, text.lines))
    for block in _sentence_blocks(text):
        yield Document(
            f"{text.label}:{block[0].number}", [text.cleaned(line).split() for _, line in block]
        )


def _parse_tagged(text: Text) -> Iterator[Document]:
    for block in _sentence_blocks(text):
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
        yield Document(f"{text.label}:{block[0].number}", sentences, tags)


def _parse_prose(text: Text) -> Iterator[Document]:
    for block in _blocks(text.lines, lambda line: _is_divider(line, text.notes)):
        if texts := paragraphs(text.cleaned("".join(line for _, line in block)), None):
            text.notes.has_paragraphs |= len(texts) > 1
            first = next(line.number for line in block if not _is_blank(line))
            yield _divided(text, f"{text.label}:{first}", texts)


# JSON lines and tables.


def _records(text: Text, kind: str) -> Iterator[Record]:
    return records(text.lines, text.source, kind, text.notes)


def _parse_jsonl(text: Text) -> Iterator[Document]:
    """Documents of JSON lines {"id": ..., "sentences": [...]} or of raw text."""

    def is_tokenized(record: Record) -> bool:
        has_raw_text = text.options.text_key and set(text.keys) <= record.cells.keys()
        return SENTENCES in record.cells and not has_raw_text

    for are_tokenized, group in itertools.groupby(_records(text, "jsonl"), is_tokenized):
        if are_tokenized:
            first = list(itertools.islice(group, _FIRST_LINES))
            sentences = (
                sentence for record in first for sentence in _listed(record.cells[SENTENCES])
            )
            strings = (sentence for sentence in sentences if isinstance(sentence, str))
            _note_attached(strings, text.notes, "attached in strings")
            yield from (_tokenized(text, record) for record in itertools.chain(first, group))
        else:
            yield from _raw_documents(text, "jsonl", group)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _tokenized(text: Text, record: Record) -> Document:
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
    name = text.named(values.get(_ID), number)
    cells = _without(values, (SENTENCES, _ID))
    words = [text.cleaned(" ".join(_words_of(sentence, where))).split() for sentence in sentences]
    return Document(name, words, rows=[cells] if cells else ())


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


def _parse_table(text: Text, kind: str) -> Iterator[Document]:
    return _raw_documents(text, kind, _records(text, kind))


def _raw_documents(text: Text, kind: str, group: Iterable[Record]) -> Iterator[Document]:
    """Documents of records with raw text under a key. A document is a record, named after its value
    of "id", or a run of consecutive records with equal values of `joined_by`."""

    def joined(record: Record) -> Sequence[Any]:
        return [value_text(record.cells[name]) for name in text.joined_by] or [record.number]

    checked = (_with_raw_text(text, kind, record) for record in group)
    for key, regions in itertools.groupby(checked, joined):
        (where, number, cells), *others = regions
        name = "/".join(key) if text.joined_by else None
        if name is None:
            name = None if _ID in text.keys else cells.get(_ID)
        elif name in text.ids:
            raise InputError(
                f"{where}: {brief(name)} also has rows at {text.ids[name]}, and other rows are "
                f"between them; sort the rows by {', '.join(text.joined_by)}"
            )
        of_regions = [cells, *(region.cells for region in others)]
        parts = [cells[key] for cells in of_regions for key in text.keys]
        rows = [
            {**_without(cells, (*text.keys, _ID)), **({_PART: key} if len(text.keys) > 1 else {})}
            for cells in of_regions
            for key in text.keys
        ]
        name = text.named(name, number)
        # A part of a text may begin with =.
        of_text = paragraphs("\n".join(parts), text.notes if len(parts) == 1 else None)
        yield _divided(text, name, of_text, rows if any(rows) else (), parts)


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
        cells = {**cells, key: text.cleaned(cells[key])}
        if kind == "tsv" and _QUOTED.fullmatch(cells[key]):
            text.notes.add("quoted cell")
    if len(set(text.keys)) < len(text.keys):
        raise InputError(f"--text_key={text.options.text_key} names a column twice; remove one")
    if len(text.keys) > 1 and _PART in cells:
        raise InputError(
            f"{where}: the column {_PART} has the name of a column of the result; rename it"
        )
    require_columns(text.joined_by, cells, where)
    words = " ".join(cells[key] for key in text.keys).split()
    if text.joined_by and not any(composed(words, text.options.unicode)):
        raise InputError(f"{where}: the row has no word; add its text, or remove it")
    return Record(where, number, cells if is_table else _without(cells, (SENTENCES,)))


def paragraphs(text: str, notes: Notes | None) -> prose.Paragraphs:
    """The paragraphs of a cell or string of raw text, divided by blank lines and by lines that
    begin with =, whose titles `notes` count. Without `notes` such lines are text."""
    if notes is not None and "=" in text:
        lines = itertools.starmap(TextLine, enumerate(io.StringIO(text, newline=None), start=1))
        text = "".join("\n\n" if _is_divider(line, notes) else line.text for line in lines)
    return prose.nonempty_paragraphs(_PARAGRAPH_BREAK.split(text))


def text_document(text: Text, name: str, string: str) -> Document:
    """The document of a string of raw text."""
    return _divided(text, name, paragraphs(text.cleaned(string), text.notes))


PARSERS: dict[TextFormat, Callable[[Text], Iterator[Document]]] = {
    "lines": _parse_lines,
    "tagged": _parse_tagged,
    "jsonl": _parse_jsonl,
    "csv": functools.partial(_parse_table, kind="csv"),
    "tsv": functools.partial(_parse_table, kind="tsv"),
    "prose": _parse_prose,
}
"""For each format a function from a text to its documents, with unchanged words."""
