"""The training loop: from a configuration to checkpoints of the best model.

Training first checks the configuration, the corpus and its checksums, and makes the model, batches
and optimizer; all processes meet at this point. Training then locks the workdir, makes the
state from the seed, from another run or from the newest sound checkpoint, and removes checkpoints
and metrics of later steps.

Metrics of step t are read after step t+1 is dispatched. A save waits until all earlier steps and
the state are known to be finite. If they are not, or if the validation loss is not a number,
training raises DivergenceError.
"""

import dataclasses
import datetime
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from dclm_jax import processes, storage
from dclm_jax.data.batches import Batch
from dclm_jax.data.corpus import (
    read_manifest,
    statistics_table,
)
from dclm_jax.data.datasets import documents_of
from dclm_jax.data.encoding import vocabulary_warning
from dclm_jax.errors import DivergenceError, TrainingInterrupted
from dclm_jax.log import job_logger, logger
from dclm_jax.models.base import Params
from dclm_jax.nn.precision import SCORING_PRECISION
from dclm_jax.reading.likelihoods import earlier_sentences
from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.scoring.perplexity import Perplexity, perplexity_of
from dclm_jax.scoring.scorer import SummedScorer
from dclm_jax.training.config import RunConfig
from dclm_jax.training.interruption import interruption
from dclm_jax.training.job import Job, open_job
from dclm_jax.training.optimizer import model_params
from dclm_jax.training.parameter_table import parameter_table
from dclm_jax.training.run_writer import RunProgress, RunWriter
from dclm_jax.training.step import (
    Step,
    StepMetrics,
    TrainState,
    compiled_step,
    first_state,
    local_shards,
    parallel_step,
    replicate,
    shapes_of,
)
from dclm_jax.training.warm_start import Start, start_from
from dclm_jax.training.workdir import TrainingResult, require_trainable, run_path


def train(
    config: ConfigDict | Mapping[str, Any],
    workdir: storage.PathLike,
) -> TrainingResult:
    """Trains a model, or resumes a run, and returns the result.

    In a job of several processes every process calls this function; the first process writes.

    Args:
      config: see `training.config.default_config`.
      workdir: directory of the run, or its address; made if it does not exist. Only the first
        process reads and writes it.

    Raises:
      DivergenceError: a loss or gradient is not finite; the last good checkpoint stays.
      TrainingInterrupted: SIGTERM or Ctrl-C came, and the run is saved. Outside the main thread of
        Python, which alone receives signals, training does not stop early.
    """
    processes.on_primary(require_trainable)(workdir)
    job = processes.agree(lambda: open_job(config))
    options = job.config.training
    evaluate_every = options.evaluate_every or job.batches.steps_per_epoch
    ending, stop = "finished", False
    with RunWriter(workdir) as writer:
        run = _begin(job, writer)
        progress = run.progress
        with interruption() as interrupted:
            for batch in _prefetch(job, run.step):
                if 0 < options.patience <= progress.evaluations_without_gain:
                    ending = "early_stop"
                    break
                run.train_on(batch)
                stop = interrupted()
                evaluate = run.step % evaluate_every == 0 or run.step == job.total_steps
                if evaluate or stop or run.step % options.checkpoint_every == 0:
                    run.save(evaluate)
                if stop:
                    break
        result = TrainingResult(ending, run.step, progress.best_step, progress.best_perplexity)
        writer.finish(None if stop else result)
    if stop:
        job_logger.info(
            f"interrupted and saved at step {run.step}; the same command resumes the run; workdir "
            f"{workdir}"
        )
        raise TrainingInterrupted(run.step)
    job_logger.info(f"{_ending(result, job)}; workdir {workdir}")
    return result


def _saved(config: RunConfig) -> dict[str, Any]:
    """The configuration with absolute paths, so that evaluation finds the data from any
    directory; pretrained models keep their names."""
    settings = dataclasses.asdict(config)
    for section, key in (("data", "directory"), ("training", "start_from")):
        if path := settings[section][key]:
            is_name = run_path(path) != path
            settings[section][key] = path if is_name else storage.absolute(path)
    return settings


def _begin(job: Job, writer: RunWriter) -> "_Run":
    """Begins or resumes the run of a workdir."""
    options = job.config.training
    init_key, dropout_key = jax.random.split(jax.random.key(options.seed))
    step = parallel_step(job.model, job.optimizer, options.loss_per)
    # This comes before changes to the workdir: if memory is too small or another run cannot be
    # read, nothing is left behind.
    programs = _largest_program(job, step, writer.trained_steps)
    resumes = writer.trained_steps > 0
    start = processes.agree(lambda: _start(job, init_key, resumes=resumes))
    initial_state = first_state(start.params, job.optimizer, job.state.frozen)
    state, progress = writer.begin(
        _saved(job.config), job.valid, job.total_steps, initial_state, start.base
    )
    _announce(job, writer.workdir, state, start)
    return _Run(job, writer, step, programs, dropout_key, state, progress)


def _largest_program(job: Job, step: Step, first: int) -> dict[Any, Step]:
    """The step compiled for the batch that needs the most memory, from step `first` on, by the
    shapes of its batch; empty if no step is left."""
    shapes = job.batches.shapes(range(first, job.total_steps))
    if not shapes:
        return {}
    on_each = [shape.on_each(jax.device_count()) for shape in shapes]
    largest = max(on_each, key=lambda shape: shape.positions_at_once)
    size = _shape_text(largest.sentences, largest.positions)
    job_logger.info(f"compiling the largest of {len(shapes)} shapes: {size}")
    batch = largest.batch(jax.local_device_count())
    return {shapes_of(batch): compiled_step(step, job.state, batch)}


def _start(job: Job, key: jax.Array, *, resumes: bool) -> Start:
    """Initial parameters. The first process takes them from `training.start_from`, unless the run
    resumes; `RunWriter.begin` sends its state to all processes."""
    run, start = job.config.training.start_from, Start(job.model.init(key))
    if not run or resumes or not processes.is_primary():
        return start
    return start_from(run, job.model, start.params, job.valid.vocabulary)


@dataclasses.dataclass
class _Sums:
    """Sums since the last line of metrics, and the gradient norm of the last step."""

    nats: float = 0.0
    tokens: int = 0
    auxiliary: float = 0.0
    norm: float = 0.0


class _Run:
    """A run in progress: makes steps, evaluates, saves, and writes and logs the results.

    The metrics of step t are read once step t+1 is dispatched, so the device never waits for the
    host.

    Attributes:
      step: number of the last training step.
      progress: numbers that are saved with the state.
    """

    def __init__(
        self,
        job: Job,
        writer: RunWriter,
        parallel_step: Step,
        programs: dict[Any, Step],
        dropout_key: jax.Array,
        state: TrainState,
        progress: RunProgress,
    ):
        """Continues from a state; `programs` has compiled steps by the shapes of their
        batches."""
        self._job, self._writer, self.progress = job, writer, progress
        self._parallel_step, self._programs = parallel_step, programs
        self._dropout_key = dropout_key
        # A copy, because steps reuse the buffers of the state.
        self._state = replicate(state)
        self._unread: StepMetrics | None = None
        self._sums = _Sums()
        # The training time at the last line of metrics.
        self._seconds = self.progress.seconds
        self.step = self._first = int(state.step)
        self._started = self._read_at = time.monotonic()

    def train_on(self, batch: Batch) -> None:
        """Makes a step, and reads the metrics of the previous step."""
        if (shapes := shapes_of(batch)) not in self._programs:
            # The previous step ends first: its time counts, compilation time does not.
            self._read()
            job_logger.info(f"compiling {_shape_text(*batch.mask_BxSxN.shape[-2:])}")
            before = time.monotonic()
            self._programs[shapes] = compiled_step(self._parallel_step, self._job.state, batch)
            compilation = time.monotonic() - before
            self._started += compilation
            self._read_at += compilation
        self._state, metrics = self._programs[shapes](self._state, batch, self._dropout_key)
        self._read()
        self.step += 1
        self._unread = metrics

    def _read(self) -> None:
        """Waits for the last step and reads its metrics, unless they were read before."""
        if self._unread is not None:
            metrics, self._unread = self._unread, None
            self.add(self.step, metrics)

    def add(self, step: int, metrics: StepMetrics) -> None:
        """Adds the metrics of a step to the sums, which every `log_every` steps are written and
        logged.

        Raises:
          DivergenceError: the loss or the norm of the gradient is not finite.
        """
        job, progress, sums = self._job, self.progress, self._sums
        nats, tokens, auxiliary, norm, rate = (value.item() for value in jax.device_get(metrics))
        if not (math.isfinite(nats) and math.isfinite(norm)):
            reason = f"mean loss is {nats / tokens} and gradient norm {norm}"
            raise self._divergence(step, reason)
        sums.nats += nats
        sums.tokens += tokens
        sums.auxiliary += auxiliary
        sums.norm = norm
        progress.tokens += tokens
        now = time.monotonic()
        progress.seconds += now - self._read_at
        self._read_at = now
        if step % job.config.training.log_every == 0:
            self._log(step, rate)
            self._sums, self._seconds = _Sums(), progress.seconds

    def _log(self, step: int, learning_rate: float) -> None:
        job, progress, sums = self._job, self.progress, self._sums
        epoch = (step - 1) // job.batches.steps_per_epoch + 1
        perplexity = Perplexity(len(job.valid.vocabulary), sums.nats, sums.tokens).perplexity
        tokens_per_second = sums.tokens / max(progress.seconds - self._seconds, 1e-9)
        # With frozen parameters the auxiliary loss is not measured.
        name = None if job.state.frozen else job.model.auxiliary_objective
        auxiliary = {f"{name} loss": sums.auxiliary / sums.tokens} if name else {}
        self._writer.write(
            "train",
            step,
            epoch=epoch,
            loss=sums.nats / sums.tokens,
            perplexity=perplexity,
            **{name.replace(" ", "_"): loss for name, loss in auxiliary.items()},
            gradient_norm=sums.norm,
            learning_rate=learning_rate,
            tokens=progress.tokens,
            seconds=progress.seconds,
            tokens_per_second=tokens_per_second,
        )
        losses = "".join(f"  {name} {loss:.4f}" for name, loss in auxiliary.items())
        elapsed = self._read_at - self._started
        seconds_left = elapsed / (step - self._first) * (job.total_steps - step)
        time_left = datetime.timedelta(seconds=int(seconds_left))
        job_logger.info(
            f"step {step}/{job.total_steps}  epoch {epoch}  train {job.measure} "
            f"{perplexity:.1f}{losses}  {tokens_per_second:,.0f} targets/s  ETA {time_left}"
        )

    def save(self, evaluate: bool) -> None:
        """Saves a checkpoint for resuming, after an evaluation if `evaluate` is true.

        Raises:
          DivergenceError: a loss, a gradient or the state is not finite; nothing is saved.
        """
        # A state is saved only after all its steps are known to be finite.
        self._read()
        state = jax.device_get(self._state)
        # The update may not be finite even if the loss and the gradient are.
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state)):
            raise self._divergence(self.step, "the update is not finite")
        if evaluate:
            self.evaluate(model_params(state.params, state.optimizer_state))
        self._writer.save_latest(state, self.progress)
        # Evaluation and saving do not count as training time.
        self._read_at = time.monotonic()

    def evaluate(self, params: Params) -> None:
        """Measures the perplexity of the validation split; saves the best parameters so far.

        Raises:
          DivergenceError: the validation loss is not a number.
        """
        job, progress, step = self._job, self.progress, self.step
        model = dataclasses.replace(job.model, matmul_precision=SCORING_PRECISION)
        batch_size = job.config.training.evaluation_batch_size
        scorer = SummedScorer(NeuralScorer(model, params, batch_size=batch_size))
        measured = perplexity_of(scorer, documents_of(job.valid))
        perplexity, epoch = measured.perplexity, step / job.batches.steps_per_epoch
        if math.isnan(perplexity):
            raise self._divergence(step, "the validation loss is not a number")
        if perplexity < progress.best_perplexity:
            progress.best_perplexity, progress.best_step = perplexity, step
            progress.evaluations_without_gain = 0
            info = {
                "step": step,
                "epoch": epoch,
                "perplexity": perplexity,
                "tokens": measured.tokens,
                "vocabulary": job.valid.vocabulary.fingerprint,
            }
            self._writer.save_best(step, params, info)
            note = "best so far"
        else:
            progress.evaluations_without_gain += 1
            note = f"best {progress.best_perplexity:.2f}"
        self._writer.write(
            "valid",
            step,
            epoch=epoch,
            loss=measured.nll / measured.tokens,
            perplexity=perplexity,
            tokens=progress.tokens,
            seconds=progress.seconds,
        )
        job_logger.info(
            f"step {step}  epoch {epoch:.2f}  validation {job.measure} {perplexity:.2f} "
            f"over {measured.tokens:,} targets ({note})"
        )

    def _divergence(self, step: int, reason: str) -> DivergenceError:
        best = self.progress.best_step
        saved = f"the best model is from step {best}" if best else "no model was evaluated before"
        return DivergenceError(
            f"step {step}: {reason}; {saved}, and the newest checkpoint, if any, is from an "
            "earlier step; try a smaller optimizer.learning_rate"
        )


def _shape_text(sentences: int, positions: int) -> str:
    return f"{sentences} sentences of {positions} positions"


def _prefetch(job: Job, first: int) -> Iterator[Batch]:
    """Yields this process's part of the batches from step `first`, made one step ahead."""

    def make(step: int) -> Batch:
        return local_shards(job.batches(step))

    with ThreadPoolExecutor(1) as worker:
        futures = (worker.submit(make, step) for step in range(first, job.total_steps))
        upcoming = next(futures, None)
        while upcoming is not None:
            batch, upcoming = upcoming, next(futures, None)
            yield batch.result()


def _announce(job: Job, workdir: storage.PathLike, state: TrainState, start: Start) -> None:
    """Logs the model, the data, the devices, the workdir and the step of a run that begins or is
    resumed."""
    for line in _start_lines(job, state, start):
        job_logger.info(line)
    job_logger.info(f"workdir: {workdir}")
    if storage.is_remote(workdir):
        logger.info("an address is not locked; make sure that no other job writes to the workdir")
    if state.step:
        job_logger.info(f"resuming after step {int(state.step)}")


def _start_lines(job: Job, state: TrainState, start: Start) -> Iterator[str]:
    """The model, its parameters, the data and the devices."""
    config, resumed = job.config, int(state.step) > 0
    yield "{name}, cell {cell}, {num_layers} layers".format(**config.model)
    if start.step and not resumed:
        yield f"starting from step {start.step} of {config.training.start_from}:"
    yield parameter_table(state.params, state.frozen, {} if resumed else start.notes)
    if state.frozen and not config.training.start_from:
        yield "frozen parameters keep their random initial values: training.start_from is empty"
    if config.data.carry_context and job.batches.earlier_sentences == earlier_sentences(job.model):
        yield "data.carry_context has no effect: the model reads all its context in every segment"
    if config.data.no_context_share and not job.batches.earlier_sentences:
        yield "data.no_context_share has no effect: every segment starts with no context"
    warmup = config.optimizer.warmup_steps
    if 3 * warmup > job.total_steps:
        logger.warning(
            f"optimizer.warmup_steps is {warmup:,} of {job.total_steps:,} steps; choose at most a "
            f"third of the steps, such as {job.total_steps // 10:,}"
        )
    manifest = read_manifest(config.data.directory)
    yield statistics_table(manifest)
    if warning := vocabulary_warning(manifest.splits["train"].oov_rate, job.valid.vocabulary):
        logger.warning(f"train: {warning}")
    devices = jax.devices()
    yield f"devices: {len(devices)} x {devices[0].device_kind} ({devices[0].platform})"
    yield f"matmul precision: {job.model.matmul_precision}; in validation {SCORING_PRECISION}"


def _ending(result: TrainingResult, job: Job) -> str:
    best = f"best validation {job.measure} {result.best_perplexity:.2f} at step {result.best_step}"
    if result.ending == "early_stop":
        return (
            f"stopped at step {result.step}, no gain for training.patience evaluations "
            f"(resume with a larger --config.training.patience, or 0); {best}"
        )
    options = job.config.training
    limit = f"all of training.epochs={options.epochs}"
    if options.epochs * job.batches.steps_per_epoch > job.total_steps:
        limit = f"all of training.max_steps={options.max_steps}"
    return f"finished {result.step} steps, {limit}; {best}"
