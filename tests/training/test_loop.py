"""Runs: resumed = uninterrupted bit for bit, damaged checkpoints, divergence, early stopping."""

import contextlib
import dataclasses
import json
import logging
import math
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from dclm_jax.data.batches import TrainingBatches
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.errors import DivergenceError, InputError, TrainingInterrupted
from dclm_jax.reading.likelihoods import batch_likelihood
from dclm_jax.training import loop
from dclm_jax.training.checkpoints import Checkpoints
from dclm_jax.training.config import default_config
from dclm_jax.training.job import open_job
from dclm_jax.training.run_writer import MetricsLog, RunProgress
from dclm_jax.training.workdir import (
    MetricsLine,
    metrics_lines,
    restore_run,
    trained_steps,
)
from tests.exhaustive import also
from tests.launch.support import fingerprint
from tests.training.support import (
    WORDS,
    after_step,
    assert_same_bits,
    comparable,
    config,
    latest_state,
    read_metrics,
    read_result,
    terminate,
    train_with_a_crash,
)


@pytest.fixture
def empty_cache(tmp_path) -> Iterator[None]:
    """A cache of compiled programs that no earlier run of the tests has filled."""
    before = jax.config.values["jax_compilation_cache_dir"]

    def use(directory: str) -> None:
        jax.config.update("jax_compilation_cache_dir", directory)
        compilation_cache.reset_cache()

    use(str(tmp_path / "xla"))
    yield
    use(before)


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """What was compiled, and not loaded from the cache."""
    compiled: list[str] = []

    def listen(event: str, **_: Any) -> None:
        if event == "/jax/compilation_cache/cache_misses":
            compiled.append(event)

    jax.monitoring.register_event_listener(listen)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_listener(listen)


@pytest.mark.parametrize("stop_at", [5, *also([3, 8])])
def test_interrupted_and_resumed_is_uninterrupted(
    data, uninterrupted, empty_cache, tmp_path, stop_at, caplog
):
    with after_step(stop_at, terminate), pytest.raises(TrainingInterrupted) as interrupted:
        loop.train(config(data), tmp_path / "run")
    first = interrupted.value
    assert isinstance(first, KeyboardInterrupt) and stop_at <= first.step < 12
    assert read_result(tmp_path / "run") is None
    with compilations() as compiled:
        second = loop.train(config(data), tmp_path / "run")
    assert not compiled
    assert f"resuming after step {first.step}" in caplog.messages
    assert second.ending == "finished"
    assert read_result(tmp_path / "run") == second
    assert_same_bits(latest_state(tmp_path / "run", 12), latest_state(uninterrupted, 12))
    assert_same_bits(restore_run(tmp_path / "run").params, restore_run(uninterrupted).params)
    assert comparable(tmp_path / "run") == comparable(uninterrupted)


def test_ctrl_c_ends_a_loop_over_runs_once_the_run_is_saved(data, tmp_path):
    """The previous handler is restored after training; jobs in the background ignore Ctrl-C."""
    runs, before = [], signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        for seed in range(3):
            runs.append(tmp_path / f"run-{seed}")
            with after_step(2, lambda run: os.kill(os.getpid(), signal.SIGINT)):
                loop.train(config(data, **{"training.seed": seed}), runs[-1])
    assert len(runs) == 1 and trained_steps(runs[0]) >= 2
    assert signal.getsignal(signal.SIGINT) is before


def test_training_in_a_thread_is_training(data, uninterrupted, tmp_path):
    """Python allows handlers of signals only in the main thread."""
    with ThreadPoolExecutor(1) as worker:
        result = worker.submit(loop.train, config(data), tmp_path / "run").result()
    assert (result.ending, result.step) == ("finished", 12)
    assert_same_bits(restore_run(tmp_path / "run").params, restore_run(uninterrupted).params)


def test_finished_run_started_again_changes_nothing(data, uninterrupted):
    def contents():
        files = fingerprint(uninterrupted)
        return {name: content for name, content in files.items() if "tensorboard" not in name}

    before, changed = contents(), (uninterrupted / "metrics.jsonl").stat().st_mtime_ns
    result = loop.train(config(data), uninterrupted)
    assert (result.ending, result.step) == ("finished", 12)
    assert (uninterrupted / "metrics.jsonl").stat().st_mtime_ns == changed
    assert contents() == before


def truncate(directory: Path) -> None:
    """Halves every file that holds values, which is where a torn write shows."""
    for file in directory.rglob("*"):
        if file.is_file() and "d" in [part.name for part in (file.parent,)]:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_orbax_is_silent_and_the_user_s_log_is_not(uninterrupted, tmp_path, caplog):
    """A damaged checkpoint, which orbax and asyncio log, and errors of the user."""
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    truncate(run / "checkpoints" / "best")
    with pytest.raises(InputError):
        restore_run(run)
    for name in ("absl", "asyncio"):
        logging.getLogger(name).error(f"an error of the user of {name}")
    others = [record for record in caplog.records if not record.name.startswith("dclm_jax")]
    names = [record.name for record in others if record.levelno >= logging.ERROR]
    assert names == ["absl", "asyncio"], caplog.text


def test_truncated_checkpoints_fall_back_to_the_previous_and_say_so(
    data, uninterrupted, tmp_path, caplog
):
    run = tmp_path / "run"
    shutil.copytree(uninterrupted, run)
    truncate(run / "checkpoints" / "latest" / "12")
    result = loop.train(config(data), run)
    assert f"{Path('latest') / '12'} cannot be used: " in caplog.text
    assert "using step 10 instead" in caplog.messages
    assert result.ending == "finished"
    assert_same_bits(latest_state(run, 12), latest_state(uninterrupted, 12))


def test_an_update_that_is_not_finite_stops_with_the_last_good_checkpoint(
    data, tmp_path, monkeypatch
):
    compiled_step = loop.compiled_step

    def poisoned(*arguments):
        program = compiled_step(*arguments)

        def step(state, batch, key):
            state, metrics = program(state, batch, key)
            if int(state.step) == 8:
                params = jax.tree.map(lambda a: a * np.nan, state.params)
                state = dataclasses.replace(state, params=params)
            return state, metrics

        return step

    monkeypatch.setattr(loop, "compiled_step", poisoned)
    # As if it had ended before: a run that goes on has no result.
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(DivergenceError, match="step 8: the update is not finite"):
        loop.train(config(data), tmp_path)
    assert read_result(tmp_path) is None
    assert restore_run(tmp_path).step == 5
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(restore_run(tmp_path).params))
    assert not (tmp_path / "checkpoints" / "latest" / "8").exists()


def test_metrics_file_drops_a_torn_line_and_later_steps(tmp_path):
    lines = [{"kind": "train", "step": step, "loss": 1.0} for step in (1, 2, 3)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '{"kind": "tr')
    with MetricsLog(tmp_path, step=2) as log:
        log.write("train", 3, loss=2.0)
    written = read_metrics(tmp_path)
    assert [(line["step"], line["loss"]) for line in written] == [(1, 1.0), (2, 1.0), (3, 2.0)]


def test_metrics_have_null_for_a_perplexity_that_overflows(tmp_path):
    with MetricsLog(tmp_path, step=0) as log:
        log.write("valid", 1, loss=800.0, perplexity=math.inf, tokens=5, seconds=0.5)
    text = (tmp_path / "metrics.jsonl").read_text()
    values = '"loss": 800.0, "perplexity": null, "tokens": 5, "seconds": 0.5'
    assert text == f'{{"kind": "valid", "step": 1, {values}}}\n'
    assert metrics_lines(tmp_path) == [MetricsLine("valid", 1, 5, 0.5, math.inf)]


def test_checkpoints_before_the_first_evaluation_are_json(tmp_path):
    tree = {"a": np.zeros(2)}
    with contextlib.closing(Checkpoints(tmp_path / "checkpoints", "latest")) as checkpoints:
        checkpoints.save(1, tree, dataclasses.asdict(RunProgress()))
        checkpoints.wait()
        restored = checkpoints.restore(tree)
    assert restored is not None and restored[2]["best_perplexity"] is None
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"best_perplexity" in text for text in written)
    assert not any(b"Infinity" in text for text in written)


def test_the_rate_of_every_step_is_logged(data, tmp_path):
    """30 documents make 8 steps an epoch: the rate is halved at the steps 4, 6, 8 and 10, counted
    from 0."""
    values = {
        "data.segment_length": 0,
        "optimizer.name": "sgd",
        "optimizer.schedule": "halve_after",
        "optimizer.halve_after": 0.5,
        "optimizer.halve_every": 0.25,
    }
    loop.train(config(data, **values), tmp_path)
    lines = [line for line in read_metrics(tmp_path) if line["kind"] == "train"]
    halvings = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    rates = [line["learning_rate"] for line in lines]
    np.testing.assert_allclose(rates, 0.05 / 2.0 ** np.array(halvings), rtol=1e-6)


def test_a_rate_halved_on_plateaus_goes_on_after_a_kill_and_with_more_epochs(data, tmp_path):
    """Bit for bit, in a run whose rate is so large that the loss of some epoch rises."""

    def hashed(epochs):
        values = default_config("hrnnlm_two_step")
        values.update_from_flattened_dict(
            {
                **{f"model.{name}_dim": 4 for name in ("embedding", "hidden")},
                **{"model.hash_size": 50, "data.directory": str(data), "data.batch_size": 8},
                **{"optimizer.name": "sgd", "optimizer.learning_rate": 30.0},
                **{"optimizer.schedule": "halve_on_plateau", "optimizer.clip_norm": 5.0},
                **{"training.epochs": epochs, "training.checkpoint_every": 4},
                **{"training.log_every": 1, "training.patience": 0},
            }
        )
        return values

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    last = loop.train(hashed(4), whole).step
    rates = [
        line["learning_rate"]
        for line in read_metrics(whole)
        if "loss" in line and line["kind"] == "train"
    ]
    assert rates[0] == 30 and rates[-1] < 30 and len(rates) == last
    steps_per_epoch = last // 4
    assert all(
        len(set(rates[i : i + steps_per_epoch])) == 1 for i in range(0, last, steps_per_epoch)
    )

    # Within an epoch, between checkpoints.
    train_with_a_crash(hashed(3), killed, 3 * steps_per_epoch - 1)
    assert loop.train(hashed(3), killed).step == 3 * steps_per_epoch
    assert loop.train(hashed(4), killed).step == last
    assert_same_bits(latest_state(killed, last), latest_state(whole, last))
    assert comparable(killed) == comparable(whole)


def test_a_configuration_without_a_corpus_is_refused(tmp_path):
    with pytest.raises(InputError, match="data.directory is empty; set it to the output of"):
        loop.train(default_config("rnnlm"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "frozen", "is_reported"),
    [("hrnnlm", "", True), ("hrnnlm", "sentence_*", False), *also([("rnnlm", "", False)])],
)
def test_the_loss_of_a_further_objective_is_told_where_it_is_trained(
    data, tmp_path, name, frozen, is_reported, caplog
):
    options = {"model.name": name, "training.frozen": frozen, "training.max_steps": 1}
    loop.train(config(data, **options), tmp_path / "run")
    (line,) = [record for record in read_metrics(tmp_path / "run") if record["kind"] == "train"]
    assert ("bags_loss" in line) == is_reported
    assert any("bags loss" in text for text in caplog.messages) == is_reported
    if is_reported:
        # Nats per target: at first all words are about equally probable, and END is in no bag.
        batches = open_job(config(data, **options)).batches
        mask_BxSxN = batches(0).mask_BxSxN
        words = mask_BxSxN[..., 1:].sum() / mask_BxSxN.sum()
        vocabulary = open_corpus(data, "train").vocabulary
        assert line["bags_loss"] == pytest.approx(words * math.log(len(vocabulary)), rel=0.1)


@pytest.mark.parametrize("name", ["rnnslm", *also(["ccdclm"])])
def test_training_and_validation_have_one_definition_of_the_loss(of_lengths, tmp_path, name):
    """One step of all segments, which changes no parameter, of a split that is also validated."""
    values = {"model.name": name, "model.dropout": 0.0, "data.segment_length": 0}
    values |= {"data.batch_size": 100, "optimizer.name": "sgd", "optimizer.learning_rate": 0.0}
    values |= {"training.max_steps": 1}
    values |= {"model.hash_size": 50} if name == "rnnslm" else {}
    loop.train(config(of_lengths, **values), tmp_path)
    trained, validated = read_metrics(tmp_path)
    assert (trained["kind"], validated["kind"]) == ("train", "valid")
    assert trained["loss"] == pytest.approx(validated["loss"], rel=1e-6)
    assert trained["perplexity"] == pytest.approx(validated["perplexity"], rel=1e-5)


@pytest.fixture(scope="module")
def of_lengths(tmp_path_factory) -> Path:
    """Documents of sentences of 3, of 12 or of 20 words."""
    root = tmp_path_factory.mktemp("lengths")
    documents = [[" ".join(WORDS * 2)[: 2 * words - 1]] * 2 for words in (3, 12, 20) * 8]
    (root / "text.txt").write_text("\n\n".join(map("\n".join, documents)))
    sources = {split: str(root / "text.txt") for split in ("train", "valid")}
    prepare(sources, root / "prepared", options=PrepareOptions(vocab_size=20))
    return root / "prepared"


class FakeTime:
    """A clock that goes on only where a test says so."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_shapes_are_told_when_compiled_and_compiling_and_saving_count_in_no_rate(
    of_lengths, tmp_path, monkeypatch, caplog
):
    """A batch takes 2 s to come, a line of metrics 1 s to write, a checkpoint 100 s to save, and a
    step of a new shape 1,000 s more to compile."""
    now = FakeTime()
    monkeypatch.setattr(loop, "time", now)
    prefetch, compiled_step = loop._prefetch, loop.compiled_step
    compiled: list[tuple[int, ...]] = []

    def slow_to_compile(step, state, batch):
        compiled.append(batch.mask_BxSxN.shape[2:])
        now.now += 1000
        return compiled_step(step, state, batch)

    def slow_to_come(*arguments):
        for batch in prefetch(*arguments):
            now.now += 2
            yield batch

    write, save_latest = loop.RunWriter.write, loop.RunWriter.save_latest

    def slow_to_write(writer, kind, step, **values):
        now.now += kind == "train"
        write(writer, kind, step, **values)

    def slow_to_save(writer, state, progress):
        now.now += 100
        save_latest(writer, state, progress)

    monkeypatch.setattr(loop, "compiled_step", slow_to_compile)
    monkeypatch.setattr(loop, "_prefetch", slow_to_come)
    monkeypatch.setattr(loop.RunWriter, "write", slow_to_write)
    monkeypatch.setattr(loop.RunWriter, "save_latest", slow_to_save)
    loop.train(config(of_lengths), tmp_path / "run")

    corpus = open_corpus(of_lengths, "train")
    batches = TrainingBatches(corpus, segment_length=5, batch_size=4, seed=0)
    met = list(dict.fromkeys(batches(step).mask_BxSxN.shape[1:] for step in range(12)))
    assert sorted(met) == [(5, 8), (5, 16), (5, 32)]
    others = [shape for shape in met if shape != (5, 32)]
    assert compiled == [(5, 32), *others]
    assert [line for line in caplog.messages if line.startswith("compiling")] == [
        "compiling the largest of 3 shapes: 5 sentences of 32 positions",
        *(f"compiling {S} sentences of {N} positions" for S, N in others),
    ]
    measured = read_metrics(tmp_path / "run")
    trained = [line for line in measured if line["kind"] == "train"]
    tokens = [int(batches(step).mask_BxSxN.sum()) for step in range(12)]
    # A step is read when the next batch is there, or at once where something is saved.
    # The line of a step is written while the next step is made, or before something is saved.
    saved = (4, 5, 8, 10, 12)
    seconds = [2 * step if step in saved else 2 * step + 2 for step in range(1, 13)]
    lines = np.cumsum([0, *(step not in saved for step in range(1, 12))]).tolist()
    seconds = [begin + written for begin, written in zip(seconds, lines, strict=True)]
    assert [line["seconds"] for line in trained] == seconds
    for line, counted, time in zip(trained, tokens, np.diff([0, *seconds]), strict=True):
        assert line["tokens_per_second"] == counted / max(time, 1e-9)
    (line,) = [line for line in caplog.messages if line.startswith("step 6/12")]
    # The two checkpoints count in the remaining time.
    assert line.endswith("ETA 0:03:39")


@pytest.mark.parametrize(
    ("name", "length", "carried"),
    [("ccdclm", 3, 3), ("codclm", 3, 1), ("ccdclm", 0, 0), ("rnnlm", 3, 0), ("rlm_bow_lf", 3, 4)],
)
def test_batches_hold_the_segment_before_if_contexts_are_carried(data, name, length, carried):
    values = {"model.name": name, "model.cell": "lstm", "data.segment_length": length}
    values |= {"data.carry_context": True}
    work = open_job(config(data, **values))
    assert work.batches.earlier_sentences == carried
    without = open_job(config(data, **{**values, "data.carry_context": False}))
    assert without.batches.earlier_sentences == (4 if name == "rlm_bow_lf" else 0)


@pytest.mark.parametrize(
    ("option", "value"), [("data.carry_context", True), ("data.no_context_share", 0.5)]
)
def test_options_of_contexts_without_effect_are_reported(data, tmp_path, caplog, option, value):
    values = {"model.name": "rnnlm", option: value, "training.max_steps": 1}
    loop.train(config(data, **values), tmp_path / "run")
    (line,) = [line for line in caplog.messages if option in line]
    assert line.startswith(f"{option} has no effect")


@pytest.mark.parametrize(("warmup", "warned"), [(4, True), (3, False), (0, False)])
def test_a_warmup_of_more_than_a_third_of_the_steps_is_warned_of(
    data, tmp_path, caplog, warmup, warned
):
    values = {"training.max_steps": 9, "optimizer.warmup_steps": warmup}
    loop.train(config(data, **values), tmp_path / "run")
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert bool(warnings) == warned
    if warned:
        assert "optimizer.warmup_steps is 4 of 9 steps; choose at most a third" in caplog.text


@pytest.mark.parametrize("name", ["ccdclm", "rlm_bow_lf"])
def test_segments_with_no_context_start_from_the_initial_context(data, name):
    """Every segment, so that the batches are those of training without carried context."""
    values = {"model.name": name, "model.cell": "lstm", "data.carry_context": True}
    values |= {"data.no_context_share": 1.0}
    work = open_job(config(data, **values))
    params = work.model.init(jax.random.key(0))
    for step in range(3):
        batch = work.batches(step)
        alone = batch_likelihood(work.model, params, dataclasses.replace(batch, earlier=None))
        np.testing.assert_allclose(batch_likelihood(work.model, params, batch).nll, alone.nll)
