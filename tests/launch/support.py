"""Launchers run in processes of their own, and a small corpus with a finished run for them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).parents[2]
TOPICS, WORDS_PER_TOPIC = 5, 20
STEPS = 24
# Sums of some hundred float32 terms of about 5 nats, taken in another order.
TOLERANCE = 1e-5

CONFIG = """
from dclm_jax.training.config import default_config


def get_config(model="ccdclm"):
    config = default_config(model)
    with config.unlocked():
        config.model.update(embedding_dim=8, hidden_dim=8, num_layers=1)
        config.data.batch_size = 8
        config.optimizer.update(name="adam", learning_rate=0.02)
        config.training.update(
            max_steps={steps}, evaluate_every=8, checkpoint_every=4, log_every=1, patience=0
        )
    return config
"""


def environment(**variables: str) -> dict[str, str]:
    """Launchers are found from any directory; pytest's own flags for XLA do not reach them."""
    inherited = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return {**inherited, "PYTHONPATH": str(REPOSITORY), **variables}


def launch(name, *arguments, code=0, quiet=True, cwd=None, stdin=None, **variables):
    """Runs `python -m launch.NAME` to its end and returns the process."""
    done = subprocess.run(
        [sys.executable, "-m", f"launch.{name}", *map(str, arguments)],
        cwd=cwd or REPOSITORY,
        env=environment(**variables),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    if code == 0 and quiet:
        assert done.stderr == ""
    return done


def start(name: str, *arguments, group: bool = False) -> subprocess.Popen[str]:
    """Starts `python -m launch.NAME`, which goes on by itself; in a process group of its own if a
    signal is meant for the whole group, as of a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", f"launch.{name}", *map(str, arguments)],
        cwd=REPOSITORY,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=group,
    )


def refuse(name, *arguments, code=2, **options) -> str:
    """Runs a launcher that must end in a single line on stderr, and returns that line."""
    error = launch(name, *arguments, code=code, **options).stderr
    assert error.startswith("error: ") and error.count("\n") == 1, error
    return error.strip()


def write_documents(path: Path, seed: int, documents: int) -> Path:
    """Documents whose sentences all draw on one topic's words."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(documents):
        first = WORDS_PER_TOPIC * rng.integers(TOPICS)
        for _ in range(rng.integers(2, 6)):
            words = first + rng.integers(WORDS_PER_TOPIC, size=rng.integers(2, 7))
            lines.append(" ".join(f"w{word}" for word in words))
        lines.append("")
    path.write_text("\n".join(lines))
    return path


def fingerprint(directory: Path) -> dict[str, bytes]:
    """Every file below a directory with its content, but what Python keeps of a configuration."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.parent.name != "__pycache__"
    }


class Workspace:
    """The text, the prepared corpus, a configuration and a finished run that all tests read."""

    def __init__(self, root: Path):
        self.root = root
        self.text = {
            split: write_documents(root / f"{split}.txt", seed, documents)
            for seed, (split, documents) in enumerate(
                (("train", 60), ("valid", 8), ("test", 11)), start=1
            )
        }
        self.corpus, self.run = root / "corpus", root / "run"
        self.prepared = launch(
            "prepare", *self.sources(), f"--output={self.corpus}", "--vocab_size=95"
        )
        self.config = root / "tiny.py"
        self.config.write_text(CONFIG.format(steps=STEPS))
        self.trained = launch("train", *self.training(self.run))

        vocabulary = f"--vocabulary={self.corpus / 'vocabulary.tsv'}"
        self.test_only, self.other_corpus = root / "test_only", root / "other"
        test = f"--test={self.text['test']}"
        launch("prepare", test, vocabulary, f"--output={self.test_only}")
        launch("prepare", *self.sources(), f"--output={self.other_corpus}", "--vocab_size=50")

    def sources(self) -> list[str]:
        return [f"--{split}={path}" for split, path in self.text.items()]

    def training(self, workdir: Path, *more: str, config: Path | None = None) -> list[str]:
        return [
            f"--config={config or self.config}",
            f"--workdir={workdir}",
            f"--config.data.directory={self.corpus}",
            *more,
        ]

    def evaluate(self, *arguments, **options):
        done = launch("evaluate", f"--workdir={self.run}", "--output=-", *arguments, **options)
        return json.loads(done.stdout)
