"""What is measured, against whom, and what is aimed at."""

import contextlib
import dataclasses
import importlib.util
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dclm_jax.benchmark import growth, memory, ours, report, workloads
from dclm_jax.benchmark.report import Goal, Row
from dclm_jax.benchmark.timing import Rounds, alternate, require_same_loss, stopwatch
from dclm_jax.benchmark.worker import Job, Worker
from dclm_jax.benchmark.workloads import Size
from dclm_jax.data.batches import Batch, TrainingBatches
from dclm_jax.evaluation import coherence
from dclm_jax.evaluation.scoring import Scorer

OURS, MATRIX_PRODUCT = "ours", "matrix product"
INSTALL = "pip install -e '.[benchmark]'"
FLOPS = " of peak"
"""Unit of a goal on useful FLOPs; other goals of training are ratios to the better peer."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all rows of a run share; `directory` is a temporary one."""

    directory: pathlib.Path
    size: Size = Size()
    rounds: int = 5
    seed: int = 0

    @property
    def accelerated(self) -> bool:
        return jax.default_backend() != "cpu"


class Peer(NamedTuple):
    """Another implementation: its name, the library it needs, its module here and options."""

    name: str
    library: str
    module: str
    options: Mapping[str, Any]

    def start(self, job: Job) -> Worker:
        return Worker(self.name, self.module, job._replace(options=self.options))


_TORCH, _DYNET = "dclm_jax.benchmark.torch_peer", "dclm_jax.benchmark.dynet_peer"
PYTORCH = (
    Peer("PyTorch eager", "torch", _TORCH, {"compile": False}),
    Peer("PyTorch compile", "torch", _TORCH, {"compile": True}),
)
DYNET_AUTOBATCH = Peer("DyNet autobatch", "dynet", _DYNET, {"autobatch": True})
DYNET_ONLINE = Peer("DyNet online", "dynet", _DYNET, {"autobatch": False})


def missing_libraries(peers: tuple[Peer, ...]) -> list[str]:
    """Libraries of the peers that are not installed."""
    libraries = sorted({peer.library for peer in peers})
    return [library for library in libraries if importlib.util.find_spec(library) is None]


def how_to_install(library: str) -> str:
    return f"{library} is not installed; install it with: {INSTALL}"


@dataclasses.dataclass(frozen=True)
class Training:
    """A training row: some consecutive full batches of `batch_size` segments, again and again."""

    model: str
    batch_size: int
    peers: tuple[Peer, ...]
    goal: Goal
    cell: str = "lstm"
    num_batches: int = 4

    def __call__(self, name: str, setting: Setting) -> list[Row]:
        segments = "1 segment" if self.batch_size == 1 else f"{self.batch_size} segments"
        work = f"train {self.model}, {self.cell}, {segments} a step"
        missing = missing_libraries(self.peers)
        if missing and self.goal.unit != FLOPS:
            return [Row(name, work, self.goal, note=how_to_install(missing[0]))]
        peers = () if missing else self.peers
        return [self._measure(name, work, peers, setting)]

    def _measure(self, name: str, work: str, peers: tuple[Peer, ...], setting: Setting) -> Row:
        model = setting.size.model(self.model, self.cell)
        batches = _training_batches(setting, self.batch_size, self.num_batches)
        documents = [workloads.documents_of(batch) for batch in batches]
        own = ours.Training(model, batches, setting.seed)
        first = own.turn()
        job = Job("train", model.name, own.params, documents, setting.accelerated)
        rounds, facts = _compete(own, first.nll, peers, job, setting.rounds)
        seconds = rounds.seconds
        tokens = sum(map(workloads.count_targets, documents))
        flops = sum(workloads.useful_flops(model, batch) for batch in documents)
        matrix_rate = ours.MatrixProduct.flops / seconds.pop(MATRIX_PRODUCT)
        fraction = flops / seconds[OURS] / matrix_rate
        compile_seconds = first.seconds - seconds[OURS]
        details = {
            **_speeds(seconds, tokens),
            **facts,
            "memory_bytes": {OURS: own.temporary_memory(), **facts["memory_bytes"]},
            "useful_flops_fraction": fraction,
            "matrix_product_flops_per_second": matrix_rate,
            "compile_seconds": compile_seconds,
            "tokens_per_step": tokens / len(batches),
        }
        lines = (
            *_speed_lines(seconds, tokens, details),
            f"useful FLOPs: {fraction:.2f} of a 2048^3 product ({matrix_rate / 1e9:,.0f} GFLOP/s); "
            f"compiled in {compile_seconds:.1f} s",
        )
        measured = fraction if self.goal.unit == FLOPS else _ratio(seconds)
        note = "memory: ours temporary, of the compiled step; peers' the growth of their process"
        return Row(name, work, self.goal, measured, note, details, lines, rounds.disturbed)


def _training_batches(setting: Setting, batch_size: int, count: int) -> list[Batch]:
    size, seed = setting.size, setting.seed
    corpus = workloads.synthetic_corpus(
        seed, size.vocab_size, size.num_documents, setting.directory
    )
    return workloads.training_batches(corpus, size.segment_length, batch_size, count, seed)


def _compete(
    own: ours.Training | ours.Scoring, nll: float, peers: tuple[Peer, ...], job: Job, rounds: int
) -> tuple[Rounds, dict[str, Any]]:
    """Rounds of all, once they have our `nll` and are warm, and facts on them.

    Raises:
      PeerError: a peer failed or has another loss.
    """
    with contextlib.ExitStack() as stack:
        workers = {peer.name: stack.enter_context(peer.start(job)) for peer in peers}
        for peer, worker in workers.items():
            require_same_loss(peer, job.model, nll, worker.call("turn").nll)
            # What is compiled for shapes that change settles in the second turn.
            worker.call("turn")
        product = ours.MatrixProduct()
        product.turn()
        turns = {peer: partial(_seconds, worker) for peer, worker in workers.items()}
        result = alternate(
            {OURS: lambda: own.turn().seconds, **turns, MATRIX_PRODUCT: product.turn}, rounds
        )
        facts: dict[str, Any] = {
            f"{fact}{unit}": {peer: worker.call(fact) for peer, worker in workers.items()}
            for fact, unit in (("memory", "_bytes"), ("device", ""))
        }
        return result, {**facts, "contention": result.contention}


def _seconds(worker: Worker) -> float:
    return worker.call("turn").seconds


def _ratio(seconds: dict[str, float]) -> float:
    """How many times as fast as the better peer we are."""
    return min(value for name, value in seconds.items() if name != OURS) / seconds[OURS]


def _speeds(seconds: dict[str, float], tokens: int) -> dict[str, Any]:
    return {
        "tokens_per_second": {name: tokens / value for name, value in seconds.items()},
        "ratios": {name: value / seconds[OURS] for name, value in seconds.items() if name != OURS},
    }


def _speed_lines(seconds: dict[str, float], tokens: int, facts: dict[str, Any]) -> list[str]:
    lines = [f"{OURS:<16} {tokens / seconds[OURS]:>10,.0f} tokens/s"]
    if OURS in facts["memory_bytes"]:
        lines[0] += f" {facts['memory_bytes'][OURS] / 2**20:>8,.0f} MiB"
    for peer, device in facts["device"].items():
        lines.append(
            f"{peer:<16} {tokens / seconds[peer]:>10,.0f} tokens/s "
            f"{facts['memory_bytes'][peer] / 2**20:>8,.0f} MiB   on {device}; "
            f"ours is {seconds[peer] / seconds[OURS]:.2f} times as fast"
        )
    return lines


SCORED_BATCHES = 4


def score_row(name: str, setting: Setting) -> list[Row]:
    """16 documents of 10 sentences, without gradients."""
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
    own = ours.Scoring(model, params, batches)
    job = Job("score", model.name, params, batches, setting.accelerated)
    rounds, facts = _compete(own, own.turn().nll, PYTORCH, job, setting.rounds)
    seconds = rounds.seconds
    seconds.pop(MATRIX_PRODUCT)
    tokens = sum(map(workloads.count_targets, batches))
    details = {**_speeds(seconds, tokens), **facts}
    lines = tuple(_speed_lines(seconds, tokens, facts))
    note = "ours: block_nll"
    return [Row(name, work, goal, _ratio(seconds), note, details, lines, rounds.disturbed)]


TEST_SETS, SAMPLE = 1_000, 64


def bootstrap_row(name: str, setting: Setting) -> list[Row]:
    """The bootstrap against scoring every one of its permutations as a whole document."""
    size = setting.size
    model = size.model("codclm")
    documents = workloads.synthetic_documents(setting.seed, size.vocab_size, [15, 17, 18, 20])
    params = model.init(jax.random.key(setting.seed))
    scorer = Scorer(model, params)
    rng = np.random.default_rng(setting.seed)
    sample = [
        [document[sentence] for sentence in rng.permutation(len(document))]
        for document in documents
        for _ in range(SAMPLE // len(documents))
    ]

    def bootstrap() -> None:
        coherence.bootstrap(scorer, documents, replicates=TEST_SETS, seed=setting.seed)

    def plain() -> None:
        for _ in scorer.score(iter(sample)):
            pass

    bootstrap()
    plain()
    rounds = alternate(
        {"bootstrap": partial(stopwatch, bootstrap), "plain": partial(stopwatch, plain)},
        setting.rounds,
    )
    seconds = rounds.seconds
    pairs = TEST_SETS * len(documents)
    extrapolated = seconds["plain"] * pairs / len(sample)
    return [
        Row(
            name,
            f"bootstrap coherence of codclm, {TEST_SETS:,} test sets of {len(documents)} documents",
            Goal(20, 40),
            extrapolated / seconds["bootstrap"],
            f"{pairs:,} permutations scored plainly: extrapolated from {len(sample)} of them, in "
            f"full batches by the same Scorer ({seconds['plain']:.2f} s)",
            {"bootstrap_seconds": seconds["bootstrap"], "plain_seconds": extrapolated},
            (f"bootstrap {seconds['bootstrap']:.2f} s, plain {extrapolated:.1f} s",),
            rounds.disturbed,
        )
    ]


INPUT_DOCUMENTS = 4_000


def input_row(batch_size: int, name: str, setting: Setting) -> list[Row]:
    """An epoch of TrainingBatches, shuffling included, in this thread."""
    corpus = workloads.synthetic_corpus(
        setting.seed, setting.size.vocab_size, INPUT_DOCUMENTS, setting.directory
    )

    def epoch() -> None:
        batches = TrainingBatches(
            corpus,
            segment_length=setting.size.segment_length,
            batch_size=batch_size,
            seed=setting.seed,
        )
        for step in range(batches.steps_per_epoch):
            batches(step)

    epoch()
    seconds = statistics.median(stopwatch(epoch) for _ in range(setting.rounds))
    tokens = corpus.num_tokens + corpus.num_sentences
    work = f"input pipeline, batches of {batch_size} segments, one core"
    return [Row(name, work, Goal(2e6, 5e6, " tok/s"), tokens / seconds)]


LARGE = Size(vocab_size=120_000, embedding_dim=256, hidden_dim=256)
LARGE_BATCH = (16, 5, 64)
"""The largest batch of the training rows, which decides how much memory training needs."""


def output_memory_row(name: str, setting: Setting) -> list[Row]:
    """Temporary memory of the step at a large vocabulary; compiled, never run."""
    del setting
    model = LARGE.model("ccdclm")
    own = memory.step_memory(model, LARGE_BATCH)
    plain = memory.plain_step_memory(model, LARGE_BATCH)
    return [
        Row(
            name,
            "temporary memory of a ccdclm step, V = 120,000, H = 256, 16 segments of 5 x 64",
            Goal(1 / 8, 1 / 16, " of plain", at_most=True),
            own / plain,
            "plain: one softmax over all positions",
            {"memory_bytes": {OURS: own, "plain softmax": plain}},
            (f"ours {own / 2**20:,.0f} MiB, plain softmax {plain / 2**20:,.0f} MiB",),
        )
    ]


GROWTH_DOCUMENTS = 2_000


def growth_rows(name: str, setting: Setting) -> list[Row]:
    """`prepare` and an epoch of batches, from a text and from one ten times as long."""
    costs: dict[str, list[growth.Cost]] = {"small": [], "large": []}
    with tempfile.TemporaryDirectory(dir=setting.directory) as folder:
        texts = {
            kind: growth.write_text(pathlib.Path(folder, kind), documents, setting.seed)
            for kind, documents in (("small", GROWTH_DOCUMENTS), ("large", 10 * GROWTH_DOCUMENTS))
        }

        def turn(kind: str) -> float:
            with Worker("growth", "dclm_jax.benchmark.growth", texts[kind]) as worker:
                costs[kind].append(worker.call("cost"))
            return costs[kind][-1].seconds

        rounds = alternate({kind: partial(turn, kind) for kind in texts}, setting.rounds)
    seconds = rounds.seconds
    small, large = costs["small"][0], costs["large"][0]
    memory_bytes = {kind: max(cost.memory for cost in costs[kind]) for kind in costs}
    work = f"prepare and one epoch of batches: {small.tokens:,} and {large.tokens:,} targets"
    return [
        Row(
            f"{name}_time",
            work,
            Goal(10, 10, at_most=True),
            seconds["large"] / seconds["small"],
            "without the start of Python",
            {"seconds": seconds},
            (f"{seconds['small']:.2f} s and {seconds['large']:.2f} s",),
            rounds.disturbed,
        ),
        Row(
            f"{name}_memory",
            work,
            Goal(1.1, 1.1, at_most=True),
            memory_bytes["large"] / memory_bytes["small"],
            "peak of the process, its libraries and the mapped pages of files included",
            {"memory_bytes": memory_bytes},
            (f"{memory_bytes['small'] >> 20:,} MiB and {memory_bytes['large'] >> 20:,} MiB",),
        ),
    ]


def startup_row(name: str, setting: Setting) -> list[Row]:
    """From the start of a process to the end of its first step, without and with a cache."""
    job = (setting.size.model("ccdclm"), _training_batches(setting, 16, 1))
    seconds = {}
    with tempfile.TemporaryDirectory(dir=setting.directory) as cache:
        environment = {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
            # This process has most of an accelerator's memory.
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        for kind in ("cold", "warm"):
            start = time.perf_counter()
            with Worker("first step", "dclm_jax.benchmark.ours", job, environment) as worker:
                worker.call("turn")
                seconds[kind] = time.perf_counter() - start
    return [
        Row(
            name,
            "time to the first step of ccdclm, 16 segments, from the start of the process",
            details={"first_step_seconds": seconds},
            lines=(
                f"cold {seconds['cold']:.1f} s, warm compilation cache {seconds['warm']:.1f} s",
            ),
        )
    ]


_COUPLED = "coupled_peephole_lstm"
ROWS: dict[str, Callable[[str, Setting], list[Row]]] = {
    "train_ccdclm_16": Training("ccdclm", 16, PYTORCH, Goal(2.0, 2.5)),
    "train_ccdclm_64": Training("ccdclm", 64, PYTORCH, Goal(0.5, 0.6, FLOPS), num_batches=2),
    "train_codclm_16": Training("codclm", 16, PYTORCH, Goal(2.2, 2.7)),
    "train_rnnlm_16": Training("rnnlm", 16, PYTORCH, Goal(2.2, 2.7)),
    "train_adclm_16": Training("adclm", 16, PYTORCH, Goal(2.0, 2.5)),
    "train_ccdclm_1": Training("ccdclm", 1, PYTORCH, Goal(1.8, 2.5), num_batches=16),
    "dynet_autobatch_16": Training("ccdclm", 16, (DYNET_AUTOBATCH,), Goal(3.5, 5), _COUPLED),
    "dynet_online_1": Training("ccdclm", 1, (DYNET_ONLINE,), Goal(6, 8), _COUPLED, num_batches=16),
    "score_ccdclm_16": score_row,
    "bootstrap_codclm": bootstrap_row,
    "input_16": partial(input_row, 16),
    "input_64": partial(input_row, 64),
    "output_memory": output_memory_row,
    "growth": growth_rows,
    "startup": startup_row,
}
HEADLINE = "train_ccdclm_16"
"""The row whose ratio stands for all."""
SUITES = {"full": tuple(ROWS), "quick": (HEADLINE,)}


def run(names: Sequence[str], setting: Setting, show: Callable[[str], None]) -> dict[str, Any]:
    """Runs rows, shows each as text when it is done, and returns all as a JSON object.

    Raises:
      PeerError: a peer failed, or computes something else.
    """
    machine = report.machine()
    show("{cpu}, {cores} cores; JAX on {devices} x {device} ({platform})".format(**machine))
    for library in missing_libraries((*PYTORCH, DYNET_ONLINE)):
        show(how_to_install(library))
    product = ours.MatrixProduct()
    product.turn()
    seconds = alternate({MATRIX_PRODUCT: product.turn}, setting.rounds).seconds[MATRIX_PRODUCT]
    show(report.HEADER)
    results: dict[str, list[Row]] = {}
    for name in names:
        results[name] = ROWS[name](name, setting)
        for row in results[name]:
            show(report.row_text(row))
    first = results.get(HEADLINE, [])
    return {
        "machine": machine,
        "versions": report.versions(),
        "matrix_product_flops_per_second": product.flops / seconds,
        "rounds": setting.rounds,
        "seed": setting.seed,
        "ratio": first[0].measured if first else None,
        "rows": [row.to_json() for rows in results.values() for row in rows],
    }
