"""Standard output on a full disk and in another locale, and signals while a file is written."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.exhaustive import also
from tests.launch.support import REPOSITORY, environment


def run(space, command: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A command of a shell, in which RUN is the workdir and PYTHON runs a launcher."""
    values = {"RUN": str(space.run), "PYTHON": f"{sys.executable} -m", **variables}
    return subprocess.run(
        ["bash", "-c", command], cwd=REPOSITORY, env=environment(**values), capture_output=True
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has /dev/full")
@pytest.mark.parametrize("command", ["evaluate", *also(["evaluate --output=-", "score"])])
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


WAITS = """
import signal, time
from dclm_jax.files import open_output
from launch import _app

def main(argv):
    with open_output("output.tsv"):
        print("ready", flush=True)
        LOST
        time.sleep(60)

_app.run(main)
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
