"""Requests as JSON lines, each answered before the next line is read."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.formats import DEFAULT_TEXT_KEY, SENTENCES
from dclm_jax.data.readers import parse_record
from dclm_jax.data.text_files import LONGEST_LINE, STDIN, UTF8, Line
from dclm_jax.errors import InputError, brief
from dclm_jax.files import json_text, parse_json

_CHUNK = 1 << 20


class Request(NamedTuple):
    """A document, whose first `num_context` sentences are context and need no answer."""

    document: Document
    num_context: int


def answers(
    stream: BinaryIO, options: TextOptions, answer: Callable[[Request], str]
) -> Iterator[str]:
    """Yields one line per request of a stream, as soon as the request has arrived.

    A request is a JSON line as files have it, {"id": ..., "text": ...} or {"id": ..., "sentences":
    [...]}, with an optional "context" of the same kind. The answer to a bad request is {"id": ...,
    "error": MESSAGE}, with the id if the request has one. Blank lines have no answer.

    Args:
      stream: lines in UTF-8. At most `LONGEST_LINE` bytes of a line are in memory.
      options: the options by which raw text becomes words.
      answer: function that returns the line that answers a request.
    """
    for number, line in enumerate(_lines(stream), start=1):
        if line is None or line.strip():
            yield _answered(line, number, options, answer)


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """The lines of a stream; None for a line that is too long."""
    while line := stream.readline(LONGEST_LINE + 1):
        if line.endswith(b"\n") or len(line) <= LONGEST_LINE:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(_CHUNK)
        yield None


def _answered(
    line: bytes | None, number: int, options: TextOptions, answer: Callable[[Request], str]
) -> str:
    name: dict[str, str] = {}
    try:
        if line is None:
            raise InputError(
                f"{STDIN}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB; send less "
                "text per request"
            )
        record = parse_json(line, f"{STDIN}:{number}", dict[str, Any])
        if isinstance(record.get("id"), str | int):
            # As in answers.
            name = {"id": str(record["id"])}
        return answer(_request(record, line.decode(UTF8), number, options))
    except InputError as error:
        return json_text({**name, "error": str(error)}) + "\n"


def _request(record: dict[str, Any], line: str, number: int, options: TextOptions) -> Request:
    document = parse_record(Line(number, line), options, STDIN)
    rows = [{key: value for key, value in row.items() if key != "context"} for row in document.rows]
    document = document._replace(rows=rows)
    match record.get("context"):
        case None:
            return Request(document, 0)
        case str(text):
            context = {options.text_key or DEFAULT_TEXT_KEY: text}
        case list(sentences):
            context = {SENTENCES: sentences}
        case value:
            raise InputError(
                f"{STDIN}:{number}: context is {brief(value)}; write text, or a list of sentences"
            )
    earlier = parse_record(Line(number, json_text(context)), options, STDIN).sentences
    return Request(
        document._replace(sentences=[*earlier, *document.sentences]), num_context=len(earlier)
    )
