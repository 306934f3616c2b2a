"""The log and standard output, also on a full disk and in another locale, and signals while a file
is written."""

import importlib
import io
import json
import logging
import os
import signal
import subprocess
import sys

import pytest

from dclm_jax import processes
from tests.exhaustive import also
from tests.launch.support import REPOSITORY, command_state, copy_run, environment, launch


def run(space, command: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A command of a shell, in which RUN is the workdir and PYTHON runs a command."""
    values = {"RUN": str(space.run), "PYTHON": f"{sys.executable} -m", **variables}
    return subprocess.run(
        ["bash", "-c", command], cwd=REPOSITORY, env=environment(**values), capture_output=True
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has /dev/full")
@pytest.mark.parametrize("command", ["evaluate", *also(["evaluate --metrics=-", "score"])])
def test_an_output_on_a_full_disk_is_one_line(space, command):
    done = run(space, f"$PYTHON launch.{command} --workdir=$RUN > /dev/full")
    error = "error: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr.decode()) == (2, error)


def test_text_goes_out_as_utf8(space):
    text = "caf\u00e9 \u2014 w1"
    command = "printf '%s\\n' \"$TEXT\" | $PYTHON launch.score --workdir=$RUN --input=-"
    locale = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = run(space, command, TEXT=text, **locale)
    assert done.returncode == 0, done.stderr
    (sentence,) = json.loads(done.stdout.decode("utf-8"))["sentences"]
    assert sentence["tokens"][:-1] == text.split()


TITLED = "= A title\nw1 w2\n"
NOTE = "note: {}: titles in lines that begin with =: 1; title words omitted: 2, such as '= A title'"


def test_notes_and_warnings_are_on_standard_error_beside_a_result(space, tmp_path):
    text, run = tmp_path / "text", copy_run(space.run, tmp_path / "run")
    text.write_text(TITLED)
    (run / "checkpoints" / "best" / "999").mkdir()
    arguments = ("score", f"--workdir={run}", f"--input={text}", "--output_format=tsv")
    done = launch(*arguments, quiet=False)
    damaged, other, note, size = done.stderr.splitlines()
    assert damaged.startswith(f"warning: {run}/checkpoints/best/999 cannot be used: ")
    assert other.startswith("warning: using step ") and note == NOTE.format(text)
    assert size == f"note: {text}: documents: 1, with 1 sentences"
    fewer = launch(*arguments, "--verbosity=-1", quiet=False)
    assert (fewer.stdout, fewer.stderr) == (done.stdout, f"{damaged}\n{other}\n")


def test_the_log_of_a_command_that_makes_files_is_on_standard_output(space, tmp_path):
    text, output = tmp_path / "text", tmp_path / "data"
    text.write_text(TITLED)
    arguments = ("prepare", f"--train={text}", f"--output={output}", "--overwrite")
    printed = launch(*arguments).stdout.splitlines()
    assert printed[:3] == [
        NOTE.format(text),
        "first sentences of train, OOV words in [brackets]:",
        "  w1 w2",
    ]
    fewer = launch(*arguments, "--verbosity=-1").stdout.splitlines()
    assert fewer == printed[-len(fewer) :] and fewer[0].startswith("split ")


def raise_broken_pipe(text):
    raise BrokenPipeError


def test_only_the_first_process_prints_and_each_note_once(monkeypatch, capsys):
    with command_state(io.TextIOWrapper(io.BytesIO())):
        handler = importlib.import_module("launch._app").LogHandler(False)
    record = logging.makeLogRecord({"name": "dclm_jax", "levelno": logging.INFO, "msg": "a line"})
    for index in (1, 0, 0):
        monkeypatch.setattr(processes, "index", lambda index=index: index)
        handler.handle(record)
    assert capsys.readouterr().err == "note: a line\n"
    # The reader has ended, such as `head`.
    monkeypatch.setattr(sys.stderr, "write", raise_broken_pipe)
    record.msg = "another line"
    with pytest.raises(BrokenPipeError):
        handler.handle(record)


WAITS = """
import signal, time
from dclm_jax.files import open_output
from launch import _app, _options

def main(options):
    with open_output("output.tsv"):
        print("ready", flush=True)
        LOST
        time.sleep(60)

_app.run(main, _options.CommandOptions)
"""


LOST = """
        class Lost:
            def __del__(self):
                signal.raise_signal(signal.SIGTERM)
        Lost()
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -15), (None, -15), *also([(signal.SIGINT, 130)])]
)
def test_a_signal_leaves_no_temporary_file(interruptible, tmp_path, number, code):
    """A signal during a callback, which no code can catch, ends the command after the callback."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS.replace("LOST", "" if number else LOST.strip())],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(REPOSITORY)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout and process.stdout.readline() == b"ready\n"
    if number:
        assert list(tmp_path.iterdir())
        process.send_signal(number)
    assert (process.communicate(timeout=60), process.returncode) == ((b"", b""), code)
    assert not list(tmp_path.iterdir())
