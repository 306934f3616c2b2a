"""The options of a command: a dataclass whose fields are flags, and its rules."""

import collections
import dataclasses
import functools
import itertools
import pathlib
import re
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from absl import flags

from dclm_jax.errors import InputError
from dclm_jax.files import STDOUT, field_meanings

_ENDINGS = {".json", ".jsonl", ".tsv", ".csv", ".html", ".xlsx", ".txt", ".md"}
"""Extensions that promise a format."""
_FILES = {
    "input": (),
    "contexts_from": (),
    "output": (),
    "metrics": (".json",),
    "words": (".tsv",),
    "plot": (),
    "html": (".html",),
}
"""Flags that name files to read or to write, and the extensions of their one format."""
_DEFINE = {bool: flags.DEFINE_bool, float: flags.DEFINE_float, str: flags.DEFINE_string}
Kind = TypeVar("Kind", bound="CommandOptions")


@dataclasses.dataclass(frozen=True)
class CommandOptions:
    """Options of a command. The help of a flag is in the docstring of the class that defines its
    field. The constructor of a subclass refuses wrong combinations."""

    def __post_init__(self) -> None:
        self._refuse_equal_files()

    def required(self, name: str, example: str) -> str:
        """The value of a flag that the command needs; `example` is a value and its meaning."""
        if not (value := self._value(name)):
            raise InputError(f"--{name} is missing; add --{name}={example}")
        return value

    def is_given(self, name: str) -> bool:
        """Whether a flag has another value than its default."""
        flag = _flags_of(type(self))[name]
        return self._value(name) != flag.default

    def refuse_together(self, name: str, *others: str) -> None:
        """Refuses the other flags if the flag `name` has a value."""
        for other in others:
            if self._value(name) and self.is_given(other):
                raise InputError(
                    f"--{other} cannot be used with --{name}; remove --{other} or --{name}"
                )

    def refuse_without(self, name: str, *others: str) -> None:
        """Refuses the other flags if the flag `name` has no value."""
        for other in others:
            if not self._value(name) and self.is_given(other):
                raise InputError(
                    f"--{other} has no effect without --{name}; add --{name} or remove --{other}"
                )

    def require_ending(self, name: str, *endings: str) -> None:
        """Refuses a file of the flag `name` whose extension promises another format."""
        path = self._value(name)
        ending = pathlib.PurePath(path or "").suffix.lower()
        if ending in _ENDINGS - set(endings):
            raise InputError(
                f"--{name} is {path}; this file is not {ending[1:].upper()}: use the extension "
                + " or ".join(endings)
            )

    def flags_of_part(self, name: str) -> list[str]:
        """The flags of a part."""
        return [flag.name for flag in _flags_of(type(self)).values() if flag.part == name]

    def _value(self, name: str) -> Any:
        """The value of a flag."""
        flag = _flags_of(type(self))[name]
        if not flag.part:
            return getattr(self, flag.field)
        part = getattr(self, flag.part)
        return part.get(flag.field) if isinstance(part, dict) else getattr(part, flag.field)

    def _refuse_equal_files(self) -> None:
        """Refuses two flags that name one file, except standard input and standard output."""
        named = [name for name in _FILES if name in _flags_of(type(self)) and self.is_given(name)]
        paths = {name: self._value(name) for name in named}
        for name in paths:
            if _FILES[name]:
                self.require_ending(name, *_FILES[name])
        for first, second in itertools.combinations(paths, 2):
            path = paths[first]
            if path and path == paths[second] and (first, path) != ("input", STDOUT):
                file = "standard output" if path == STDOUT else path
                raise InputError(f"--{first} and --{second} are both {file}; choose two files")


class _Part(NamedTuple):
    """See `part`."""

    defaults: Any
    names: Mapping[str, str]
    omitted: Collection[str]
    unset: str


def part(
    defaults: Any,
    *,
    names: Mapping[str, str] = {},
    omitted: Collection[str] = (),
    unset: str = "",
) -> Any:
    """A field of options whose value is another dataclass. Each of its fields is a flag.

    Args:
      defaults: the dataclass with the defaults of the flags.
      names: names of flags that are not the names of their fields.
      omitted: fields without a flag.
      unset: the meaning of a missing flag, in which "{}" stands for the default of the field. The
        value of the part is then a dict with the given fields.
    """
    return dataclasses.field(
        default_factory=dict if unset else lambda: defaults,
        metadata={"part": _Part(defaults, names, omitted, unset)},
    )


class Flag(NamedTuple):
    """A flag, and the field of the options, or of a part of them, that has its value."""

    name: str
    part: str
    field: str
    hint: Any
    default: Any
    help: str


@functools.cache
def _flags_of(kind: type) -> dict[str, Flag]:
    """The flags of options by name."""
    return _listed(kind)


def _listed(kind: type, in_part: str = "", spec: _Part | None = None) -> dict[str, Flag]:
    """The flags of options, or of a part of them, by name."""
    meanings, hints = field_meanings(kind), typing.get_type_hints(kind, include_extras=True)
    names = {name: spec.names.get(name, name) if spec else name for name in hints}
    flags_by_name = {}
    for field in dataclasses.fields(kind):
        if inner := field.metadata.get("part"):
            flags_by_name |= _listed(type(inner.defaults), field.name, inner)
        elif not spec or field.name not in spec.omitted:
            default = getattr(spec.defaults, field.name) if spec else field.default
            # Python -OO removes docstrings.
            meaning = meanings.get(field.name, "")
            text = re.sub("`(\\w+)`", lambda match: f"--{names[match[1]]}", meaning)
            text = text[:1].upper() + text[1:]
            if spec and spec.unset:
                if default is not None or "{}" not in spec.unset:
                    text += f" Default: {spec.unset.format('no' if default is False else default)}."
                default = None
            name = names[field.name]
            flag = Flag(name, in_part, field.name, hints[field.name], default, text)
            flags_by_name[name] = flag
    return flags_by_name


def define(kind: type[CommandOptions], command: str) -> None:
    """Defines the flags of options; --help of the command, the first word of the command line,
    lists them. A field may define its flag by the function "define" of its metadata."""
    defining = {field.name: field.metadata.get("define") for field in dataclasses.fields(kind)}
    for flag in _flags_of(kind).values():
        (defining.get(flag.name) or _define)(flag)
        flags.FLAGS.register_key_flag_for_module(command, flags.FLAGS[flag.name])


def _define(flag: Flag) -> None:
    name, default, text = flag.name, flag.default, flag.help
    hint, lower_bound = flag.hint, None
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint, *_ = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        hint, limits = typing.get_args(hint)
        lower_bound = limits.least
    if origin is Literal:
        flags.DEFINE_enum(name, default, typing.get_args(hint), text)
    elif origin is Sequence:
        flags.DEFINE_list(name, default and list(default), text)
    elif hint is int:
        flags.DEFINE_integer(name, default, text, lower_bound=lower_bound)
    else:
        _DEFINE[hint](name, default, text)


def parsed(kind: type[Kind]) -> Kind:
    """The options with the values of the flags."""
    values: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for flag in _flags_of(kind).values():
        value = flags.FLAGS[flag.name].value
        if value is not None:
            values[flag.part][flag.field] = tuple(value) if isinstance(value, list) else value
    fields = values[""]
    for field in dataclasses.fields(kind):
        if spec := field.metadata.get("part"):
            part_values = values[field.name]
            if not spec.unset:
                part_values = dataclasses.replace(spec.defaults, **part_values)
            fields[field.name] = part_values
    return kind(**fields)


@dataclasses.dataclass(frozen=True)
class MetricsOptions(CommandOptions):
    """The option of a command that writes its results as JSON.

    Attributes:
      metrics: JSON file for the results; '-' is standard output.
    """

    metrics: str | None = None
