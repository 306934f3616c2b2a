"""The training loop: from a configuration to checkpoints of the best model."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from dclm_jax import models
from dclm_jax.data.batches import Batch, TrainingBatches, process_rows
from dclm_jax.data.corpus import Corpus, open_corpus, read_manifest, statistics_table
from dclm_jax.errors import DivergenceError
from dclm_jax.evaluation.perplexity import measure
from dclm_jax.evaluation.scoring import Scorer
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.training.checkpoints import Checkpoints, claim_workdir
from dclm_jax.training.config import RunConfig, validated
from dclm_jax.training.metrics import MetricsLog
from dclm_jax.training.optimizer import create_optimizer, learning_rate
from dclm_jax.training.progress import (
    ProgressLine,
    interruption,
    parameter_table,
    safe_exp,
)
from dclm_jax.training.result import Result, forget_result, keep_result
from dclm_jax.training.step import (
    StepMetrics,
    TrainState,
    collect,
    create_state,
    parallel_step,
    spread,
    spread_rows,
)


@dataclasses.dataclass
class Progress:
    """What a run knows beside its state; saved with it. `seconds` is time spent training."""

    best_perplexity: float = math.inf
    best_step: int = 0
    evaluations_without_gain: int = 0
    tokens: int = 0
    seconds: float = 0.0


def train(
    config: ConfigDict | Mapping[str, Any],
    workdir: str | Path,
    report: Callable[[str], None] = print,
) -> Result:
    """Trains a model, or goes on with a run that was interrupted, until it is done.

    Args:
      config: see `training.config.default_config`.
      workdir: directory of the run; made if it does not exist.
      report: takes each line for the user.

    Raises:
      InputError: a configuration, data directory or workdir that cannot be used.
      DivergenceError: a loss or gradient that is not finite; the last good checkpoint stays.
    """
    settings = validated(config)
    workdir = Path(workdir)
    training, valid = (open_corpus(settings.data.directory, split) for split in ("train", "valid"))
    options = dict(settings.model)
    model = models.create(options.pop("name"), vocab_size=len(training.vocabulary), **options)
    batches = TrainingBatches(
        training,
        segment_length=settings.data.segment_length,
        batch_size=settings.data.batch_size,
        seed=settings.training.seed,
        max_sentence_length=settings.data.max_sentence_length,
        earlier_sentences=model.earlier_sentences,
    )
    total_steps = settings.training.epochs * batches.steps_per_epoch
    if settings.training.max_steps:
        total_steps = min(total_steps, settings.training.max_steps)
    optimizer = create_optimizer(settings.optimizer, total_steps)
    kept = settings.to_dict()
    # Evaluation finds the data from any working directory.
    kept["data"]["directory"] = str(Path(settings.data.directory).absolute())
    claim_workdir(workdir, kept, training.vocabulary)
    forget_result(workdir)

    init_key, dropout_key = jax.random.split(jax.random.key(settings.training.seed))
    state = create_state(model, optimizer, init_key)
    checkpoints = Checkpoints(workdir)
    progress = Progress()
    restored = checkpoints.restore(state)
    if restored is not None:
        state, progress = restored[0], Progress(**restored[1])
    _report_start(report, settings, workdir, state, restored is not None)
    run = _Run(settings, model, batches, valid, checkpoints, progress, total_steps)
    step = parallel_step(model, optimizer, settings.training.loss_per)
    line = ProgressLine(int(state.step), total_steps, report)
    try:
        with MetricsLog(workdir, int(state.step)) as log:
            result = _run_steps(run, step, state, dropout_key, log, line)
    finally:
        line.close()
        checkpoints.close()
    keep_result(workdir, result)
    report(_ending(result, workdir))
    return result


@dataclasses.dataclass(frozen=True)
class _Run:
    """What stays the same over the steps of a run (`progress` is the one thing that moves)."""

    config: RunConfig
    model: DocumentModel
    batches: TrainingBatches
    valid: Corpus
    checkpoints: Checkpoints
    progress: Progress
    total_steps: int

    @property
    def evaluate_every(self) -> int:
        return self.config.training.evaluate_every or self.batches.steps_per_epoch

    @property
    def out_of_patience(self) -> bool:
        patience = self.config.training.patience
        return bool(patience) and self.progress.evaluations_without_gain >= patience


def _run_steps(
    run: _Run,
    step: Callable,
    state: TrainState,
    dropout_key: jax.Array,
    log: MetricsLog,
    line: ProgressLine,
) -> Result:
    settings = run.config.training
    done = int(state.step)
    window = _Window(run, log, line, learning_rate(run.config.optimizer, run.total_steps))
    # One copy a device, and none of them shares its buffers with `state`, which is donated.
    state = spread(state)
    pending: tuple[int, StepMetrics] | None = None
    ending = "finished"
    with interruption() as interrupted:
        for batch in _prefetch(run.batches, done, run.total_steps):
            if run.out_of_patience:
                ending = "early_stop"
                break
            state, metrics = step(state, batch, dropout_key)
            done += 1
            # Step t is read once step t+1 is dispatched: the device never waits for the host.
            if pending is not None:
                window.add(*pending)
            pending = done, metrics
            evaluate = done % run.evaluate_every == 0 or done == run.total_steps
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
                    _evaluate(run, done, host_state.params, log, line)
                    window.restart_clock()
                run.checkpoints.save_latest(host_state, dataclasses.asdict(run.progress))
            if stop:
                ending = "interrupted"
                break
    if ending == "finished" and run.out_of_patience and done < run.total_steps:
        ending = "early_stop"
    return Result(ending, done, run.progress.best_step, run.progress.best_perplexity)


class _Window:
    """Collects the metrics of steps and reports them every `log_every` steps."""

    def __init__(self, run: _Run, log: MetricsLog, line: ProgressLine, rate: Callable):
        self._run, self._log, self._line, self._rate = run, log, line, rate
        self._clear()

    def _clear(self) -> None:
        self._nll, self._tokens, self._seconds = 0.0, 0, 0.0
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
        if not (math.isfinite(nll) and math.isfinite(norm)):
            raise _divergence(
                self._run, step, f"loss per token is {nll / tokens} and gradient norm {norm}"
            )
        now = time.monotonic()
        elapsed, self._clock = now - self._clock, now
        self._nll, self._tokens = self._nll + nll, self._tokens + tokens
        self._seconds += elapsed
        progress = self._run.progress
        progress.tokens += tokens
        progress.seconds += elapsed
        if step % self._run.config.training.log_every == 0:
            loss = self._nll / self._tokens
            rate = self._tokens / max(self._seconds, 1e-9)
            epoch = (step - 1) // self._run.batches.steps_per_epoch + 1
            self._log.write(
                "train",
                step,
                epoch=epoch,
                loss=loss,
                perplexity=safe_exp(loss),
                gradient_norm=norm,
                learning_rate=float(self._rate(step - 1)),
                tokens=progress.tokens,
                seconds=progress.seconds,
                tokens_per_second=rate,
            )
            self._line.update(step, epoch, safe_exp(loss), rate)
            self._clear()


def _divergence(run: _Run, step: int, what: str) -> DivergenceError:
    best = run.progress.best_step
    kept = f"the best model is of step {best}" if best else "no model was evaluated before"
    return DivergenceError(
        f"step {step}: {what}; {kept}, and the newest checkpoint, if any, is from before; "
        "try a smaller optimizer.learning_rate"
    )


def _evaluate(run: _Run, step: int, params: Params, log: MetricsLog, line: ProgressLine) -> None:
    """Development perplexity; keeps the parameters if it is the best so far."""
    progress = run.progress
    scorer = Scorer(run.model, params, batch_size=run.config.training.evaluation_batch_size)
    documents = (run.valid.document(index) for index in range(run.valid.num_documents))
    result = measure(scorer, documents)
    perplexity = result.perplexity
    if math.isnan(perplexity):
        raise _divergence(run, step, "the development loss is not a number")
    epoch = step / run.batches.steps_per_epoch
    better = perplexity < progress.best_perplexity
    if better:
        progress.best_perplexity, progress.best_step = perplexity, step
        progress.evaluations_without_gain = 0
        info = {
            "step": step,
            "epoch": epoch,
            "perplexity": perplexity,
            "tokens": result.tokens,
            "vocabulary": run.valid.vocabulary.fingerprint,
        }
        run.checkpoints.save_best(step, params, info)
    else:
        progress.evaluations_without_gain += 1
    log.write(
        "valid",
        step,
        epoch=epoch,
        loss=result.nll / result.tokens,
        perplexity=perplexity,
        tokens=progress.tokens,
        seconds=progress.seconds,
    )
    note = "best so far" if better else f"best {progress.best_perplexity:.2f}"
    line.say(
        f"step {step}  epoch {epoch:.2f}  development perplexity {perplexity:.2f} "
        f"over {result.tokens:,} tokens ({note})"
    )


def _prefetch(batches: TrainingBatches, first: int, last: int) -> Iterator[Batch]:
    """This process's rows of the batches from `first` to before `last`, made one step ahead."""

    def make(step: int) -> Batch:
        rows = process_rows(batches(step), jax.process_index(), jax.process_count())
        return spread_rows(rows)

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
    workdir: Path,
    state: TrainState,
    resumed: bool,
) -> None:
    report("{name}, cell {cell}, {num_layers} layers".format(**config.model))
    report(parameter_table(state.params))
    report(statistics_table(read_manifest(config.data.directory)))
    devices = jax.devices()
    report(f"devices: {len(devices)} x {devices[0].device_kind} ({devices[0].platform})")
    report(f"workdir: {workdir}")
    if resumed:
        report(f"resuming after step {int(state.step)}")


def _ending(result: Result, workdir: Path) -> str:
    best = f"best development perplexity {result.best_perplexity:.2f} at step {result.best_step}"
    if result.ending == "interrupted":
        return f"interrupted and saved at step {result.step}; the same command goes on from there"
    if result.ending == "early_stop":
        return f"stopped at step {result.step}, no gain for training.patience evaluations; {best}"
    return f"finished {result.step} steps; {best}; workdir {workdir}"
