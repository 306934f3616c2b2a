"""What documents show exists: flags parse, examples run on tiny models and print the same words,
links lead to files and headings, and messages are the programs'."""

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
from absl import flags

from tests.launch.support import (
    COMMANDS,
    REPOSITORY,
    command_state,
    copy_run,
    define_flags,
    entry_point,
    launch,
)
from tests.printed_outputs import DOCUMENTS, Example, examples, run_python

BASH = shutil.which("bash") or "bash"
LOGGER = f"""#!{BASH}
printf '%s\\0' "$#" "$@" >>"$LOG"
"""
ALL_DOCUMENTS = sorted(
    str(path.relative_to(REPOSITORY))
    for folder in ("", "launch/", "launch/*/", "configs/", "configs/*/", "dclm_jax/", "dclm_jax/*/")
    for path in REPOSITORY.glob(f"{folder}*.md")
)
OF_ANOTHER_MODEL = re.compile(r"generate|next_words|stream")
"""Examples that print words which a model has chosen."""


def python_calls(code: str, cwd: Path) -> list[list[str]]:
    """The arguments of each call of `python` in bash code; `python` does nothing here, and bash
    finds no other program."""
    programs, log = cwd / "programs", cwd / "calls"
    programs.mkdir(exist_ok=True)
    (programs / "python").write_text(LOGGER)
    (programs / "python").chmod(0o755)
    log.write_text("")
    variables = {"PATH": str(programs), "LOG": str(log)}
    subprocess.run([BASH, "-c", code], cwd=cwd, env=variables, capture_output=True, timeout=60)
    words = iter(log.read_text().split("\0")[:-1])
    return [[next(words) for _ in range(int(count))] for count in words]


def parse(module: str, arguments: list[str]) -> None:
    """Parses the flags of a command; without --config its keys are those of the quickstart."""
    if "--help" in arguments:
        return
    # MODEL and SEED stand for any model of the file and for a number.
    arguments = [re.sub(r"\.py:MODEL$", ".py", argument) for argument in arguments]
    command = [module, *(re.sub("=SEED$", "=0", argument) for argument in arguments)]
    of_config = [argument for argument in command if argument.startswith("--config")]
    if of_config and not any(argument.startswith("--config=") for argument in of_config):
        command.insert(1, "--config=configs/quickstart.py")
    with (
        command_state(io.TextIOWrapper(io.BytesIO())),
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
    ):
        # ml_collections looks for its keys there, and loads files in a way that Python gives up.
        patch.setattr(sys, "argv", command)
        warnings.simplefilter("ignore", DeprecationWarning)
        define_flags(module)
        flags.FLAGS(command)


def words(text: str) -> set[str]:
    """The words of an output; warnings depend on the model."""
    lines = [line for line in text.splitlines() if not line.startswith("warning:")]
    return set(re.findall(r"[a-z_]{2,}", " ".join(lines).lower()))


@pytest.fixture(scope="module")
def quickstart(space, tmp_path_factory) -> Path:
    """A folder with tiny models, and their report, where the quickstart has its models."""
    folder = tmp_path_factory.mktemp("documents")
    root = folder / "runs/quickstart"
    shutil.copytree(space.corpus, root / "data")
    rnnlm = copy_run(space.rnnlm, root / "rnnlm", text_format="prose")
    other = copy_run(space.run, root / "pointer_drnnlm", text_format="prose")
    runs = f"--workdirs={rnnlm},{other}"
    launch("report", runs, f"--output={folder}/report", "--measure", "--bootstrap=0", quiet=False)
    return folder


def printed(example: Example, folder: Path, variables: dict[str, Any]) -> str:
    """What an example prints in a folder; of a command, before other programs filter it."""
    if example.language == "pycon":
        return run_python(example.code, variables)
    calls = python_calls(example.code, folder)
    return "".join(
        launch(module.removeprefix("launch."), *arguments, cwd=folder, quiet=False).stdout
        for _, module, *arguments in calls
    )


@pytest.mark.parametrize("document", ALL_DOCUMENTS)
def test_flags_in_documents_exist(document, tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    text = (REPOSITORY / document).read_text()
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for arguments in python_calls(block, tmp_path) if language in ("", "bash") else []:
            if re.match("-m launch", " ".join(arguments)):
                parse(arguments[1], arguments[2:])


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_in_manuals_are_accepted(name, tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    path = Path(*entry_point(f"launch.{name}").split(".")).with_suffix(".py")
    manual = ast.get_docstring(ast.parse(path.read_text())) or ""
    commands = re.findall(r"^ +python -m launch\.(?:.*\\\n)*.*", manual, re.MULTILINE)
    assert commands
    for command in commands:
        for arguments in python_calls(command, tmp_path):
            parse(arguments[1], arguments[2:])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_examples_in_documents_print_what_is_shown(document, quickstart, monkeypatch, caplog):
    # Saved results are read.
    monkeypatch.undo()
    monkeypatch.chdir(quickstart)
    variables: dict[str, Any] = {}
    for example in examples((REPOSITORY / document).read_text()):
        output = printed(example, quickstart, variables)
        if not OF_ANOTHER_MODEL.search(example.code):
            missing = words(example.output) - words(output)
            assert not missing, f"{example.code} prints no {missing}: {output}"


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(document: str, text: str) -> list[str]:
    """The links of a document to files or headings that do not exist; addresses are left out."""
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (REPOSITORY / document).parent / path if path else REPOSITORY / document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            dead.append(link)
    return dead


@pytest.mark.parametrize("document", ALL_DOCUMENTS)
def test_links_lead_somewhere(document):
    assert dead_links(document, (REPOSITORY / document).read_text()) == []


def test_a_dead_link_is_found():
    text = "[a](#exit-codes) [b](#absent) [c](../README.md#absent) [d](absent.md) [e](text.md)"
    assert dead_links("launch/README.md", text) == ["#absent", "../README.md#absent", "absent.md"]


def test_messages_of_the_troubleshooting_table_exist():
    manual = (REPOSITORY / "launch/README.md").read_text()
    rows = manual.partition("## Troubleshooting")[2].splitlines()
    messages = re.findall(r"^\| `(.+?)`", "\n".join(rows), re.MULTILINE)
    folders = (REPOSITORY / name for name in ("dclm_jax", "launch"))
    code = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    parts = [part.strip() for message in messages for part in re.split(r"\.\.\.|RUN", message)]
    assert len(messages) > 5
    # Python's own message.
    parts.remove("No module named 'launch'")
    assert [part for part in parts if part not in code] == []


@pytest.mark.exhaustive
def test_an_installed_wheel_runs_the_python_examples(quickstart, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    # Isolated: neither the repository nor an editable dclm_jax is on the path.
    python = [environment / "bin/python", "-I"]

    def pip(*arguments: str | Path) -> None:
        command = [*python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
        subprocess.run(command, check=True, timeout=600)

    sources = tmp_path / "sources"
    # Commands save results beside the pretrained models.
    without_caches = shutil.ignore_patterns("__pycache__", "*.md", "results")
    for name in ("dclm_jax", "launch", "configs"):
        shutil.copytree(REPOSITORY / name, sources / name, ignore=without_caches)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, sources)
    pip("wheel", "--no-deps", "--wheel-dir", tmp_path, sources)
    (wheel,) = tmp_path.glob("dclm_jax-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("dclm_jax/")}
    files = [path for path in (sources / "dclm_jax").rglob("*") if path.is_file()]
    expected = {path.relative_to(sources).as_posix() for path in files}
    commands = [*(sources / "launch").rglob("*.py"), *(sources / "configs").glob("*.py")]
    expected |= {f"dclm_jax/{path.relative_to(sources).as_posix()}" for path in commands}
    assert packed == expected

    pip("install", "--no-deps", wheel)
    # The packages that it needs are those of this interpreter.
    (packages,) = environment.glob("lib/*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    snippets = examples((REPOSITORY / "dclm_jax/README.md").read_text())
    code = ["import dclm_jax", "print(dclm_jax.__file__)"]
    code += [example.code for example in snippets if example.language == "pycon"]
    done = subprocess.run(
        [*python, "-c", "\n".join(code)], cwd=quickstart, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(packages))

    # Commands and recipes are found from any folder.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/text.txt").write_text("the war was long .\n")
    for command in (
        "score --workdir=english --input=text.txt --output=scores.tsv",
        "train --help --config=configs/your_text.py:rnnlm",
    ):
        done = subprocess.run(
            [environment / "bin/dclm_jax", *command.split()],
            cwd=tmp_path / "elsewhere",
            env={**os.environ, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert "--config.model.hidden_dim=256" in done.stdout
    assert (tmp_path / "elsewhere/scores.tsv").read_text().count("\n") == 7
