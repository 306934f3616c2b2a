"""Checkpoints and metrics damaged, or made on purpose: taken, or refused in one line."""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given

from dclm_jax import files
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.training.run_writer import MetricsLog, Progress, RunWriter, locked
from dclm_jax.training.workdir import read_config
from tests.exhaustive import some
from tests.fuzzing import anything, attack_json, damaged, fuzz, single_faults, value_or_input_error
from tests.training.support import resume, seal, state_of, use


@pytest.mark.parametrize(
    "name", ["best/3/info/metadata", "best/3/_CHECKPOINT_METADATA", "best/3/params/_METADATA"]
)
def test_descriptions_of_a_checkpoint(sealed, tmp_path_factory, name):
    run = tmp_path_factory.mktemp("described") / "run"
    shutil.copytree(sealed, run)
    file = run / "checkpoints" / name
    original = file.read_bytes()

    def check(content: bytes) -> None:
        file.write_bytes(content)
        seal(run)
        value_or_input_error(run, lambda: use(run))

    step = 1 if len(original) < 500 else some(8, all=40)
    for content in list(single_faults(json.loads(original)))[::step]:
        check(content)
    fuzz(40)(given(anything() | damaged(original))(check))()


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/latest", "tensorboard"])
def test_folders_that_lead_out_of_a_run_are_refused(sealed, tmp_path, name):
    """What looks like a checkpoint that was being written would be removed there."""
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    shutil.copytree(sealed, run)
    left = elsewhere / "7.orbax-checkpoint-tmp"
    left.mkdir(parents=True)
    folder = run / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.symlink_to(elsewhere)
    with pytest.raises(InputError, match=f"run/{name}: is a link or not a directory"), locked(run):
        pass
    assert left.is_dir()


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_links_in_a_run_are_not_written_through(sealed, tmp_path, name):
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(sealed, run)
    # Lines of before stay as they are, and others are written after them.
    mine = json.dumps({"kind": "train", "step": 1}) + "\n"
    other.write_text(mine)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(other)
    with pytest.raises(InputError, match="run.*: cannot be written: "), locked(run):
        MetricsLog(run, step=3)
    assert other.read_text() == mine


@pytest.mark.parametrize(
    "name",
    [
        *("vocabulary.tsv", "config.json", "corpus.json"),
        "checkpoints/best/3/checksums.json",
        "checkpoints/best/3/_CHECKPOINT_METADATA",
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_pipes_and_devices_in_a_run_are_refused_at_once(sealed, tmp_path, name, kind):
    run = tmp_path / "run"
    shutil.copytree(sealed, run)
    (run / name).unlink()
    os.mkfifo(run / name) if kind == "pipe" else (run / name).symlink_to("/dev/zero")
    with pytest.raises(InputError):
        claim_again(run) if name == "corpus.json" else use(run)


def claim_again(run: Path) -> None:
    vocabulary = Vocabulary.load(run / "vocabulary.tsv")
    corpus: Any = SimpleNamespace(vocabulary=vocabulary, checksums={})
    with RunWriter(run) as writer:
        config = read_config(run)
        writer.begin(config, corpus, 9, state_of(config))


def test_values_of_a_checkpoint(sealed, tmp_path_factory):
    run = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(sealed, run)
    for file in (run / "checkpoints" / "best" / "3" / "params").rglob("*"):
        if not file.is_file():
            continue
        original = file.read_bytes()

        def check(content: bytes) -> None:
            file.write_bytes(content)  # noqa: B023
            seal(run)
            value_or_input_error(run, lambda: use(run))

        fuzz(20)(given(anything() | damaged(original))(check))()
        file.write_bytes(original)


def test_a_checkpoint_of_another_kind_is_not_resumed(sealed, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(sealed, run)
    for content in (b"[1]", b'"x"', b"3", b"null"):
        (run / "checkpoints" / "latest" / "3" / "progress" / "metadata").write_bytes(content)
        seal(run)
        with pytest.raises(InputError, match="no checkpoint in .*latest can be used"):
            resume(run)


@pytest.mark.parametrize("name", ["../../../../secret", "/dev/zero", "params/../../3/secret"])
def test_checksums_lead_nowhere_else(sealed, tmp_path, name, capfd):
    """A device that never ends would be read for ever."""
    run = tmp_path / "run"
    shutil.copytree(sealed, run)
    (tmp_path / "secret").write_bytes(b"secret")
    file = run / "checkpoints" / "best" / "3" / "checksums.json"
    sums = json.loads(file.read_text())
    for forged in ({**sums, name: "0"}, {name: "0"}, {}, [], None, "x"):
        file.write_text(json.dumps(forged))
        with pytest.raises(InputError, match="no checkpoint in .*best can be used"):
            use(run)
        expected = "its files differ from the list in checksums.json"
        if not isinstance(forged, dict):
            expected = f"checksums.json: the value is {forged!r}; expected a JSON object"
        assert expected in capfd.readouterr().err


def test_checksums(sealed, tmp_path_factory):
    run = tmp_path_factory.mktemp("sealed") / "run"
    shutil.copytree(sealed, run)
    file = run / "checkpoints" / "best" / "3" / "checksums.json"

    def check(content: bytes) -> None:
        file.write_bytes(content)
        value_or_input_error(run, lambda: use(run))

    fuzz(60)(given(anything() | damaged(file.read_bytes()))(check))()


def test_progress():
    good = dataclasses.asdict(Progress(best_step=3))

    def read(content: bytes | str) -> Progress:
        return files.parse_json(content, "run", Progress, exact=True)

    def check(content: bytes) -> None:
        value_or_input_error(Path("run"), lambda: read(content))

    attack_json(check, good, 100)
    assert read(json.dumps(good)) == Progress(best_step=3)


def test_metrics(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("metrics")
    file = workdir / "metrics.jsonl"
    first = {"kind": "train", "step": 1, "loss": 1.0}
    others = "".join(json.dumps(first | {"step": step}) + "\n" for step in (2, 3, 4)).encode()

    def check(content: bytes) -> None:
        file.write_bytes(content + b"\n" + others)
        with MetricsLog(workdir, step=3) as log:
            log.write("train", 4, loss=2.0)
        written = file.read_bytes()
        assert written.endswith(b'{"kind": "train", "step": 4, "loss": 2.0}\n')
        kept = written[: written.rindex(b"{")]
        assert (content + b"\n" + others).startswith(kept)
        assert all(json.loads(line)["step"] <= 3 for line in kept.split(b"\n")[:-1])

    attack_json(check, first, 50)
