"""Tables and JSON lines whose columns have alternative sentences, and their contexts."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from dclm_jax.data import formats, prose
from dclm_jax.data.documents import PLAIN, Document, TextOptions
from dclm_jax.data.notes import composed
from dclm_jax.data.readers import Report, TextReader
from dclm_jax.data.text_files import UTF8
from dclm_jax.errors import InputError, brief

CONTEXT = "context"


@dataclasses.dataclass(frozen=True)
class PairColumns:
    """The columns of a table of pairs.

    Attributes:
      alternatives: columns of the alternatives; without `answer` the first is right.
      context: columns whose texts are read before the alternatives; None for "context" in records
        that have it.
      answer: column with the number of the right alternative, from 1.
      is_passage: whether the only alternative is a passage, whose last sentence is the alternative,
        and whose other sentences belong to the context.
    """

    alternatives: Sequence[str]
    context: Sequence[str] | None = None
    answer: str | None = None
    is_passage: bool = False


class Alternatives(NamedTuple):
    """Words of the alternatives, in the order of their columns; sentences of the context; all other
    cells; the position of the record; and the index of the right alternative."""

    alternatives: list[list[str]]
    context: list[list[str]]
    columns: dict[str, str]
    where: str
    right: int = 0


def read_alternatives(
    path: str,
    columns: PairColumns,
    options: TextOptions = PLAIN,
    *,
    encoding: str = UTF8,
    report: Report = lambda line: None,
) -> Iterator[Alternatives]:
    """The records of a table or of JSON lines, streamed.

    Cells and strings are raw text, as for `readers.read_documents`. The tokenizer divides an
    alternative, which is one sentence, into words, and a context into sentences and words. In JSON
    an alternative may also be a list of words. A context may be a list of sentences, each a list
    of words or a string of words between white space.

    Args:
      path: a file, a folder, or "-" for standard input; the extension of a file sets its format,
        otherwise the options.
      columns: columns of alternatives and contexts.
      options, encoding, report: as for `readers.read_documents`.
    """
    reader = TextReader(options, encoding, report)
    text = _Words(options, reader)
    count = 0
    for where, cells in reader.records(path):
        count += 1
        context = columns.context
        if context is None:
            context = [CONTEXT] if CONTEXT in cells else []
        answer = [columns.answer] if columns.answer else []
        used = [*columns.alternatives, *context, *answer]
        formats.require_columns(used, cells, where)
        earlier = [words for name in context for words in text.context(cells[name], name, where)]
        if columns.is_passage:
            (name,) = columns.alternatives
            *passage, last = text.sentences(cells[name], name, where) or [[]]
            sentences, earlier = [last], [*earlier, *passage]
        else:
            sentences = [text.words(cells[name], name, where) for name in columns.alternatives]
        right = _right(cells, columns, where) if columns.answer else 0
        other_cells = formats.cells_of(cells, [*columns.alternatives, *context])
        yield Alternatives(sentences, earlier, other_cells, where, right)
    if not count:
        raise InputError(f"{path} has no records; add one record per pair")
    reader.finish(path, report)


def _right(cells: Mapping[str, Any], columns: PairColumns, where: str) -> int:
    """The index of the right alternative."""
    value, count = str(cells[columns.answer or ""]), len(columns.alternatives)
    if value not in map(str, range(1, count + 1)):
        raise InputError(
            f"{where}: {brief(columns.answer)} is {brief(value)}; write the number of the right "
            f"alternative, from 1 to {count}"
        )
    return int(value) - 1


class _Words:
    """Divides values of records into sentences and words, as the options say."""

    def __init__(self, options: TextOptions, reader: TextReader):
        self._options, self._reader = options, reader

    @functools.cached_property
    def _tokenizer(self) -> prose.Tokenizer:
        """The tokenizer, which records without raw text do not need."""
        return prose.Tokenizer(self._options)

    def words(self, value: Any, name: str, where: str) -> list[str]:
        """The words of one sentence; none if it has only format characters that are removed."""
        if isinstance(value, str) and value.strip():
            words = self._tokenizer.words(self._composed(value))
        elif _is_words(value) and value:
            words = value
        else:
            raise InputError(f"{where}: {brief(name)} is {brief(value)}; write one sentence")
        (words,) = self._written([words]) or [[]]
        return words

    def sentences(self, value: Any, name: str, where: str) -> list[list[str]]:
        """The sentences that have words of a text or of a list of sentences."""
        if isinstance(value, str):
            pieces = formats.paragraphs(value)
            return self._written(self._tokenizer.sentences(list(map(self._composed, pieces))))
        parts = value if isinstance(value, list) else [None]
        parts = [part.split() if isinstance(part, str) else part for part in parts]
        sentences = list(filter(_is_words, parts))
        if len(sentences) < len(parts):
            raise InputError(
                f"{where}: {brief(name)} is {brief(value)}; write text, or a list of sentences"
            )
        return self._written(sentences)

    def context(self, value: Any, name: str, where: str) -> list[list[str]]:
        """The sentences of a context."""
        sentences = self.sentences(value, name, where)
        if not sentences:
            raise InputError(
                f"{where}: the context {brief(name)} has no words; add its text, or choose other "
                "columns by --context_columns"
            )
        return sentences

    def _composed(self, text: str) -> str:
        return " ".join(composed(text.split(), self._options.unicode, self._reader.notes))

    def _written(self, sentences: list[list[str]]) -> list[list[str]]:
        (document,) = self._reader.written([Document("", sentences)], keep_empty=True)
        return document.sentences


def _is_words(value: Any) -> TypeGuard[list[str]]:
    """Whether a value is a list of words."""
    return isinstance(value, list) and all(
        isinstance(word, str) and word.split() == [word] for word in value
    )
