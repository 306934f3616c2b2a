"""What readers are fed to find out whether they break: arbitrary input, and valid files damaged.

The property: a reader returns, or raises `InputError` with one line that names the file.
"""

import copy
import datetime
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dclm_jax.errors import InputError
from tests.exhaustive import some

Value = TypeVar("Value")

# Whatever the reader: longer than any of its own texts.
_LONGEST_MESSAGE = 2000
_DEADLINE = datetime.timedelta(seconds=20)
"""A reader that takes as long hangs, even on a machine that does other things."""

PIECES = [
    *(b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b" ", b"\x1c"),
    *("\u2028".encode(), "\x85".encode(), b"\x1b[2J", b"NaN", b"1e999", b"-1", b"0.5", b"null"),
    *(b"9" * 20, b"x" * 70_000, b"\\ud800", b"\\n", b"/", b"=", b'"', b"{", b"}"),
    *(b"[" * 100_000, b'{"a":' * 300, b"[" * 700 + b"]" * 700, b"<END>", b"../../etc/passwd"),
    *(b'{"id": 1, "sentences": ["a b"]}', b'{"sentences": [["a"]], "sentences": 3}', b"a/b c/d"),
    b'{"kind": "valid", "step": 1, "tokens": 2, "seconds": 3, "perplexity": 4}',
]

_HOSTILE: list[Any] = [
    *(None, True, 0, -1, 2**64, 10**4000, 0.5, float("nan"), float("inf")),
    *("", "x", "a\n", "\0", "\ud800", "\u2028", "\x1b[2J", "x" * 9000, "../../etc/passwd"),
    *("bootstrap", "valid", "ngram", "rnnlm", [], {}, {"": {}}, ["a", ["b"]]),
    # So many lists in one another, about as many as a parser takes.
    *(f"DEEP {depth}" for depth in (300, 600, 900)),
]


_SHARE = some(5, all=1)
"""Without --exhaustive one in so many examples, and at each place one in so many damages: the next
place has the next of them, so that every damage is done somewhere."""


def fuzz(examples: int) -> settings:
    """So many examples, the same ones every time; slow ones are no failure of the test."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return settings(
        max_examples=max(10, examples // _SHARE),
        derandomize=True,
        database=None,
        deadline=_DEADLINE,
        suppress_health_check=slow,
    )


def value_or_input_error(place: Path, read: Callable[[], Value]) -> Value | None:
    """What `read` returns, or None if it refuses as it should, with `place` in the message."""
    try:
        return read()
    except InputError as error:
        message = str(error)
        assert message.isprintable(), repr(message)
        assert str(place) in message
        assert len(message) < _LONGEST_MESSAGE
        return None


def attack(check: Callable[[bytes], None], original: bytes, examples: int) -> None:
    """Calls `check` with every single damage to a file, then with arbitrary and mixed ones."""
    for content in single_damages(original):
        check(content)
    fuzz(examples)(given(anything() | damaged(original))(check))()


def attack_json(check: Callable[[bytes], None], original: Any, examples: int) -> None:
    """Calls `check` with a JSON document of which any one value is another, lost or called
    otherwise, then as `attack` does."""
    for content in single_faults(original):
        check(content)
    attack(check, json.dumps(original).encode(), examples)


def single_damages(original: bytes) -> Iterator[bytes]:
    """Every piece alone, before, after, and in the place of every word and line of a file."""
    words = [match.span() for match in re.finditer(rb"\w+", original)]
    lines = [match.span() for match in re.finditer(rb"[^\n]+", original)]
    places = list(dict.fromkeys(words + lines))
    for number, piece in enumerate(PIECES):
        yield from (piece, piece + original, original + piece)
        for begin, end in places[number % _SHARE :: _SHARE]:
            yield original[:begin] + piece + original[end:]


def anything() -> st.SearchStrategy[bytes]:
    """Bytes, text and pieces that have a meaning somewhere."""
    text = st.text(st.characters(), max_size=60).map(lambda text: text.encode("utf-8", "replace"))
    pieces = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
    return st.one_of(st.binary(max_size=60), text, pieces)


@st.composite
def damaged(draw: st.DrawFn, original: bytes) -> bytes:
    """A file after a few bytes or lines were changed, lost, added or swapped."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "truncate", "insert", "delete", "swap"])):
            case "flip" if at < len(data):
                data[at] ^= draw(st.integers(1, 255))
            case "truncate":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.sampled_from(PIECES) | st.binary(max_size=9))
            case "delete":
                del data[at : at + draw(st.integers(1, 30))]
            case "swap":
                lines = data.split(b"\n")
                first, second = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
                lines[first], lines[second] = lines[second], lines[first]
                data = bytearray(b"\n".join(lines))
    return bytes(data)


def single_faults(original: Any) -> Iterator[bytes]:
    """A JSON document with every value replaced by every hostile one, lost, or renamed."""
    for number, (*path, key) in enumerate(_paths([original])):
        share = slice(number % _SHARE, None, _SHARE)
        for value in _HOSTILE[share]:
            document = [copy.deepcopy(original)]
            _follow(document, path)[key] = value
            yield _dumps(document[0])
        if isinstance(_follow([original], path), dict):
            for name in (None, "../x", "a\nb", "\ud800")[share]:
                document = [copy.deepcopy(original)]
                value = _follow(document, path).pop(key)
                if name is not None:
                    _follow(document, path)[name] = value
                yield _dumps(document[0])


def _paths(value: Any) -> Iterator[list[Any]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield [key]
        if isinstance(item, dict | list):
            yield from ([key, *path] for path in _paths(item))


def _follow(value: Any, path: list[Any]) -> Any:
    for key in path:
        value = value[key]
    return value


def _dumps(value: Any) -> bytes:
    def nested(match: re.Match[bytes]) -> bytes:
        return b"[" * int(match[1]) + b"]" * int(match[1])

    return re.sub(rb'"DEEP (\d+)"', nested, json.dumps(value).encode())
