"""Documents, and the options by which text becomes documents."""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from dclm_jax.errors import InputError, brief
from dclm_jax.files import json_text, require_valid

TextFormat = Literal["lines", "tagged", "jsonl", "csv", "tsv", "prose"]
TEXT_FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)
NO_FORM = "none"
_LANGUAGE = re.compile("[a-z]{2,3}")
_WITHOUT_SPACES = frozenset(
    # Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan, and languages with these scripts.
    "zh zho chi cmn yue wuu gan hsn cjy lzh ja jpn th tha tts nod sou lo lao km khm my mya bur shn "
    "mnw ksw blk bo bod tib dz dzo khb tdd ii iii".split()
)
"""Codes of languages whose writing has no spaces between words."""
OnDocument = Callable[[int], None]
"""A function that is called after every document with the number of documents so far."""


class Document(NamedTuple):
    """A document.

    Attributes:
      id: name of the document.
      sentences: lists of at least one word.
      tags: the part of speech of each word, for tagged text.
      rows: the other values of the document's row in a table, by column, or of its JSON object, by
        key; several rows if the document was joined from rows.
      row_of_word: the index of each word's row, if there are several rows.
    """

    id: str
    sentences: list[list[str]]
    tags: list[list[str]] | None = None
    rows: Sequence[Mapping[str, Any]] = ()
    row_of_word: list[list[int]] | None = None


Columns = Mapping[str, list[list[str | None]]]
"""Cells by column: one per target of each sentence."""


def columns(document: Document) -> Columns:
    """The cells of a document's rows at its targets.

    A word has the cells of its row. END has the cells that are equal in all rows of the document,
    and None in other columns: it belongs to no row.
    """
    word_rows = document.row_of_word or [[0] * len(words) for words in document.sentences]
    cells_of = {
        name: [value_text(row.get(name)) for row in document.rows]
        for name in column_names(document)
    }
    return {
        name: [
            [*(cells[row] for row in sentence_rows), _common(cells)] for sentence_rows in word_rows
        ]
        for name, cells in cells_of.items()
    }


def column_names(document: Document) -> list[str]:
    """The names of the columns of a document's rows, in their order."""
    return list(dict.fromkeys(name for row in document.rows for name in row))


def require_free_names(
    columns: Iterable[str],
    taken: Collection[str],
    where: str = "",
) -> None:
    """Raises an `InputError` if a column of the input has the name of a column of the result.

    Args:
      columns: names of columns of the input.
      taken: names of columns of the result. A column of one of several runs is called NAME:RUN.
      where: beginning of the message, the position of the columns.
    """
    for name in columns:
        if any(f"{name}:".startswith(f"{column}:") for column in taken):
            raise InputError(
                f"{where}the column {brief(name)} of the input has the name of a column of the "
                "result; rename or remove the column"
            )


def value_text(value: Any) -> str:
    """The text of a cell: the JSON of a value that is no string, nothing for null."""
    return value if isinstance(value, str) else "" if value is None else json_text(value)


def _common(cells: Sequence[str]) -> str | None:
    return cells[0] if len(set(cells)) == 1 else None


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """Options by which text becomes documents of words. A run saves the options of its training
    text, and reads other text with these options.

    Attributes:
      format: format of text (launch/text.md). Files named .jsonl, .json, .csv and .tsv have the
        format of their name.
      lowercase: convert words to lower case, as `language` does.
      normalize: normalize quotes, dashes and other punctuation of raw text, as Moses does.
        Tokenized text is never normalized.
      strip_html: remove HTML tags, and replace character references such as &amp; by characters.
      text_key: column of CSV and TSV, or key of JSON lines, with raw text. Several, separated by
        commas (context,target), are parts of one text. "text" if a new corpus does not set it.
      language: language code of the text, as in Wikipedia, such as en, de or ckb.
      unicode: Unicode normal form of words: nfc composes letters and accents, and removes format
        characters at the edges of words.
      unknown_token: token that stands for OOV words in the text, such as <unk>. Raw text keeps it
        as one word. A named corpus has a fixed token.
    """

    format: TextFormat = "lines"
    lowercase: bool = False
    normalize: bool = False
    strip_html: bool = False
    text_key: str | None = None
    language: str = "en"
    unicode: Literal["none", "nfc"] = NO_FORM
    unknown_token: str | None = None

    def __post_init__(self):
        require_valid(self)
        if not _LANGUAGE.fullmatch(self.language):
            raise InputError(
                f"language is {brief(self.language)}; expected a code of two or three "
                "lower-case letters, such as en"
            )
        if self.language in _WITHOUT_SPACES:
            raise InputError(
                f"language is {self.language}, which has no spaces between words, so that no word "
                "could be found; divide the text into words with another tool, and read it with "
                "--format=lines and without --language"
            )
        if self.unknown_token is not None and self.unknown_token.split() != [self.unknown_token]:
            raise InputError(f"unknown_token is {brief(self.unknown_token)}; expected one word")

    def __str__(self) -> str:
        parts = ["lines of words" if self.format == "lines" else self.format]
        if self.normalize:
            parts.append("its punctuation normalized")
        if self.strip_html:
            parts.append("without HTML")
        if self.lowercase:
            parts.append("in lower case")
        if self.language != "en":
            parts.append(f"in the language {self.language}")
        if self.unicode != NO_FORM:
            parts.append(f"in the form {self.unicode.upper()}")
        return ", ".join(parts)


PLAIN = TextOptions()
"""Lines of words, read without conversion."""
