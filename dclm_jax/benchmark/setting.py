"""What all rows of a benchmark share."""

import dataclasses
import pathlib

import jax

from dclm_jax.benchmark import workloads
from dclm_jax.benchmark.workloads import Size
from dclm_jax.data.batches import Batch

OURS, MATRIX_PRODUCT = "ours", "matrix product"


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all rows of a run share; `directory` is a temporary one. With `tuned_peers`, peers run a
    second time with the allocator of our launchers."""

    directory: pathlib.Path
    size: Size = Size()
    rounds: int = 5
    seed: int = 0
    tuned_peers: bool = True

    @property
    def accelerated(self) -> bool:
        return jax.default_backend() != "cpu"

    def training_batches(self, batch_size: int, count: int) -> list[Batch]:
        """Consecutive full batches of synthetic documents."""
        corpus = workloads.synthetic_corpus(
            self.seed, self.size.vocab_size, self.size.num_documents, self.directory
        )
        return workloads.training_batches(
            corpus, self.size.segment_length, batch_size, count, self.seed
        )
