"""Processes of this machine, some at a time, and what they print."""

import os
import signal
import sys
import time

import pytest

from dclm_jax.experiments import jobs
from dclm_jax.training.progress import interruption


def never() -> bool:
    return False


def command(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run(commands, folder, at_once=2, interrupted=never) -> dict[str, jobs.Ended]:
    ended = jobs.run(commands, folder / "logs", at_once=at_once, interrupted=interrupted)
    return {process.name: process for process in ended}


def printed(folder, name: str, ending: str = "out") -> str:
    return (folder / "logs" / f"{name}.{ending}").read_text()


def test_commands_run_some_at_a_time_and_report_how_they_ended(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; here = Path({here!r})\n"
        "Path(here, 'now.{name}').touch(); print(len(list(here.glob('now.*')))); time.sleep(0.5)\n"
        "Path(here, 'now.{name}').unlink(); print('why', file=sys.stderr); sys.exit({name})"
    )
    names = range(4)
    commands = {f"t{n}": command(code.format(here=str(tmp_path), name=n)) for n in names}
    ended = run(commands, tmp_path)
    assert {name: process.code for name, process in ended.items()} == {f"t{n}": n for n in names}
    assert all(process.seconds >= 0.5 for process in ended.values())
    assert {int(printed(tmp_path, f"t{n}")) for n in names} <= {1, 2}
    assert {printed(tmp_path, f"t{n}", "err") for n in names} == {"why\n"}


def test_output_is_added_to_and_errors_are_those_of_the_last_start(tmp_path):
    for number in (1, 2):
        code = f"import sys; print({number}); print('error', {number}, file=sys.stderr)"
        run({"a": command(code)}, tmp_path)
    assert printed(tmp_path, "a") == "1\n2\n"
    assert printed(tmp_path, "a", "err") == "error 2\n"


def test_an_interruption_ends_what_runs_by_one_sigterm_and_starts_nothing(tmp_path):
    code = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    print('saved', flush=True); time.sleep(0.5); sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, end); print('ready', flush=True)\n"
        "while True: time.sleep(0.05)"
    )
    commands = {name: command(code) for name in ("a", "b", "c")}

    def interrupted() -> bool:
        logs = [tmp_path / "logs" / f"{name}.out" for name in ("a", "b")]
        return all(log.exists() and "ready" in log.read_text() for log in logs)

    ended = run(commands, tmp_path, interrupted=interrupted)
    assert {name: process.code for name, process in ended.items()} == {"a": 75, "b": 75}
    assert printed(tmp_path, "a") == printed(tmp_path, "b") == "ready\nsaved\n"


def test_what_runs_is_ended_where_its_reader_stops(tmp_path):
    commands = {"a": command("pass"), "b": command("import time; time.sleep(600)")}
    stream = jobs.run(commands, tmp_path / "logs", at_once=2, interrupted=never)
    begin = time.monotonic()
    assert next(stream).name == "a"
    stream.close()
    assert time.monotonic() - begin < 60


def test_links_in_the_place_of_what_a_command_prints_are_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "logs").mkdir()
    for ending in ("out", "err"):
        (tmp_path / "logs" / f"a.{ending}").symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        run({"a": command("print(1)")}, tmp_path)
    assert other.read_text() == "mine"


def test_the_first_signal_is_noted_and_handlers_come_back(request):
    # Commands have a handler, too; a second SIGTERM ends them at once.
    default = signal.signal(signal.SIGTERM, lambda *_: None)
    request.addfinalizer(lambda: signal.signal(signal.SIGTERM, default))
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interruption() as interrupted:
        assert not interrupted()
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupted() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
