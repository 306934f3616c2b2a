"""Scores of runs that an earlier state of the project has trained, compared with today's.

    python tests/kept_scores.py make FOLDER
    python tests/kept_scores.py compare FOLDER

The first command, in the earlier state, trains every model for some steps; the second, in the later
one, restores the runs and scores again. What changes how models are computed must leave every score
as it is, but for the rounding of sums, and must read the checkpoints of before. Both use the public
interface alone.
"""

import json
import pathlib
import sys

import numpy as np

import dclm_jax
from dclm_jax import models
from dclm_jax.data.prepare import prepare
from dclm_jax.training.config import default_config
from dclm_jax.training.loop import train

TOLERANCE = 2e-5
"""Nats by which the score of a token may differ."""


def _documents(seed: int, count: int) -> list[list[str]]:
    """Documents of 1 to 9 sentences of 1 to 30 words, of which few are frequent."""
    rng = np.random.default_rng(seed)

    def sentence() -> str:
        return " ".join(f"w{word}" for word in rng.zipf(1.3, rng.integers(1, 31)) % 400)

    return [[sentence() for _ in range(rng.integers(1, 10))] for _ in range(count)]


def _scores(run: pathlib.Path) -> list[list[list[float]]]:
    lm = dclm_jax.restore(run, batch_size=4)
    return [
        [sentence.log_probs for sentence in document.sentences]
        for document in lm.score(_documents(2, 12))
    ]


def make(folder: pathlib.Path) -> None:
    """Trains a few steps of every model and keeps what they say of other documents."""
    folder.mkdir(parents=True)
    for split, seed, count in (("train", 0, 200), ("valid", 1, 10)):
        text = "\n\n".join("\n".join(document) for document in _documents(seed, count))
        (folder / f"{split}.txt").write_text(text + "\n")
    sources = {split: folder / f"{split}.txt" for split in ("train", "valid")}
    prepare(sources, folder / "data", vocab_size=300)
    for name in models.MODELS:
        config = default_config(name)
        # Words of Lin et al.'s models enter the hidden layer as they are.
        width = 16 if "hash_size" in config.to_dict()["model"] else 12
        length = 0 if models.MODELS[name].reads_source else 5
        config.update(
            model={"embedding_dim": width, "hidden_dim": 16, "num_layers": 2, "dropout": 0.1},
            data={"directory": str(folder / "data"), "segment_length": length},
            training={"max_steps": 12},
        )
        train(config, folder / "runs" / name, report=lambda line: None)
        scores = _scores(folder / "runs" / name)
        (folder / f"{name}.json").write_text(json.dumps(scores))
        print(name, flush=True)


def compare(folder: pathlib.Path) -> int:
    """Prints the largest difference of a token's score for every model; 1 if one is too large."""
    failed = 0
    for kept in sorted(folder.glob("*.json")):
        before, now = json.loads(kept.read_text()), _scores(folder / "runs" / kept.stem)
        difference = max(
            float(np.max(np.abs(np.subtract(one, other))))
            for pair in zip(before, now, strict=True)
            for one, other in zip(*pair, strict=True)
        )
        failed |= not difference <= TOLERANCE
        print(f"{kept.stem:20} {difference:.1e} nats{'' if difference <= TOLERANCE else '  WRONG'}")
    return failed


if __name__ == "__main__":
    command, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    sys.exit({"make": make, "compare": compare}[command](directory))
