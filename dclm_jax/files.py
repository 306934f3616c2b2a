"""Files and directories that appear whole or not at all, and JSON read into records.

A record is a frozen dataclass whose fields declare types and ranges (`perplexity: Positive`,
`split: str | None = None`), so that the values of a record need no further check:
`files.read_json("perplexity.json", Evaluation)`.

JSON has no infinity and no NaN: numbers that are not finite are written as null. Null is read as
infinity if the field may be infinite and may not be None.

All functions raise `InputError` if a file cannot be read or written, or has other content: the
message names the file, the field, its value and the expected value.
"""

import collections
import contextlib
import dataclasses
import functools
import inspect
import json
import math
import os
import pathlib
import re
import secrets
import shutil
import sys
import tempfile
import types
import typing
from collections.abc import Iterator
from typing import (
    Annotated,
    Any,
    BinaryIO,
    Literal,
    NamedTuple,
    TextIO,
    TypeVar,
    Union,
)

import numpy as np

from dclm_jax import processes, storage
from dclm_jax.errors import InputError, brief

STDOUT = "-"
Value = TypeVar("Value")

_TEMPORARY = ".dclm_jax-"
_OPTIONAL = (Union, types.UnionType)


class Range(NamedTuple):
    """The numbers that a field may have, described by `expected` in messages; never NaN."""

    least: float
    most: float
    expected: str


Size = Annotated[int, Range(1, 2**31 - 1, "a whole number from 1 to 2^31 - 1")]
Count = Annotated[int, Range(0, 2**63 - 1, "a whole number from 0 to 2^63 - 1")]
Number = Annotated[float, Range(-sys.float_info.max, sys.float_info.max, "a finite number")]
Share = Annotated[float, Range(0, 1, "a number from 0 to 1")]
Rate = Annotated[float, Range(0, math.nextafter(1, 0), "a number of at least 0 and below 1")]
Finite = Annotated[float, Range(0, sys.float_info.max, "a finite number of at least 0")]
FinitePositive = Annotated[
    float, Range(math.nextafter(0, 1), sys.float_info.max, "a finite number above 0")
]
Positive = Annotated[float, Range(math.nextafter(0, 1), math.inf, "a number above 0")]


def field_meanings(cls: type) -> dict[str, str]:
    """The meanings of the fields of a dataclass: the entries "name: text" or "name, name: text" in
    its docstring and the docstrings of its bases; further indented lines belong to the text."""
    fields = {field.name for field in dataclasses.fields(cls)}
    entry = re.compile(r"^( *)(\w+(?:, \w+)*): (.*(?:\n\1 +\S.*)*)", re.MULTILINE)
    texts = {}
    for base in reversed(cls.__mro__):
        for _, names, text in entry.findall(inspect.cleandoc(base.__doc__ or "")):
            texts |= {name: " ".join(text.split()) for name in names.split(", ") if name in fields}
    return texts


@contextlib.contextmanager
def _naming(what: str, path: storage.PathLike) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be {what}: {error.strerror}") from error


reading = functools.partial(_naming, "read")
"""`with reading(path):` turns an `OSError` into an `InputError` that names the path."""
writing = functools.partial(_naming, "written")


@contextlib.contextmanager
def open_output(path: storage.PathLike) -> Iterator[TextIO]:
    """A context: a UTF-8 text file that the first process of a job writes; "-" is standard output.

    The file has a temporary name in the same folder and is renamed at the end. If the block raises,
    the temporary file is removed, and an earlier file at `path` remains. Special files, such as
    /dev/null or a pipe, are written directly.
    """
    if os.fspath(path) == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    # File names may not be valid UTF-8.
    with _whole(path, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        yield file


def write_json(path: storage.PathLike, value: dict[str, Any]) -> None:
    """Writes an object as indented JSON; see `open_output`."""
    with open_output(path) as file:
        file.write(json_text(value, indent=2) + "\n")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """The JSON of a value, as text that UTF-8 can encode; see `finite`."""
    try:
        text = json.dumps(finite(value), indent=indent, ensure_ascii=False, allow_nan=False)
    except RecursionError as error:
        raise InputError("a value is nested too deeply to be written; remove it") from error
    # File names may not be valid UTF-8. JSON has the same escapes.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def finite(value: Any) -> Any:
    """A value that JSON can represent, with None in place of infinite numbers and NaN."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_bytes(path: storage.PathLike, content: bytes) -> None:
    """Writes a binary file; see `open_output`."""
    with open_binary(path) as file:
        file.write(content)


@contextlib.contextmanager
def open_binary(path: storage.PathLike) -> Iterator[BinaryIO]:
    """A context: a binary file to write; see `open_output`."""
    with _whole(path, "wb") as file:
        yield file


@contextlib.contextmanager
def _whole(path: storage.PathLike, mode: str, **options: Any) -> Iterator[Any]:
    if not processes.is_primary():
        with open(os.devnull, mode, **options) as nowhere:
            yield nowhere
        return
    target = storage.locate(path)
    if not isinstance(target, pathlib.Path):
        # An unreachable address is refused before the work.
        with storage.reaching(target):
            target.exists()
        with storage.scratch(target) as copy:
            with _whole(copy, mode, **options) as file:
                yield file
            storage.upload(copy, target)
        return
    with writing(path), contextlib.ExitStack() as stack:
        if _is_special(target):
            with open(target, mode, **options) as file:
                yield file
            return
        # A link stays, and its target is replaced.
        target = target.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        # The name cannot be guessed, and an existing link of this name is not followed.
        temporary = target.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
        if target.exists() and not os.access(target.parent, os.W_OK):
            temporary = pathlib.Path(tempfile.gettempdir(), temporary.name)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        stack.callback(temporary.unlink, missing_ok=True)
        with open(descriptor, mode, **options) as file:
            yield file
        try:
            os.replace(temporary, target)
        except OSError:
            # A mounted file, or a file in a directory that cannot be written, can only be
            # overwritten.
            if not target.exists():
                raise
            shutil.copyfile(temporary, target)


def _is_special(target: pathlib.Path) -> bool:
    """Whether the target exists and is no regular file, or is a file of the system: /dev/stdout may
    lead to a regular file, which is open already."""
    path = os.path.normpath(target.absolute())
    lent = path.startswith(("/dev/", "/proc/")) and not path.startswith("/dev/shm/")
    return lent or (target.exists() and not target.is_file())


@contextlib.contextmanager
def replacing(target: storage.Location, last: str = "") -> Iterator[pathlib.Path]:
    """A context: a temporary directory that replaces `target` if the block does not raise.

    A directory under an address is written on this machine and uploaded when it is complete, with
    the file `last` after all other files.
    """
    if not isinstance(target, pathlib.Path):
        with storage.scratch(target) as made:
            with replacing(made) as directory:
                yield directory
            storage.upload_folder(made, target, last)
        return
    with writing(target), contextlib.ExitStack() as stack:
        target.parent.mkdir(parents=True, exist_ok=True)
        parent = tempfile.mkdtemp(prefix=_TEMPORARY, dir=target.parent)
        stack.callback(shutil.rmtree, parent, ignore_errors=True)
        # Unlike the directory of mkdtemp, this directory is readable by other users.
        directory, aside = pathlib.Path(parent, "new"), pathlib.Path(f"{parent}.old")
        directory.mkdir()
        yield directory
        # A directory in use cannot be replaced in one step: the old directory is put aside first.
        if target.exists():
            target.rename(aside)
        directory.rename(target)
        if aside.exists():
            shutil.rmtree(aside)


def read_json(path: storage.PathLike, kind: type[Value], *, exact: bool = False) -> Value:
    """The value in a JSON file or its address; see `parse_json`."""
    return parse_json(read_bytes(path), str(path), kind, exact=exact)


def read_json_lines(path: storage.PathLike, kind: type[Value], *, made_by: str = "") -> list[Value]:
    """The values of all complete lines of a file, without an unfinished last line; see
    `parse_json`. `made_by` is the command that writes the file, for the message if it is
    missing."""
    lines = read_bytes(path, made_by=made_by).split(b"\n")[:-1]
    return [
        parse_json(line, f"{path}:{number}", kind) for number, line in enumerate(lines, start=1)
    ]


def parse_json(text: bytes | str, place: str, kind: type[Value], *, exact: bool = False) -> Value:
    """A value from its JSON.

    Args:
      text: the JSON, as a string or in UTF-8.
      place: the origin of the text, for messages.
      kind: a dataclass, or a type that its fields may have: text, bool, a number with its `Range`,
        `Literal`, a list, a dict, another dataclass, any of these or None, Any. Names other than
        the fields are ignored; missing fields have their defaults.
      exact: whether names other than the fields of a dataclass are refused.
    """
    try:
        text = text if isinstance(text, str) else text.decode("utf-8")
        value = json.loads(text, object_pairs_hook=functools.partial(_object, place))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{place}: not JSON: {error}") from error
    except RecursionError as error:
        raise InputError(f"{place}: nested too deeply") from error
    result = converted(value, kind, place, "")
    if exact and (others := value.keys() - _hints(kind).keys()):
        raise InputError(f"{place}: {brief(min(others))} is unknown; expected {_expected(kind)}")
    return result


def _object(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The JSON object of the pairs. A repeated name is refused, because a dict keeps only its last
    value."""
    value = dict(pairs)
    if len(value) < len(pairs):
        repeated = collections.Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InputError(f"{place}: the name {brief(repeated)} is repeated; remove one")
    return value


def read_bytes(path: storage.PathLike, *, made_by: str = "") -> bytes:
    """The content of a file; see `read_json_lines`."""
    location = storage.locate(path)
    with reading(path), storage.reaching(location):
        if not location.exists():
            raise InputError(f"{path}: no such file{made_by and f'; `{made_by}` writes it'}")
        return location.read_bytes()


def converted(value: Any, kind: Any, place: str, key: str) -> Any:
    """A value from JSON converted to its type; see `parse_json`. Messages call it `key`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in _OPTIONAL:
        return None if value is None else converted(value, arguments[0], place, key)
    if origin is Annotated:
        number, limits = arguments
        if value is None and limits.most == math.inf:
            return math.inf
        # An integer stands for any number, and may be too large for a float.
        with contextlib.suppress(OverflowError):
            if type(value) in (int, number) and limits.least <= number(value) <= limits.most:
                return number(value)
    elif origin is Literal:
        if type(value) in map(type, arguments) and value in arguments:
            return value
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if isinstance(value, kind):
            return value
        if isinstance(value, dict):
            return _record(value, kind, place, key)
    elif isinstance(value, origin or kind):
        if origin is list:
            (inner,) = arguments
            return [converted(x, inner, place, f"{key}[{i}]") for i, x in enumerate(value)]
        if origin is dict:
            names, values = arguments
            return {
                converted(name, names, place, f"a name in {key or 'the object'}"): converted(
                    inner, values, place, _inner(key, name)
                )
                for name, inner in value.items()
            }
        return value
    where = f"{place}: " if place else ""
    raise InputError(f"{where}{key or 'the value'} is {brief(value)}; expected {_expected(kind)}")


def require_valid(record: Any, prefix: str = "") -> None:
    """Raises an `InputError` if a field of a record has another type or range than it declares."""
    for field in dataclasses.fields(record):
        value, kind = getattr(record, field.name), _hints(type(record))[field.name]
        if isinstance(value, np.generic):
            value = value.item()
        converted(value, kind, "", f"{prefix}{field.name}")


def _record(value: dict[str, Any], kind: Any, place: str, key: str) -> Any:
    fields = {}
    for field in dataclasses.fields(kind):
        expected, inner = _hints(kind)[field.name], _inner(key, field.name)
        if field.name in value:
            fields[field.name] = converted(value[field.name], expected, place, inner)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise InputError(f"{place}: {inner} is missing; expected {_expected(expected)}")
    try:
        return kind(**fields)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _inner(key: str, name: str) -> str:
    """The key of a nested value; a name is shortened, because a file may have names of any
    length."""
    name = name if name.isidentifier() and len(name) < 40 else brief(name)[1:-1]
    return f"{key}.{name}" if key else name


def _expected(kind: Any) -> str:
    """The name of a type in messages."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return arguments[1].expected
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin in _OPTIONAL:
        return _expected(arguments[0])
    if dataclasses.is_dataclass(kind):
        return f"a JSON object of {', '.join(_hints(kind))}"
    names = {str: "text", bool: "true or false", list: "a list", dict: "a JSON object"}
    return {**names, Any: "a value"}[origin or kind]
