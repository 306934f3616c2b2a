"""Launchers with hostile files and absurd flags, drawn by chance: an end as promised, every time.

A try damages a file that a command reads, or gives it one more flag. It may end well, or in one
line on standard error with code 2, soon and with little memory; nothing that it was given changes,
and what it writes is whole or absent.
"""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dclm_jax.training.config import default_config, flat
from tests.fuzzing import anything, damaged, fuzz, single_faults
from tests.launch.support import copy_run, environment, launch
from tests.launch.test_commands import flags_of

TRIES, SECONDS, MEBIBYTES = 200, 120, 2500
PLACE = "place"
# Root may read whatever its mode is, unless it gives that up.
AS_ANYONE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
TEXTS = {
    "lines.txt": "w1 w2 w3 .\nw4 w5\n\nw6 w7\nw8 w1\n",
    "tagged.txt": "w1/A w2/B\nw3/A w4/B\n\nw5/A\nw1/B\n",
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
COMMANDS = {
    "evaluate --workdir=run --data=corpus --output=out/a.json": ("run/*", "run/*.*", "corpus/*"),
    "evaluate --workdirs=run,other --data=corpus --interpolate": ("run/*", "other/*", "corpus/*"),
    "evaluate --workdir=run --input=lines.txt --output=out/a.json": ("run/*", "lines.txt"),
    "coherence --workdir=run --data=corpus --permutations=2 --output=out/a.json": (
        "run/*",
        "corpus/*",
    ),
    "score --workdir=run --input=prose.txt --format=prose --output=out/a.jsonl": ("prose.txt",),
    "score --workdir=run --input=documents.jsonl --output=out/a.jsonl": ("documents.jsonl",),
    "score --workdir=run --input=regions.csv --format=prose --join_rows=id --by=region "
    "--measures=rank,divergence --plot=out/a.png --output=out/a.tsv": ("regions.csv", "run/*"),
    "minimal_pairs --workdir=run --input=pairs.jsonl --by=UID --metrics=out/a.json "
    "--output=out/a.tsv": ("pairs.jsonl", "run/*"),
    "order --workdir=run --input=lines.txt --output=out/a.jsonl": ("run/*", "lines.txt"),
    "generate --workdir=run --context=lines.txt --output=out/a.jsonl": ("run/*", "lines.txt"),
    "rescore --workdir=run --nbest=nbest.txt --documents=division.txt --references=references.txt "
    "--tune --output=out/a.txt --metrics=out/a.json --scored_nbest=out/b.txt": (
        *("nbest.txt", "division.txt", "references.txt", "run/*"),
    ),
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
    "ngram --data=corpus --workdir=out/counted --order=3": ("corpus/*",),
    "prepare --train=lines.txt --output=out/corpus": ("lines.txt",),
    "prepare --train=lines.txt --vocabulary=corpus/vocabulary.tsv --output=out/corpus": (
        *("corpus/vocabulary.tsv", "lines.txt"),
    ),
    "prepare --train=tagged.txt --format=tagged --output=out/corpus": ("tagged.txt",),
    "prepare --train=prose.txt --format=prose --output=out/corpus": ("prose.txt",),
    "prepare --train=documents.jsonl --output=out/corpus": ("documents.jsonl",),
    "prepare --train=table.csv --output=out/corpus": ("table.csv",),
}
"""What is run in a folder, and the files that it reads."""

CHANGES = {"train": "run", "prepare": "corpus", "report": "run"}
"""What a command keeps up by itself."""

VALUES = [
    *("", "-1", "0", "1", "2", "0.5", "-0.5", "nan", "inf", "-inf", "1e400", "9" * 30, "9" * 5000),
    *("1000000000000", "é", "\u2028", "\udcff", "a\nb", "x" * 5000, "/x" * 3000, "x", "true"),
    *("-", ".", "..", "/proc", "/dev/null", "/dev/zero", "/dev/full", "out", "run", "lines.txt"),
    *("corpus", "nowhere", "nowhere/x.json", "out/a.png", "gs://", "s3:///x"),
    *("words", "sentences", "[1]", "{}", "a=b", "run,run", "1,2", "a;b", "tests.launch", "$HOME"),
    *(",", "*", "\\", "'", "ftp://x/y"),
]
# Values that ask for much work ask for that.
LONG = {"max_steps", "epochs", "num_restarts", "restarts", "rounds", "evaluate_every", "log_every"}
# Programs; and what other processes are waited for by.
LEFT_OUT = {"config", "coordinator", "num_processes", "process_id", "flagfile", "slurm", "executor"}


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
    (root / "out").mkdir()
    return root, Path(shutil.copytree(root, root.parent / "whole"))


def run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a launcher with limits; one that takes too long ends with code 137."""
    limits = ["timeout", "--signal=KILL", str(SECONDS), "prlimit", f"--fsize={1 << 30}", "--core=0"]
    as_anyone = AS_ANYONE if os.geteuid() == 0 and shutil.which("setpriv") else []
    name, *arguments = command
    return subprocess.run(
        [*limits, *as_anyone, sys.executable, "-m", f"launch.{name}", *arguments],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )


def draw(data: st.DataObject, place: Path) -> list[str]:
    """A command, with one more flag or with a file that it reads damaged; notes say which."""
    text, read = data.draw(st.sampled_from(list(COMMANDS.items())))
    command = text.split()
    if data.draw(st.integers(0, 2)) == 0:
        flag = data.draw(st.sampled_from(drawn_flags(command[0])))
        return [*command, f"--{flag}={data.draw(st.sampled_from(VALUES))}"]
    pattern = data.draw(st.sampled_from(read))
    files = [path for path in sorted(place.glob(pattern)) if path.is_file()]
    if pattern.endswith("/*"):
        files = [path for path in sorted((place / pattern[:-2]).rglob("*")) if path.is_file()]
    path = data.draw(st.sampled_from(files))
    if data.draw(st.integers(0, 7)) == 0:
        OTHERS[data.draw(st.sampled_from(list(OTHERS)))](path)
        return command
    content = path.read_bytes()
    contents = anything() | damaged(content)
    with contextlib.suppress(ValueError):
        first, rest = content.split(b"\n", 1) if path.suffix == ".jsonl" else (content, b"")
        faults = [fault + b"\n" + rest for fault in single_faults(json.loads(first))]
        contents |= st.sampled_from(faults)
    path.write_bytes(data.draw(contents))
    return command


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
def drawn_flags(name: str) -> list[str]:
    """The flags of a launcher, and the keys of a configuration where it takes them."""
    names = [*flags_of(name)]
    if name == "train":
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


def finding(command: list[str], done: Any, place: Path, before: Any) -> str:
    """What is wrong with the end of a command; nothing if it is as promised."""
    error, code = done.stderr, done.returncode
    if "Traceback (most" in done.stdout + error:
        return f"a traceback: {error.strip().splitlines()[-1][:300]}"
    lines = [line for line in error.splitlines() if not line.startswith(("warning: ", "note: "))]
    stops = [line for line in lines if line.startswith("error: ")]
    name = command[0]
    if code == 1 and name == "train" and len(stops) == 1:
        code = 2  # A loss that is not finite.
    if code not in (0, 2):
        return f"ends with code {code}: {error[-300:]!r}"
    if code == 2 and lines != stops[:1]:
        return f"has no line of an error alone: {error[:300]!r}"
    mebibytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    if mebibytes > MEBIBYTES:
        return f"takes {mebibytes} MiB"
    for folder in place.rglob("*"):
        if folder.name.startswith(".dclm_jax-"):
            return f"leaves {folder}"
    for path in place.glob("out/*.json"):
        json.loads(path.read_text())
    changed = [file for file, content in contents(place).items() if before.get(file) != content]
    writable = ("out/", f"{CHANGES.get(name, 'out')}/", "run/results/", "jax_cache")
    output = command[-1].partition("=")[2]
    if other := [
        file for file in changed if not file.startswith(writable) and not file.startswith(output)
    ]:
        return f"changes {other}"
    return ""


@pytest.mark.exhaustive
def test_tries_end_as_promised(world):
    place, whole = world

    @settings(fuzz(TRIES), deadline=None, phases=[Phase.generate])
    @given(st.data())
    def check(data: st.DataObject) -> None:
        shutil.rmtree(place)
        shutil.copytree(whole, place)
        command = draw(data, place)
        before = contents(place)
        done = run(command, place)
        _make_readable(place)
        assert not finding(command, done, place, before), command

    check()
