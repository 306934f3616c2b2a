"""What the first lines of a text tell: tags of words, raw text in JSON lines, or that the format
may be another one, which is only reported."""

import csv
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dclm_jax.data.documents import Line
from dclm_jax.data.records import SENTENCES
from dclm_jax.errors import shown

FIRST_LINES = 100
"""How many lines a guess is made from."""

# The Penn Treebank's tags, Brown's (np-tl, at+nn, pp$$) and signs that stand for themselves.
_TAG = re.compile(r"([A-Za-z]{1,6}[0-9$*]*|[^\w\s/]{1,4}?)([+-][A-Za-z$*]{1,6})*|-[LR][RCS]B-")
_TAGGED_SHARE = 0.95
_ADDRESS = "://"

_HTML = re.compile(
    r"</?(a|b|body|br|div|em|font|h[1-6]|head|html|i|img|li|meta|ol|p|script|span|strong|style"
    r"|table|td|th|title|tr|u|ul)(\s[^<>]*)?/?>",
    re.IGNORECASE,
)
_ATTACHED = re.compile(r"\w{2,}[,;!?]")
_SECTION = re.compile(r"= = .+ = =")
_MANY = 10
_NAME = re.compile(r"[^\s,\"]([^,\t\"]{0,38}[^\s,\"])?")
_RECORDS = 5


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


def holds_raw_text(lines: Sequence[Line], text_key: str | None) -> bool:
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
      format: one of `readers.TEXT_FORMATS` but auto.
    """
    texts = [text.strip() for _, text in lines if text.strip()]
    is_running = format in ("lines", "prose", "paragraphs")
    if is_running and (columns := _columns(texts)):
        kind = "tsv" if "\t" in texts[0] else "csv"
        yield (
            f"looks like {kind.upper()} with the columns {', '.join(columns)}; --format={kind} "
            "--text_key=COLUMN reads the text in one of them"
        )
    elif is_running and _record(texts) is not None:
        yield "looks like JSON lines; --format=jsonl reads them"
    if format in ("prose", "paragraphs") and is_tagged(lines):
        yield "looks like words with tags, WORD/TAG; --format=tagged reads them"
    if format == "lines" and (found := _attached(texts)):
        yield (
            f"looks like raw text, whose marks stand at words ({found}); --format=prose splits it, "
            "and --format=paragraphs where every line is a document"
        )
    if format == "lines" and any(map(_SECTION.fullmatch, texts)):
        yield "looks like articles under headings, as in WikiText; --format=articles reads them"
    if format != "treebank" and (found := _markup(texts)):
        yield (
            f"holds HTML ({found}): --format={format} reads it as words; remove it from the text "
            "before"
        )


def _columns(texts: Sequence[str]) -> list[str]:
    """The names of the columns of what looks like a table."""
    for delimiter in "\t,":
        rows = _rows(texts, delimiter)
        sizes = {len(row) for row in rows}
        if len(rows) < 2 or len(sizes) > 1 or sizes <= {0, 1}:
            continue
        if len(set(rows[0])) == len(rows[0]) and all(map(_NAME.fullmatch, rows[0])):
            return rows[0]
    return []


def _rows(texts: Sequence[str], delimiter: str) -> list[list[str]]:
    try:
        rows = csv.reader((f"{text}\n" for text in texts), delimiter=delimiter)
        return list(itertools.islice(rows, _RECORDS))
    except csv.Error:
        return []


def _record(texts: Sequence[str]) -> dict[str, Any] | None:
    """The JSON object in the first line, if it is one."""
    try:
        record = json.loads(texts[0]) if texts else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _attached(texts: Sequence[str]) -> str:
    """The first word with a comma or another mark at it and the number of all, where these are
    many and marks hardly ever stand alone, as they do between words."""
    tokens = [token for text in texts for token in text.split()]
    found = list(filter(_ATTACHED.fullmatch, tokens))
    if len(found) < max(_MANY // 2, len(tokens) // 100) or 4 * tokens.count(",") > len(found):
        return ""
    return f"{shown(found[0])}, {len(found):,} in its first {len(texts):,} lines"


def _markup(texts: Sequence[str]) -> str:
    """The first tag of HTML and the number of all, where there are many."""
    found = [match[0] for text in texts for match in _HTML.finditer(text)]
    if len(found) < max(_MANY, len(texts) // 5):
        return ""
    return f"{shown(found[0])}, {len(found):,} in its first {len(texts):,} lines"
