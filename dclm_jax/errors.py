"""The exception that means "the input is wrong", as opposed to "the program is wrong", and what
its messages are made of."""

import contextlib
import difflib
import reprlib
from collections.abc import Collection, Iterator

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
_SHORT.maxlevel = 2


class InputError(ValueError):
    """Bad input from the user: one line naming the file, line or flag and what was expected.

    Every function of the library raises it for bad input, which docstrings do not repeat. Launchers
    print the message without a traceback and exit with code 2.
    """

    def __init__(self, message: str):
        # Names of files may hold anything, line breaks and commands to terminals included.
        super().__init__(printable(message))


class DivergenceError(RuntimeError):
    """Training, or dynamic evaluation, met a loss or a gradient that is not finite. Launchers print
    it and exit with 1."""


@contextlib.contextmanager
def importing(purpose: str, extra: str) -> Iterator[None]:
    """`with importing(purpose, extra):` around imports of optional packages names what to install
    where one is missing."""
    try:
        yield
    except ImportError as error:
        package = (error.name or "a package").split(".")[0]
        message = f"{purpose} needs {package}: pip install 'dclm_jax[{extra}]'"
        raise InputError(message) from error


def require_at_least(name: str, value: float | None, least: float) -> None:
    """Raises an `InputError` if the value of that name is too small; None is not given."""
    if value is not None and value < least:
        raise InputError(f"{name} is {value}; expected at least {least}")


def printable(text: str) -> str:
    """Text as one line that can be shown and encoded: escapes stand for all other characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def did_you_mean(word: str, known: Collection[str]) -> str:
    """The end of an error message: the nearest known word, or all of them."""
    nearest = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; known: {', '.join(sorted(known))}"


def brief(value: object) -> str:
    """A value from a file for a message: like `repr`, but short."""
    return _SHORT.repr(value)
