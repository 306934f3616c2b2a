"""One benchmark: our speed and the speed of PyTorch on equal work, in alternating turns."""

import contextlib
import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax

from dclm_jax import models
from dclm_jax.data.vocabulary import FIRST_WORD
from dclm_jax.models.base import DocumentModel

from . import ours, workloads
from .timing import alternate, require_same_loss
from .worker import PeerJob, Worker

INSTALL = "pip install -e '.[benchmark]'"
OURS = "ours"
WITH_PEER = ("rnnlm", "ccdclm", "codclm", "adclm")
"""The models that `torch_peer` has."""


class Peer(NamedTuple):
    """Another implementation.

    Attributes:
      name: name in the output.
      module: module that creates the peer.
      options: options of the module.
      keeps_memory: whether the peer's process keeps freed memory, as our commands do.
    """

    name: str
    module: str
    options: Mapping[str, Any]
    keeps_memory: bool = False


_TORCH = f"{__package__}.torch_peer"
PYTORCH = tuple(
    Peer(f"PyTorch {kind}{suffix}", _TORCH, {"compile": kind == "compile"}, keeps_memory)
    for suffix, keeps_memory in (("", False), (", our allocator", True))
    for kind in ("eager", "compile")
)


def peers() -> tuple[Peer, ...]:
    """The peers that are installed."""
    return PYTORCH if importlib.util.find_spec("torch") else ()


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of a benchmark: `num_batches` training steps with batches of `batch_size` segments,
    or scoring of `num_batches` batches of `batch_size` documents.

    Attributes:
      hidden_dim: K and H.
      precision: precision of our products: default, highest or bfloat16 (`compute_dtype`).
      scores: whether documents are scored.
      subwords: whether words have one or two pieces, of a vocabulary of equal size; PyTorch has no
        peer of it.
    """

    model: str
    batch_size: int
    num_batches: int = 4
    hidden_dim: int = 128
    precision: str = "default"
    scores: bool = False
    subwords: bool = False

    def __str__(self) -> str:
        kind, unit = ("score", "documents") if self.scores else ("train", "segments")
        precision = f"{self.precision} precision"
        pieces = ", subwords" * self.subwords
        size = f"{self.batch_size} {unit}, H = {self.hidden_dim}"
        return f"{kind} {self.model}, {size}, {precision}{pieces}"

    def first_word_end(self, vocab_size: int) -> int:
        """The first id that ends a word; with pieces, half of the ids do."""
        return vocab_size // 2 if self.subwords else FIRST_WORD

    def create_model(self, vocab_size: int) -> DocumentModel:
        rounds = self.precision == "bfloat16"
        return models.create(
            self.model,
            vocab_size=vocab_size,
            first_word_end=self.first_word_end(vocab_size),
            embedding_dim=self.hidden_dim,
            hidden_dim=self.hidden_dim,
            cell="lstm",
            compute_dtype="bfloat16" if rounds else "float32",
            matmul_precision="default" if rounds else self.precision,
        )


class Result(NamedTuple):
    """The speed of each contender in targets per second, memory in bytes and device by
    contender."""

    targets_per_second: dict[str, float]
    memory: dict[str, int]
    device: dict[str, str]

    @property
    def ratios(self) -> dict[str, float]:
        """Our speed relative to each peer."""
        speeds = self.targets_per_second
        return {name: speeds[OURS] / speed for name, speed in speeds.items() if name != OURS}

    def lines(self) -> list[str]:
        """The result as text."""
        lines = []
        for name, speed in self.targets_per_second.items():
            memory = f"{self.memory[name] / 2**20:,.0f} MiB" if name in self.memory else ""
            ratio = self.ratios.get(name)
            more = f"  ours is {ratio:.2f} times as fast" if ratio else ""
            lines.append(f"{name:<31}{speed:>12,.0f} targets/s {memory:>11}{more}")
        return lines

    def to_json(self) -> dict[str, Any]:
        return {
            "targets_per_second": self.targets_per_second,
            "ratios": self.ratios,
            "memory_bytes": self.memory,
            "device": self.device,
        }


def compete(work: Work, rounds: int, seed: int, vocab_size: int = workloads.VOCAB_SIZE) -> Result:
    """Runs a benchmark; without PyTorch or its model it measures our speed only.

    Raises:
      PeerError: a peer failed, or computes another loss.
    """
    model, first_word_end = work.create_model(vocab_size), work.first_word_end(vocab_size)
    if work.scores:
        sentences = [10] * work.batch_size
        documents = [
            workloads.synthetic_documents(seed + index, vocab_size, sentences, first_word_end)
            for index in range(work.num_batches)
        ]
        contender = ours.Scoring(model, documents, seed)
    else:
        batches = workloads.training_batches(
            work.batch_size, work.num_batches, seed, vocab_size, first_word_end
        )
        documents = [workloads.unpacked(batch) for batch in batches]
        contender = ours.Training(model, batches, seed)
    job = PeerJob(
        scores=work.scores,
        model=work.model,
        params=contender.params,
        batches=documents,
        accelerated=jax.default_backend() != "cpu",
        precision=work.precision,
    )
    nll = contender.turn().nll
    competitors = peers() if work.model in WITH_PEER and not work.subwords else ()
    with contextlib.ExitStack() as stack:
        workers = {
            peer.name: stack.enter_context(
                Worker(
                    peer.name,
                    peer.module,
                    job._replace(options=peer.options),
                    keep_memory=peer.keeps_memory,
                )
            )
            for peer in competitors
        }
        for peer, worker in workers.items():
            require_same_loss(peer, work.model, nll, worker.call("turn").nll, work.precision)
            # PyTorch may compile again for new shapes; the second turn completes compilation.
            worker.call("turn")
        turns = {
            OURS: lambda: contender.turn().seconds,
            **{peer: partial(_seconds, worker) for peer, worker in workers.items()},
        }
        seconds = alternate({name: partial(_second, turn) for name, turn in turns.items()}, rounds)
        memory = {peer: worker.call("memory") for peer, worker in workers.items()}
        device = {peer: worker.call("device") for peer, worker in workers.items()}
    targets = sum(workloads.num_targets(batch, first_word_end) for batch in documents)
    speeds = {name: targets / median for name, median in seconds.items()}
    return Result(speeds, {OURS: contender.memory(), **memory}, device)


def _seconds(worker: Worker) -> float:
    return worker.call("turn").seconds


def _second(turn: Callable[[], float]) -> float:
    """The seconds of a contender's second turn. The first turn refills the processor's caches,
    which other contenders used before."""
    turn()
    return turn()
