"""One place opens files to read, and one to write: what they refuse is refused everywhere. One
place makes JSON, without infinity and NaN, and one the lines of tables."""

import ast
from collections import Counter
from collections.abc import Iterator

from tests.launch.support import REPOSITORY

OF_PATHS = {"read_bytes", "read_text", "write_bytes", "write_text", "touch"}
OF_ARRAYS = {"fromfile", "tofile", "memmap", "load", "loadtxt", "genfromtxt", "save", "savez"}
MODULES = {"gzip", "bz2", "lzma", "io", "os", "zipfile", "tarfile", "codecs"}
OURS = {
    "files",
    "storage",
    "growth",
    "vocabulary",
    "data.vocabulary",
    "Vocabulary",
    "ocp",
    "figures",
    "_evaluation",
}

EXCUSED = {
    "dclm_jax/storage.py": (4, "is where files are opened to read and to append; buckets have own"),
    "dclm_jax/files.py": (4, "is where files are opened to write, under a name that is made there"),
    "dclm_jax/data/corpus.py": (1, "maps what `storage` has opened"),
    "dclm_jax/allocation.py": (
        1,
        "reads memory limits of the kernel, which are not regular files",
    ),
    "launch/benchmark/__main__.py": (1, "reads /proc"),
    "launch/benchmark/timing.py": (1, "reads /proc"),
    "launch/benchmark/worker.py": (1, "reads /proc"),
    "launch/plan.py": (1, "reads a file of the project"),
    "launch/_app.py": (4, "opens /dev/null in the place of closed standard streams"),
    "launch/_cluster.py": (1, "opens /dev/null in the place of standard output"),
}
MADE_IN_ONE_PLACE = {"json.dump", "json.dumps", "JsonSave", "csv.writer", "csv.DictWriter"}
MAKERS = {
    "dclm_jax/files.py": {"json.dumps": "makes JSON"},
    "dclm_jax/tables.py": {"csv.writer": "makes the lines of tables"},
    "dclm_jax/processes.py": {"json.dumps": "is read by the other processes of the job alone"},
    "dclm_jax/experiments/comparison.py": {"json.dumps": "makes a key"},
    "dclm_jax/language_model.py": {"json.dumps": "makes a fingerprint"},
    "dclm_jax/training/checkpoints.py": {"JsonSave": "has orbax write what `files.finite` gives"},
}


def constants(call: ast.Call) -> list[ast.Constant]:
    return [argument for argument in call.args if isinstance(argument, ast.Constant)]


def opened(tree: ast.AST) -> Iterator[ast.Call]:
    """What opens a file by its path, as far as names tell."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            yield node
        if isinstance(called, ast.Attribute) and ast.unparse(called.value) not in OURS:
            of = ast.unparse(called.value)
            # Models and readers have `open` as well, without a mode.
            has_mode = any(isinstance(constant.value, str) for constant in constants(node))
            is_open = called.attr == "open" and (of in MODULES or has_mode)
            # Checkpoints save, too, and not by a path.
            is_array = called.attr in OF_ARRAYS and (
                of == "np" or called.attr in ("tofile", "memmap")
            )
            if is_open or is_array or called.attr in OF_PATHS:
                yield node


def test_files_are_opened_in_one_place_to_read_and_one_to_write():
    counts = Counter(
        str(path.relative_to(REPOSITORY))
        for folder in ("dclm_jax", "launch")
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        for _ in opened(ast.parse(path.read_text()))
    )
    assert counts == {name: count for name, (count, _) in EXCUSED.items()}


def test_json_and_tables_for_programs_are_made_in_one_place():
    uses: dict[str, set[str]] = {}
    for folder in ("dclm_jax", "launch"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            nodes = map(ast.unparse, ast.walk(ast.parse(path.read_text())))
            names = {name.removeprefix("ocp.args.") for name in nodes} & MADE_IN_ONE_PLACE
            if names:
                uses[str(path.relative_to(REPOSITORY))] = names
    assert uses == {name: set(makers) for name, makers in MAKERS.items()}


def test_what_opens_a_file_is_found():
    text = """
open(path)
path.open("rb"); path.read_text(); np.fromfile(path); np.load(x); gzip.open(path); values.tofile(x)
reader.open(1, sources); files.read_bytes(path); checkpoints.save(1); json.load(x)
"""
    assert [call.lineno for call in opened(ast.parse(text))] == [2, 3, 3, 3, 3, 3, 3]
