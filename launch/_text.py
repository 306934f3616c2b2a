"""Flags of text processing, for launchers that prepare or read text."""

from absl import flags

from dclm_jax.data.documents import FORMS, TextOptions
from dclm_jax.data.readers import TEXT_FORMATS
from launch._fields import FieldFlags, define_fields

# The flags belong to the launcher that calls the function; its --help lists them.
flags.disclaim_key_flags()


def define_text_flags(unset: str = "as in training") -> FieldFlags:
    """Defines flags for the fields of `TextOptions`; `unset` is what a missing flag means."""
    choices = {"format": TEXT_FORMATS, "unicode": FORMS}
    return define_fields(TextOptions, choices=choices, unset=unset)
