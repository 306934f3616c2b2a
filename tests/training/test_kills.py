"""kill -9 at random moments, also while checkpoints are written: the result has the same bits."""

import contextlib
import random
import time
from pathlib import Path

from dclm_jax.training.workdir import restore_run
from tests.exhaustive import some
from tests.training import lives
from tests.training.support import assert_same_bits, comparable, latest_state

KILLS = some(1, all=50)
WITHIN_A_SAVE = some(1, all=10)
STEPS = some(150, all=900)
VALUES = {
    "training.max_steps": STEPS,
    "training.epochs": 1000,
    "training.evaluate_every": 30,
    "training.checkpoint_every": 4,
    "training.patience": 0,
}


def live(data: Path, run: Path, cache: Path) -> None:
    process, lines = lives.begin(data, run, cache, VALUES)
    with contextlib.suppress(EOFError):
        while lines.poll(120) and lines.recv():
            pass
    process.join(60)
    assert process.exitcode == 0


def being_saved(run: Path) -> bool:
    return any(run.glob("checkpoints/*/*tmp*"))


def killed(data: Path, run: Path, cache: Path, rng: random.Random) -> tuple[bool, str]:
    """One life that is cut off; whether that was within a save, and the last line it said."""
    process, lines = lives.begin(data, run, cache, VALUES)
    last = ""
    if rng.random() < 0.9:
        while lines.poll(120) and not last.startswith("step "):
            last = lines.recv()
    time.sleep(rng.uniform(0, 0.15))
    if rng.random() < 0.5:
        end = time.monotonic() + 1
        while not being_saved(run) and time.monotonic() < end:
            pass
        time.sleep(rng.uniform(0, 0.01))
    process.kill()
    process.join(60)
    with contextlib.suppress(EOFError):
        while lines.poll(0):
            last = lines.recv()
    return being_saved(run), last


def test_kills_leave_the_bits_of_an_uninterrupted_run(data, tmp_path):
    whole, run, cache = (tmp_path / name for name in ("whole", "run", "cache"))
    live(data, whole, cache)
    rng = random.Random(0)
    kills = within_a_save = 0
    while kills < KILLS or within_a_save < WITHIN_A_SAVE:
        was_saving, last = killed(data, run, cache, rng)
        assert not last.startswith("finished"), "too few steps"
        kills, within_a_save = kills + 1, within_a_save + was_saving
    live(data, run, cache)
    assert_same_bits(latest_state(run, STEPS), latest_state(whole, STEPS))
    assert_same_bits(restore_run(run).params, restore_run(whole).params)
    losses = [
        [(line["step"], line["loss"]) for line in comparable(workdir) if line["kind"] == "valid"]
        for workdir in (run, whole)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == STEPS // 30
