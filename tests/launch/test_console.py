"""`dclm_jax COMMAND`, the command of an installed package."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.support import COMMANDS, REPOSITORY, launch


def console(*arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "launch", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, **options)


@pytest.mark.parametrize("arguments", [(), ("--help",), ("help",)])
def test_help_lists_all_commands_with_the_first_line_of_their_manuals(arguments):
    done = console(*arguments)
    rows = dict(re.findall(r"^    ([a-z_]+) +([A-Z].*)$", done.stdout, re.MULTILINE))
    del rows["dclm_jax"]
    assert sorted(rows) == sorted(COMMANDS) and done.returncode == 0
    assert launch("order", "--help").stdout.startswith(rows["order"] + "\n")


def test_an_unknown_command_names_the_nearest():
    for name, meant in (("scor", "did you mean score?"), ("\x07x", "choose from benchmark, coh")):
        done = console(name)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: there is no command ") and meant in line
        assert line.isprintable()


def test_a_command_runs_as_its_module(tmp_path):
    (tmp_path / "text.txt").write_text("the war was long .\n")
    flags = ["--workdir=english", f"--input={tmp_path}/text.txt", "--output=-"]
    assert console("score", *flags).stdout == launch("score", *flags, quiet=False).stdout
    refused = console("score", "--batch=3")
    assert refused.returncode == 2 and refused.stderr.startswith("error: Unknown command line flag")


def test_the_package_has_all_folders_of_modules():
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    folders = {
        path.parent.relative_to(REPOSITORY)
        for name in ("dclm_jax", "launch")
        for path in (REPOSITORY / name).rglob("__init__.py")
    }
    packages = {
        folder if folder.parts[0] == "dclm_jax" else Path("dclm_jax", folder) for folder in folders
    }
    expected = {".".join(package.parts) for package in packages} | {"dclm_jax.configs"}
    assert set(setup["options"]["packages"].split()) == expected
