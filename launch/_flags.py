"""Flags that several launchers define: --metrics, --beam, and the fields of a dataclass."""

import dataclasses
import re
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import flags

from dclm_jax.files import field_meanings

FieldFlags = Mapping[str, "flags.FlagHolder[Any]"]
"""Flags by the names of the fields that they set."""
_DEFINE = {bool: flags.DEFINE_bool, float: flags.DEFINE_float, str: flags.DEFINE_string}
# The flags defined below belong to the launcher that calls a function; its --help lists them.
flags.disclaim_key_flags()


def define_metrics() -> "flags.FlagHolder[str | None]":
    """Defines the flag of the file for all results as JSON."""
    return flags.DEFINE_string(
        "metrics", None, "JSON file for the results; '-' is standard output."
    )


def define_beam(default: int) -> "flags.FlagHolder[int]":
    """Defines the flag of the beam width of a search over documents."""
    text = "Beam width, the number of partial hypotheses per document; 1 is greedy search."
    return flags.DEFINE_integer("beam", default, text, lower_bound=1)


def define_fields(
    options: type,
    *,
    names: Mapping[str, str] = {},
    omitted: Collection[str] = (),
    unset: str = "",
) -> FieldFlags:
    """Defines one flag per field of a dataclass, with the meaning in its docstring as help.

    Args:
      options: the dataclass.
      names: names of flags that are not the names of their fields.
      omitted: fields without a flag.
      unset: the meaning of a missing flag, in which "{}" stands for the default of the field; the
        value of the flag is then None. By default the flag has the default of the field.
    """
    meanings, holders = field_meanings(options), {}
    hints = typing.get_type_hints(options, include_extras=True)
    flag_names = {name: names.get(name, name) for name in hints}
    for field in dataclasses.fields(options):
        if field.name in omitted:
            continue
        # Python -OO removes docstrings.
        meaning = meanings.get(field.name, "")
        meaning = re.sub("`(\\w+)`", lambda name: f"--{flag_names[name[1]]}", meaning)
        text = meaning[:1].upper() + meaning[1:]
        if unset and (field.default is not None or "{}" not in unset):
            text += f" Default: {unset.format('no' if field.default is False else field.default)}."
        name = flag_names[field.name]
        default: Any = None if unset else field.default
        hint, lower_bound = hints[field.name], None
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            hint, *_ = typing.get_args(hint)
        kind = typing.get_origin(hint)
        if kind is typing.Annotated:
            hint, limits = typing.get_args(hint)
            lower_bound = limits.least
        if kind is typing.Literal:
            holder = flags.DEFINE_enum(name, default, typing.get_args(hint), text)
        elif isinstance(field.default, tuple) or kind is Sequence:
            holder = flags.DEFINE_list(name, default and list(default), text)
        elif hint is int:
            holder = flags.DEFINE_integer(name, default, text, lower_bound=lower_bound)
        else:
            holder = _DEFINE[hint](name, default, text)
        holders[field.name] = holder
    return holders


def values_of(fields: FieldFlags) -> dict[str, Any]:
    """The values of the flags that have one, by field."""
    return {name: flag.value for name, flag in fields.items() if flag.value is not None}
