"""Exceptions for bad input and for divergence, and helpers for their messages."""

import contextlib
import difflib
import reprlib
from collections.abc import Collection, Iterator

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
_SHORT.maxlevel = 2


class InputError(ValueError):
    """Bad input from the user. The message is one line: the error and its file, line or flag, the
    value, and what to do.

    Every function of the library raises `InputError` for bad input; docstrings do not repeat this.
    Commands print the message without a traceback and exit with code 2.
    """

    def __init__(self, message: str):
        # File names may contain line breaks and control sequences of terminals.
        super().__init__(printable(message))


class DivergenceError(RuntimeError):
    """A loss or gradient of training or dynamic evaluation is not finite, or too large. Commands
    print the message and exit with code 1."""


class TrainingInterrupted(KeyboardInterrupt):
    """SIGTERM or Ctrl-C stopped training after the step `step`, and the run is saved: the same call
    resumes it."""

    def __init__(self, step: int):
        super().__init__(f"training was interrupted and saved at step {step}")
        self.step = step


@contextlib.contextmanager
def importing(purpose: str, extra: str) -> Iterator[None]:
    """A context for imports of optional packages. If a package is missing, an `InputError` says
    which extra to install."""
    try:
        yield
    except ImportError as error:
        package = (error.name or "a package").split(".")[0]
        message = f"{purpose} needs {package}: pip install 'dclm_jax[{extra}]'"
        raise InputError(message) from error


def require_at_least(name: str, value: float | None, least: float) -> None:
    """Raises an `InputError` if the value is below `least`; None (not given) is accepted."""
    if value is not None and value < least:
        raise InputError(f"{name} is {value}; expected at least {least}")


def printable(text: str) -> str:
    """Text as one printable line; all other characters are escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def did_you_mean(word: str, known: Collection[str]) -> str:
    """The end of an error message: the nearest known word, or all known words."""
    nearest = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; known: {', '.join(sorted(known))}"


def brief(value: object) -> str:
    """A value from a file for a message: a shortened `repr`."""
    return _SHORT.repr(value)
