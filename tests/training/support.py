"""A corpus of a few sentences, and runs of a few steps on it."""

import contextlib
import dataclasses
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from ml_collections import ConfigDict

import dclm_jax
from dclm_jax import files, models
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.training import loop
from dclm_jax.training.checkpoints import Checkpoints
from dclm_jax.training.config import OptimizerConfig, default_config
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import TrainState, first_state
from dclm_jax.training.workdir import TrainingResult, read_config

WORDS = "a b c d e f g h i j".split()


def write_documents(
    path: Path, seed: int, documents: int, vocabulary: Sequence[str] = WORDS
) -> Path:
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(documents):
        topic = int(rng.integers(0, 6))
        for _ in range(rng.integers(2, 8)):
            words = rng.choice(vocabulary[topic : topic + 5], rng.integers(1, 7))
            lines.append(" ".join(words))
        lines.append("")
    path.write_text("\n".join(lines))
    return path


def write_texts(root: Path, vocabulary: Sequence[str] = WORDS) -> dict[str, str]:
    """A text for every split, by its name. Training has 10 batches of 4 segments."""
    counts = {"train": 30, "valid": 5, "test": 6}
    return {
        split: str(write_documents(root / f"{split}.txt", seed, count, vocabulary))
        for seed, (split, count) in enumerate(counts.items())
    }


def config(data: Path, **values):
    config = default_config(values.get("model.name", "ccdclm"))
    config.update_from_flattened_dict(
        {
            "model.embedding_dim": 4,
            "model.hidden_dim": 4,
            "model.num_layers": 1,
            # It compiles fastest.
            "model.cell": "rnn",
            "model.dropout": 0.3,
            "data.directory": str(data),
            "data.batch_size": 4,
            "optimizer.name": "adam",
            "optimizer.learning_rate": 0.05,
            "optimizer.average_decay": 0.5,
            "training.max_steps": 12,
            "training.evaluate_every": 5,
            "training.checkpoint_every": 4,
            "training.log_every": 1,
            **values,
        }
    )
    return config


@contextlib.contextmanager
def after_step(number: int, action: Callable[[loop._Run], None]) -> Iterator[None]:
    """Runs within the block meet the action once the metrics of a step were read."""
    add = loop._Run.add

    def add_then_act(run, step, metrics):
        add(run, step, metrics)
        if step == number:
            action(run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop._Run, "add", add_then_act)
        yield


def terminate(run: loop._Run) -> None:
    del run
    os.kill(os.getpid(), signal.SIGTERM)


def train_with_a_crash(values: ConfigDict, workdir: Path, step: int) -> None:
    """An exception after a step stands for a kill."""

    def crash(run: loop._Run) -> None:
        raise RuntimeError("killed")

    with after_step(step, crash), pytest.raises(RuntimeError, match="killed"):
        loop.train(values, workdir)


def latest_state(workdir: Path, step: int):
    """Every array of a checkpoint for resuming, read without the code under test."""
    with ocp.StandardCheckpointer() as reader:
        return reader.restore((workdir / "checkpoints" / "latest" / str(step) / "state").resolve())


def assert_same_bits(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    jax.tree.map(np.testing.assert_array_equal, first, second)


def read_metrics(workdir: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics, read without the code under test."""
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def read_result(workdir: Path) -> TrainingResult | None:
    """The result of a finished run; None if the run has not finished."""
    path = workdir / "result.json"
    return files.read_json(path, TrainingResult, exact=True) if path.exists() else None


def write_result(workdir: Path, result: TrainingResult) -> None:
    (workdir / "result.json").write_text(json.dumps(dataclasses.asdict(result)))


def comparable(workdir: Path) -> list[dict]:
    """The metrics without the clock."""
    lines = read_metrics(workdir)
    return [
        {k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")}
        for line in lines
    ]


def save_run(workdir: Path, name: str, words: str | Vocabulary, **options: Any) -> Path:
    """Makes a workdir with a checkpoint for use, of step 3 and random parameters, its other files
    written without the code under test. `words` is a vocabulary, or its words."""
    if isinstance(words, str):
        spelled = (*SPECIAL_TOKENS, *words.split())
        vocabulary = Vocabulary(spelled, (0,) * len(spelled))
    else:
        vocabulary = words
    config = default_config(name).to_dict()
    config["model"].update(options)
    config["data"]["directory"] = "data"
    workdir.mkdir()
    vocabulary.save(workdir / "vocabulary.tsv")
    for file, value in (("config", config), ("corpus", {}), ("text", {})):
        (workdir / f"{file}.json").write_text(json.dumps(value))
    model = models.create(
        vocab_size=len(vocabulary), first_word_end=vocabulary.first_word_end, **config["model"]
    )
    info = {"step": 3, "perplexity": 2.0, "vocabulary": vocabulary.fingerprint}
    with contextlib.closing(Checkpoints(workdir / "checkpoints", "best")) as checkpoints:
        checkpoints.save(3, model.init(jax.random.key(0)), info)
    return workdir


def save_checkpoints(workdir: Path) -> Path:
    """Makes a workdir with a checkpoint for use and one for resuming."""
    save_run(workdir, "ccdclm", "a b", embedding_dim=2, hidden_dim=2, num_layers=1)
    with contextlib.closing(Checkpoints(workdir / "checkpoints", "latest")) as checkpoints:
        checkpoints.save(3, state_of(read_config(workdir)), {"tokens": 9})
    return workdir


def state_of(config: dict[str, Any]) -> TrainState:
    model = models.create(vocab_size=5, **config["model"])
    state = first_state(model.init(jax.random.key(0)), create_optimizer(OptimizerConfig(), 9))
    return dataclasses.replace(state, step=jax.numpy.int32(3))


def use(workdir: Path) -> int:
    """The step of the best model."""
    return dclm_jax.restore(workdir).facts.step or 0


def resume(workdir: Path) -> int:
    """The step that training goes on from."""
    with contextlib.closing(Checkpoints(workdir / "checkpoints", "latest")) as checkpoints:
        state = checkpoints.restore(state_of(read_config(workdir)))
    assert state is not None and state[2] == {"tokens": 9}
    return int(state[1].step)
