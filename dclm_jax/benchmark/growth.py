"""Time and memory from a text to the last batch of an epoch, measured in a separate process."""

import pathlib
import tempfile
import time
from typing import NamedTuple

import numpy as np

from dclm_jax import files
from dclm_jax.benchmark.worker import AnonymousPeak, peak_memory
from dclm_jax.benchmark.workloads import sentence_lengths
from dclm_jax.data.batches import TrainingBatches
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.prepare import PrepareOptions, prepare

VOCAB_SIZE = 10_000
SENTENCES, BATCH_SIZE, SEGMENT_LENGTH = 20, 16, 5


class Cost(NamedTuple):
    """Seconds without the start of Python; peak bytes of the process; peak bytes that the process
    has written, without the pages of mapped files; number of targets."""

    seconds: float
    memory: int
    anonymous: int
    tokens: int


class FromText:
    """`prepare` and one epoch of batches."""

    def __init__(self, text: pathlib.Path):
        self._text = text

    def cost(self) -> Cost:
        with tempfile.TemporaryDirectory() as folder, AnonymousPeak() as peak:
            start = time.perf_counter()
            directory = pathlib.Path(folder, "corpus")
            prepare({"train": self._text}, directory, options=PrepareOptions(vocab_size=VOCAB_SIZE))
            batches = TrainingBatches(
                open_corpus(directory, "train"),
                segment_length=SEGMENT_LENGTH,
                batch_size=BATCH_SIZE,
                seed=0,
            )
            steps = range(batches.steps_per_epoch)
            tokens = sum(int(batches(step).mask_BxSxN.sum()) for step in steps)
            seconds = time.perf_counter() - start
        return Cost(seconds, peak_memory(), peak.bytes, tokens)


def write_text(path: pathlib.Path, num_documents: int, seed: int) -> pathlib.Path:
    """Writes documents of 20 sentences, one sentence per line, and returns the path."""
    rng = np.random.default_rng(seed)
    words = np.array([f"w{index}" for index in range(VOCAB_SIZE)], object)
    with files.open_output(path) as file:
        for _ in range(num_documents):
            for length in sentence_lengths(rng, SENTENCES):
                file.write(" ".join(words[rng.integers(VOCAB_SIZE, size=length)]) + "\n")
            file.write("\n")
    return path


def create(text: pathlib.Path) -> FromText:
    return FromText(text)
