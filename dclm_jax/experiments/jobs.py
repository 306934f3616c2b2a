"""Callables run as jobs of submitit, some at a time on this machine or as an array in Slurm."""

import contextlib
import io
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dclm_jax import files
from dclm_jax.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from submitit import Job

Task = Callable[[], int]
Parameters = dict[str, bool | int | str]

_NO_LIMIT_MINUTES = 60 * 24 * 365
_LOCAL_POLL_SECONDS, _TELL_AGAIN_SECONDS = 0.1, 1.0
# Slurm is asked less and less often: short sweeps end soon, and long ones are no burden to it.
_FIRST_POLL_SECONDS, _LAST_POLL_SECONDS, _POLL_GROWTH = 1.0, 30.0, 1.5
_RECORD = "slurm.json"
_REQUEUES = "max_num_timeout"
# --jobs is one of them; the others are no single words, or would make several processes of a cell.
_NOT_FOR_USERS = {
    *("additional_parameters", "array_parallelism", "nodes", "ntasks_per_node", "num_gpus"),
    *("setup", "srun_args", "stderr_to_stdout", "teardown"),
}


class Ended(NamedTuple):
    """A job that is over, well or badly.

    Attributes:
      name: of its task.
      code: what the task returned; None where the job came to nothing.
      seconds: since it was submitted, or found.
      log: what its own process, which waits for the task, wrote on standard error.
    """

    name: str
    code: int | None
    seconds: float
    log: Path


def require_submitit() -> None:
    """Finds out before anything is written whether jobs can be made.

    Raises:
      InputError: submitit is not installed.
    """
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise InputError("sweeps need submitit: pip install 'dclm_jax[sweep]'") from error
    # Its loggers write to standard output too; what they tell of states is in what comes of it.
    logging.getLogger("submitit").setLevel(logging.CRITICAL)


def parse_slurm(text: str) -> Parameters:
    """The parameters in "partition=gpu,time=240"; whole numbers and true as such.

    Raises:
      InputError: a part that is none, an unknown parameter, one that is there twice, or no time.
    """
    from submitit import SlurmExecutor

    known = (SlurmExecutor._valid_parameters() | {_REQUEUES}) - _NOT_FOR_USERS
    parameters: Parameters = {}
    for part in filter(None, text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise InputError(f"--slurm: found {part.strip()!r}; expected NAME=VALUE,NAME=VALUE")
        if name not in known:
            raise InputError(f"--slurm: unknown parameter {name!r}{did_you_mean(name, known)}")
        if name in parameters:
            raise InputError(f"--slurm: {name} is there twice; expected every parameter once")
        parameters[name] = int(value) if value.isdecimal() else value.lower() == "true" or value
    if type(parameters.get("time")) is not int:
        raise InputError(
            f"--slurm: time is {parameters.get('time', 'missing')}; expected the minutes after "
            "which a cell saves and is queued again, for example --slurm=time=240"
        )
    return parameters


def require_slurm() -> None:
    """Finds out before anything is written whether this is a machine of a cluster.

    Raises:
      InputError: Slurm's commands are not on the PATH.
    """
    for program in ("sbatch", "squeue", "srun"):
        if shutil.which(program) is None:
            raise InputError(f"--executor=slurm: there is no {program} on the PATH")


def run_local(
    tasks: Mapping[str, Task], folder: Path, *, at_once: int, interrupted: Callable[[], bool]
) -> Iterator[Ended]:
    """Runs tasks in processes of this machine and yields each when it is over.

    Once `interrupted()` no task is started any more, and those that run get SIGTERM.

    Args:
      tasks: by name, in the order they are started.
      folder: for submitit's files.
      at_once: most tasks that run at a time.
      interrupted: tells whether to stop.
    """
    from submitit import LocalExecutor

    executor = LocalExecutor(folder)
    executor.update_parameters(timeout_min=_NO_LIMIT_MINUTES)
    waiting = list(tasks.items())
    running: dict[str, tuple[Job[int], float]] = {}
    told = -_TELL_AGAIN_SECONDS
    try:
        while waiting or running:
            if interrupted():
                waiting.clear()
                # Again and again: a process that is just starting does not listen yet.
                if time.monotonic() - told >= _TELL_AGAIN_SECONDS:
                    told = time.monotonic()
                    _terminate(job for job, _ in running.values())
            elif waiting and len(running) < at_once:
                name, task = waiting.pop(0)
                # Its process never sees Ctrl-C, a second after which submitit's would kill the
                # task, and is told by SIGTERM, and once.
                previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
                try:
                    running[name] = executor.submit(task), time.monotonic()
                finally:
                    signal.signal(signal.SIGINT, previous)
            for name, (job, start) in list(running.items()):
                if job.done():
                    del running[name]
                    yield _ended(name, job, start)
            time.sleep(_LOCAL_POLL_SECONDS)
    finally:
        _terminate(job for job, _ in running.values())


def run_slurm(
    tasks: Mapping[str, Task],
    folder: Path,
    *,
    at_once: int | None,
    parameters: Parameters,
    interrupted: Callable[[], bool],
) -> Iterator[Ended]:
    """Runs tasks as an array of jobs in Slurm and yields each when it is over.

    A task whose job of an earlier call is still queued or runs is waited for, and not submitted
    again. Once `interrupted()` the jobs are left to themselves.

    Args:
      tasks: by name.
      folder: for submitit's files and the numbers of jobs; seen by all machines of the cluster.
      at_once: most tasks that run at a time; None for as many as Slurm lets.
      parameters: see `parse_slurm`.
      interrupted: tells whether to stop waiting.

    Raises:
      InputError: Slurm does not take the jobs.
    """
    from submitit import SlurmExecutor, SlurmJob

    given = dict(parameters)
    requeues = {_REQUEUES: given.pop(_REQUEUES)} if _REQUEUES in given else {}
    executor = SlurmExecutor(folder, **requeues)  # pyright: ignore[reportArgumentType]
    if at_once is not None:
        given["array_parallelism"] = at_once
    executor.update_parameters(**given)
    record = folder / _RECORD
    numbers = files.read_json(record, dict[str, str]) if record.exists() else {}
    try:
        queue = _queue()
        jobs: dict[str, Job[int]] = {
            name: SlurmJob(folder, numbers[name]) for name in tasks if numbers.get(name) in queue
        }
        if new := {name: task for name, task in tasks.items() if name not in jobs}:
            # submitit prints what sbatch says, and raises it as well.
            with contextlib.redirect_stderr(io.StringIO()), executor.batch():
                jobs |= {name: executor.submit(task) for name, task in new.items()}
    # What sbatch has to say comes as such an error too.
    except RuntimeError as error:
        raise InputError(f"Slurm does not take the jobs: {' '.join(str(error).split())}") from error
    files.write_json(record, numbers | {name: job.job_id for name, job in jobs.items()})
    start, pause = time.monotonic(), _FIRST_POLL_SECONDS
    gone: set[str] = set()
    while jobs and not interrupted():
        with contextlib.suppress(RuntimeError):
            queue = _queue()
        for name, job in list(jobs.items()):
            # Files of another machine may show a while after its job has left the queue.
            if job.paths.result_pickle.exists() or (job.job_id not in queue and name in gone):
                del jobs[name]
                yield _ended(name, job, start)
        gone = {name for name, job in jobs.items() if job.job_id not in queue}
        end = time.monotonic() + pause
        while jobs and time.monotonic() < end and not interrupted():
            time.sleep(_LOCAL_POLL_SECONDS)
        pause = min(pause * _POLL_GROWTH, _LAST_POLL_SECONDS)


def _ended(name: str, job: "Job[int]", start: float) -> Ended:
    code = None
    if job.paths.result_pickle.exists():
        # What the task raised, if it did, is in the log.
        with contextlib.suppress(RuntimeError):
            code = job.result()
    return Ended(name, code, time.monotonic() - start, job.paths.stderr)


def _queue() -> set[str]:
    """The numbers of this user's jobs that wait or run.

    Unlike sacct, which submitit asks, squeue needs no accounting.
    """
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={os.getuid()}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"squeue: {done.stderr.strip()}")
    return set(done.stdout.split())


def _terminate(jobs: "Iterator[Job[int]]") -> None:
    for job in jobs:
        # A process that has not been waited for keeps its number.
        if not job.done():
            os.kill(int(job.job_id), signal.SIGTERM)
