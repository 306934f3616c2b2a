"""HTML from the templates in the folder of this name; whatever a text holds, it stays text."""

import functools
from typing import TYPE_CHECKING

from dclm_jax.errors import InputError, printable

if TYPE_CHECKING:
    from jinja2 import Environment


@functools.cache
def environment() -> "Environment":
    """The templates by name. They escape every value, and show a text as one printable line."""
    try:
        import jinja2
    except ImportError as error:
        raise InputError("HTML needs jinja2: pip install 'dclm_jax[plots]'") from error
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__ or ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Not of markup, which a template has made.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )


def source(name: str) -> str:
    """The text of a file beside the templates, such as page.css."""
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]
