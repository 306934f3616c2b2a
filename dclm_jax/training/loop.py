"""The training loop: from a configuration to checkpoints of the best model."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from dclm_jax import models, processes, storage
from dclm_jax.data.batches import Batch, TrainingBatches
from dclm_jax.data.corpus import Corpus, open_corpus, read_manifest, statistics_table
from dclm_jax.errors import DivergenceError, InputError, shown
from dclm_jax.evaluation.perplexity import measure
from dclm_jax.evaluation.scoring import Scorer
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.nn.hashing import describe as describe_hashing
from dclm_jax.reading.likelihoods import earlier_sentences
from dclm_jax.training.checkpoints import trained_steps
from dclm_jax.training.config import RunConfig, validated
from dclm_jax.training.frozen import by_path, choose, split
from dclm_jax.training.hashed import trained_hashed
from dclm_jax.training.optimizer import (
    create_optimizer,
    learning_rate,
    model_params,
    require_sparse,
)
from dclm_jax.training.progress import (
    ProgressLine,
    agreed_interruption,
    parameter_table,
    safe_exp,
)
from dclm_jax.training.records import Records
from dclm_jax.training.result import Result
from dclm_jax.training.start import Start, start_from
from dclm_jax.training.step import (
    StepMetrics,
    TrainState,
    collect,
    first_state,
    parallel_step,
    spread,
    spread_rows,
)


@dataclasses.dataclass
class Progress:
    """What a run knows beside its state; saved with it.

    best_perplexity, best_step: of the best evaluation.
    evaluations_without_gain: since then.
    tokens: targets trained on.
    seconds: spent training.
    skipped: steps left out because their gradient was not finite; `skipped_in_a_row` just now.
    """

    best_perplexity: float = math.inf
    best_step: int = 0
    evaluations_without_gain: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0


def _restored_progress(values: dict[str, Any], workdir: storage.Location) -> Progress:
    kinds = {field.name: type(field.default) for field in dataclasses.fields(Progress)}
    # A checkpoint of before a number was kept has its default.
    if not {name: type(value) for name, value in values.items()}.items() <= kinds.items():
        raise InputError(
            f"{workdir / 'checkpoints' / 'latest'}: the progress of the newest checkpoint is "
            f"{shown(values)}; expected numbers called {', '.join(kinds)}"
        )
    return Progress(**values)


def train(
    config: ConfigDict | Mapping[str, Any],
    workdir: storage.PathLike,
    report: Callable[[str], None] = print,
) -> Result:
    """Trains a model, or goes on with a run that was interrupted, until it is done.

    Where a job has several processes, each calls this; the first one reports and writes.

    Args:
      config: see `training.config.default_config`.
      workdir: directory of the run, or its address; made if it does not exist. Only the first
        process needs it.
      report: takes each line for the user.

    Raises:
      InputError: a configuration, data directory or workdir that cannot be used, or a disk that
        cannot be written.
      DivergenceError: a loss or gradient that is not finite; the last good checkpoint stays.
    """
    place = storage.locate(workdir)
    if not processes.is_first():
        report = _say_nothing
    work = processes.together(lambda: _open(config))
    settings = work.config.to_dict()
    # Evaluation finds the data from any working directory.
    settings["data"]["directory"] = storage.absolute(work.config.data.directory)
    if work.config.training.start_from:
        settings["training"]["start_from"] = storage.absolute(work.config.training.start_from)
    init_key, dropout_key = jax.random.split(jax.random.key(work.config.training.seed))
    start = _start(work, init_key, place)
    with Records(place, settings, work.valid, work.total_steps) as records:
        state = first_state(start.params, work.optimizer, work.frozen)
        progress = Progress()
        restored = records.restore(state)
        if restored is not None:
            state, values = restored
            progress = processes.together(lambda: _restored_progress(values, place))
        records.open_log(int(state.step))
        _report_start(report, work.config, work.model, place, state, start, restored is not None)
        progress_line = ProgressLine(int(state.step), work.total_steps, report, work.measure)
        with contextlib.closing(progress_line) as line:
            result = _run_steps(_Run(work, records, progress, line), state, dropout_key)
        records.finish(result)
    report(_ending(result, place, work.measure))
    return result


def _say_nothing(line: str) -> None:
    """For processes other than the first."""


@dataclasses.dataclass(frozen=True)
class _Work:
    """What a configuration asks for."""

    config: RunConfig
    model: DocumentModel
    optimizer: optax.GradientTransformation
    batches: TrainingBatches
    frozen: frozenset[str]
    valid: Corpus
    total_steps: int

    @property
    def measure(self) -> str:
        """What its perplexities are called: those of bags do not compare with those of words."""
        return "perplexity" if self.model.objective == "words" else "perplexity of bags"

    @property
    def evaluate_every(self) -> int:
        return self.config.training.evaluate_every or self.batches.steps_per_epoch


def _open(config: ConfigDict | Mapping[str, Any]) -> _Work:
    settings = validated(config)
    directory = settings.data.directory
    training, valid = (open_corpus(directory, split, verify=True) for split in ("train", "valid"))
    options = dict(settings.model)
    model = models.create(options.pop("name"), vocab_size=len(training.vocabulary), **options)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    frozen = choose(settings.training.frozen, by_path(shapes))
    batches = TrainingBatches(
        training,
        segment_length=settings.data.segment_length,
        batch_size=settings.data.batch_size,
        seed=settings.training.seed,
        max_sentence_length=settings.data.max_sentence_length,
        earlier_sentences=earlier_sentences(model),
    )
    if trained_hashed(model, split(shapes, frozen)[0]):
        require_sparse(settings.optimizer)
    total_steps = settings.training.epochs * batches.steps_per_epoch
    if settings.training.max_steps:
        total_steps = min(total_steps, settings.training.max_steps)
    optimizer = create_optimizer(settings.optimizer, total_steps, batches.steps_per_epoch)
    return _Work(settings, model, optimizer, batches, frozen, valid, total_steps)


def _start(work: _Work, key: jax.Array, workdir: storage.Location) -> Start:
    """Initial parameters; those of `training.start_from` in a run that has nothing to go on from.

    Before the workdir is touched: what cannot be read leaves nothing behind.
    """
    run = work.config.training.start_from
    start = Start(work.model.init(key))
    if not run:
        return start

    def take() -> tuple[int, dict[str, str]]:
        nonlocal start
        if not trained_steps(workdir):
            start = start_from(run, work.model, start.params, work.valid.vocabulary)
        return start.step, dict(start.notes)

    step, notes = processes.on_first(take)
    return Start(processes.from_first(start.params), step, notes)


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run that is going on; `progress` is the one thing that changes."""

    work: _Work
    records: Records
    progress: Progress
    line: ProgressLine

    @property
    def out_of_patience(self) -> bool:
        patience = self.work.config.training.patience
        return bool(patience) and self.progress.evaluations_without_gain >= patience


def _run_steps(run: _Run, state: TrainState, dropout_key: jax.Array) -> Result:
    work, settings = run.work, run.work.config.training
    step = parallel_step(work.model, work.optimizer, settings.loss_per)
    done = int(state.step)
    window = _Window(run)
    # One copy a device, and none of them shares its buffers with `state`, which is donated.
    state = spread(state)
    pending: tuple[int, StepMetrics] | None = None
    ending = "finished"
    with agreed_interruption() as interrupted:
        for batch in _prefetch(work, done):
            if run.out_of_patience:
                ending = "early_stop"
                break
            state, metrics = step(state, batch, dropout_key)
            done += 1
            # Step t is read once step t+1 is dispatched: the device never waits for the host.
            if pending is not None:
                window.add(*pending)
            pending = done, metrics
            evaluate = done % work.evaluate_every == 0 or done == work.total_steps
            stop = interrupted()
            if evaluate or stop or done % settings.checkpoint_every == 0:
                # Nothing is saved before every step up to it is known to be finite.
                window.add(*pending)
                pending = None
                host_state = jax.device_get(collect(state))
                # A finite loss and gradient can still make an update that is not.
                if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(host_state)):
                    raise _divergence(run, done, "the update is not finite")
                if evaluate:
                    params = model_params(host_state.params, host_state.optimizer_state)
                    _evaluate(run, done, params)
                    window.restart_clock()
                run.records.save_latest(host_state, dataclasses.asdict(run.progress))
            if stop:
                ending = "interrupted"
                break
    return Result(ending, done, run.progress.best_step, run.progress.best_perplexity)


class _Window:
    """Collects the metrics of steps and reports them every `log_every` steps."""

    def __init__(self, run: _Run):
        self._run = run
        self._rate: Callable = learning_rate(run.work.config.optimizer, run.work.total_steps)
        self._clear()

    def _clear(self) -> None:
        self._nll, self._terms, self._tokens, self._seconds = 0.0, 0.0, 0, 0.0
        self.restart_clock()

    def restart_clock(self) -> None:
        """Leaves out what has passed since the last step: it was not spent training."""
        self._clock = time.monotonic()

    def add(self, step: int, metrics: StepMetrics) -> None:
        """Reads one step's metrics, which waits for the step.

        Raises:
          DivergenceError: the loss or the norm of the gradient is not finite.
        """
        metrics = jax.device_get(collect(metrics))
        nll, tokens = float(metrics.nll), int(metrics.tokens)
        norm = float(metrics.gradient_norm)
        progress = self._run.progress
        if math.isfinite(nll) and math.isfinite(norm):
            self._nll, self._terms = self._nll + nll, self._terms + float(metrics.terms)
            self._tokens, self._norm = self._tokens + tokens, norm
            progress.tokens += tokens
            progress.skipped_in_a_row = 0
        else:
            self._skip(step, nll / tokens, norm)
        now = time.monotonic()
        elapsed, self._clock = now - self._clock, now
        self._seconds += elapsed
        progress.seconds += elapsed
        if step % self._run.work.config.training.log_every == 0 and self._tokens:
            loss = self._nll / self._terms
            rate = self._tokens / max(self._seconds, 1e-9)
            epoch = (step - 1) // self._run.work.batches.steps_per_epoch + 1
            self._run.records.write(
                "train",
                step,
                epoch=epoch,
                loss=loss,
                perplexity=safe_exp(loss),
                gradient_norm=self._norm,
                learning_rate=float(self._rate(step - 1 - progress.skipped) * metrics.rate_factor),
                tokens=progress.tokens,
                seconds=progress.seconds,
                tokens_per_second=rate,
                skipped=progress.skipped,
            )
            self._run.line.update(step, epoch, safe_exp(loss), rate)
            self._clear()

    def _skip(self, step: int, loss: float, norm: float) -> None:
        """Counts a step whose gradient the optimizer has left out, if it was to leave it out."""
        progress = self._run.progress
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        what = f"loss per token is {loss} and gradient norm {norm}"
        most = self._run.work.config.optimizer.max_skipped_steps
        if math.isfinite(norm) or progress.skipped_in_a_row > most:
            raise _divergence(self._run, step, what)
        self._run.line.say(f"step {step}: {what}; left out, {progress.skipped} in all")


def _divergence(run: _Run, step: int, what: str) -> DivergenceError:
    best = run.progress.best_step
    kept = f"the best model is of step {best}" if best else "no model was evaluated before"
    return DivergenceError(
        f"step {step}: {what}; {kept}, and the newest checkpoint, if any, is from before; "
        "try a smaller optimizer.learning_rate"
    )


def _evaluate(run: _Run, step: int, params: Params) -> None:
    """Development perplexity; keeps the parameters if it is the best so far."""
    work, progress = run.work, run.progress
    scorer = Scorer(work.model, params, batch_size=work.config.training.evaluation_batch_size)
    documents = (work.valid.document(index) for index in range(work.valid.num_documents))
    result = measure(scorer, documents)
    perplexity = result.perplexity
    if math.isnan(perplexity):
        raise _divergence(run, step, "the development loss is not a number")
    epoch = step / work.batches.steps_per_epoch
    better = perplexity < progress.best_perplexity
    if better:
        progress.best_perplexity, progress.best_step = perplexity, step
        progress.evaluations_without_gain = 0
        info = {
            "step": step,
            "epoch": epoch,
            "perplexity": perplexity,
            "tokens": result.tokens,
            "vocabulary": work.valid.vocabulary.fingerprint,
        }
        run.records.save_best(step, params, info)
    else:
        progress.evaluations_without_gain += 1
    run.records.write(
        "valid",
        step,
        epoch=epoch,
        loss=result.nll / result.tokens,
        perplexity=perplexity,
        tokens=progress.tokens,
        seconds=progress.seconds,
    )
    note = "best so far" if better else f"best {progress.best_perplexity:.2f}"
    run.line.say(
        f"step {step}  epoch {epoch:.2f}  development {work.measure} {perplexity:.2f} "
        f"over {result.tokens:,} tokens ({note})"
    )


def _prefetch(work: _Work, first: int) -> Iterator[Batch]:
    """This process's rows of the batches from `first` on, made one step ahead."""
    last = work.total_steps

    def make(step: int) -> Batch:
        batch = work.batches(step)
        return spread_rows(batch.with_words_counted() if work.model.hashed else batch)

    with ThreadPoolExecutor(1) as worker:
        upcoming = worker.submit(make, first) if first < last else None
        for step in range(first, last):
            assert upcoming is not None
            batch = upcoming.result()
            upcoming = worker.submit(make, step + 1) if step + 1 < last else None
            yield batch


def _report_start(
    report: Callable[[str], None],
    config: RunConfig,
    model: DocumentModel,
    workdir: storage.Location,
    state: TrainState,
    start: Start,
    resumed: bool,
) -> None:
    report("{name}, cell {cell}, {num_layers} layers".format(**config.model))
    if start.step and not resumed:
        report(f"starting from step {start.step} of {config.training.start_from}:")
    report(parameter_table(state.params, state.frozen, {} if resumed else start.notes))
    if state.frozen and not config.training.start_from:
        report("frozen parameters keep their random initial values: training.start_from is empty")
    hashed = [params.size for name, params in state.params.items() if name in model.hashed]
    if hashed:
        report(describe_hashing(model.vocab_size, hashed[0]))
    report(statistics_table(read_manifest(config.data.directory)))
    devices = jax.devices()
    report(f"devices: {len(devices)} x {devices[0].device_kind} ({devices[0].platform})")
    report(f"workdir: {workdir}")
    if resumed:
        report(f"resuming after step {int(state.step)}")


def _ending(result: Result, workdir: storage.Location, measure: str) -> str:
    best = f"best development {measure} {result.best_perplexity:.2f} at step {result.best_step}"
    if result.ending == "interrupted":
        return f"interrupted and saved at step {result.step}; the same command goes on from there"
    if result.ending == "early_stop":
        return (
            f"stopped at step {result.step}, no gain for training.patience evaluations "
            f"(with more of them, or 0, it goes on); {best}"
        )
    return f"finished {result.step} steps; {best}; workdir {workdir}"
