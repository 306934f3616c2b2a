"""Flags of text processing, for launchers that prepare or read text."""

from collections.abc import Collection

from absl import flags

from dclm_jax.data.documents import FORMS, TextOptions
from dclm_jax.data.readers import TEXT_FORMATS
from launch._fields import FieldFlags, define_fields

# The flags belong to the launcher that calls the function; its --help lists them.
flags.disclaim_key_flags()


def define_text_flags(unset: str = "as in training", omitted: Collection[str] = ()) -> FieldFlags:
    """Defines flags for the fields of `TextOptions`; `unset` is the meaning of a missing flag, and
    `omitted` names fields without a flag."""
    choices = {"format": TEXT_FORMATS, "unicode": FORMS}
    return define_fields(TextOptions, choices=choices, unset=unset, omitted=omitted)
