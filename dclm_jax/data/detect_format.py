"""What the first lines of a text tell: tags of words, raw text in JSON lines, or that the format
may be another one, which is only reported."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dclm_jax.data.formats import SENTENCES
from dclm_jax.data.text_files import Line
from dclm_jax.errors import brief

FIRST_LINES = 100
"""How many lines a guess is made from."""

# The Penn Treebank's tags, Brown's (np-tl, at+nn, pp$$) and signs that stand for themselves.
_TAG = re.compile(r"([A-Za-z]{1,6}[0-9$*]*|[^\w\s/]{1,4}?)([+-][A-Za-z$*]{1,6})*|-[LR][RCS]B-")
_TAGGED_SHARE = 0.95
_ADDRESS = "://"

_ATTACHED = re.compile(r"\w{2,}[,;!?]")
_SECTION = re.compile(r"= = .+ = =")


def is_tagged(lines: Iterable[Line]) -> bool:
    """Whether nearly all tokens are WORD/TAG.

    Tags are those of a tag set: they are in capital letters, or come again and again. So addresses
    of web pages, paths and dates are none. Not every line is one word.
    """
    texts = [text for _, text in lines if text.strip() and not text.startswith("=")]
    tokens = [token for text in texts for token in text.split()]
    pairs = [token.rpartition("/") for token in tokens if _ADDRESS not in token]
    tags = [tag for word, _, tag in pairs if word and _TAG.fullmatch(tag)]
    is_set = all(tag == tag.upper() for tag in tags) or 2 * len(set(tags)) <= len(tags)
    return len(texts) < len(tags) >= _TAGGED_SHARE * len(tokens) and is_set


def holds_raw_text(lines: Iterable[Line], text_key: str | None) -> bool:
    """Whether JSON lines that begin so hold raw text, not sentences of words."""
    record = _record([text for _, text in lines if text.strip()])
    # Where a key was given, a file of words may be read beside those of text.
    return record is not None and (
        SENTENCES not in record or (text_key is not None and text_key in record)
    )


def warnings(lines: Sequence[Line], format: str) -> Iterator[str]:
    """What a text that is read in this format seems to be instead, each with the flag that helps.

    Args:
      lines: the first ones.
      format: one of `formats.TEXT_FORMATS` but auto.
    """
    texts = [text.strip() for _, text in lines if text.strip()]
    tokens = [token for text in texts for token in text.split()]
    if format in ("lines", "prose", "paragraphs") and _record(texts) is not None:
        yield "looks like JSON lines; --format=jsonl reads them"
    if format in ("prose", "paragraphs") and is_tagged(lines):
        yield "looks like words with tags, WORD/TAG; --format=tagged reads them"
    if format == "lines":
        # Between words marks hardly ever stand at one.
        attached = list(filter(_ATTACHED.fullmatch, tokens))
        if len(attached) >= max(5, len(tokens) / 100, 4 * tokens.count(",")):
            yield (
                f"looks like raw text, whose marks stand at words, such as {brief(attached[0])}; "
                "--format=prose splits it, and --format=paragraphs where every line is a document"
            )
        if any(map(_SECTION.fullmatch, texts)):
            yield "looks like articles under headings, as in WikiText; --format=articles reads them"


def _record(texts: Sequence[str]) -> dict[str, Any] | None:
    """The JSON object in the first line, if it is one."""
    try:
        record = json.loads(texts[0]) if texts else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
