"""Records with a text or its sentences, and with a name: JSON lines, CSV and TSV."""

import collections
import csv
import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from dclm_jax.data.documents import LONGEST_LINE, Document, Line, TextOptions
from dclm_jax.data.oddities import Oddities
from dclm_jax.data.prose import Paragraphs, paragraphs
from dclm_jax.errors import InputError, shown
from dclm_jax.files import parse_json

RawDocument = tuple[str, Paragraphs]
"""A name and paragraphs of running text."""

Value = TypeVar("Value")

DEFAULT_TEXT_KEY = "text"
SENTENCES, _ID = "sentences", "id"
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
_PARAGRAPH_BREAK = re.compile(r"(?>\r\n?|\n)\s*(?:\r\n?|\n)")


class Text(NamedTuple):
    """A text to parse.

    Attributes:
      lines: of the text.
      label: what its documents are called after.
      source: what to call it in messages.
      options: how it becomes words.
      ids: the ids that documents have given themselves so far, and where.
      oddities: the counts of the input it belongs to.
    """

    lines: Iterator[Line]
    label: str
    source: str
    options: TextOptions
    ids: dict[str, str]
    oddities: Oddities

    def named(self, value: Any, number: int) -> str:
        """The name of the document of a record: its id, or LABEL:LINE where it has none."""
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
                f"{where}: the id {shown(name)} is that of {self.ids[name]} already; expected "
                "different ids, or none"
            )
        self.ids[name] = where
        return name


@dataclasses.dataclass(frozen=True)
class _Record:
    sentences: list[Any]
    tags: list[Any] | None = None
    id: Any = None


def _parsed(line: str, where: str, kind: type[Value]) -> Value:
    """A record from its line."""
    if not line.lstrip().startswith("{") or not line.rstrip().endswith("}"):
        raise InputError(
            f"{where}: is {shown(line.strip())}; expected JSON lines: an object on each line, with "
            "'text' or 'sentences' (jq -c '.[]' makes them of an array, jq -c . of other JSON)"
        )
    return parse_json(line, where, kind)


def read_sentences(text: Text) -> Iterator[Document]:
    """Documents of JSON lines {"id": ..., "sentences": [...], "tags": [...]}."""
    for number, line in text.lines:
        if not line.strip():
            continue
        where = f"{text.source}:{number}"
        record = _parsed(line, where, _Record)
        sentences = [_words(sentence, "word", where) for sentence in record.sentences]
        tags = None
        if record.tags is not None:
            tags = [_words(sentence, "tag", where) for sentence in record.tags]
            _check_tags(sentences, tags, where)
        document = Document(text.named(record.id, number), sentences, tags)
        _check_characters(document, line, where)
        yield document


def read_objects(text: Text) -> Iterator[RawDocument]:
    """Names and paragraphs of JSON lines {"id": ..., "text": "..."}."""
    key = text.options.text_key or DEFAULT_TEXT_KEY
    for number, line in text.lines:
        if not line.strip():
            continue
        where = f"{text.source}:{number}"
        record = _parsed(line, where, dict[str, Any])
        if key not in record and SENTENCES in record:
            raise InputError(
                f"{where}: holds 'sentences', and the first line of the file holds raw text; "
                "divide the file in two"
            )
        if key not in record:
            raise InputError(
                f"{where}: has no {shown(key)}, nor 'sentences' of words; --text_key names the key "
                f"of its text, of: {_listed(record)}"
            )
        if not isinstance(record[key], str):
            raise InputError(f"{where}: {shown(key)} is {shown(record[key])}; expected text")
        name = text.named(record.get(_ID), number)
        _check_characters((name, record[key]), line, where)
        yield name, paragraphs(_PARAGRAPH_BREAK.split(record[key]))


def read_rows(text: Text, kind: str) -> Iterator[RawDocument]:
    """Names and paragraphs of a table with a header; of its columns one is text, and "id", if it is
    there, has names. A quoted cell may go over several lines; those of TSV are quoted only where
    the options say so.

    Args:
      text: the table.
      kind: "csv" or "tsv".
    """
    key = text.options.text_key or DEFAULT_TEXT_KEY
    is_quoted = kind == "csv" or text.options.quoted
    # A text may be longer than the module expects of a cell.
    csv.field_size_limit(LONGEST_LINE)
    rows = csv.reader(
        (line.text for line in text.lines),
        delimiter=_DELIMITERS[kind],
        quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
        strict=True,
    )
    header: list[str] = []
    while True:
        number = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise InputError(
                f"{text.source}:{number}: the row that begins here is no {kind.upper()}: {error}"
            ) from error
        if row is None:
            return
        where = f"{text.source}:{number}"
        if not row:
            continue
        if not header:
            header = row
            (name, times), *_ = collections.Counter(header).most_common(1)
            if times > 1:
                raise InputError(f"{where}: has several columns {shown(name)}; expected one")
            if key not in header:
                raise InputError(
                    f"{where}: has no column {shown(key)}; --text_key names that of its text, of: "
                    f"{_listed(header)}"
                )
            continue
        if len(row) != len(header):
            advice = "" if is_quoted else " (--quoted if cells are quoted and hold line breaks)"
            raise InputError(
                f"{where}: has {len(row)} cells; expected {len(header)}, as many as the header"
                f"{advice}"
            )
        if rows.line_num > number:
            text.oddities.add_long_cell(number, rows.line_num)
        cells = dict(zip(header, row, strict=True))
        text.oddities.quoted_cells += not is_quoted and bool(_QUOTED.fullmatch(cells[key]))
        name = text.named(None if key == _ID else cells.get(_ID), number)
        yield name, paragraphs(_PARAGRAPH_BREAK.split(cells[key]))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(shown(name)[:40] for name in itertools.islice(names, 30)) or "none"


def _check_characters(value: Any, line: str, where: str) -> None:
    if "\\u" in line:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"{where}: holds half of a surrogate pair, which is no text"
            ) from error


def _words(sentence: Any, kind: str, where: str) -> list[str]:
    if isinstance(sentence, str):
        return sentence.split()
    if isinstance(sentence, list) and all(isinstance(word, str) for word in sentence):
        for word in sentence:
            if word.split() != [word]:
                raise InputError(f"{where}: a {kind} is empty or holds white space: {shown(word)}")
        return sentence
    of = "" if kind == "word" else f"the {kind}s of "
    raise InputError(f"{where}: expected {of}each sentence to be a string or a list of {kind}s")


def _check_tags(sentences: list[list[str]], tags: list[list[str]], where: str) -> None:
    if len(tags) != len(sentences):
        raise InputError(f"{where}: has {len(sentences)} sentences but tags for {len(tags)}")
    for number, (words, own) in enumerate(zip(sentences, tags, strict=True), start=1):
        if len(words) != len(own):
            raise InputError(
                f"{where}: sentence {number} has {len(words)} words but {len(own)} tags"
            )
