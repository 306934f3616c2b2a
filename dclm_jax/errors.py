"""The one exception that means "the input is wrong", as opposed to "the program is wrong"."""


class InputError(ValueError):
    """Bad input from the user: one line naming the file, line or flag and what was expected.

    Launchers print the message without a traceback and exit with code 2.
    """


class DivergenceError(RuntimeError):
    """Training met a loss or a gradient that is not finite. Launchers print it and exit with 1."""
