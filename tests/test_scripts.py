"""The bash scripts, run in a copy of their part of the tree with an interpreter that only logs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import Programs

REPOSITORY = Path(__file__).parents[1]
SCRIPTS = ("launch/environment.sh", "launch/quickstart.sh", "tests/run.sh")
CANDIDATES = ("python3.14", "python3.13", "python3.12", "python3.11", "python3")

# Stands for an interpreter: makes "environments" that hold a copy of itself, and logs every command
# but `-c`.
FAKE_PYTHON = """[[ $1 == -c ]] && exit 0
echo "$(basename "$0") $*" >>"$FAKE_LOG"
case "$2" in
  venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  pip) exit "${FAKE_PIP_STATUS:-0}" ;;
esac
"""
BROKEN_PYTHON = "echo 'no such version' >&2\nexit 127\n"


class Tree(Programs):
    """A copy of the scripts with fake interpreters first on the PATH."""

    def __init__(self, root: Path):
        super().__init__(root)
        for name in (*SCRIPTS, "setup.cfg", "pyproject.toml"):
            target = self.cwd / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, target)
        for name in CANDIDATES:
            self.write_program(name, BROKEN_PYTHON)
        self.write_program("python3.12", FAKE_PYTHON)

    def bash(self, *arguments, **options):
        """Runs bash; returns the finished process and the commands it gave to interpreters."""
        done, commands = super().bash(*arguments, **options)
        return done, [command.replace(str(self.cwd), "ROOT") for command in commands]

    def prepare(self, extras, **variables):
        command = f"source launch/environment.sh; prepare_environment venv {extras}; exit"
        return self.bash("-c", command, **variables)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def install(extras):
    return f"python -m pip install --quiet --disable-pip-version-check --editable ROOT[{extras}]"


@pytest.mark.parametrize("name", [*SCRIPTS, ".ci/run"])
def test_scripts_parse(name):
    subprocess.run(["bash", "-n", REPOSITORY / name], check=True)


def test_scripts_install_extras_that_exist():
    setup = (REPOSITORY / "setup.cfg").read_text()
    section = setup.split("[options.extras_require]")[1].split("\n[")[0]
    extras = set(re.findall(r"^(\w+) =", section, flags=re.MULTILINE))
    for name in ("launch/quickstart.sh", "tests/run.sh"):
        call = re.search(r"^prepare_environment \S+ (\S+)$", (REPOSITORY / name).read_text(), re.M)
        assert call and set(call[1].split(",")) <= extras


def test_an_environment_is_made_once_and_each_set_of_extras_installed_once(tree):
    done, commands = tree.prepare("test")
    assert done.returncode == 0, done.stderr
    assert commands == ["python3.12 -m venv venv", install("test")]
    assert "dclm_jax[test]" in done.stdout
    done, commands = tree.prepare("test")
    assert (done.returncode, done.stdout, commands) == (0, "", [])
    assert tree.prepare("text,plots")[1] == [install("text,plots")]
    for extras in ("text,plots", "test"):
        assert tree.prepare(extras)[1] == []


def test_what_changed_or_failed_is_installed_again(tree):
    done, commands = tree.prepare("test", FAKE_PIP_STATUS="1")
    assert (done.returncode, len(commands)) == (1, 2)
    assert tree.prepare("test")[1] == [install("test")]
    for name in ("setup.cfg", "pyproject.toml"):
        path = tree.cwd / name
        text = path.read_text()
        path.write_text(f"{text}# changed\n")
        assert tree.prepare("test", FAKE_PIP_STATUS="1")[0].returncode == 1
        # What was installed before may be gone.
        path.write_text(text)
        assert tree.prepare("test")[1] == [install("test")]
    (tree.cwd / "venv/bin/python").unlink()
    assert tree.prepare("test")[1] == ["python3.12 -m venv venv", install("test")]


def test_no_python_is_one_clear_line(tree):
    tree.write_program("python3.12", BROKEN_PYTHON)
    done, commands = tree.prepare("test")
    assert (done.returncode, commands) == (2, [])
    assert done.stderr.startswith("error: Python 3.11 or newer is needed")
    assert done.stderr.count("\n") == 1


def test_run_checks_everything_and_passes_arguments_to_pytest(tree):
    done, commands = tree.bash(tree.cwd / "tests/run.sh", "-k", "two words", cwd=tree.folder)
    assert done.returncode == 0, done.stderr
    assert commands == [
        "python3.12 -m venv ROOT/.venv",
        install("test"),
        "python -m ruff check .",
        "python -m ruff format --check .",
        "python -m pyright --pythonpath ROOT/.venv/bin/python",
        "python -m pytest -q --numprocesses=2 --dist=loadfile --no-loadscope-reorder -k two words",
    ]


def test_quickstart_trains_and_reports_in_a_folder_relative_to_the_caller(tree, tmp_path):
    for arguments, cwd, folder in (
        (["launch/quickstart.sh"], tree.cwd, "runs/quickstart"),
        ([tree.cwd / "launch/quickstart.sh", "my runs"], tmp_path, f"{tmp_path}/my runs"),
    ):
        # The report, which the stand-in does not write.
        report = tree.cwd / folder / "report.md"
        report.parent.mkdir(parents=True)
        report.write_text("Context helps.\n\n## Perplexity\n")
        done, commands = tree.bash(*arguments, cwd=cwd)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("\n\nContext helps.\n")
        assert [command for command in commands if "launch." in command] == [
            "python -m launch.prepare --corpus=sotu --subwords=5000 --split_documents_at=600 "
            f"--output={folder}/data",
            *(
                f"python -m launch.train --config=configs/quickstart.py:{model} "
                f"--workdir={folder}/{model} --config.data.directory={folder}/data"
                for model in ("rnnlm", "pointer_drnnlm")
            ),
            f"python -m launch.report --workdirs={folder}/rnnlm,{folder}/pointer_drnnlm "
            f"--measure --output={folder} --html={folder}/report.html "
            "--bootstrap=100 --permutation_pool=2",
        ]
