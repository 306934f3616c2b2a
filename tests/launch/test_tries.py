"""Launchers with hostile files and absurd flags, drawn by chance: an end as promised, every time.

A try damages a file that a command reads, or gives it one more flag. It may end well, or in one
line on standard error with code 2, soon and with little memory; nothing that it was given changes,
and what it writes is whole or absent.
"""

import contextlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from absl import flags

from dclm_jax.experiments import sweep
from dclm_jax.training.config import default_config, flat
from dclm_jax.training.workdir import Result
from launch import _app
from tests.exhaustive import also, some
from tests.fuzzing import PIECES, drawn_fault
from tests.launch import tries
from tests.launch.support import (
    REPOSITORY,
    STEPS,
    copy_run,
    environment,
    launch,
    launcher_state,
)
from tests.training.support import write_result

TRIES = some(12, all=20)
PLACE = "place"
# Root may read whatever its mode is, unless it gives that up.
AS_ANYONE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
TEXTS = {
    "lines.txt": "w1 w2 w3 .\nw4 w5\n\nw6 w7\nw8 w1\n",
    "tagged.txt": "w1/A w2/B\nw3/A w4/B\n\nw5/A\nw1/B\n",
    "trees.mrg": "( (S (NP (PRP w1)) (VP (VBD w2))))\n( (S (A w3) (B w4)))\n",
    "prose.txt": "W1 is w2. It was w3!\n\nW4 at 5 p.m. and w5.\n=\nA dog. Two.\n",
    "documents.jsonl": '{"id": "a", "sentences": ["w1 w2", ["w3"]]}\n{"sentences": ["w4", "w5"]}\n',
    "table.csv": 'id,text\na,"W1 is ""w2"". W3, or\n\nw4."\nb,It was. So.\n',
    "regions.csv": "id,region,text\na,x,W1 is\na,y,w2. W3\nb,x,It\nb,y,was w4.\n",
    "pairs.jsonl": '{"sentence_good": "w1 w2", "sentence_bad": "w1 w3", "UID": "a"}\n'
    '{"sentence_good": "w4", "sentence_bad": "w5", "UID": "b"}\n',
    "nbest.txt": "0 ||| w1 w2 ||| LM0= -1 ||| -2\n0 ||| w1 ||| LM0= -2 ||| -3\n"
    "1 ||| w3 ||| LM0= -1 ||| -1\n",
    "division.txt": "0 a\n1 a\n",
    "references.txt": "w1 w2\nw3\n",
    "outputs.jsonl": '{"sentences": ["w1 w2"]}\n{"sentences": ["w4"]}\n',
}
TO_TRAIN = "--config=tiny.py --workdir=run --config.data.directory=corpus"
SWEEP = "--grid=model.hidden_dim=8,9;training.seed=1"
COMMANDS = {
    "evaluate --workdir=run --data=corpus --output=out/a.json": ("run/*", "run/*.*", "corpus/*"),
    "evaluate --workdirs=run,other --data=corpus --interpolate": ("run/*", "other/*", "corpus/*"),
    "evaluate --workdir=run --input=lines.txt --output=out/a.json": ("run/*", "lines.txt"),
    "coherence --workdir=run --data=corpus --permutations=2 --output=out/a.json": (
        "run/*",
        "corpus/*",
    ),
    "coherence --baseline=maximum_entropy --data=corpus --output=out/a.json": ("corpus/*",),
    "score --workdir=run --input=prose.txt --format=prose --output=out/a.jsonl": ("prose.txt",),
    "score --workdir=run --input=documents.jsonl --output=out/a.jsonl": ("documents.jsonl",),
    "score --workdir=run --input=references.txt --context=lines.txt": ("*.txt",),
    "score --workdir=run --input=regions.csv --format=prose --join_rows=id --by=region "
    "--measures=rank,divergence --plot=out/a.png --output=out/a.tsv": ("regions.csv", "run/*"),
    "minimal_pairs --workdir=run --input=pairs.jsonl --by=UID --metrics=out/a.json "
    "--output=out/a.tsv": ("pairs.jsonl", "run/*"),
    "order --workdir=run --input=lines.txt --output=out/a.jsonl": ("run/*", "lines.txt"),
    "generate --workdir=run --context=lines.txt --output=out/a.jsonl": ("run/*", "lines.txt"),
    "encode --workdir=run --input=lines.txt --output=out/a.npy": ("run/*", "lines.txt"),
    "rescore --workdir=run --nbest=nbest.txt --documents=division.txt --references=references.txt "
    "--tune --output=out/a.txt --metrics=out/a.json --scored_nbest=out/b.txt": (
        *("nbest.txt", "division.txt", "references.txt", "run/*"),
    ),
    "corrupt --data=corpus --split=valid --max_sentences=4 --output=out/lists": ("corpus/*",),
    "reconstruct --outputs=outputs.jsonl --input=documents.jsonl --output=out/a.json": (
        *("outputs.jsonl", "documents.jsonl"),
    ),
    f"train {TO_TRAIN}": ("run/*.*", "run/checkpoints/latest/*", "corpus/*"),
    "report --workdirs=run --data=corpus --output=out --bootstrap=4 --permutation_pool=2": (
        *("run/results/*", "run/results/*", "run/*.*"),
    ),
    "report --quick --workdirs=run,other --output=out --bootstrap=4 --permutation_pool=2": (
        *("run/results/*", "other/*", "corpus/*"),
    ),
    f"sweep --config=tiny.py --config.data.directory=corpus --workdir=cells {SWEEP}": (
        *("cells/*", "cells/*", "corpus/*"),
    ),
    "ngram --data=corpus --workdir=out/counted --order=3": ("corpus/*",),
    "prepare --train=lines.txt --output=out/corpus": ("lines.txt",),
    "prepare --train=lines.txt --vocabulary=corpus/vocabulary.tsv --output=out/corpus": (
        *("corpus/vocabulary.tsv", "lines.txt"),
    ),
    "prepare --train=tagged.txt --format=tagged --output=out/corpus": ("tagged.txt",),
    "prepare --train=trees.mrg --format=treebank --output=out/corpus": ("trees.mrg",),
    "prepare --train=prose.txt --format=prose --output=out/corpus": ("prose.txt",),
    "prepare --train=documents.jsonl --output=out/corpus": ("documents.jsonl",),
    "prepare --train=table.csv --output=out/corpus": ("table.csv",),
}
"""What is run in a folder, and the files that it reads."""

CHANGES = {"train": "run", "sweep": "cells", "prepare": "corpus", "report": "run"}
"""What a command keeps up by itself."""

VALUES = [
    *("", "-1", "0", "1", "2", "0.5", "-0.5", "nan", "inf", "-inf", "1e400", "9" * 30, "9" * 5000),
    *("1000000000000", "é", "\u2028", "\udcff", "a\nb", "x" * 5000, "/x" * 3000, "x", "true"),
    *("-", ".", "..", "/proc", "/dev/null", "/dev/zero", "/dev/full", "out", "run", "lines.txt"),
    *("corpus", "nowhere", "nowhere/x.json", "out/a.png", "out/a.npy", "gs://", "s3:///x"),
    *("words", "sentences", "[1]", "{}", "a=b", "run,run", "1,2", "a;b", "tests.launch", "$HOME"),
    *(",", "*", "\\", "'", "ftp://x/y"),
]
# Values that ask for much work ask for that.
LONG = {"max_steps", "epochs", "num_restarts", "restarts", "rounds", "evaluate_every", "log_every"}
# Programs; and what other processes are waited for by.
LEFT_OUT = {"config", "coordinator", "num_processes", "process_id", "flagfile", "slurm", "executor"}


class Try(NamedTuple):
    """A command and what was done to it, for people."""

    command: list[str]
    description: str


@pytest.fixture(scope="module")
def world(space, tmp_path_factory) -> tuple[Path, Path]:
    """All that the commands read, and a copy: what is kept of a report is called after where the
    runs are, so that tries are made in one place."""
    root = tmp_path_factory.mktemp("world") / PLACE
    root.mkdir()
    for name, text in TEXTS.items():
        (root / name).write_text(text)
    shutil.copytree(space.corpus, root / "corpus")
    shutil.copy(space.config, root / "tiny.py")
    for name, run in (("run", space.run), ("other", space.rnnlm)):
        copy_run(run, root / name, data_directory=str(root / "corpus"))
    launch(
        "report",
        "--workdirs=run,other",
        "--output=out",
        "--bootstrap=4",
        "--permutation_pool=2",
        cwd=root,
    )
    shutil.rmtree(root / "out")
    for cell in sweep.cells({"model.hidden_dim": [8, 9], "training.seed": [1]}):
        folder = root / "cells" / "cells" / cell.name
        folder.mkdir(parents=True)
        write_result(folder, Result("finished", STEPS, STEPS, 20.0))
        shutil.copy(root / "run" / "metrics.jsonl", folder)
    command = f"sweep --config=tiny.py --config.data.directory=corpus --workdir=cells {SWEEP}"
    launch(*command.split(), cwd=root)
    (root / "out").mkdir()
    return root, Path(shutil.copytree(root, root.parent / "whole"))


@contextlib.contextmanager
def server() -> Iterator[Any]:
    """What runs a try: arguments, a folder to run in, one for what is printed -> the end."""
    as_anyone = AS_ANYONE if os.geteuid() == 0 and shutil.which("setpriv") else []
    command = [*as_anyone, sys.executable, "-m", "tests.launch.tries"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment(), **pipes) as process:

        def run(arguments: list[str], cwd: Path, output: Path) -> dict[str, Any]:
            asked = {"arguments": arguments, "cwd": str(cwd), "output": str(output)}
            print(json.dumps(asked), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline() if process.stdout else "")

        assert process.stdin is not None and process.stdout is not None
        yield run
        process.stdin.close()


def draw(rng: random.Random, place: Path) -> Try:
    """A try in a copy of the world, and what it damages there."""
    text, read = rng.choice(list(COMMANDS.items()))
    command = text.split()
    if rng.random() < 0.35:
        flag = rng.choice(flags_of(command[0]))
        value = rng.choice(VALUES)
        return Try([*command, f"--{flag}={value}"], f"--{flag}={value[:60]!r}")
    pattern = rng.choice(read)
    files = [path for path in sorted(place.glob(pattern)) if path.is_file()]
    if pattern.endswith("/*"):
        files = [path for path in sorted((place / pattern[:-2]).rglob("*")) if path.is_file()]
    path = rng.choice(files)
    description = damage(rng, path)
    return Try(command, f"{path.relative_to(place)}: {description}")


def damage(rng: random.Random, path: Path) -> str:
    """Damages a file and says how."""
    content = path.read_bytes()
    kind = rng.choice(["bytes", "bytes", "json", "json", "json", "piece", "piece", "other"])
    if kind == "json":
        lines = content.split(b"\n") if path.suffix == ".jsonl" else [content]
        with contextlib.suppress(ValueError):
            number = rng.randrange(len(lines))
            lines[number] = drawn_fault(rng, json.loads(lines[number]))
            path.write_bytes(b"\n".join(lines))
            return f"{kind} {lines[number][:300]!r}"
        kind = "piece"
    if kind == "bytes":
        changed = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(changed) + 1)
            step = rng.choice(["flip", "cut", "insert", "delete"])
            if step == "flip" and at < len(changed):
                changed[at] ^= rng.randint(1, 255)
            elif step == "cut":
                del changed[at:]
            elif step == "insert":
                changed[at:at] = rng.randbytes(rng.randint(1, 9))
            else:
                del changed[at : at + rng.randint(1, 30)]
        path.write_bytes(changed)
        return f"{kind} of {len(content)}"
    if kind == "piece":
        piece, at = rng.choice(PIECES), rng.randrange(len(content) + 1)
        changed = rng.choice([piece, content[:at] + piece + content[at:], piece * 50])
        path.write_bytes(changed)
        return f"{kind} {piece[:20]!r} {len(changed)}"
    description, change = rng.choice(list(OTHERS.items()))
    change(path)
    return description


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _huge(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 30)


def _in_an_unreadable_folder(path: Path) -> None:
    (path if path.parent.name == PLACE else path.parent).chmod(0)


def _link(target: str, path: Path) -> None:
    path.unlink()
    path.symlink_to(target)


def _make_readable(place: Path) -> None:
    for folder, folders, _ in os.walk(place):
        for name in folders:
            if not os.path.islink(path := os.path.join(folder, name)):
                os.chmod(path, 0o755)


OTHERS = {
    "a directory": _directory,
    "missing": Path.unlink,
    "a GiB": _huge,
    "of mode 0": lambda path: path.chmod(0),
    "in a folder of mode 0": _in_an_unreadable_folder,
    **{
        f"a link to {target}": partial(_link, target)
        for target in ("/dev/zero", "/dev/null", "/etc/passwd", "nowhere", ".")
    },
}


@cache
def flags_of(name: str) -> list[str]:
    """The flags of a launcher, and the keys of a configuration where it takes them."""
    with launcher_state(io.TextIOWrapper(io.BytesIO())):
        __import__(f"launch.{name}")
        defined = flags.FLAGS.flags_by_module_dict()
        names = [
            flag.name
            for module, module_flags in defined.items()
            if "launch" in module
            for flag in module_flags
        ]
    if name in ("train", "sweep"):
        names += [f"config.{key}" for key in flat(default_config("ccdclm").to_dict())]
    return sorted(
        name for name in names if name not in LEFT_OUT and name.split(".")[-1] not in LONG
    )


def contents(place: Path) -> dict[str, Any]:
    """What every file holds, by its name; of the one that is large how much."""
    by_name = {}
    for path in place.rglob("*"):
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
            size = path.stat().st_size
            is_large = size > 1 << 24 or not os.access(path, os.R_OK)
            by_name[str(path.relative_to(place))] = size if is_large else path.read_bytes()
    return by_name


def finding(tried: Try, end: dict[str, Any], place: Path, printed: Path, before: Any) -> str:
    """What is wrong with the end of a try; nothing if it is as promised."""
    error, code = (printed / "stderr").read_text("utf-8", "replace"), end["code"]
    said = (printed / "stdout").read_text("utf-8", "replace") + error
    if code is None:
        return "takes too long"
    if "Traceback (most" in said:
        return f"a traceback: {error.strip().splitlines()[-1][:300]}"
    lines = [line for line in error.splitlines() if not line.startswith(("warning: ", "note: "))]
    stops = [line for line in lines if line.startswith("error: ")]
    name = tried.command[0]
    if code == 1 and name in ("train", "sweep") and len(stops) == 1:
        code = 2  # A loss that is not finite, or cells that have failed.
    if code not in (0, 2, _app.EXIT_INTERRUPTED if name == "sweep" else 0):
        return f"ends with code {code}: {error[-300:]!r}"
    if code == 2 and lines != stops[:1]:
        return f"has no line of an error alone: {error[:300]!r}"
    if end["mebibytes"] > tries.MEBIBYTES:
        return f"takes {end['mebibytes']} MiB"
    for folder in place.rglob("*"):
        if folder.name.startswith(".dclm_jax-"):
            return f"leaves {folder}"
    for path in place.glob("out/*.json"):
        json.loads(path.read_text())
    changed = [file for file, content in contents(place).items() if before.get(file) != content]
    writable = ("out/", f"{CHANGES.get(name, 'out')}/", "run/results/", "jax_cache")
    output = tried.command[-1].partition("=")[2]
    if other := [
        file for file in changed if not file.startswith(writable) and not file.startswith(output)
    ]:
        return f"changes {other}"
    return ""


@pytest.mark.parametrize("seed", also(range(51)))
def test_tries_end_as_promised(world, tmp_path, seed):
    rng, failures = random.Random(seed), []
    place, whole = world
    with server() as run:
        for number in range(TRIES):
            shutil.rmtree(place)
            shutil.copytree(whole, place)
            printed = tmp_path / str(number)
            printed.mkdir()
            tried = draw(rng, place)
            before = contents(place)
            end = run([f"launch.{tried.command[0]}", *tried.command[1:]], place, printed)
            _make_readable(place)
            if wrong := finding(tried, end, place, printed, before):
                failures.append(
                    f"{' '.join(tried.command)[:600]}\n  {tried.description}\n  {wrong}"
                )
    assert not failures, "\n".join(failures)
