"""Commands as their users run them, and a small corpus with a finished run for them."""

import contextlib
import copy
import functools
import importlib
import io
import itertools
import json
import logging
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from absl import app, flags
from absl import logging as absl_logging
from absl.testing import flagsaver

from dclm_jax.log import logger
from tests.compiling import XLA_FLAGS

REPOSITORY = Path(__file__).parents[2]
COMMANDS = [
    "benchmark",
    *sorted(path.stem for path in (REPOSITORY / "launch").glob("*.py") if path.stem[0] != "_"),
]
TOPICS, WORDS_PER_TOPIC = 5, 20
STEPS = 24
# Sums of some hundred float32 terms of about 5 nats, taken in another order.
TOLERANCE = 1e-5
OOV_NOTE = "note: most frequent of "
"""The beginning of the note on a text with OOV words, which is no sign of a fault."""
SIZE_NOTE = re.compile(r"note: .*: documents: [\d,]+, with [\d,]+ sentences$")
"""The note on the size of a text."""

CONFIG = """
from dclm_jax.training.config import default_config


def get_config(model="ccdclm"):
    config = default_config(model)
    with config.unlocked():
        config.model.update(embedding_dim=8, hidden_dim=8, num_layers=1)
        config.data.batch_size = 8
        config.optimizer.update(name="adam", learning_rate=0.02)
        config.training.update(
            max_steps={steps}, evaluate_every=8, checkpoint_every=4, log_every=1, patience=0
        )
    return config
"""


def environment(**variables: str) -> dict[str, str]:
    """Commands are found from any directory; flags for XLA that pytest was given do not reach
    them."""
    defaults = {"PYTHONPATH": str(REPOSITORY), "XLA_FLAGS": XLA_FLAGS}
    return {**os.environ, **defaults, **variables}


CACHE_OPTIONS = ("jax_persistent_cache_min_compile_time_secs", "jax_enable_compilation_cache")
"""Options of JAX that commands set."""
OF_PROCESSES = {"PYTHONPATH", "XLA_FLAGS"}
"""Variables that Python and JAX read when they start."""


def launch(name, *arguments, code=0, quiet=True, cwd=None, stdin=None, process=False, **variables):
    """Runs `python -m launch.NAME` to its end and returns how it ended and what it printed.

    It runs in this process, which spares the start of another and what JAX has compiled, unless
    `process` asks for one of its own, or a variable that only a new process reads.
    """
    command = [f"launch.{name}", *map(str, arguments)]
    run = in_process if not (process or OF_PROCESSES & variables.keys()) else as_process
    done = run(command, cwd or REPOSITORY, stdin, variables)
    assert done.returncode == code, done.stderr
    if code == 0 and quiet:
        lines = done.stderr.splitlines()
        assert all(line.startswith(OOV_NOTE) or SIZE_NOTE.match(line) for line in lines), (
            done.stderr
        )
    return done


def _is_usual(line: str) -> bool:
    """Whether a line is a note that no test expects to be absent."""
    return line.startswith(OOV_NOTE) or bool(SIZE_NOTE.match(line))


def as_process(command: list[str], cwd, stdin: str | None, variables: dict[str, str]):
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env=environment(**variables),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=120,
    )


def in_process(command: list[str], cwd, stdin: str | None, variables: dict[str, str]):
    """What `as_process` gives, but for what is written past Python's own standard output."""
    name, *_ = command
    source, output, errors = (
        io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", write_through=True)
        for content in ((stdin or "").encode(), b"", b"")
    )
    with (
        pytest.MonkeyPatch.context() as patch,
        command_state(errors),
        warnings.catch_warnings(),
    ):
        # Those that Python hides by default; all others are errors.
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        # Of the processes that it starts, as in `environment`.
        for variable, value in {"PYTHONPATH": str(REPOSITORY), **variables}.items():
            patch.setenv(variable, value)
        patch.chdir(cwd)
        patch.setattr(sys, "argv", command)
        for stream, replacement in (("stdin", source), ("stdout", output), ("stderr", errors)):
            patch.setattr(sys, stream, replacement)
        try:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    printed = [stream.buffer.getvalue().decode() for stream in (output, errors)]
    return subprocess.CompletedProcess(command, code, *printed)


@contextlib.contextmanager
def command_state(errors: io.TextIOWrapper) -> Iterator[None]:
    """The state of a command in a new process: no flags but absl's own, a log on standard error.

    Everything is as before afterwards.
    """
    app.define_help_flags()
    registry = flags.FLAGS.__dict__
    kept_registry = copy.deepcopy(
        registry, {id(flag): flag for flag in registry["__flags"].values()}
    )
    kept_values = flagsaver.save_flag_values()
    kept_modules = {name: sys.modules.pop(name) for name in list(sys.modules) if of_launch(name)}
    kept_hook, kept_reaction = sys.unraisablehook, signal.getsignal(signal.SIGTERM)
    kept_options = {option: jax.config.values[option] for option in CACHE_OPTIONS}
    for module, defined in list(flags.FLAGS.flags_by_module_dict().items()):
        for flag in list(defined) if of_launch(module) else ():
            delattr(flags.FLAGS, flag.name)
    flags.FLAGS.unparse_flags()
    root, handler = logging.getLogger(), absl_logging.get_absl_handler()
    kept_handlers, kept_stream = root.handlers[:], handler.python_handler.stream
    kept_log = logger.level, logger.propagate
    logger.setLevel(logging.NOTSET)
    handler.python_handler.setStream(errors)
    absl_logging.use_absl_handler()
    try:
        yield
    finally:
        root.handlers[:] = kept_handlers
        logger.handlers.clear()
        logger.setLevel(kept_log[0])
        logger.propagate = kept_log[1]
        handler.python_handler.setStream(kept_stream)
        for name in filter(of_launch, list(sys.modules)):
            del sys.modules[name]
        sys.modules.update(kept_modules)
        registry.clear()
        registry.update(kept_registry)
        flagsaver.restore_flag_values(kept_values)
        sys.unraisablehook = kept_hook
        signal.signal(signal.SIGTERM, kept_reaction)
        for option, value in kept_options.items():
            jax.config.update(option, value)


def entry_point(command: str) -> str:
    """The module that `python -m` runs as a command; a package has it as `__main__`."""
    return f"{command}.__main__" if command == "launch.benchmark" else command


def define_flags(command: str) -> None:
    """Defines the flags of a command."""
    module = importlib.import_module(entry_point(command))
    options = importlib.import_module("launch._options")
    options.define(module.Options, sys.argv[0])


def of_launch(module: str) -> bool:
    return module.split(".")[0] == "launch"


def free_port() -> int:
    """A port that is free, and so is the next one."""
    while True:
        with (
            contextlib.closing(socket.socket()) as first,
            contextlib.closing(socket.socket()) as second,
        ):
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with contextlib.suppress(OSError):
                second.bind(("127.0.0.1", port + 1))
                return port


def start(
    name: str, *arguments, group: bool = False, stdin: int = subprocess.DEVNULL, **variables: str
) -> subprocess.Popen[str]:
    """Starts `python -m launch.NAME` and does not wait for it; in a process group of its own if a
    signal is meant for the whole group, as of a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", f"launch.{name}", *map(str, arguments)],
        cwd=REPOSITORY,
        env=environment(**variables),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=group,
    )


def refuse(name, *arguments, code=2, **options) -> str:
    """Runs a command that must end in a single line on stderr, and returns that line."""
    lines = launch(name, *arguments, code=code, **options).stderr.splitlines()
    (error,) = itertools.filterfalse(_is_usual, lines)
    assert error.startswith("error: "), error
    return error


def scored(*flags, **options) -> list[dict[str, Any]]:
    """The lines of JSON that `launch.score` prints."""
    lines = launch("score", *flags, **options).stdout.splitlines()
    return list(map(json.loads, lines))


def write_documents(path: Path, seed: int, documents: int) -> Path:
    """Documents whose sentences all draw on one topic's words."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(documents):
        first = WORDS_PER_TOPIC * rng.integers(TOPICS)
        for _ in range(rng.integers(2, 6)):
            words = first + rng.integers(WORDS_PER_TOPIC, size=rng.integers(2, 7))
            lines.append(" ".join(f"w{word}" for word in words))
        lines.append("")
    path.write_text("\n".join(lines))
    return path


def copy_run(run: Path, target: Path, text_format: str = "", **options: Any) -> Path:
    """A run whose configuration differs where what was trained does not: `model_hidden_dim=3`; or
    that reads text of another format."""
    shutil.copytree(run, target)
    if text_format:
        text = json.loads((target / "text.json").read_text())
        text["options"]["format"] = text_format
        (target / "text.json").write_text(json.dumps(text))
    config = json.loads((target / "config.json").read_text())
    for option, value in options.items():
        section, key = option.split("_", maxsplit=1)
        config[section][key] = value
    (target / "config.json").write_text(json.dumps(config))
    return target


def fingerprint(directory: Path) -> dict[str, bytes]:
    """Every file below a directory with its content, but what Python keeps of a configuration."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.parent.name != "__pycache__"
    }


class Workspace:
    """The text, the prepared corpus, a configuration and a finished run that all tests read."""

    def __init__(self, root: Path):
        self.root = root
        self.printed: dict[str, str] = {}
        self.text = {
            split: write_documents(root / f"{split}.txt", seed, documents)
            for seed, (split, documents) in enumerate(
                (("train", 60), ("valid", 8), ("test", 11)), start=1
            )
        }
        self.corpus, self.run = root / "corpus", root / "run"
        self.prepared = launch(
            "prepare", *self.sources(), f"--output={self.corpus}", "--vocab_size=95"
        )
        self.config = root / "tiny.py"
        self.config.write_text(CONFIG.format(steps=STEPS))
        self.trained = launch("train", *self.training(self.run))

        vocabulary = f"--vocabulary={self.corpus / 'vocabulary.tsv'}"
        self.test_only, self.other_corpus = root / "test_only", root / "other"
        test = f"--test={self.text['test']}"
        launch("prepare", test, vocabulary, f"--output={self.test_only}")
        launch("prepare", *self.sources(), f"--output={self.other_corpus}", "--vocab_size=50")

    @functools.cached_property
    def rnnlm(self) -> Path:
        """A finished run of another model."""
        return self.train("rnnlm", "rnnlm")

    @functools.cached_property
    def seed(self) -> Path:
        """A finished run of the first model with another seed."""
        return self.train("seed", "ccdclm", "--config.training.seed=1")

    @functools.cached_property
    def adclm(self) -> Path:
        """A run of one step of a model with attention."""
        return self.train("adclm", "adclm", "--config.training.max_steps=1")

    @functools.cached_property
    def other_run(self) -> Path:
        """A run of one step on the other corpus."""
        directory = f"--config.data.directory={self.other_corpus}"
        return self.train("other_run", "ccdclm", directory, "--config.training.max_steps=1")

    @functools.cached_property
    def autoencoder(self) -> Path:
        """A run of whole documents; `printed["autoencoder"]` is what training printed."""
        name = "hierarchical_attention_autoencoder"
        whole = ("--config.data.segment_length=0", "--config.training.max_steps=8")
        return self.train("autoencoder", name, *whole)

    def train(self, name: str, model: str, *more: str) -> Path:
        workdir = self.root / name
        arguments = self.training(workdir, *more, config=Path(f"{self.config}:{model}"))
        self.printed[name] = launch("train", *arguments).stdout
        return workdir

    def sources(self) -> list[str]:
        return [f"--{split}={path}" for split, path in self.text.items()]

    def training(self, workdir: Path, *more: str, config: Path | None = None) -> list[str]:
        return [
            f"--config={config or self.config}",
            f"--workdir={workdir}",
            f"--config.data.directory={self.corpus}",
            *more,
        ]

    def evaluate(self, *arguments, **options):
        done = launch("evaluate", f"--workdir={self.run}", "--metrics=-", *arguments, **options)
        return json.loads(done.stdout)
