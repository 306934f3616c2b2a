"""Detects tagged text and raw text in JSON lines from the first lines of a text, and warns if a
text looks like a format other than the format in which it is read."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dclm_jax.data.formats import SENTENCES
from dclm_jax.data.text_files import Line
from dclm_jax.errors import brief

FIRST_LINES = 100
"""Number of lines at the start of a text that decide its format."""

# The Penn Treebank's tags, Brown's (np-tl, at+nn, pp$$) and signs that stand for themselves.
_TAG = re.compile(r"([A-Za-z]{1,6}[0-9$*]*|[^\w\s/]{1,4}?)([+-][A-Za-z$*]{1,6})*|-[LR][RCS]B-")
_TAGGED_SHARE = 0.95
_ADDRESS = "://"

_ATTACHED = re.compile(r"\w{2,}[,;!?]")
_SECTION = re.compile(r"= = .+ = =")


def is_tagged(lines: Iterable[Line]) -> bool:
    """Whether a text consists of tokens WORD/TAG, from three conditions:

    - At least 95% of the tokens end in a slash and a tag. Web addresses do not count as tags.
    - The tags look like a tag set: all are upper case, or each occurs at least twice on average.
      Paths and dates therefore do not count as tagged text.
    - There are more tags than lines, so at least one line has several words.
    """
    texts = [text for _, text in lines if text.strip() and not text.startswith("=")]
    tokens = [token for text in texts for token in text.split()]
    pairs = [token.rpartition("/") for token in tokens if _ADDRESS not in token]
    tags = [tag for word, _, tag in pairs if word and _TAG.fullmatch(tag)]
    is_set = all(tag == tag.upper() for tag in tags) or 2 * len(set(tags)) <= len(tags)
    return len(texts) < len(tags) >= _TAGGED_SHARE * len(tokens) and is_set


def holds_raw_text(lines: Iterable[Line], text_key: str | None) -> bool:
    """Whether a text of JSON lines that begins with these lines has raw text: its first object has
    no key "sentences", or it has the key `text_key`."""
    record = _record([text for _, text in lines if text.strip()])
    # With `text_key`, an input may mix files of both kinds.
    return record is not None and (
        SENTENCES not in record or (text_key is not None and text_key in record)
    )


def warnings(lines: Sequence[Line], format: str) -> Iterator[str]:
    """Warnings that a text read in this format looks like another format, each with a flag to use.

    Args:
      lines: the first lines of the text.
      format: one of `formats.TEXT_FORMATS` except auto.
    """
    texts = [text.strip() for _, text in lines if text.strip()]
    tokens = [token for text in texts for token in text.split()]
    if format in ("lines", "prose", "paragraphs") and _record(texts) is not None:
        yield "looks like JSON lines; use --format=jsonl"
    if format in ("prose", "paragraphs") and is_tagged(lines):
        yield "looks like words with tags, WORD/TAG; use --format=tagged"
    if format == "lines":
        # In tokenized text punctuation is rarely attached to a word.
        attached = list(filter(_ATTACHED.fullmatch, tokens))
        if len(attached) >= max(5, len(tokens) / 100, 4 * tokens.count(",")):
            yield (
                f"looks like raw text with punctuation attached to words, such as "
                f"{brief(attached[0])}; use --format=prose, or --format=paragraphs if every line "
                "is a document"
            )
        if any(map(_SECTION.fullmatch, texts)):
            yield "looks like articles under headings, as in WikiText; use --format=articles"


def _record(texts: Sequence[str]) -> dict[str, Any] | None:
    """The JSON object in the first line, if it is one."""
    try:
        record = json.loads(texts[0]) if texts else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
