"""Files of a corpus, a workdir or a checkpoint, and text, are read and never run."""

import ast
import contextlib
import functools
import gzip
import io
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import TEXT_FORMATS
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.training.workdir import metrics_lines
from tests.data.support import make_corpus, read, write

REPOSITORY = Path(__file__).parents[1]
SOURCES = {
    str(path.relative_to(REPOSITORY)): path.read_text("utf-8")
    for folder in ("dclm_jax", "launch")
    for path in (REPOSITORY / folder).rglob("*.py")
}

DANGERS = {
    *("eval", "exec", "compile", "__import__", "importlib.import_module", "runpy"),
    *("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"),
    *("np.load", "numpy.load", "jnp.load", "torch.load", "allow_pickle"),
    *("os.system", "os.popen", "os.execv", "shell", "shutil.unpack_archive", "tarfile", "zipfile"),
}
"""Names, modules and keyword arguments of programs that may run what they read."""


def names_of(program: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(program)):
        match node:
            case ast.Name(id=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Attribute():
                yield ast.unparse(node)
            case ast.Import(names=names):
                yield from (alias.name.split(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module.split(".")[0]
                yield from (f"{module}.{alias.name}" for alias in names)


def test_no_program_can_run_what_it_reads():
    uses = {(path, name) for path, text in SOURCES.items() for name in names_of(text)}
    found = {(path, name) for path, name in uses if name in DANGERS}
    # The benchmark starts the processes of its peers itself, and the installed command runs the
    # commands in its folder.
    assert found == {
        ("launch/benchmark/worker.py", "importlib.import_module"),
        ("launch/__main__.py", "runpy"),
    }


def test_configuration_files_are_programs_of_the_training_command_alone():
    assert [path for path, text in SOURCES.items() if "config_flags" in text] == [
        "launch/_training.py"
    ]
    users = sorted(path for path, text in SOURCES.items() if "_training.ConfigOptions" in text)
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
        lambda: metrics_lines(folder / "run"),
        lambda: open_corpus(folder / "corpus", "train"),
        lambda: Vocabulary.load(folder / "corpus" / "vocabulary.tsv"),
        *texts,
    ]
    for reader in readers:
        with contextlib.suppress(InputError):
            reader()


@pytest.mark.parametrize("kind", payloads(Path("marker")))
def test_pickles_in_the_place_of_files_are_not_loaded(saved, tmp_path, kind, caplog):
    marker, folder = tmp_path / "marker", tmp_path / "files"
    content = payloads(marker)[kind]
    shutil.copytree(saved, folder / "run")
    text = write(folder / "text", "a/X b/Y\n\nb/Y a/X c/Z\n")
    make_corpus({"train": text}, folder / "corpus", "tagged")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert dclm_jax.restore(folder / "run").facts.step == 3
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(content)
        read_all(folder)
        path.write_bytes(whole)
    for path in files:
        path.write_bytes(content)
    read_all(folder)
    assert not marker.exists()
