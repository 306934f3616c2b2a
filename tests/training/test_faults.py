"""What clusters do to a run: disks, damaged files, other jobs, bad numbers, clocks.

Kills and signals: tests/training/test_kills.py, launch/test_processes.py.
"""

import contextlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.errors import DivergenceError, InputError
from dclm_jax.training import loop, step
from dclm_jax.training.checkpoints import CHECKSUMS_FILE, Checkpoints
from dclm_jax.training.run_writer import RunWriter, locked
from dclm_jax.training.step import TrainState
from dclm_jax.training.workdir import restore_run
from tests.compiling import without_cache
from tests.training.support import (
    after_step,
    assert_same_bits,
    config,
    latest_state,
    quiet,
    read_metrics,
)

NOBODY = 65534


@pytest.fixture
def copied_data(data, tmp_path) -> Path:
    """A corpus to be damaged."""
    return Path(shutil.copytree(data, tmp_path / "prepared"))


# Checkpoints


def tiny_state(step: int) -> TrainState:
    values = np.arange(2000, dtype=np.float32) * step
    return TrainState(jnp.int32(step), {"a": values, "b": {"c": values[:3]}}, {"d": values[:50]})


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("sealed")
    with contextlib.closing(Checkpoints(workdir / "checkpoints", "latest")) as checkpoints:
        for number in (1, 2):
            checkpoints.save(number, tiny_state(number), {"tokens": number})
    return workdir


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


DAMAGES = {
    "flipped": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_any_damaged_file_is_detected_and_the_previous_checkpoint_is_used(
    two_checkpoints, tmp_path, damage, capfd
):
    newest = two_checkpoints / "checkpoints" / "latest" / "2"
    files = [file.relative_to(newest) for file in newest.rglob("*") if file.stat().st_size]
    sealed = json.loads((newest / CHECKSUMS_FILE).read_text())
    assert len(sealed) >= 5
    for number, file in enumerate(file for file in files if not (newest / file).is_dir()):
        workdir = tmp_path / str(number)
        shutil.copytree(two_checkpoints, workdir)
        DAMAGES[damage](workdir / newest.relative_to(two_checkpoints) / file)
        capfd.readouterr()
        with contextlib.closing(Checkpoints(workdir / "checkpoints", "latest")) as checkpoints:
            restored = checkpoints.restore(tiny_state(0))
        assert restored is not None
        _, state, progress = restored
        errors = capfd.readouterr().err
        if str(file) in sealed or str(file) == CHECKSUMS_FILE:
            assert progress == {"tokens": 1}, file
            assert "2 cannot be used: " in errors and "using step 1 instead" in errors
            if damage in ("flipped", "truncated", "emptied") and str(file) in sealed:
                assert f"{file} differs from its checksum" in errors
        # Orbax's own notes on a checkpoint hold no value: with or without them, nothing is wrong.
        assert_same_bits(state.params, tiny_state(progress["tokens"]).params)
        assert int(state.step) == progress["tokens"]


@pytest.mark.parametrize("notes", [b"[" * 100_000, b'{"a":' * 100_000, b"[]", b"\0" * 9])
def test_hostile_notes_of_a_checkpoint_are_left_with_it(two_checkpoints, tmp_path, notes, capfd):
    workdir = tmp_path / "run"
    shutil.copytree(two_checkpoints, workdir)
    (workdir / "checkpoints" / "latest" / "2" / "_CHECKPOINT_METADATA").write_bytes(notes)
    with contextlib.closing(Checkpoints(workdir / "checkpoints", "latest")) as checkpoints:
        restored = checkpoints.restore(tiny_state(0))
        assert restored is not None and restored[0] == 1
        # What goes on from there removes the other one.
        checkpoints.delete_after(1)
        checkpoints.save(2, tiny_state(2), {"tokens": 2})
        checkpoints.save(3, tiny_state(3), {"tokens": 3})
    assert "2 cannot be used: " in capfd.readouterr().err
    assert sorted(os.listdir(workdir / "checkpoints" / "latest")) == ["2", "3"]


# Disks


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes, which programs meet as they meet a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_while_a_checkpoint_is_written(data, uninterrupted, tmp_path):
    """The disk fills up after step 5; the run stops, keeps step 5, and later goes on from there."""
    run = tmp_path / "run"
    full = contextlib.ExitStack()

    def fill(run: loop._Run) -> None:
        run._writer._latest.wait()
        full.enter_context(files_of_at_most(100))

    message = r"/checkpoints/.*: cannot be written \(.*earlier"
    with pytest.MonkeyPatch.context() as patch, full, after_step(6, fill):
        patch.setattr(RunWriter, "write", lambda *rest, **values: None)
        with pytest.raises(InputError, match=message):
            loop.train(config(data), run, report=quiet)
    # Threads of the save that has failed live on in this process, and clear up at their own time.
    later = tmp_path / "later"
    shutil.copytree(run, later, ignore=shutil.ignore_patterns("*tmp*"))
    run = later
    assert restore_run(run).step == 5
    lines: list[str] = []
    result = loop.train(config(data), run, report=lines.append)
    assert "resuming after step 5" in lines
    assert result.ending == "finished"
    assert_same_bits(latest_state(run, 12), latest_state(uninterrupted, 12))
    assert not list(run.glob("checkpoints/*/*tmp*"))


def test_full_disk_while_metrics_are_written(data, uninterrupted, tmp_path):
    run = tmp_path / "run"
    message = r"metrics.jsonl: cannot be written: File too large"
    late = {"training.checkpoint_every": 100, "training.evaluate_every": 100}
    # The configuration and the vocabulary fit.
    with files_of_at_most(1500), pytest.raises(InputError, match=message):
        loop.train(config(data, **late), run, report=quiet)
    loop.train(config(data, **late), run, report=quiet)
    assert_same_bits(latest_state(run, 12), latest_state(uninterrupted, 12))
    lines = read_metrics(run)
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 13))


def test_full_disk_while_a_workdir_is_begun(data, tmp_path):
    with files_of_at_most(10), pytest.raises(InputError, match="cannot be written: File too"):
        loop.train(config(data), tmp_path / "run", report=quiet)
    assert loop.train(config(data), tmp_path / "run", report=quiet).ending == "finished"


def test_full_disk_while_a_corpus_is_prepared(texts, tmp_path):
    output = tmp_path / "prepared"
    with files_of_at_most(500), pytest.raises(InputError, match="cannot be written: File too"):
        prepare(texts, output, options=PrepareOptions(vocab_size=20), report=quiet)
    assert list(tmp_path.iterdir()) == []
    prepare(texts, output, options=PrepareOptions(vocab_size=20), report=quiet)
    assert open_corpus(output, "train").num_documents == 30


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """Root may write anywhere: be nobody meanwhile."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("existing", [False, True])
def test_read_only_workdir_is_one_line(data, uninterrupted, tmp_path, existing):
    place = tmp_path / "place"
    if existing:
        shutil.copytree(uninterrupted, place / "run")
    place.mkdir(exist_ok=True)
    for directory in (place, *place.iterdir()):
        directory.chmod(0o555)
    # Every parent of pytest's own directories can be read by their owner alone.
    opened = [parent for parent in place.parents if parent.owner() == place.owner()]
    modes = {parent: parent.stat().st_mode for parent in (*opened, *data.parents) if parent.stat()}
    try:
        for parent in modes:
            if "pytest" in str(parent):
                parent.chmod(0o755)
        lock = place / "run" / "lock"
        if existing:
            lock.chmod(0o444)
        with (
            # Nobody may not read the cache of root.
            without_cache(),
            without_rights(),
            pytest.raises(InputError, match="run: cannot be written: Permission"),
        ):
            loop.train(config(data), place / "run", report=quiet)
    finally:
        for parent, mode in modes.items():
            parent.chmod(mode)
    assert existing == (place / "run").exists()


def test_a_workdir_whose_name_is_too_long_is_one_line(data, tmp_path):
    with pytest.raises(InputError, match="xxx: cannot be (read|written): File name too long"):
        loop.train(config(data), tmp_path / ("x" * 300), report=quiet)


# Other jobs


def hold(workdir: Path) -> subprocess.Popen[str]:
    """Another process that writes in a workdir until it is told to end."""
    program = (
        "import sys, pathlib\n"
        "from dclm_jax.training.run_writer import RunWriter, locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(workdir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    return holder


def test_a_second_job_is_refused_and_a_lock_of_the_dead_is_taken(
    data, uninterrupted, tmp_path, capfd
):
    run = tmp_path / "run"
    shutil.copytree(uninterrupted, run)
    before = latest_state(run, 12)
    with hold(run) as holder:
        expected = rf"run is in use by process {holder.pid} on \S+ since 20\d\d-\d\d-\d\dT\S+: stop"
        with pytest.raises(InputError, match=expected):
            loop.train(config(data), run, report=quiet)
        holder.kill()
    capfd.readouterr()
    assert loop.train(config(data), run, report=quiet).ending == "finished"
    note = capfd.readouterr().err
    assert note.startswith(f"note: {run} was left locked by process {holder.pid} on ")
    assert_same_bits(latest_state(run, 12), before)
    assert (run / "lock").read_text() == ""


def test_a_note_on_a_lock_is_one_short_line(tmp_path, capfd):
    (tmp_path / "lock").write_bytes(b"\x1b[2J\n\xff" + b"x" * 10**6)
    with locked(tmp_path):
        assert f"process {os.getpid()} on " in (tmp_path / "lock").read_text()
    note = capfd.readouterr().err
    assert note.startswith(f"note: {tmp_path} was left locked by \\x1b[2J\\n\ufffdxxx")
    assert note.count("\n") == 1 and len(note) < len(str(tmp_path)) + 300
    # A lock that ended well says nothing.
    with locked(tmp_path):
        pass
    assert capfd.readouterr().err == ""


def test_a_corpus_that_changed_is_refused(texts, copied_data, tmp_path):
    run = tmp_path / "run"
    loop.train(config(copied_data, **{"training.max_steps": 2}), run, report=quiet)
    # Another text with the same words: the vocabulary is the same file.
    text = Path(texts["train"]).read_text().split("\n\n")
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join(text[::-1]))
    prepare(
        texts | {"train": str(other)},
        copied_data,
        options=PrepareOptions(vocab_size=20),
        report=quiet,
        overwrite=True,
    )
    message = r"prepared has changed since this run began: the checksum of train\.\S+ differs"
    with pytest.raises(InputError, match=message):
        loop.train(config(copied_data, **{"training.max_steps": 2}), run, report=quiet)


def test_a_flipped_bit_in_the_corpus_is_refused(copied_data, tmp_path):
    flip(copied_data / "train.tokens.bin")
    with pytest.raises(InputError, match="train.tokens.bin: its checksum differs"):
        loop.train(config(copied_data), tmp_path / "run", report=quiet)
    assert not (tmp_path / "run").exists()


# Numbers and clocks


def poison(monkeypatch, steps: set[int]) -> None:
    """The gradient of these steps (from 1) is not a number."""
    train_step = step.train_step

    def poisoned(model, optimizer, state, batch, key, loss_per="token"):
        bad = jnp.isin(state.step + 1, jnp.array(sorted(steps)))
        likelihood = step.batch_likelihood

        def scaled(*arguments):
            value = likelihood(*arguments)
            return value._replace(nll=jnp.where(bad, jnp.nan, 1.0) * value.nll)

        with monkeypatch.context() as patch:
            patch.setattr(step, "batch_likelihood", scaled)
            return train_step(model, optimizer, state, batch, key, loss_per)

    monkeypatch.setattr(step, "train_step", poisoned)


def test_a_gradient_that_is_not_a_number_is_left_out_on_request(data, tmp_path, monkeypatch):
    poison(monkeypatch, {3, 7, 8})
    lines: list[str] = []
    # A step that is left out changes neither parameters nor what the optimizer has summed up.
    values = {"optimizer.max_skipped_steps": 2, "training.checkpoint_every": 1}
    three = config(data, **values, **{"training.max_steps": 3})
    loop.train(three, tmp_path / "run", report=quiet)
    before, after = (latest_state(tmp_path / "run", number) for number in (2, 3))
    assert_same_bits(before["params"], after["params"])
    inner = "inner_state"
    assert_same_bits(before["optimizer_state"][inner], after["optimizer_state"][inner])
    result = loop.train(config(data, **values), tmp_path / "run", report=lines.append)
    assert result.ending == "finished"
    skipped = [line for line in lines if "skipped" in line]
    assert [line.split(":")[0] for line in skipped] == ["step 7", "step 8"]
    assert skipped[-1].endswith("skipped (3 skipped in total)")
    metrics = read_metrics(tmp_path / "run")
    training = [line for line in metrics if line["kind"] == "train"]
    assert [line["step"] for line in training] == [1, 2, 4, 5, 6, 9, 10, 11, 12]
    assert training[-1]["skipped"] == 3
    assert all(np.isfinite(line["gradient_norm"]) for line in training)


@pytest.mark.parametrize(("bad", "skipped"), [({8}, 0), ({6, 7, 8}, 2)])
def test_too_many_gradients_that_are_not_numbers_stop_the_run(
    data, tmp_path, monkeypatch, bad, skipped
):
    poison(monkeypatch, bad)
    message = "step 8: mean loss is nan and gradient norm nan"
    with pytest.raises(DivergenceError, match=message):
        settings = config(data, **{"optimizer.max_skipped_steps": skipped})
        loop.train(settings, tmp_path / "run", report=quiet)
    best = restore_run(tmp_path / "run")
    assert best.step == 5
    assert all(np.isfinite(value).all() for value in jax.tree.leaves(best.params))


def test_a_clock_that_jumps_changes_nothing(data, uninterrupted, tmp_path, monkeypatch):
    jumps, now = random.Random(0), time.time
    monkeypatch.setattr(time, "time", lambda: max(0.0, now() + jumps.uniform(-100, 100)))
    result = loop.train(config(data), tmp_path / "run", report=quiet)
    assert result.ending == "finished"
    assert_same_bits(latest_state(tmp_path / "run", 12), latest_state(uninterrupted, 12))
    seconds = [line["seconds"] for line in read_metrics(tmp_path / "run")]
    assert seconds == sorted(seconds) and 0 < seconds[-1] < 600
