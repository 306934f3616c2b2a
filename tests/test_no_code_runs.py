"""What lies in a workdir, a checkpoint or a folder of data is read, and never run."""

import ast
import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dclm_jax
from dclm_jax import files
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.data.readers import read_documents
from dclm_jax.errors import InputError
from dclm_jax.evaluation.parts_of_speech import Tagger
from dclm_jax.training.checkpoints import CHECKSUMS_FILE
from dclm_jax.training.workdir import read_lines
from tests.exhaustive import pairs
from tests.training.support import resume, seal, use

REPOSITORY = Path(__file__).parents[1]
SOURCES = sorted(
    str(path.relative_to(REPOSITORY))
    for folder in ("dclm_jax", "launch")
    for path in (REPOSITORY / folder).rglob("*.py")
)

# Modules whose files run code when they are read, and those that unpack archives.
MODULES = {
    *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml"),
    *("code", "codeop", "imp", "runpy", "tarfile", "zipfile", "zipimport"),
}
BUILTINS = {"eval", "exec", "compile", "__import__", "breakpoint"}
CALLS = {
    *(
        "import_module",
        "import_string",
        "__import__",
        "system",
        "popen",
        "getoutput",
        "getstatusoutput",
        "create_subprocess_shell",
    ),
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
    uses = {
        (path, danger)
        for path in SOURCES
        for danger in dangers((REPOSITORY / path).read_text("utf-8"))
    }
    assert uses == ALLOWED


@pytest.mark.parametrize(
    "program",
    [
        *("import pickle", "from pickle import loads", "import yaml.reader", "import tarfile as t"),
        *("eval(text)", "exec(text)", "run = eval", "compile(text, '', 'exec')", "os.system(text)"),
        *("from os import system", "import os.path\nos.popen(text)", "os.execv(path, [])"),
        *("np.load(path)", "numpy.load(path, allow_pickle=True)", "read(allow_pickle=value)"),
        *("torch.load(path)", "subprocess.run(text, shell=True)", "run(text, shell=flag)"),
        *("importlib.import_module(name)", "shutil.unpack_archive(path)", "pd.read_pickle(path)"),
    ],
)
def test_dangers_are_found(program):
    assert list(dangers(program))
    assert not list(dangers("json.load(file); re.compile(text); run(text, shell=False)"))


def test_configuration_files_are_programs_of_the_training_command_alone():
    texts = {path: (REPOSITORY / path).read_text() for path in SOURCES}
    assert [path for path, text in texts.items() if "config_flags" in text] == [
        "launch/_training.py"
    ]
    users = [path for path, text in texts.items() if "_training.config()" in text]
    assert users == ["launch/plan.py", "launch/train.py"]


class Payload:
    """Makes a directory when it is unpickled."""

    def __init__(self, marker: Path):
        self._marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self._marker),)


def payloads(marker: Path) -> dict[str, bytes]:
    """Files that make `marker` if they are loaded as pickles, whichever way."""
    array = np.array([Payload(marker)], dtype=object)
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, array, allow_pickle=True)
    np.savez(npz, array)
    binary = pickle.dumps(Payload(marker))
    return {
        "pickle": binary,
        "text": pickle.dumps(Payload(marker), protocol=0),
        "gzip": gzip.compress(binary),
        "npy": npy.getvalue(),
        "npz": npz.getvalue(),
    }


KINDS = ("pickle", "text", "gzip", "npy", "npz")


def test_payloads_work(tmp_path):
    marker = tmp_path / "marker"
    contents = payloads(marker)
    assert tuple(contents) == KINDS
    for kind, content in contents.items():
        if kind.startswith("np"):
            loaded = np.load(io.BytesIO(content), allow_pickle=True)
            _ = loaded["arr_0"] if kind == "npz" else loaded
        else:
            pickle.loads(gzip.decompress(content) if kind == "gzip" else content)
        marker.rmdir()


def files_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


@pytest.mark.parametrize(
    ("read", "kind"), pairs([use, resume], KINDS, usual=[(use, "pickle"), (resume, "npz")])
)
def test_a_checkpoint_of_pickles_is_refused(sealed, tmp_path, read, kind):
    run, marker = tmp_path / "run", tmp_path / "marker"
    shutil.copytree(sealed, run)
    assert read(run) == 3
    content = payloads(marker)[kind]
    files = [file for file in files_of(run / "checkpoints") if file.name != CHECKSUMS_FILE]
    assert len(files) > 5
    for file in files:
        kept = file.read_bytes()
        file.write_bytes(content)
        seal(run)
        try:
            # Not every file is read.
            assert read(run) == 3
        except InputError as error:
            assert "no checkpoint in " in str(error)
        file.write_bytes(kept)
    for file in files:
        file.write_bytes(content)
    seal(run)
    with pytest.raises(InputError, match="no checkpoint in .* can be used"):
        read(run)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("read", "kind"),
    pairs([use, resume], ["pickle", "npz"], usual=[(use, "npz"), (resume, "pickle")]),
)
def test_pickles_beside_the_files_of_a_checkpoint_are_not_run(sealed, tmp_path, read, kind):
    names = ["checkpoint", "aggregate", "state.pkl", "params.npy", "model.npz", "_sharding"]
    run, marker = tmp_path / "run", tmp_path / "marker"
    shutil.copytree(sealed, run)
    folders = [run, *(path for path in run.rglob("*") if path.is_dir())]
    for folder in folders:
        strangers = [folder / name for name in names if not (folder / name).exists()]
        for file in strangers:
            file.write_bytes(payloads(marker)[kind])
        try:
            assert read(run) == 3
        except InputError as error:
            assert "no checkpoint in " in str(error)
        for file in strangers:
            file.unlink()
    assert not marker.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_workdir_of_pickles_is_refused(sealed, tmp_path, kind):
    marker = tmp_path / "marker"
    for name in ("config.json", "vocabulary.tsv"):
        run = tmp_path / name / "run"
        shutil.copytree(sealed, run)
        (run / name).write_bytes(payloads(marker)[kind])
        with pytest.raises(InputError, match=name):
            dclm_jax.restore(run)
    (run / "metrics.jsonl").write_bytes(payloads(marker)[kind] + b"\n")
    with pytest.raises(InputError, match="metrics.jsonl"):
        read_lines(run)
    (run / "result.json").write_bytes(payloads(marker)[kind])
    with pytest.raises(InputError, match="result.json"):
        files.read_json(run / "result.json", dict[str, Any])
    assert not marker.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_data_of_pickles_is_refused(tmp_path, kind):
    marker, text = tmp_path / "marker", tmp_path / "text"
    content = payloads(marker)[kind]
    text.write_text("a/X b/Y\n\nb/Y a/X c/Z\n")
    prepare(
        {"train": text},
        tmp_path / "corpus",
        TextOptions(format="tagged"),
        PrepareOptions(vocab_size=3),
    )
    for file in files_of(tmp_path / "corpus"):
        kept, manifest = file.read_bytes(), (tmp_path / "corpus" / "manifest.json").read_text()
        file.write_bytes(content)
        if file.name != "manifest.json":
            # Right in every other respect.
            forged = json.loads(manifest)
            forged["files"][file.name] = hashlib.sha256(content).hexdigest()
            (tmp_path / "corpus" / "manifest.json").write_text(json.dumps(forged))
        with pytest.raises(InputError, match=r"train\.|vocabulary.tsv|tags.tsv|manifest.json"):
            _ = open_corpus(tmp_path / "corpus", "train").document_ids
        file.write_bytes(kept)
        (tmp_path / "corpus" / "manifest.json").write_text(manifest)
    text.write_bytes(content)
    for format in ("lines", "tagged", "jsonl", "csv", "tsv"):
        try:
            assert list(read_documents(text, TextOptions(format)))
        except InputError as error:
            assert str(text) in str(error)
    assert not marker.exists()


def test_parts_of_speech_are_not_those_of_a_pickle_in_the_working_directory(tmp_path, monkeypatch):
    """HanTa's model is a pickle, of the installed package."""
    pytest.importorskip("HanTa")
    marker = tmp_path / "marker"
    (tmp_path / "morphmodel_en.pgz").write_bytes(payloads(marker)["gzip"])
    monkeypatch.chdir(tmp_path)
    assert Tagger()(Document("x", [["the", "cat"]])) == [["DT", "NN"]]
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


def test_restoring_and_scoring_unpickle_nothing_and_start_nothing(sealed, tmp_path):
    """Of the libraries below, too. Before and after, the audit shows that it notices."""
    (tmp_path / "text").write_text("a b\n\nb a c\n")
    prepare({"train": tmp_path / "text"}, tmp_path / "corpus", options=PrepareOptions(vocab_size=3))
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, sealed, tmp_path / "corpus"],
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
