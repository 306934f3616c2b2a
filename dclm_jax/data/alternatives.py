"""Tables and JSON lines whose columns have alternative sentences, and their contexts."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dclm_jax.data import formats, prose
from dclm_jax.data.documents import PLAIN, TextOptions
from dclm_jax.data.notes import as_words, composed
from dclm_jax.data.readers import Report, TextReader, finds_words, remembered
from dclm_jax.data.text_files import UTF8
from dclm_jax.errors import InputError, brief

CONTEXT = "context"


@dataclasses.dataclass(frozen=True)
class PairColumns:
    """The columns of a table of pairs.

    Attributes:
      alternatives: columns of the alternatives; without `answer` the first is right.
      context: columns whose texts are read before the alternatives; None for "context", if the
        first record has it.
      answer: column with the number of the right alternative, from 1.
      is_passage: whether the only alternative is a passage, whose last sentence is the alternative,
        and whose other sentences belong to the context.
    """

    alternatives: Sequence[str]
    context: Sequence[str] | None = None
    answer: str | None = None
    is_passage: bool = False


class Alternatives(NamedTuple):
    """Words of alternatives, the right one first; sentences of the context; all other cells; and
    the position of the record."""

    alternatives: list[list[str]]
    context: list[list[str]]
    columns: dict[str, str]
    where: str


def read_alternatives(
    path: str,
    columns: PairColumns,
    options: TextOptions = PLAIN,
    *,
    encoding: str = UTF8,
    report: Report = lambda line: None,
) -> Iterator[Alternatives]:
    """The records of a table or of JSON lines, streamed.

    An alternative is one sentence. With options of raw text the tokenizer divides it into words,
    and contexts into sentences and words. With other options white space divides words, and every
    line of a context is a sentence. In JSON a context may also be a list of sentences.

    Args:
      path: a file, a folder, or "-" for standard input; the extension of a file sets its format,
        otherwise the options.
      columns: columns of alternatives and contexts.
      options, encoding, report: as for `readers.read_documents`.
    """
    reader = TextReader(options, encoding, report)
    text = _Words(options, reader)
    context = columns.context
    count = 0
    for where, cells in reader.records(path):
        count += 1
        if context is None:
            context = [CONTEXT] if CONTEXT in cells else []
        answer = [columns.answer] if columns.answer else []
        used = [*columns.alternatives, *context, *answer]
        formats.require_columns(used, cells, where)
        alternatives = [_text(cells, name, where) for name in columns.alternatives]
        right = _right(cells, columns, where) if columns.answer else 0
        alternatives = [alternatives[right], *alternatives[:right], *alternatives[right + 1 :]]
        earlier = [words for name in context for words in text.context(cells[name], name, where)]
        if columns.is_passage:
            *passage, last = text.sentences(alternatives[0]) or [[]]
            sentences, earlier = [last], [*earlier, *passage]
        else:
            sentences = list(map(text.words, alternatives))
        other_cells = formats.cells_of(cells, [*columns.alternatives, *context])
        yield Alternatives(sentences, earlier, other_cells, where)
    if not count:
        raise InputError(f"{path}: has no records; expected pairs")


def _text(cells: Mapping[str, Any], name: str, where: str) -> str:
    if not isinstance(cells[name], str) or not cells[name].strip():
        raise InputError(f"{where}: {brief(name)} is {brief(cells[name])}; expected a sentence")
    return cells[name]


def _right(cells: Mapping[str, Any], columns: PairColumns, where: str) -> int:
    """The index of the right alternative."""
    value, count = str(cells[columns.answer or ""]), len(columns.alternatives)
    if value not in map(str, range(1, count + 1)):
        raise InputError(
            f"{where}: {brief(columns.answer)} is {brief(value)}; expected the number of the right "
            f"alternative, from 1 to {count}"
        )
    return int(value) - 1


class _Words:
    """Divides texts into sentences and words, as the options say."""

    def __init__(self, options: TextOptions, reader: TextReader):
        self._options, self._notes = options, reader.notes
        tokenizer = prose.Tokenizer(options) if finds_words(remembered(options)) else None
        self._words_of: Callable[[str], list[str]] = tokenizer.words if tokenizer else str.split
        self._tokenizer = tokenizer

    def words(self, text: str) -> list[str]:
        """The words of one sentence."""
        return self._written(self._words_of(self._composed(text)))

    def sentences(self, text: str) -> list[list[str]]:
        """The sentences of a text that have words."""
        if self._tokenizer is None:
            sentences = [self._composed(line).split() for line in text.splitlines()]
        else:
            pieces = formats.paragraphs(text)
            sentences = self._tokenizer.sentences(list(map(self._composed, pieces)))
        return list(filter(None, map(self._written, sentences)))

    def context(self, value: Any, name: str, where: str) -> list[list[str]]:
        """The sentences of a context, which may be a list of sentences."""
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, str) for part in parts):
            raise InputError(
                f"{where}: {brief(name)} is {brief(value)}; expected text, or a list of sentences"
            )
        if isinstance(value, list):
            sentences = list(filter(None, map(self.words, parts)))
        else:
            sentences = self.sentences(value)
        if not sentences:
            raise InputError(
                f"{where}: the context {brief(name)} has no words; add its text, or choose other "
                "columns by --context_columns"
            )
        return sentences

    def _composed(self, text: str) -> str:
        return " ".join(composed(text.split(), self._options.unicode, self._notes))

    def _written(self, words: list[str]) -> list[str]:
        return list(filter(None, as_words(words, self._options, self._notes)))
