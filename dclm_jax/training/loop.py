"""The training loop: from a configuration to checkpoints of the best model."""

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from dclm_jax import models, processes, storage
from dclm_jax.allocation import require_memory
from dclm_jax.data.batches import Batch, TrainingBatches
from dclm_jax.data.corpus import (
    Corpus,
    open_corpus,
    open_source,
    read_manifest,
    statistics_table,
)
from dclm_jax.errors import DivergenceError, InputError
from dclm_jax.evaluation.datasets import documents_of
from dclm_jax.evaluation.perplexity import Perplexity, measure
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
    Clock,
    ProgressLine,
    agreed_interruption,
    count_parameters,
    parameter_table,
)
from dclm_jax.training.records import Progress, Records
from dclm_jax.training.start import Start, start_from
from dclm_jax.training.step import (
    StepMetrics,
    TrainState,
    first_state,
    parallel_step,
    spread,
    spread_rows,
)
from dclm_jax.training.workdir import Result


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
      DivergenceError: a loss or gradient that is not finite; the last good checkpoint stays.
    """
    place = storage.locate(workdir)
    say = report if processes.is_first() else lambda line: None
    work = processes.together(lambda: _open(config))
    options = work.config.training
    init_key, dropout_key = jax.random.split(jax.random.key(options.seed))
    start = _start(work, init_key, place)
    ending = "finished"
    with Records(place, _kept(work.config), work.valid, work.total_steps) as records:
        state = first_state(start.params, work.optimizer, work.frozen)
        state, progress = records.restore(state)
        done = int(state.step)
        _report_start(say, work, place, state, start)
        step = parallel_step(work.model, work.optimizer, options.loss_per)
        # A copy, since steps are given the buffers of the state.
        state = spread(state)
        shapes = _Shapes(work, done)
        clock = Clock()
        line = ProgressLine(done, work.total_steps, say, work.measure, clock)
        with contextlib.closing(line), agreed_interruption() as interrupted:
            run = _Run(work, records, progress, line, clock)
            evaluate_every = options.evaluate_every or work.batches.steps_per_epoch
            pending: tuple[int, StepMetrics] | None = None
            for batch in _prefetch(work, done):
                if 0 < options.patience <= progress.evaluations_without_gain:
                    ending = "early_stop"
                    break
                left_out = contextlib.nullcontext()
                if shapes.is_new(batch):
                    # The step before ends first: its time counts, that of compiling does not.
                    if pending is not None:
                        run.add(*pending)
                        pending = None
                    shape, words = batch.mask_BxSxN.shape, batch.most_words
                    line.compiling(shapes.met, shapes.number, shape, words)
                    left_out = clock.stopped()
                with left_out:
                    state, metrics = step(state, batch, dropout_key)
                done += 1
                # Step t is read once step t+1 is dispatched: the device never waits for the host.
                if pending is not None:
                    run.add(*pending)
                pending = done, metrics
                evaluate = done % evaluate_every == 0 or done == work.total_steps
                stop = interrupted()
                if evaluate or stop or done % options.checkpoint_every == 0:
                    # Nothing is saved before every step up to it is known to be finite.
                    run.add(*pending)
                    pending = None
                    host_state = jax.device_get(state)
                    # A finite loss and gradient can still make an update that is not.
                    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(host_state)):
                        raise run.divergence(done, "the update is not finite")
                    if evaluate:
                        params = model_params(host_state.params, host_state.optimizer_state)
                        run.evaluate(done, params)
                    records.save_latest(host_state, progress)
                if stop:
                    ending = "interrupted"
                    break
        result = Result(ending, done, progress.best_step, progress.best_perplexity)
        records.finish(result)
    say(_ending(result, place, work.measure, work.limit))
    return result


@dataclasses.dataclass(frozen=True)
class _Work:
    """What a configuration asks for."""

    config: RunConfig
    model: DocumentModel
    optimizer: optax.GradientTransformation
    batches: TrainingBatches
    frozen: frozenset[str]
    valid: Corpus
    valid_source: Corpus
    total_steps: int

    @property
    def measure(self) -> str:
        """What its perplexities are called: those of bags do not compare with those of words."""
        return "perplexity" if self.model.objective == "words" else "perplexity of bags"

    @property
    def limit(self) -> str:
        """The key of the configuration that says how long the run is."""
        training = self.config.training
        steps = training.epochs * self.batches.steps_per_epoch
        if steps > self.total_steps:
            return f"all of training.max_steps={training.max_steps}"
        return f"all of training.epochs={training.epochs}"

    @property
    def further_loss(self) -> str | None:
        """What the loss of a further objective is called, if it is told (`StepMetrics`)."""
        name = None if self.frozen else self.model.further_objective
        return name and f"{name} loss"


def _open(config: ConfigDict | Mapping[str, Any]) -> _Work:
    settings = validated(config)
    directory = settings.data.directory
    training, valid = (open_corpus(directory, split) for split in ("train", "valid"))
    model = models.create(vocab_size=len(training.vocabulary), **settings.model)
    source, valid_source = (
        open_source(one, directory) if model.reads_source else one for one in (training, valid)
    )
    if model.reads_source and settings.data.segment_length:
        raise InputError(
            f"data.segment_length is {settings.data.segment_length}; {model.name} reads whole "
            "documents: expected 0"
        )
    with warnings.catch_warnings():
        # Of sizes that no memory holds, which is said below.
        warnings.simplefilter("ignore")
        shapes = jax.eval_shape(model.init, jax.random.key(0))
    frozen = choose(settings.training.frozen, by_path(shapes))
    batches = TrainingBatches(
        training,
        segment_length=settings.data.segment_length,
        batch_size=settings.data.batch_size,
        seed=settings.training.seed,
        max_sentence_length=settings.data.max_sentence_length,
        earlier_sentences=earlier_sentences(
            model, settings.data.segment_length if settings.data.carry_context else 0
        ),
        source=source if model.reads_source else None,
    )
    trained, _ = split(shapes, frozen)
    if trained_hashed(model, trained):
        require_sparse(settings.optimizer)
    total_steps = settings.training.epochs * batches.steps_per_epoch
    if settings.training.max_steps:
        total_steps = min(total_steps, settings.training.max_steps)
    optimizer = create_optimizer(settings.optimizer, total_steps, batches.steps_per_epoch)
    state = jax.eval_shape(lambda params: first_state(params, optimizer, frozen), shapes)
    # And the gradient.
    require_memory(
        _num_bytes(state) + _num_bytes(trained),
        f"training {model.name} with its {count_parameters(shapes):,} parameters",
    )
    return _Work(settings, model, optimizer, batches, frozen, valid, valid_source, total_steps)


def _num_bytes(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def _kept(config: RunConfig) -> dict[str, Any]:
    """What a workdir keeps, so that evaluation finds the data from any working directory."""
    settings = dataclasses.asdict(config)
    for section, key in (("data", "directory"), ("training", "start_from")):
        if path := settings[section][key]:
            settings[section][key] = storage.absolute(path)
    return settings


def _start(work: _Work, key: jax.Array, workdir: storage.Location) -> Start:
    """Initial parameters; in the first process those of `training.start_from`, in a run that has
    nothing to go on from.

    Before the workdir is touched: what cannot be read leaves nothing behind.
    """
    run = work.config.training.start_from
    start = Start(work.model.init(key))

    @processes.by_first
    def take() -> None:
        nonlocal start
        if run and not trained_steps(workdir):
            start = start_from(run, work.model, start.params, work.valid.vocabulary)

    take()
    return start


class _Run:
    """A run that is going on: reads what its steps give, evaluates, and records and tells both.

    Between two lines of metrics it collects sums; `progress` is what it changes beside them.
    """

    def __init__(
        self, work: _Work, records: Records, progress: Progress, line: ProgressLine, clock: Clock
    ):
        self._work, self._line, self._clock = work, line, clock
        self.records, self.progress = records, progress
        self._rate: Callable = learning_rate(
            work.config.optimizer, work.total_steps, work.batches.steps_per_epoch
        )
        self._nll, self._extra, self._terms, self._norm = 0.0, 0.0, 0, 0.0
        self._tokens, self._seconds = 0, 0.0
        self._read = clock()

    def add(self, step: int, metrics: StepMetrics) -> None:
        """Reads one step's metrics, which waits for the step.

        Raises:
          DivergenceError: the loss or the norm of the gradient is not finite.
        """
        work, progress = self._work, self.progress
        metrics = jax.device_get(metrics)
        nll, extra, terms, tokens, norm, factor = (one.item() for one in metrics)
        if math.isfinite(nll) and math.isfinite(norm):
            self._nll, self._terms = self._nll + nll, self._terms + int(terms)
            self._extra += extra
            self._tokens, self._norm = self._tokens + tokens, norm
            progress.tokens += tokens
            progress.skipped_in_a_row = 0
        else:
            progress.skipped += 1
            progress.skipped_in_a_row += 1
            what = f"loss per token is {nll / terms} and gradient norm {norm}"
            most = work.config.optimizer.max_skipped_steps
            # A gradient that is not finite is what the optimizer leaves out, if it is to.
            if math.isfinite(norm) or progress.skipped_in_a_row > most:
                raise self.divergence(step, what)
            self._line.say(f"step {step}: {what}; left out, {progress.skipped} in all")
        now = self._clock()
        elapsed, self._read = now - self._read, now
        self._seconds += elapsed
        progress.seconds += elapsed
        if step % work.config.training.log_every == 0 and self._tokens:
            window = Perplexity(len(work.valid.vocabulary), self._nll, self._terms)
            rate = self._tokens / max(self._seconds, 1e-9)
            epoch = (step - 1) // work.batches.steps_per_epoch + 1
            further = {}
            if name := work.further_loss:
                further[name] = self._extra / self._terms
            self.records.write(
                "train",
                step,
                epoch=epoch,
                loss=self._nll / self._terms,
                perplexity=window.perplexity,
                **{name.replace(" ", "_"): loss for name, loss in further.items()},
                gradient_norm=self._norm,
                learning_rate=float(self._rate(step - 1 - progress.skipped) * factor),
                tokens=progress.tokens,
                seconds=progress.seconds,
                tokens_per_second=rate,
                skipped=progress.skipped,
            )
            self._line.update(step, epoch, window.perplexity, further, rate)
            self._nll, self._extra, self._terms = 0.0, 0.0, 0
            self._tokens, self._seconds = 0, 0.0
            self._read = self._clock()

    def divergence(self, step: int, what: str) -> DivergenceError:
        best = self.progress.best_step
        kept = f"the best model is of step {best}" if best else "no model was evaluated before"
        return DivergenceError(
            f"step {step}: {what}; {kept}, and the newest checkpoint, if any, is from before; "
            "try a smaller optimizer.learning_rate"
        )

    def evaluate(self, step: int, params: Params) -> None:
        """Development perplexity; keeps the parameters if it is the best so far.

        Raises:
          DivergenceError: it is not a number.
        """
        work, progress = self._work, self.progress
        scorer = Scorer(work.model, params, batch_size=work.config.training.evaluation_batch_size)
        result = measure(scorer, documents_of(work.valid, work.valid_source))
        perplexity = result.perplexity
        if math.isnan(perplexity):
            raise self.divergence(step, "the development loss is not a number")
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
            self.records.save_best(step, params, info)
        else:
            progress.evaluations_without_gain += 1
        self.records.write(
            "valid",
            step,
            epoch=epoch,
            loss=result.nll / result.tokens,
            perplexity=perplexity,
            tokens=progress.tokens,
            seconds=progress.seconds,
        )
        note = "best so far" if better else f"best {progress.best_perplexity:.2f}"
        self._line.say(
            f"step {step}  epoch {epoch:.2f}  development {work.measure} {perplexity:.2f} "
            f"over {result.tokens:,} tokens ({note})"
        )
        # It was not spent training.
        self._read = self._clock()


class _Shapes:
    """The shapes of a run's batches from step `first` on, for each of which a step is compiled.

    Attributes:
      number: how many there are, or at least are known of: where a shape depends on the batch's
        words, or epochs differ, there may turn out to be more.
      met: how many there have been.
    """

    def __init__(self, work: _Work, first: int):
        self.number = len(work.batches.shapes(range(first, work.total_steps)))
        self._met: set[Hashable] = set()

    @property
    def met(self) -> int:
        return len(self._met)

    def is_new(self, batch: Batch) -> bool:
        """Whether there has been no such batch before."""
        before = self.met
        self._met.add(self._of(batch))
        self.number = max(self.number, self.met)
        return self.met > before

    @staticmethod
    def _of(batch: Batch) -> Hashable:
        leaves, structure = jax.tree.flatten(batch)
        return structure, tuple(leaf.shape for leaf in leaves)


def _prefetch(work: _Work, first: int) -> Iterator[Batch]:
    """This process's rows of the batches from `first` on, made one step ahead."""
    last = work.total_steps

    def make(step: int) -> Batch:
        batch = work.batches(step)
        return spread_rows(batch.with_words_counted() if work.model.hashed else batch)

    with ThreadPoolExecutor(1) as worker:
        upcoming = [worker.submit(make, step) for step in range(first, min(first + 1, last))]
        for step in range(first, last):
            batch = upcoming.pop().result()
            if step + 1 < last:
                upcoming.append(worker.submit(make, step + 1))
            yield batch


def _report_start(
    report: Callable[[str], None],
    work: _Work,
    workdir: storage.Location,
    state: TrainState,
    start: Start,
) -> None:
    config, model = work.config, work.model
    resumed = int(state.step) > 0
    report("{name}, cell {cell}, {num_layers} layers".format(**config.model))
    if start.step and not resumed:
        report(f"starting from step {start.step} of {config.training.start_from}:")
    report(parameter_table(state.params, state.frozen, {} if resumed else start.notes))
    if state.frozen and not config.training.start_from:
        report("frozen parameters keep their random initial values: training.start_from is empty")
    if config.data.carry_context and work.batches.earlier_sentences == earlier_sentences(model):
        report("data.carry_context changes nothing: no context is carried over to a segment")
    hashed = [params.size for name, params in state.params.items() if name in model.hashed]
    if hashed:
        report(describe_hashing(model.vocab_size, hashed[0]))
    report(statistics_table(read_manifest(config.data.directory)))
    devices = jax.devices()
    report(f"devices: {len(devices)} x {devices[0].device_kind} ({devices[0].platform})")
    report(f"workdir: {workdir}")
    if resumed:
        report(f"resuming after step {int(state.step)}")


def _ending(result: Result, workdir: storage.Location, measure: str, limit: str) -> str:
    best = f"best development {measure} {result.best_perplexity:.2f} at step {result.best_step}"
    if result.ending == "interrupted":
        return f"interrupted and saved at step {result.step}; the same command goes on from there"
    if result.ending == "early_stop":
        return (
            f"stopped at step {result.step}, no gain for training.patience evaluations "
            f"(with more of them, or 0, it goes on); {best}"
        )
    return f"finished {result.step} steps, {limit}; {best}; workdir {workdir}"
