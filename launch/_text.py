"""Flags of text processing, for launchers that prepare or read text."""

from collections.abc import Collection

from absl import flags

from dclm_jax.data.documents import TextOptions
from launch._fields import FieldFlags, define_fields

# The flags belong to the launcher that calls the function; its --help lists them.
flags.disclaim_key_flags()


def define_text_flags(unset: str = "as in training", omitted: Collection[str] = ()) -> FieldFlags:
    """Defines flags for the fields of `TextOptions`; `unset` is the meaning of a missing flag, and
    `omitted` names fields without a flag."""
    return define_fields(TextOptions, unset=unset, omitted=omitted)
