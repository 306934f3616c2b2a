"""Benchmarks against peers: other implementations do the same training or scoring."""

import contextlib
import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax

from dclm_jax.benchmark import ours, workloads
from dclm_jax.benchmark.report import Goal, Row
from dclm_jax.benchmark.timing import Rounds, alternate, require_same_loss
from dclm_jax.benchmark.worker import Job, Worker
from dclm_jax.benchmark.workloads import MATRIX_PRODUCT, OURS, Setting
from dclm_jax.models.base import DocumentModel

INSTALL = "pip install -e '.[benchmark]'"
FLOPS = " of peak"
"""Unit of goals on useful FLOPs. Other training goals are speeds relative to the faster peer."""


class Peer(NamedTuple):
    """Another implementation.

    Attributes:
      name: name in the table.
      library: package that the peer needs.
      module: module of this package that creates the peer.
      options: options of the module.
      tuned: whether the peer's process keeps freed memory, as our commands do. Goals refer to the
        library as installed (False).
    """

    name: str
    library: str
    module: str
    options: Mapping[str, Any]
    tuned: bool = False

    def start(self, job: Job) -> Worker:
        job = job._replace(options=self.options)
        return Worker(self.name, self.module, job, keep_memory=self.tuned)

    def with_our_allocator(self) -> "Peer":
        return self._replace(name=f"{self.name}, our allocator", tuned=True)


_TORCH, _DYNET = "dclm_jax.benchmark.torch_peer", "dclm_jax.benchmark.dynet_peer"
_AS_INSTALLED = (
    Peer("PyTorch eager", "torch", _TORCH, {"compile": False}),
    Peer("PyTorch compile", "torch", _TORCH, {"compile": True}),
)
PYTORCH = (*_AS_INSTALLED, *(peer.with_our_allocator() for peer in _AS_INSTALLED))
DYNET_AUTOBATCH = Peer("DyNet autobatch", "dynet", _DYNET, {"autobatch": True, "by_word": False})
DYNET_ONLINE = Peer("DyNet online", "dynet", _DYNET, {"autobatch": False, "by_word": False})
DYNET_BY_WORD = DYNET_ONLINE._replace(
    name="DyNet online, by word", options={"autobatch": False, "by_word": True}
)


def missing_libraries(peers: tuple[Peer, ...]) -> list[str]:
    """The names of the peers' libraries that are not installed."""
    libraries = sorted({peer.library for peer in peers})
    return [library for library in libraries if importlib.util.find_spec(library) is None]


def how_to_install(library: str) -> str:
    return f"{library} is not installed; install it with: {INSTALL}"


@dataclasses.dataclass(frozen=True)
class Training:
    """A benchmark of training: a turn has `num_batches` consecutive full batches of `batch_size`
    segments. If the model reads a source, each segment is its own source.

    Attributes:
      goal: smallest acceptable value and aim; None if the benchmark only reports numbers.
      hidden_dim: K and H; 0 for the K and H of the setting.
      precision: precision of our products: default, highest or bfloat16 (`compute_dtype`).
    """

    model: str
    batch_size: int
    peers: tuple[Peer, ...]
    goal: Goal | None
    cell: str = "lstm"
    num_batches: int = 4
    hidden_dim: int = 0
    precision: str = "default"

    def __call__(self, name: str, setting: Setting) -> list[Row]:
        segments = "1 segment" if self.batch_size == 1 else f"{self.batch_size} segments"
        work = f"train {self.model}, {self.cell}, {segments} per step"
        if self.hidden_dim:
            work += f", H = {self.hidden_dim}, {self.precision} precision"
        missing = missing_libraries(self.peers)
        if missing and self.goal is not None and self.goal.unit != FLOPS:
            return [Row(name, work, self.goal, note=how_to_install(missing[0]))]
        peers = () if missing else self.peers
        return [self._measure(name, work, peers, setting)]

    def _model(self, setting: Setting) -> DocumentModel:
        dim = self.hidden_dim or setting.size.hidden_dim
        size = dataclasses.replace(setting.size, embedding_dim=dim, hidden_dim=dim)
        model = size.model(self.model, self.cell)
        if self.precision == "bfloat16":
            return dataclasses.replace(model, compute_dtype=self.precision)
        return dataclasses.replace(model, matmul_precision=self.precision)

    def _measure(self, name: str, work: str, peers: tuple[Peer, ...], setting: Setting) -> Row:
        model = self._model(setting)
        batches = setting.training_batches(self.batch_size, self.num_batches)
        documents = [workloads.documents_of(batch) for batch in batches]
        if model.reads_source:
            batches = [dataclasses.replace(batch, source=batch) for batch in batches]
        contender = ours.Training(model, batches, setting.seed)
        first = contender.turn()
        job = Job(
            "train", model.name, contender.params, documents, setting.accelerated, self.precision
        )
        rounds, facts = _compete(contender, first.nll, peers, job, setting)
        seconds = rounds.seconds
        tokens = sum(map(workloads.count_targets, documents))
        flops = sum(workloads.useful_flops(model, batch) for batch in documents)
        matrix_rate = ours.MatrixProduct.flops / seconds.pop(MATRIX_PRODUCT)
        fraction = flops / seconds[OURS] / matrix_rate
        compile_seconds = first.seconds - seconds[OURS]
        details = {
            **_speeds(seconds, tokens),
            **facts,
            "memory_bytes": {OURS: contender.temporary_memory(), **facts["memory_bytes"]},
            "useful_flops_fraction": fraction,
            "matrix_product_flops_per_second": matrix_rate,
            "compile_seconds": compile_seconds,
            "tokens_per_step": tokens / len(batches),
        }
        lines = (
            *_speed_lines(seconds, tokens, details),
            f"useful FLOP/s: {fraction:.2f} of the FLOP/s of a 2048^3 matrix product "
            f"({matrix_rate / 1e9:,.0f} GFLOP/s); compilation: {compile_seconds:.1f} s",
        )
        measured = None
        if self.goal is not None:
            measured = fraction if self.goal.unit == FLOPS else ratio(seconds, peers)
        note = "memory: ours: temporary memory of the compiled step; peers: growth of the process"
        if missing := missing_libraries(self.peers):
            note = how_to_install(missing[0])
        return Row(name, work, self.goal, measured, note, details, lines, rounds.disturbed)


def _compete(
    contender: ours.Training | ours.Scoring,
    nll: float,
    peers: tuple[Peer, ...],
    job: Job,
    setting: Setting,
) -> tuple[Rounds, dict[str, Any]]:
    """The rounds of all contenders, after a warm-up, and the peers' memory and devices.

    Raises:
      PeerError: a peer failed, or its loss differs from our `nll`.
    """
    with contextlib.ExitStack() as stack:
        running = [peer for peer in peers if setting.tuned_peers or not peer.tuned]
        workers = {peer.name: stack.enter_context(peer.start(job)) for peer in running}
        for peer, worker in workers.items():
            require_same_loss(peer, job.model, nll, worker.call("turn").nll, job.precision)
            # PyTorch may compile again for new shapes; the second turn completes compilation.
            worker.call("turn")
        product = ours.MatrixProduct()
        product.turn()
        turns: dict[str, Callable[[], float]] = {
            OURS: lambda: contender.turn().seconds,
            **{peer: partial(_seconds, worker) for peer, worker in workers.items()},
            MATRIX_PRODUCT: product.turn,
        }
        result = alternate(
            {name: partial(_second, turn) for name, turn in turns.items()}, setting.rounds
        )
        facts: dict[str, Any] = {
            f"{fact}{unit}": {peer: worker.call(fact) for peer, worker in workers.items()}
            for fact, unit in (("memory", "_bytes"), ("device", ""))
        }
        return result, {**facts, "contention": result.contention}


def _seconds(worker: Worker) -> float:
    return worker.call("turn").seconds


def _second(turn: Callable[[], float]) -> float:
    """The seconds of a contender's second turn. The first turn refills the processor's caches,
    which other contenders used before."""
    turn()
    return turn()


def ratio(seconds: dict[str, float], peers: tuple[Peer, ...]) -> float:
    """Our speed relative to the faster peer as installed."""
    return min(seconds[peer.name] for peer in peers if not peer.tuned) / seconds[OURS]


def _speeds(seconds: dict[str, float], tokens: int) -> dict[str, Any]:
    return {
        "tokens_per_second": {name: tokens / value for name, value in seconds.items()},
        "ratios": {name: value / seconds[OURS] for name, value in seconds.items() if name != OURS},
    }


def _speed_lines(seconds: dict[str, float], tokens: int, facts: dict[str, Any]) -> list[str]:
    lines = [f"{OURS:<30} {tokens / seconds[OURS]:>10,.0f} targets/s"]
    if OURS in facts["memory_bytes"]:
        lines[0] += f" {facts['memory_bytes'][OURS] / 2**20:>8,.0f} MiB"
    for peer, device in facts["device"].items():
        lines.append(
            f"{peer:<30} {tokens / seconds[peer]:>10,.0f} targets/s "
            f"{facts['memory_bytes'][peer] / 2**20:>8,.0f} MiB   on {device}; "
            f"ours is {seconds[peer] / seconds[OURS]:.2f} times as fast"
        )
    return lines


SCORED_BATCHES = 4


def score_row(name: str, setting: Setting) -> list[Row]:
    """A benchmark of scoring: batches of 16 documents of 10 sentences, without gradients."""
    goal, work = Goal(2.0, 3.0), "score ccdclm, lstm, 16 documents of 10 sentences"
    missing = missing_libraries(PYTORCH)
    if missing:
        return [Row(name, work, goal, note=how_to_install(missing[0]))]
    size = setting.size
    model = size.model("ccdclm")
    batches = [
        workloads.synthetic_documents(setting.seed + index, size.vocab_size, [10] * 16)
        for index in range(SCORED_BATCHES)
    ]
    params = jax.device_get(model.init(jax.random.key(setting.seed)))
    contender = ours.Scoring(model, params, batches)
    job = Job("score", model.name, params, batches, setting.accelerated)
    rounds, facts = _compete(contender, contender.turn().nll, PYTORCH, job, setting)
    seconds = rounds.seconds
    seconds.pop(MATRIX_PRODUCT)
    tokens = sum(map(workloads.count_targets, batches))
    details = {**_speeds(seconds, tokens), **facts}
    lines = tuple(_speed_lines(seconds, tokens, facts))
    note = "ours: block_nll"
    return [Row(name, work, goal, ratio(seconds, PYTORCH), note, details, lines, rounds.disturbed)]
