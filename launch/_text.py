"""Flags of text processing, for launchers that prepare or read text."""

from collections.abc import Mapping
from typing import Any

from absl import flags

from dclm_jax.data.documents import FORMS, PLAIN
from dclm_jax.data.readers import TEXT_FORMATS

TextFlags = Mapping[str, "flags.FlagHolder[Any]"]
# The flags defined below belong to the launcher that calls the function; its --help lists them.
flags.disclaim_key_flags()


def define_text_flags(*, as_in_training: bool = False) -> TextFlags:
    """Defines flags for the fields of `TextOptions`, and returns them by name. A flag without a
    value is None: text is then read as in training, or with the defaults of `TextOptions`."""

    def default(of_text: str) -> str:
        return f"Default: {'as in training' if as_in_training else of_text}."

    holders = (
        flags.DEFINE_enum(
            "format",
            None,
            TEXT_FORMATS,
            "Format of text (launch/text.md). auto is tagged if words are WORD/TAG, otherwise "
            "lines. Files named .json, .jsonl, .csv and .tsv have the format of their name. "
            + default("auto"),
        ),
        flags.DEFINE_bool("lowercase", None, f"Convert words to lower case. {default('no')}"),
        flags.DEFINE_bool(
            "normalize",
            None,
            f"Normalize quotes, dashes and other punctuation of raw text. {default('no')}",
        ),
        flags.DEFINE_string(
            "text_key",
            None,
            "Column of CSV and TSV, or key of JSON lines, with raw text. " + default("text"),
        ),
        flags.DEFINE_string(
            "language",
            None,
            "Language of raw text, as a code such as en, de or fr. " + default(PLAIN.language),
        ),
        flags.DEFINE_enum(
            "unicode",
            None,
            FORMS,
            "Unicode normal form of words. nfc composes letters and accents; nfkc also replaces "
            "ligatures and similar characters. Both remove format characters at the edges of "
            f"words. {default(PLAIN.unicode)}",
        ),
        flags.DEFINE_string(
            "divider",
            None,
            "First word, once or repeated, of lines that end a document in the formats lines, "
            "tagged and prose; none if there are no such lines. " + default(PLAIN.divider),
        ),
        flags.DEFINE_bool("quoted", None, f"Read quoted cells of TSV, as in CSV. {default('no')}"),
    )
    return {holder.name: holder for holder in holders}


def given_options(text_flags: TextFlags) -> dict[str, Any]:
    """The values of the flags that have one, by the fields of `TextOptions`."""
    return {name: flag.value for name, flag in text_flags.items() if flag.value is not None}
