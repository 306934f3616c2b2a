"""Documents, and the options by which text becomes documents."""

import dataclasses
import re
from typing import NamedTuple

from dclm_jax.errors import InputError, brief

NO_FORM = "none"
FORMS = (NO_FORM, "nfc", "nfkc")
"""Normal forms of Unicode that words can be written in."""
NO_DIVIDER = "none"
_LANGUAGE = re.compile("[a-z]{2,3}")


class Document(NamedTuple):
    """A document: its name and its sentences, each a list of words (none of them empty); of tagged
    text also the part of speech of every word."""

    id: str
    sentences: list[list[str]]
    tags: list[list[str]] | None = None


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """How text becomes documents of words. A run remembers the options of its training text, so
    that other text is read alike.

    Attributes:
      format: one of `readers.FORMATS`.
      lowercase: words are in lower case.
      normalize: quotes, dashes and other punctuation of raw text are first written as Moses does;
        words that are given as such stay as they are, since their spaces are those of the text.
      text_key: the key or column that holds raw text, None for "text".
      language: language of raw text, as Wikipedia's code: en, de, pt, ckb.
      unicode: the normal form that words are written in, without format characters at their edges;
        one of FORMS.
      divider: the first word, once or repeated, of a line that ends a document in the formats
        lines, tagged and prose; "none" for no such line.
      quoted: cells of TSV are quoted where they hold tabulators, quotation marks or line breaks, as
        cells of CSV are.
    """

    format: str = "auto"
    lowercase: bool = False
    normalize: bool = False
    text_key: str | None = None
    language: str = "en"
    unicode: str = NO_FORM
    divider: str = "="
    quoted: bool = False

    def __post_init__(self):
        if not _LANGUAGE.fullmatch(self.language):
            raise InputError(
                f"language is {brief(self.language)}; expected a code of two or three small "
                "letters, such as en"
            )
        if self.unicode not in FORMS:
            raise InputError(
                f"unicode is {brief(self.unicode)}; expected one of {', '.join(FORMS)}"
            )
        if self.divider.split() != [self.divider]:
            raise InputError(f"divider is {brief(self.divider)}; expected one word, or none")

    def __str__(self) -> str:
        parts = ["lines of words" if self.format == "auto" else self.format]
        if self.normalize:
            parts.append("its punctuation normalised")
        if self.lowercase:
            parts.append("in lower case")
        if self.language != "en":
            parts.append(f"in the language {self.language}")
        if self.unicode != NO_FORM:
            parts.append(f"in the form {self.unicode.upper()}")
        return ", ".join(parts)


PLAIN = TextOptions()
"""Lines of words, as they stand."""
