"""The frame of every command: parses flags, reports bad input in one line, sets exit codes."""

import contextlib
import errno
import functools
import io
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
from absl import app, flags
from absl import logging as absl_logging

from dclm_jax import processes
from dclm_jax.allocation import keep_freed_memory
from dclm_jax.errors import DivergenceError, InputError, printable
from dclm_jax.log import job_logger, logger
from dclm_jax.storage import cache_folder

from . import _options
from ._options import Kind

COMMANDS = "python -m launch." if __package__ == "launch" else "dclm_jax "
"""Prefix of a command, in the repository or of the installed package."""
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 75
"""The system's code for "try again": training was interrupted and saved."""
CONFIG_MODULE = "config_config"
"""Name under which ml_collections imports the file of --config."""
_OWN_FAULTS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")
"""Errors of a device that refuses a program, and would refuse it again."""
_WRITE_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of standard output; errors of files with a name are `InputError`s."""


def run(
    command: Callable[[Kind], int | None],
    kind: type[Kind],
    parse: Callable[[Sequence[str]], list[str]] = flags.FLAGS,
    *,
    log_on_stdout: bool = False,
) -> None:
    """Runs a command under absl; bad flags and `InputError` end in one line on stderr and exit 2.

    Args:
      command: takes the options, and returns the exit code.
      kind: the class of the options.
      parse: takes the command line and returns the arguments that are not flags.
      log_on_stdout: whether the log without warnings is on standard output.
    """

    def guarded(argv: Sequence[str]) -> int | None:
        if not flags.FLAGS["verbosity"].present:
            # absl logs INFO once flags are parsed, such as every accelerator that JAX looked for.
            absl_logging.set_verbosity(absl_logging.WARNING)
            logger.setLevel(logging.INFO)
        try:
            _check_command_line(argv)
            code = command(_options.parsed(kind))
            sys.stdout.flush()
            return code
        except Exception as error:
            _end_by(error)
            raise

    _write_utf8()
    logger.addHandler(LogHandler(log_on_stdout))
    # The handler of absl would print every record again.
    logger.propagate = False
    _keep_compiled_programs()
    keep_freed_memory()
    sys.unraisablehook = _unraisable
    signal.signal(signal.SIGTERM, _terminate)
    app.define_help_flags()
    flags.DEFINE_flag(_HelpFlag())
    _options.define(kind, sys.argv[0])
    try:
        app.run(guarded, flags_parser=functools.partial(_parse, parse))
    except _Terminated:
        _end_interrupted(signal.SIGTERM)
    except KeyboardInterrupt:
        _end_interrupted(signal.SIGINT)


class LogHandler(logging.Handler):
    """Prints the library's log, a line per record; only the first process of a job prints."""

    def __init__(self, log_on_stdout: bool):
        super().__init__()
        self._log_on_stdout = log_on_stdout
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if not processes.is_primary():
            return
        is_warning = record.levelno >= logging.WARNING
        # A command that makes files, such as a corpus or a run, has its log as its output. Other
        # commands may print a result, which programs read.
        stream = sys.stdout if self._log_on_stdout and not is_warning else sys.stderr
        line = record.getMessage()
        if record.name != job_logger.name:
            line = f"{'warning' if is_warning else 'note'}: {line}"
            # Several runs that read one text log equal lines.
            if line in self._printed:
                return
            self._printed.add(line)
        print(line, file=stream, flush=True)


class _HelpFlag(app.HelpFlag):
    """--help: the manual of the command and its flags, without the flags of absl."""

    def __init__(self):
        super().__init__()
        self.allow_override = True

    def parse(self, arg: Any) -> None:
        if self._parse(arg):
            # The heading of absl is the path of the command.
            _, _, listed = flags.FLAGS.main_module_help().partition(":\n")
            manual = (sys.modules["__main__"].__doc__ or "").replace("python -m launch.", COMMANDS)
            print(manual, "Flags:\n", listed, sep="\n")
            sys.exit(0)


def _check_command_line(argv: Sequence[str]) -> None:
    """Refuses arguments that are not flags."""
    if len(argv) > 1 and argv[1].startswith("\ufeff"):
        raise InputError(
            f"the file of --flagfile begins with a byte order mark, before {argv[1][1:]!r}; save "
            "it as UTF-8 without this mark"
        )
    if len(argv) > 1:
        raise InputError(
            f"unexpected argument {argv[1]!r}; flags are written --name=value (see --help)"
        )


def _end_by(error: BaseException) -> None:
    """Ends the process with an exit code, and with one line unless the error is a bug. Returns only
    for a bug in a job of one process."""
    match error:
        case processes.SharedError(process=process):
            _end(EXIT_BAD_INPUT, str(error) if process == processes.index() else "", alone=False)
        case InputError():
            _end(EXIT_BAD_INPUT, str(error))
        case DivergenceError():
            _end(1, str(error) if processes.is_primary() else "", alone=False)
        case BrokenPipeError():
            # The reader of standard output has exited (`... | head`), which is not an error.
            _mute()
            _end(0)
        case OSError() if error.filename is None and error.errno in _WRITE_FAULTS:
            _mute()
            _end(EXIT_BAD_INPUT, f"standard output cannot be written: {error.strerror}")
        case OSError() if error.filename is not None:
            _end(EXIT_BAD_INPUT, _one_line(error))
    if isinstance(error, MemoryError) or str(error).startswith("RESOURCE_EXHAUSTED"):
        _end(EXIT_BAD_INPUT, f"there is not enough memory: {_one_line(error)[:200]}")
    if (asked := jax.config.values["jax_platforms"]) and not _has_devices():
        problem = f"JAX_PLATFORMS is {printable(asked)}, and JAX finds no such device here"
        remedy = "install JAX for this device (pip install 'jax[cuda13]') or set JAX_PLATFORMS=cpu"
        _end(EXIT_BAD_INPUT, f"{problem}; {remedy}")
    if processes.count() == 1:
        return
    is_of_device = isinstance(error, jax.errors.JaxRuntimeError)
    if is_of_device and not str(error).startswith(_OWN_FAULTS):
        # Another process or its machine has failed.
        reason = f"the other processes or a device ({_one_line(error)[:200]})"
        _end(
            EXIT_INTERRUPTED,
            f"process {processes.index()} lost {reason}; repeat the command to resume",
        )
    traceback.print_exc()
    _end(1)


class _Terminated(KeyboardInterrupt):
    """SIGTERM ends the work as Ctrl-C does, so that temporary files are removed."""


def _terminate(number: int, frame: object) -> NoReturn:
    del frame
    # The removal is not interrupted.
    signal.signal(number, signal.SIG_IGN)
    raise _Terminated


def _end_interrupted(number: int) -> NoReturn:
    """Ends the process after a signal, at once: Python's shutdown would crash if JAX is compiling
    in other threads."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    os._exit(128 + number)


def _has_devices() -> bool:
    # JAX raises either error.
    try:
        return bool(jax.devices())
    except (RuntimeError, AssertionError):
        return False


def _write_utf8() -> None:
    """Makes standard output and standard error UTF-8 in every locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _mute() -> None:
    """Discards the buffered standard output, whose writing would fail again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unraisable(unraisable: Any) -> None:
    """Reports exceptions that no code can catch, except from a save that has already failed.

    The first file that does not fit on the disk raises an `InputError`; the other files of the save
    then report to an event loop that is closed. A signal during a callback of JAX interrupts the
    command after the callback.
    """
    if isinstance(error := unraisable.exc_value, KeyboardInterrupt):
        number = signal.SIGTERM if isinstance(error, _Terminated) else signal.SIGINT
        signal.signal(signal.SIGTERM, _terminate)
        main_thread = threading.main_thread().ident
        threading.Timer(0.1, signal.pthread_kill, [main_thread, number]).start()
        return
    if str(error) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def _keep_compiled_programs() -> None:
    """Turns JAX's persistent compilation cache on, if there is a folder for it;
    JAX_COMPILATION_CACHE_DIR moves it."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = cache_folder()
        jax.config.update("jax_compilation_cache_dir", cache and str(cache / "xla"))
    # A program that cannot be read is compiled again.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _parse(parse: Callable[[Sequence[str]], list[str]], argv: Sequence[str]) -> list[str]:
    try:
        return parse(list(argv))
    except SystemExit:
        # absl has printed the help, and exits with code 1.
        sys.exit(0)
    except BrokenPipeError:
        _mute()
        _end(0)
    # A configuration file is a program: loading it may raise any exception.
    except Exception as error:
        _end(EXIT_BAD_INPUT, _flag_error(error))


def _flag_error(error: Exception) -> str:
    """One line; for an error in a configuration file with its line and the exception."""
    if isinstance(error, UnicodeDecodeError):
        return f"the file of --flagfile is not UTF-8 ({error}); save it as UTF-8"
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    # ml_collections and absl wrap some errors, tracebacks included in their messages.
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__context__) is not None:
        causes.append(cause)
    for cause in reversed(causes):
        lines = [
            f"{frame.f_code.co_filename}:{line}: "
            for frame, line in traceback.walk_tb(cause.__traceback__)
            if frame.f_globals.get("__name__") == CONFIG_MODULE
        ]
        if lines:
            kind = "" if isinstance(cause, InputError) else f"{type(cause).__name__}: "
            return f"{lines[-1]}{kind}{_one_line(cause)}"
    if isinstance(causes[-1], TypeError) and "get_config()" in str(causes[-1]):
        return f"--config: {causes[-1]}; write the name as --config=FILE:NAME"
    if isinstance(error, AttributeError) and isinstance(error.args[0], KeyError):
        error = error.args[0]
    text = _one_line(error)
    is_key = isinstance(error, KeyError) and text.startswith("'")
    return f"unknown configuration key {text}" if is_key else text


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{printable(str(error.filename))}: {error.strerror}"
    # str(KeyError) is the repr of its message.
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    return " ".join(str(text).split())


def _end(code: int, message: str = "", *, alone: bool = True) -> NoReturn:
    """Ends the process, and prints the message, if any.

    Args:
      code: exit code.
      message: one line for standard error.
      alone: whether to end without waiting for other processes of the job, which may continue.
    """
    if message:
        print(f"error: {message}", file=sys.stderr, flush=True)
    if alone and processes.count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
