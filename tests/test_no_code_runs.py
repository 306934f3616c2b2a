"""Files of a corpus, a workdir or a checkpoint, and text, are read and never run."""

import ast
import contextlib
import functools
import gzip
import io
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import TEXT_FORMATS
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.training.workdir import read_lines
from tests.data.support import make_corpus, read, write

REPOSITORY = Path(__file__).parents[1]
SOURCES = {
    str(path.relative_to(REPOSITORY)): path.read_text("utf-8")
    for folder in ("dclm_jax", "launch")
    for path in (REPOSITORY / folder).rglob("*.py")
}

# Modules whose files run code when they are read, and those that unpack archives.
MODULES = {
    *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml"),
    *("code", "codeop", "imp", "runpy", "tarfile", "zipfile", "zipimport"),
}
BUILTINS = {"eval", "exec", "compile", "__import__", "breakpoint"}
CALLS = {
    *("import_module", "import_string", "__import__", "system", "popen", "getoutput"),
    *("getstatusoutput", "create_subprocess_shell"),
    *("unpack_archive", "read_pickle", "exec_module", "load_module", "run_path", "run_module"),
    *(f"{kind}{suffix}" for kind in ("exec", "spawn") for suffix in ("l", "le", "v", "ve", "vp")),
}
LOADERS = {"np", "numpy", "jnp", "torch", "yaml", "pickle", "joblib"}
# The benchmark starts the processes of its peers itself.
ALLOWED = {
    ("launch/benchmark/worker.py", "import_module"),
}


def dangers(source: str) -> Iterator[str]:
    """Everything in a program that could run what it reads."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                modules = [module]
                yield from (
                    f"import {alias.name}" for alias in names if alias.name in CALLS | BUILTINS
                )
            case _:
                modules = []
        yield from (f"import {module}" for module in modules if module.split(".")[0] in MODULES)
        if isinstance(node, ast.keyword):
            is_false = isinstance(node.value, ast.Constant) and node.value.value is False
            if node.arg in ("shell", "allow_pickle") and not is_false:
                yield f"{node.arg}="
        if isinstance(node, ast.Name) and node.id in CALLS | BUILTINS:
            yield node.id
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in CALLS or (owner == "builtins" and node.attr in BUILTINS):
                yield node.attr
            if node.attr in ("load", "loads", "Unpickler") and owner in LOADERS:
                yield f"{owner}.{node.attr}"


def test_no_program_can_run_what_it_reads():
    uses = {(path, danger) for path, text in SOURCES.items() for danger in dangers(text)}
    assert uses == ALLOWED


@pytest.mark.parametrize(
    "program",
    [
        *("import pickle", "from pickle import loads", "import yaml.reader", "import tarfile as t"),
        *("eval(text)", "run = eval", "os.system(text)", "from os import system"),
        *("np.load(path)", "read(allow_pickle=value)", "subprocess.run(text, shell=True)"),
    ],
)
def test_dangers_are_found(program):
    assert list(dangers(program))
    assert not list(dangers("json.load(file); re.compile(text); run(text, shell=False)"))


def test_configuration_files_are_programs_of_the_training_command_alone():
    assert [path for path, text in SOURCES.items() if "config_flags" in text] == [
        "launch/_training.py"
    ]
    users = sorted(path for path, text in SOURCES.items() if "_training.config()" in text)
    assert users == ["launch/plan.py", "launch/train.py"]


class Payload:
    """Makes a directory when it is unpickled."""

    def __init__(self, marker: Path):
        self._marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self._marker),)


def payloads(marker: Path) -> dict[str, bytes]:
    """Pickles that make `marker` if they are loaded."""
    npz = io.BytesIO()
    np.savez(npz, np.array([Payload(marker)], dtype=object))
    binary, text = (pickle.dumps(Payload(marker), protocol) for protocol in (None, 0))
    return {"binary": binary, "text": text, "gzip": gzip.compress(binary), "npz": npz.getvalue()}


def read_all(folder: Path) -> None:
    """Reads all files of a workdir and of a corpus in a folder, and one of its texts."""
    texts = [functools.partial(read, folder / "text", format=format) for format in TEXT_FORMATS]
    readers = [
        lambda: dclm_jax.restore(folder / "run").perplexity([["a b", "b"]]),
        lambda: read_lines(folder / "run"),
        lambda: open_corpus(folder / "corpus", "train"),
        lambda: Vocabulary.load(folder / "corpus" / "vocabulary.tsv"),
        *texts,
    ]
    for reader in readers:
        with contextlib.suppress(InputError):
            reader()


@pytest.mark.parametrize("kind", payloads(Path("marker")))
def test_pickles_in_the_place_of_files_are_not_loaded(saved, tmp_path, kind):
    marker, folder = tmp_path / "marker", tmp_path / "files"
    content = payloads(marker)[kind]
    shutil.copytree(saved, folder / "run")
    text = write(folder / "text", "a/X b/Y\n\nb/Y a/X c/Z\n")
    make_corpus({"train": text}, folder / "corpus", "tagged")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert dclm_jax.restore(folder / "run").step == 3
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(content)
        read_all(folder)
        path.write_bytes(whole)
    for path in files:
        path.write_bytes(content)
    read_all(folder)
    assert not marker.exists()


AUDIT = """
import sys

FORBIDDEN = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
sys.addaudithook(lambda event, values: print(event, values) if event in FORBIDDEN else None)

import numpy, pickle
import dclm_jax.data.corpus, dclm_jax.language_model

workdir, corpus = sys.argv[1:]
pickle.loads(pickle.dumps(numpy.arange(3)))
print("begin", flush=True)
opened = dclm_jax.data.corpus.open_corpus(corpus, "train")
run = dclm_jax.restore(workdir)
assert len(list(run.score([["a b", "b"]]))) == 1 and opened.document(0)
print("end", flush=True)
pickle.loads(pickle.dumps(numpy.arange(3)))
"""


def test_restoring_and_scoring_unpickle_nothing_and_start_nothing(saved, tmp_path):
    """Of the libraries below, too. Before and after, the audit shows that it notices."""
    make_corpus({"train": write(tmp_path / "text", "a b\n\nb a c\n")}, tmp_path / "corpus")
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, saved, tmp_path / "corpus"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    before, rest = done.stdout.split("begin\n")
    between, after = rest.split("end\n")
    assert "pickle.find_class" in before and "pickle.find_class" in after
    assert between == ""
