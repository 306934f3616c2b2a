"""Jobs on a real Slurm of this one machine, where slurm-wlm and munge are installed."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from dclm_jax.training.workdir import restore_run
from tests.launch.support import REPOSITORY, STEPS, TOLERANCE, environment, free_port

FOLDER = REPOSITORY / "launch/slurm"
SEARCHED = f"{os.environ['PATH']}:/usr/sbin:/sbin"
DAEMONS = ("slurmctld", "slurmd", "munged")
pytestmark = pytest.mark.skipif(
    not all(shutil.which(name, path=SEARCHED) for name in DAEMONS),
    reason="slurm-wlm and munge are not installed",
)
TASKS = 2

# Stands for training: trains for ever, saves at SIGTERM, and finishes the second time. It is ready
# for the signal before it says that it started, and goes on where only its sleep has had it yet.
INTERPRETER = """#!/usr/bin/env bash
trap 'echo saved; exit 75' TERM
echo "started with ${*: -2}"
[[ ${SLURM_RESTART_COUNT:-0} -eq 0 ]] || exit 0
while :; do sleep 0.2; done
"""


class Cluster:
    def __init__(self, folder: Path):
        self.folder = folder
        self.interpreter = folder / "interpreter"

    def control(self, command: str) -> None:
        script = FOLDER / "test_cluster.sh"
        # Not a pipe: the daemons would keep it open.
        with open(self.folder / f"{command}.log", "w") as log:
            done = subprocess.run(
                ["bash", script, command, self.folder / "cluster"],
                env={**os.environ, "PORT": str(free_port())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=90,
            )
        assert done.returncode == 0, (self.folder / f"{command}.log").read_text()

    def __call__(self, *arguments, **variables) -> str:
        """What one of Slurm's programs prints."""
        done = subprocess.run(
            [*map(str, arguments)],
            cwd=REPOSITORY,
            env=environment(SLURM_CONF=str(self.folder / "cluster/slurm.conf"), **variables),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self, *options, flags=(), **variables) -> str:
        """Submits launch/slurm/train.sbatch; returns the job's number."""
        log = f"--output={self.folder}/%j.log"
        file = FOLDER / "train.sbatch"
        return self("sbatch", "--parsable", log, *options, file, *flags, **variables)

    def read(self, job: str) -> str:
        log = self.folder / f"{job}.log"
        return log.read_text() if log.exists() else ""

    def wait_for(self, job: str, text: str, times: int = 1) -> None:
        self.until(lambda: self.read(job).count(text) >= times, job)

    def finish(self, job: str) -> str:
        """Waits for a job's end in success; returns its log."""
        self.until(lambda: not self("squeue", "--noheader", f"--jobs={job}"), job)
        assert "JobState=COMPLETED" in self("scontrol", "show", "job", job), self.read(job)
        return self.read(job)

    def until(self, condition, job: str) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, self.read(job)
            time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    cluster.interpreter.write_text(INTERPRETER)
    cluster.interpreter.chmod(0o755)
    cluster.control("start")
    yield cluster
    cluster.control("stop")


def test_two_tasks_train_are_interrupted_and_finish_as_one_process(cluster, space, tmp_path):
    job = cluster.submit(
        f"--ntasks={TASKS}",
        flags=[f"--config.data.directory={space.corpus}"],
        CONFIG=str(space.config),
        WORKDIR=str(tmp_path / "job"),
        PYTHON=sys.executable,
    )
    # The first step takes longer, to compile, than the signal takes to be noticed.
    cluster.wait_for(job, "workdir: ")
    cluster("scancel", "--signal=TERM", job)
    log = cluster.finish(job)
    for line in (
        "devices: 2 x cpu",
        "interrupted and saved at step",
        f"job {job}: interrupted, to be requeued",
        f"job {job}, restart 1: ",
        "resuming after step",
        f"finished {STEPS} steps",
    ):
        assert line in log, log

    ours, alone = restore_run(tmp_path / "job"), restore_run(space.run)
    assert ours.step == alone.step
    assert ours.info["perplexity"] == pytest.approx(alone.info["perplexity"], rel=TOLERANCE)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4),
        ours.params,
        alone.params,
    )


@pytest.mark.nightly
def test_an_array_is_requeued_by_the_time_limit(cluster, tmp_path):
    arguments = tmp_path / "flags"
    arguments.write_text("--config.a=1\n--config.a=2\n")
    # Slurm keeps time in minutes, and may send the signal up to one too early.
    job = cluster.submit(
        *("--array=1-2", "--time=1", "--signal=TERM@30", f"--output={tmp_path}/%a.log"),
        PYTHON=str(cluster.interpreter),
        ARGUMENTS=str(arguments),
        WORKDIR="run",
    )
    cluster.finish(job)
    for element in (1, 2):
        log = (tmp_path / f"{element}.log").read_text()
        started = f"started with --workdir=run/{element} --config.a={element}\n"
        assert log.count(started) == 2 and log.count("saved\n") == 1, log
        assert f"job {job}_{element}: interrupted, to be requeued" in log


@pytest.mark.exhaustive
def test_a_preempted_job_is_requeued(cluster):
    job = cluster.submit(f"--ntasks={TASKS}", PYTHON=str(cluster.interpreter))
    cluster.wait_for(job, "started with", TASKS)
    everything = ("--partition=urgent", "--exclusive", "--output=/dev/null")
    urgent = cluster("sbatch", "--parsable", *everything, "--wrap=true")
    cluster.finish(urgent)
    log = cluster.finish(job)
    assert log.count("saved\n") == TASKS
    assert log.count("started with") == 2 * TASKS


@pytest.mark.exhaustive
def test_a_job_one_of_whose_tasks_fails_is_not_requeued(cluster, tmp_path):
    failing = tmp_path / "interpreter"
    failing.write_text("#!/usr/bin/env bash\nexit $((SLURM_PROCID == 1 ? 2 : 75))\n")
    failing.chmod(0o755)
    job = cluster.submit(f"--ntasks={TASKS}", PYTHON=str(failing))
    cluster.until(lambda: not cluster("squeue", "--noheader", f"--jobs={job}"), job)
    state = cluster("scontrol", "show", "job", job)
    assert "JobState=FAILED" in state and "ExitCode=2:0" in state and "Restarts=0" in state


@pytest.mark.exhaustive
def test_a_cancelled_job_stays_cancelled(cluster):
    job = cluster.submit(PYTHON=str(cluster.interpreter))
    cluster.wait_for(job, "started with")
    cluster("scancel", job)
    cluster.wait_for(job, "saved\n")
    cluster.until(lambda: not cluster("squeue", "--noheader", f"--jobs={job}"), job)
    assert "JobState=CANCELLED" in cluster("scontrol", "show", "job", job)
    assert "requeued" not in cluster.read(job)
