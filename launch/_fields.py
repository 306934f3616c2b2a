"""Flags that set the fields of a dataclass of the library."""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from dclm_jax.training.config import field_meanings

FieldFlags = Mapping[str, "flags.FlagHolder[Any]"]
"""Flags by the names of the fields that they set."""
_DEFINE = {bool: flags.DEFINE_bool, float: flags.DEFINE_float, str: flags.DEFINE_string}
# The flags defined below belong to the launcher that calls the function; its --help lists them.
flags.disclaim_key_flags()


def define_fields(
    options: type,
    *,
    names: Mapping[str, str] = {},
    choices: Mapping[str, Sequence[str]] = {},
    unset: str = "",
) -> FieldFlags:
    """Defines one flag per field of a dataclass, with the meaning in its docstring as help.

    Args:
      options: the dataclass.
      names: names of flags that are not the names of their fields.
      choices: the values of fields that have a fixed set of values.
      unset: the meaning of a missing flag, in which "{}" stands for the default of the field; the
        value of the flag is then None. By default the flag has the default of the field.
    """
    meanings, holders = field_meanings(options), {}
    hints = typing.get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):
        meaning = meanings[field.name].replace("`", "")
        text = meaning[0].upper() + meaning[1:]
        if unset:
            text += f" Default: {unset.format('no' if field.default is False else field.default)}."
        name = names.get(field.name, field.name)
        default: Any = None if unset else field.default
        # The type of an optional field and the limits of a number are arguments of its hint.
        kind, *limits = typing.get_args(hints[field.name]) or [hints[field.name]]
        if field.name in choices:
            holder = flags.DEFINE_enum(name, default, choices[field.name], text)
        elif isinstance(field.default, tuple) or typing.get_origin(kind) is Sequence:
            holder = flags.DEFINE_list(name, default, text)
        elif kind is int:
            least = limits[0].least if limits and limits[0] is not type(None) else None
            holder = flags.DEFINE_integer(name, default, text, lower_bound=least)
        else:
            holder = _DEFINE[kind](name, default, text)
        holders[field.name] = holder
    return holders


def values_of(fields: FieldFlags) -> dict[str, Any]:
    """The values of the flags that have one, by field."""
    return {name: flag.value for name, flag in fields.items() if flag.value is not None}
