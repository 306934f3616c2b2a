"""Tables and JSON lines whose columns have alternative sentences, and their contexts."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dclm_jax.data import formats
from dclm_jax.data.documents import Document, cell_text
from dclm_jax.data.readers import TextReader
from dclm_jax.errors import InputError, brief

CONTEXT = "context"
"""The column of text before the alternatives."""


class Choice(NamedTuple):
    """Alternatives to choose from.

    Attributes:
      alternatives: sentences, as `LanguageModel.score` takes them, the right one first; of a file
        lists of words.
      context: sentences before the alternatives.
      columns: other cells of the pair's row, by column.
      where: position of the pair for messages.
    """

    alternatives: Sequence[Any]
    context: Sequence[Any] = ()
    columns: Mapping[str, str] = MappingProxyType({})
    where: str = "a pair"


def read_alternatives(path: str, names: Sequence[str], reader: TextReader) -> Iterator[Choice]:
    """The records of a table or of JSON lines, streamed.

    Cells are raw text, as for `readers.read_documents`. The tokenizer divides an alternative, which
    is one sentence, into words, and the context, if the record has one, into sentences and words.

    Args:
      path: a file, a folder, or "-" for standard input; the extension of a file sets its format,
        otherwise the reader's options.
      names: columns of the alternatives, the right alternative first.
      reader: an unused reader.
    """
    tokenizer, count = reader.tokenizer, 0

    def written(name: str, sentences: list[list[str]]) -> list[list[str]]:
        (document,) = reader.written([Document("", sentences)], keep_empty=True)
        if not any(document.sentences):
            raise InputError(f"{where}: {brief(name)} has no words; add its text")
        return document.sentences

    for where, _, cells in reader.records(path):
        count += 1
        formats.require_columns(names, cells, where)
        texts = {name: cells[name] for name in (*names, CONTEXT) if name in cells}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise InputError(f"{where}: {brief(name)} is {brief(text)}; write text")
        alternatives = [written(name, [tokenizer.words(texts[name])])[0] for name in names]
        context = []
        if CONTEXT in texts:
            paragraphs = formats.paragraphs(texts[CONTEXT])
            context = written(CONTEXT, tokenizer.sentences(paragraphs))
        columns = {name: cell_text(cells[name]) for name in cells if name not in texts}
        yield Choice(alternatives, context, columns, where)
    if not count:
        raise InputError(f"{path} has no records; add one record per pair")
    reader.finish(path)
