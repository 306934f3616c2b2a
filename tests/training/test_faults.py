"""What clusters do to a run: disks, damaged files, other jobs, bad numbers.

Kills and signals: tests/training/test_kills.py, launch/test_processes.py.
"""

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.errors import DivergenceError, InputError
from dclm_jax.training import loop, step
from dclm_jax.training.checkpoints import Checkpoints
from dclm_jax.training.run_writer import RunWriter
from dclm_jax.training.step import TrainState
from dclm_jax.training.workdir import restore_run
from tests.compiling import without_cache
from tests.training.support import (
    after_step,
    assert_same_bits,
    config,
    latest_state,
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
    workdir = tmp_path_factory.mktemp("saved")
    with contextlib.closing(Checkpoints(workdir / "checkpoints", "latest")) as checkpoints:
        for number in (1, 2):
            checkpoints.save(number, tiny_state(number), {"tokens": number})
    return workdir


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_that_cannot_be_read_is_skipped(two_checkpoints, tmp_path, damage, caplog):
    newest = two_checkpoints / "checkpoints" / "latest" / "2"
    files = [file.relative_to(newest) for file in newest.rglob("*") if file.is_file()]
    skipped = 0
    for number, file in enumerate(files):
        workdir = tmp_path / str(number)
        shutil.copytree(two_checkpoints, workdir)
        DAMAGES[damage](workdir / newest.relative_to(two_checkpoints) / file)
        caplog.clear()
        with contextlib.closing(Checkpoints(workdir / "checkpoints", "latest")) as checkpoints:
            restored = checkpoints.restore(tiny_state(0))
        assert restored is not None
        step, state, progress = restored
        errors = caplog.text
        assert ("2 cannot be used: " in errors and "using step 1 instead" in errors) == (step == 1)
        skipped += step == 1
        # Some of orbax's own notes have no value of the checkpoint.
        assert_same_bits(state.params, tiny_state(step).params)
        assert (int(state.step), progress) == (step, {"tokens": step})
    assert skipped >= 2


def test_a_checkpoint_in_a_folder_with_any_name_is_read(two_checkpoints, tmp_path):
    workdir = Path(shutil.copytree(two_checkpoints, tmp_path / "a b%20#c?d'é"))
    with contextlib.closing(Checkpoints(workdir / "checkpoints", "latest")) as checkpoints:
        restored = checkpoints.restore(tiny_state(0))
    assert restored is not None and restored[0] == 2
    assert_same_bits(restored[1].params, tiny_state(2).params)


def test_a_workdir_whose_path_is_no_utf8_is_refused_before_any_work(data, tmp_path):
    workdir = os.fsdecode(bytes(tmp_path) + b"/run\xff/a")
    for use in (lambda: loop.train(config(data), workdir), lambda: dclm_jax.restore(workdir)):
        with pytest.raises(InputError, match="the path is not valid UTF-8, which checkpoints need"):
            use()
    assert os.listdir(tmp_path) == []


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


def test_full_disk_while_a_checkpoint_is_written(data, uninterrupted, tmp_path, caplog):
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
            loop.train(config(data), run)
    # Threads of the save that has failed live on in this process, and clear up at their own time.
    later = tmp_path / "later"
    shutil.copytree(run, later, ignore=shutil.ignore_patterns("*tmp*"))
    run = later
    result = loop.train(config(data), run)
    assert "resuming after step 5" in caplog.messages
    assert result.ending == "finished"
    assert_same_bits(latest_state(run, 12), latest_state(uninterrupted, 12))
    assert not list(run.glob("checkpoints/*/*tmp*"))


def test_full_disk_while_metrics_are_written(data, uninterrupted, tmp_path):
    run = tmp_path / "run"
    message = r"metrics.jsonl: cannot be written: File too large"
    late = {"training.checkpoint_every": 100, "training.evaluate_every": 100}
    # The configuration and the vocabulary fit.
    with files_of_at_most(1500), pytest.raises(InputError, match=message):
        loop.train(config(data, **late), run)
    loop.train(config(data, **late), run)
    assert_same_bits(latest_state(run, 12), latest_state(uninterrupted, 12))
    lines = read_metrics(run)
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 13))


def test_full_disk_while_a_workdir_is_begun(data, tmp_path):
    with files_of_at_most(10), pytest.raises(InputError, match="cannot be written: File too"):
        loop.train(config(data), tmp_path / "run")
    assert loop.train(config(data), tmp_path / "run").ending == "finished"


def test_full_disk_while_a_corpus_is_prepared(texts, tmp_path):
    output = tmp_path / "prepared"
    with files_of_at_most(500), pytest.raises(InputError, match="cannot be written: File too"):
        prepare(texts, output, options=PrepareOptions(vocab_size=20))
    assert list(tmp_path.iterdir()) == []
    prepare(texts, output, options=PrepareOptions(vocab_size=20))
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
            loop.train(config(data), place / "run")
    finally:
        for parent, mode in modes.items():
            parent.chmod(mode)
    assert existing == (place / "run").exists()


def test_a_workdir_whose_name_is_too_long_is_one_line(data, tmp_path):
    with pytest.raises(InputError, match="xxx: cannot be (read|written): File name too long"):
        loop.train(config(data), tmp_path / ("x" * 300))


# Other jobs


def hold(workdir: Path) -> subprocess.Popen[str]:
    """Another process that writes in a workdir until it is told to end."""
    program = (
        "import sys, pathlib\n"
        "from dclm_jax.training.run_writer import locked\n"
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


def test_a_second_job_is_refused_and_a_lock_of_the_dead_is_taken(data, uninterrupted, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(uninterrupted, run)
    before = latest_state(run, 12)
    with hold(run) as holder:
        with pytest.raises(InputError, match="run is in use by another process; stop it, or"):
            loop.train(config(data), run)
        holder.kill()
    assert loop.train(config(data), run).ending == "finished"
    assert_same_bits(latest_state(run, 12), before)


def test_a_corpus_that_changed_is_refused(texts, copied_data, tmp_path):
    run = tmp_path / "run"
    loop.train(config(copied_data, **{"training.max_steps": 2}), run)
    # Another text with the same words: the vocabulary is the same file.
    text = Path(texts["train"]).read_text().split("\n\n")
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join(text[::-1]))
    prepare(
        texts | {"train": str(other)},
        copied_data,
        options=PrepareOptions(vocab_size=20),
        overwrite=True,
    )
    message = r"prepared has changed since this run began: the checksum of train\.\S+ differs"
    with pytest.raises(InputError, match=message):
        loop.train(config(copied_data, **{"training.max_steps": 2}), run)


def test_a_damaged_corpus_is_refused(copied_data, tmp_path):
    path = copied_data / "train.tokens.bin"
    path.write_bytes(path.read_bytes()[:-4] + b"\3\0\0\0")
    with pytest.raises(InputError, match="train.tokens.bin: its checksum differs"):
        loop.train(config(copied_data), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Numbers


def poison(monkeypatch, steps: set[int]) -> None:
    """The gradient of these steps (from 1) is not a number."""
    train_step = step.train_step

    def poisoned(model, optimizer, loss_per, state, batch, key):
        bad = jnp.isin(state.step + 1, jnp.array(sorted(steps)))
        likelihood = step.batch_likelihood

        def scaled(*arguments):
            value, factor = likelihood(*arguments), jnp.where(bad, jnp.nan, 1.0)
            return value._replace(nats=factor * value.nats, nll=factor * value.nll)

        with monkeypatch.context() as patch:
            patch.setattr(step, "batch_likelihood", scaled)
            return train_step(model, optimizer, loss_per, state, batch, key)

    monkeypatch.setattr(step, "train_step", poisoned)


def test_a_gradient_that_is_not_finite_stops_the_run(data, tmp_path, monkeypatch):
    poison(monkeypatch, {8})
    message = "step 8: mean loss is nan and gradient norm nan"
    with pytest.raises(DivergenceError, match=message):
        loop.train(config(data), tmp_path / "run")
    best = restore_run(tmp_path / "run")
    assert best.step == 5
    assert all(np.isfinite(value).all() for value in jax.tree.leaves(best.params))
