"""Tables and JSON lines whose columns have alternative sentences, and their contexts."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dclm_jax.data import formats
from dclm_jax.data.documents import Document, cell_text
from dclm_jax.data.readers import TextReader
from dclm_jax.errors import InputError, brief

CONTEXT = "context"


@dataclasses.dataclass(frozen=True)
class PairColumns:
    """The columns of a table of pairs.

    Attributes:
      alternatives: columns of the alternatives, the right alternative first unless `answer` is set.
      context: columns of text before the alternatives. Default: context, in records that have it.
      answer: column with the number of the right alternative, from 1.
      is_passage: whether the only alternative is a passage, whose last sentence is the alternative,
        and whose other sentences belong to the context.
    """

    alternatives: Sequence[str] = ("sentence_good", "sentence_bad")
    context: Sequence[str] | None = None
    answer: str | None = None
    is_passage: bool = False


class Choice(NamedTuple):
    """Alternatives to choose from.

    Attributes:
      alternatives: sentences, as `LanguageModel.score` takes them; of a file lists of words.
      context: sentences before the alternatives.
      columns: other cells of the pair's row, by column.
      where: position of the pair for messages.
      right: index of the right alternative.
    """

    alternatives: Sequence[Any]
    context: Sequence[Any] = ()
    columns: Mapping[str, str] = MappingProxyType({})
    where: str = "a pair"
    right: int = 0


def read_alternatives(path: str, columns: PairColumns, reader: TextReader) -> Iterator[Choice]:
    """The records of a table or of JSON lines, streamed.

    Cells and strings are raw text, as for `readers.read_documents`. The tokenizer divides an
    alternative, which is one sentence, into words, and a context into sentences and words. In JSON
    an alternative may also be a list of words. A context may be a list of sentences, each a list
    of words or a string of words between white space.

    Args:
      path: a file, a folder, or "-" for standard input; the extension of a file sets its format,
        otherwise the reader's options.
      columns: columns of alternatives and contexts.
      reader: an unused reader.
    """
    text = _Words(reader)
    count = 0
    for where, _, cells in reader.records(path):
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
        read = {*columns.alternatives, *context}
        other_cells = {name: cell_text(cells[name]) for name in cells if name not in read}
        yield Choice(sentences, earlier, other_cells, where, right)
    if not count:
        raise InputError(f"{path} has no records; add one record per pair")
    reader.finish(path)


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
    """Divides values of records into sentences and words, as the reader's options say."""

    def __init__(self, reader: TextReader):
        self._reader = reader

    def words(self, value: Any, name: str, where: str) -> list[str]:
        """The words of one sentence."""
        if isinstance(value, str):
            words = self._reader.tokenizer.words(value)
        else:
            words = formats.words_of(value, "word", f"{where}: {brief(name)}")
        (words,) = self._written([words]) or [[]]
        if not words:
            raise InputError(f"{where}: {brief(name)} is {brief(value)}; write one sentence")
        return words

    def sentences(self, value: Any, name: str, where: str) -> list[list[str]]:
        """The sentences that have words of a text or of a list of sentences."""
        if isinstance(value, str):
            return self._written(self._reader.tokenizer.sentences(formats.paragraphs(value)))
        if not isinstance(value, list):
            raise InputError(
                f"{where}: {brief(name)} is {brief(value)}; write text, or a list of sentences"
            )
        place = f"{where}: {brief(name)}"
        return self._written([formats.words_of(part, "word", place) for part in value])

    def context(self, value: Any, name: str, where: str) -> list[list[str]]:
        """The sentences of a context."""
        sentences = self.sentences(value, name, where)
        if not sentences:
            raise InputError(
                f"{where}: the context {brief(name)} has no words; add its text, or choose other "
                "columns by --context_columns"
            )
        return sentences

    def _written(self, sentences: list[list[str]]) -> list[list[str]]:
        (document,) = self._reader.written([Document("", sentences)], keep_empty=True)
        return document.sentences
