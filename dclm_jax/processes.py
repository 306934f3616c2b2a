"""The processes of one job: which one prints and writes, and how they exchange values.

A job is one process or several that `start` has joined by `jax.distributed`. All run the same
program; the first one writes files and prints. With one process every function here is the
identity, or nearly.

Processes meet in `gather`, `together`, `by_first`, `from_first` and `stop_agreed`, all in one
order. All raise an `InputError` from there, and one prints it.
"""

import functools
import itertools
import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from dclm_jax.errors import InputError

Tree = TypeVar("Tree")

DEVICES = "devices"
"""Name of the axis over devices, of `jax.pmap` and of meshes."""

_TASKS_OF_A_STEP = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
"""Set to the number of tasks by Slurm's srun and Open MPI's mpirun."""

_calls = itertools.count(1)


class SharedError(InputError):
    """An error of one process that all of them raise; `process` is the one to report it."""

    def __init__(self, message: str, process: int):
        super().__init__(message)
        self.process = process


def start(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    stops_together: bool = False,
) -> None:
    """Joins this process to the others of its job; to be called before any device is used.

    Without arguments it joins the processes that a scheduler started: the tasks of an `srun` or
    `mpirun`, or the TPU hosts of a Kubernetes job. Without a scheduler it does nothing.

    Args:
      coordinator_address: HOST:PORT of process 0, equal in all processes.
      num_processes: number of processes of the job.
      process_id: number of this process, from 0.
      stops_together: whether SIGTERM is reported by `stop_agreed` instead of ending the process.
    """
    if coordinator_address is None and num_processes is None and process_id is None:
        tasks = max(int(os.environ.get(variable) or 1) for variable in _TASKS_OF_A_STEP)
        if tasks == 1 and "," not in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
            return
    elif coordinator_address is None or num_processes is None or process_id is None:
        raise InputError(
            "expected all or none of coordinator_address, num_processes and process_id"
        )
    elif not coordinator_address.rpartition(":")[2].isdigit():
        raise InputError(f"coordinator_address is {coordinator_address!r}; expected HOST:PORT")
    elif not 0 <= process_id < num_processes:
        raise InputError(
            f"process_id is {process_id} of {num_processes} processes; "
            "expected 0 up to num_processes - 1"
        )
    jax.config.update("jax_enable_preemption_service", stops_together)
    jax.distributed.initialize(coordinator_address, num_processes, process_id)


def count() -> int:
    """How many processes the job has."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def index() -> int:
    """This process's number, from 0."""
    # Asking JAX would wake up its devices.
    return jax.process_index() if jax.distributed.is_initialized() else 0


def is_first() -> bool:
    """Whether this is the process that prints and writes."""
    return index() == 0


def gather(content: bytes) -> list[bytes]:
    """The contents of all processes, in all of them. A meeting: every process must call it."""
    if count() == 1:
        return [content]
    sizes_P = multihost_utils.process_allgather(np.int32(len(content)))
    padded = np.zeros(max(int(sizes_P.max()), 1), np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    rows = multihost_utils.process_allgather(padded)
    return [row[:size].tobytes() for row, size in zip(rows, sizes_P, strict=True)]


def together(action: Callable[[], Tree]) -> Tree:
    """The result of `action` here, once it has succeeded on every process. A meeting.

    Raises:
      SharedError: it raised an `InputError` here or on another process.
    """
    if count() == 1:
        return action()
    value, message = None, ""
    try:
        value = action()
    except InputError as error:
        message = str(error)
    for process, content in enumerate(gather(message.encode())):
        if content:
            raise SharedError(content.decode(), process)
    return value  # pyright: ignore[reportReturnType]


def by_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one that only the first process runs: its JSON value in all. A meeting.

    Raises:
      SharedError, InputError: as `together`.
    """

    @functools.wraps(function)
    def shared(*arguments: Any) -> Any:
        value = together(lambda: function(*arguments) if is_first() else None)
        return json.loads(gather(json.dumps(value).encode())[0]) if count() > 1 else value

    return shared


def from_first(tree: Tree) -> Tree:
    """The first process's arrays, in all of them. A meeting.

    Args:
      tree: arrays of the same shapes and dtypes in all processes.
    """
    return multihost_utils.broadcast_one_to_all(tree) if count() > 1 else tree


def stop_agreed() -> bool:
    """Whether the job is to stop now, because any process has received a SIGTERM.

    It becomes true in the same call on all processes, one or two calls after the signal. A meeting
    of several processes: each must call it after every step.
    """
    # Calls are counted and not steps: JAX agrees on the call after the last one that any process
    # has made, the first one if there is none yet; a resumed run has another first step.
    return multihost_utils.reached_preemption_sync_point(next(_calls))


def on_local_devices(tree: Tree) -> Tree:
    """Arrays whole on every local device, as `pmap` with `in_axes=None` takes them."""
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), (DEVICES,))
    return jax.device_put(tree, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
