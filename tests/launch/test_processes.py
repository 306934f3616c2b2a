"""Jobs of two processes with two devices each, against one process with one device."""

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from dclm_jax import processes
from dclm_jax.errors import InputError
from dclm_jax.training.workdir import restore_run
from tests.compiling import TWO_DEVICES
from tests.exhaustive import also, some
from tests.launch.support import TOLERANCE, free_port, launch, start
from tests.training.support import read_metrics

PROCESSES = 2
STEPS = 60


def start_together(name: str, *arguments, second: str | None = None) -> list[subprocess.Popen[str]]:
    """The processes of one job, in order; `second` is an argument of the second one alone."""
    job = [f"--coordinator_address=127.0.0.1:{free_port()}", f"--num_processes={PROCESSES}"]
    extra = ([], [second] if second else [])
    return [
        start(name, *arguments, *extra[index], *job, f"--process_id={index}", **TWO_DEVICES)
        for index in range(PROCESSES)
    ]


def finish(job: list[subprocess.Popen[str]], code: int = 0) -> list[tuple[str, str]]:
    """Standard output and error of each process, which must all end with this exit code."""
    texts = [process.communicate(timeout=180) for process in job]
    assert [process.returncode for process in job] == [code] * len(job), texts
    return texts


def together(name: str, *arguments, code: int = 0, **options) -> list[tuple[str, str]]:
    return finish(start_together(name, *arguments, **options), code)


@pytest.fixture(scope="module")
def values() -> list[str]:
    """Batches of 7 rows for 4 devices: one row of them is empty."""
    return [
        "--config.data.batch_size=7",
        f"--config.training.max_steps={STEPS}",
        "--config.training.epochs=100",
        "--config.training.evaluate_every=20",
        "--config.training.checkpoint_every=15",
        "--config.model.dropout=0.2",
        # It compiles faster, which every second process has to do anew.
        "--config.model.cell=rnn",
    ]


def until(process: subprocess.Popen[str], start: str) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line
        if line.startswith(start):
            return


def test_a_run_of_two_processes_stops_together_and_equals_that_of_one(space, values, tmp_path):
    """SIGTERM goes to the second process alone; both save and stop, and the run goes on."""
    single, several = tmp_path / "one", tmp_path / "two"
    launch("train", *space.training(single, *values))
    # The second time it comes before the first step: nothing has been agreed on yet.
    for line in some(["step 10/"], all=["step 10/", "resuming after"]):
        job = start_together("train", *space.training(several, *values))
        printed = "".join(until(job[0], line))
        job[1].send_signal(signal.SIGTERM)
        (rest, _), (silent, _) = finish(job, code=75)
        assert silent == ""
        assert "devices: 4 x cpu" in printed
        stopped = re.search(r"interrupted and saved at step (\d+); the same command resumes", rest)
        assert stopped and 10 <= int(stopped[1]) < STEPS
    (resumed, _), (silent, _) = together("train", *space.training(several, *values))
    assert silent == ""
    assert stopped and f"resuming after step {stopped[1]}\n" in resumed
    assert f"finished {STEPS} steps" in resumed

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4),
        restore_run(single).params,
        restore_run(several).params,
    )
    lines_one, lines_two = (read_metrics(run) for run in (single, several))
    assert [line["step"] for line in lines_one] == [line["step"] for line in lines_two]
    for a, b in zip(lines_one, lines_two, strict=True):
        assert a["kind"] == b["kind"] and a["tokens"] == b["tokens"]
        np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "arguments"),
    also(
        [
            ("score", ["--input=TEST", "--batch_size=2"]),
            ("score", ["--input=TEST", "--measures=entropy,divergence", "--no_context_too"]),
            ("evaluate", []),
            ("coherence", ["--permutations=3", "--bootstrap=5"]),
        ]
    ),
)
def test_evaluation_of_two_processes_merges_exactly(space, name, arguments):
    """Every process scores a part; the batches, and so the bits, are those of one process."""
    arguments = [argument.replace("TEST", str(space.text["test"])) for argument in arguments]
    run = f"--workdir={space.run}"
    # What the run has saved would be read, and the two processes would score nothing.
    saved = space.run / "results"
    shutil.rmtree(saved, ignore_errors=True)
    alone = launch(name, run, "--metrics=-", *arguments, **TWO_DEVICES).stdout
    shutil.rmtree(saved, ignore_errors=True)
    (first, errors), second = together(name, run, "--metrics=-", *arguments)
    assert (first, errors) == (alone, "")
    assert second == ("", "")
    assert len(alone) > 100


def test_a_run_of_subwords_of_two_processes_equals_that_of_one(space, values, tmp_path):
    """Targets are counted over all devices: words and ENDs, not pieces."""
    corpus, runs = tmp_path / "pieces", (tmp_path / "one", tmp_path / "two")
    launch("prepare", *space.sources(), f"--output={corpus}", "--subwords=269")
    pieces = [f"--config.data.directory={corpus}", "--config.training.max_steps=8"]
    pieces += ["--config.training.evaluate_every=8"]
    launch("train", *space.training(runs[0], *values, *pieces))
    together("train", *space.training(runs[1], *values, *pieces))
    one, two = map(read_metrics, runs)
    assert [line["tokens"] for line in one] == [line["tokens"] for line in two]
    np.testing.assert_allclose(*([line["loss"] for line in run] for run in (one, two)), rtol=1e-4)


@pytest.mark.exhaustive
def test_results_of_two_processes_are_written_by_the_first(space, tmp_path):
    output = tmp_path / "perplexity.json"
    together("evaluate", f"--workdir={space.run}", f"--metrics={output}")
    measured = json.loads(output.read_text())
    expected = space.evaluate()
    np.testing.assert_allclose(measured["nll"], expected["nll"], rtol=TOLERANCE)
    assert [file.name for file in tmp_path.iterdir()] == ["perplexity.json"]


def test_an_error_of_one_process_ends_all_and_is_said_once(space, tmp_path):
    run, missing = tmp_path / "run", tmp_path / "missing"
    wrong = f"--config.data.directory={missing}"
    named = space.training(run, config=Path(f"{space.config}:ccdclm"))
    first, second = together("train", *named, second=wrong, code=2)
    assert first == ("", "")
    assert second == (
        "",
        f"error: {missing}: no such directory; prepare a corpus by launch.prepare\n",
    )
    assert not run.exists()


@pytest.mark.exhaustive
def test_an_error_of_the_first_process_ends_all(space, tmp_path):
    """Only the first one looks at the workdir, which holds a run of another configuration."""
    arguments = space.training(space.run, "--config.model.hidden_dim=9")
    first, second = together("train", *arguments, code=2)
    assert "a different run (model.hidden_dim: 8 saved" in first[1]
    assert second == ("", "")


@pytest.mark.exhaustive
def test_standard_input_cannot_be_shared(space):
    first, second = together("score", f"--workdir={space.run}", "--input=-", code=2)
    assert first == (
        "",
        "error: --input is '-', which several processes cannot share; write the text to a file\n",
    )
    assert second == ("", "")


@pytest.mark.exhaustive
def test_a_process_that_dies_ends_the_others_and_the_run_goes_on(space, values, tmp_path):
    run = tmp_path / "run"
    job = start_together("train", *space.training(run, *values))
    list(until(job[0], "step 20 "))
    job[1].kill()
    _, errors = job[0].communicate(timeout=100)
    job[1].communicate()
    assert job[0].returncode == 75
    assert re.search(
        r"^error: process 0 lost the other processes or a device \(.*\); repeat", errors, re.M
    )
    # As one process: several have gone on before.
    resumed = launch("train", *space.training(run, *values)).stdout
    assert "resuming after step" in resumed and f"finished {STEPS} steps" in resumed


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        # Open MPI 5 does not set the address of the first process.
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_SIZE", "two"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("TPU_WORKER_HOSTNAMES", "a,b"),
    ],
)
def test_variables_of_a_scheduler_without_an_address_are_named(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    expected = f"^{variable}={value}: a job of several processes, in which JAX finds no process 0"
    with pytest.raises(InputError, match=expected) as error:
        processes.start()
    assert "--coordinator_address=HOST:PORT, --num_processes and --process_id" in str(error.value)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("no-such-host.invalid", "no-such-host.invalid"),
        ("gone[007-009,12],b", "gone007"),
        ("absent.invalid,b", "absent.invalid"),
    ],
)
def test_a_host_without_an_address_is_refused_before_jax_waits(monkeypatch, nodes, host):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
    begin = re.escape(f"SLURM_STEP_NODELIST={nodes}: the host '{host}' of process 0 has no address")
    with pytest.raises(InputError, match=f"^{begin}"):
        processes.start()
    with pytest.raises(InputError, match="^coordinator_address=no-such.invalid:80: the host"):
        processes.start("no-such.invalid:80", 2, 0)


def test_variables_of_one_task_are_no_job(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    processes.start()
    assert processes.count() == 1
