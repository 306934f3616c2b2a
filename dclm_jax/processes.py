"""The processes of one job: which one prints and writes, and how they exchange values.

A job is one process or several that `start` has joined by `jax.distributed`. All run the same
program; the first process writes files and prints. With one process nothing is exchanged.

`gather`, `agree`, `on_primary`, `from_primary` and `stop_agreed` synchronize the processes, which
must all call these functions in the same order. All processes raise an `InputError` of one process,
and one process prints it.
"""

import functools
import itertools
import json
import os
import re
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from dclm_jax.errors import InputError

TreeT = TypeVar("TreeT")

DEVICES = "devices"
"""Name of the axis over devices, of `jax.pmap` and of meshes."""

_TASKS_OF_A_STEP = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
"""Variables that Slurm's srun and Open MPI's mpirun set to the number of tasks."""

_NODES = "SLURM_STEP_NODELIST"
_FIRST_NODE = re.compile(r"([^,\[]*)(?:\[(\w+))?")
"""The first host in a list of hosts of Slurm, such as node[001-003,007]."""

_calls = itertools.count(1)


class SharedError(InputError):
    """An error of one process that all processes raise; the process `process` reports it."""

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
    """Joins this process to its job; call it before any device is used.

    Without arguments the job is the processes that a scheduler started: the tasks of an `srun` or
    `mpirun`, or the TPU hosts of a Kubernetes job. Without a scheduler nothing is joined.

    Args:
      coordinator_address: HOST:PORT of process 0, equal in all processes.
      num_processes: number of processes of the job.
      process_id: number of this process, from 0.
      stops_together: whether SIGTERM is reported by `stop_agreed` instead of ending the process.
    """
    is_scheduled = coordinator_address is None and num_processes is None and process_id is None
    if is_scheduled:
        if not (variables := _scheduler_variables()):
            return
        if variables[0] == _TASKS_OF_A_STEP[0] and (nodes := os.environ.get(_NODES)):
            first = _FIRST_NODE.match(nodes)
            assert first
            _require_address("".join(filter(None, first.groups())), f"{_NODES}={nodes}")
    elif coordinator_address is None or num_processes is None or process_id is None:
        raise InputError(
            "only some of coordinator_address, num_processes and process_id are set; set all or "
            "none"
        )
    elif not coordinator_address.rpartition(":")[2].isdigit():
        raise InputError(f"coordinator_address is {coordinator_address!r}; expected HOST:PORT")
    elif not 0 <= process_id < num_processes:
        raise InputError(
            f"process_id is {process_id} of {num_processes} processes; "
            "expected 0 up to num_processes - 1"
        )
    if coordinator_address is not None:
        host = coordinator_address.rpartition(":")[0]
        _require_address(host.strip("[]"), f"coordinator_address={coordinator_address}")
    jax.config.update("jax_enable_preemption_service", stops_together)
    try:
        jax.distributed.initialize(coordinator_address, num_processes, process_id)
    except (KeyError, RuntimeError, ValueError) as error:
        if not is_scheduled:
            raise
        variables = ", ".join(f"{name}={os.environ[name]}" for name in _scheduler_variables())
        raise InputError(
            f"{variables}: a job of several processes, in which JAX finds no process 0 ({error}); "
            "set --coordinator_address=HOST:PORT, --num_processes and --process_id, or unset these "
            "variables for a single process"
        ) from error


def _require_address(host: str, source: str) -> None:
    """Refuses a host without an address, for which JAX would wait and then end the process."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"{source}: the host {host!r} of process 0 has no address ({error}); set "
            "--coordinator_address=HOST:PORT, --num_processes and --process_id, with a host name "
            "or IP address that all hosts can resolve"
        ) from error


def _scheduler_variables() -> list[str]:
    """The variables that say that a scheduler started several processes."""
    variables = [name for name in _TASKS_OF_A_STEP if (os.environ.get(name) or "1") != "1"]
    if "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
        variables.append("TPU_WORKER_HOSTNAMES")
    return variables


def count() -> int:
    """The number of processes of the job."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def index() -> int:
    """The number of this process, from 0."""
    # Asking JAX would initialize its devices.
    return jax.process_index() if jax.distributed.is_initialized() else 0


def is_primary() -> bool:
    """Whether this is the process that prints and writes."""
    return index() == 0


def gather(content: bytes) -> list[bytes]:
    """The contents of all processes, in the order of processes. Every process must call it."""
    if count() == 1:
        return [content]
    sizes_P = multihost_utils.process_allgather(np.int32(len(content)))
    padded = np.zeros(max(int(sizes_P.max()), 1), np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    rows = multihost_utils.process_allgather(padded)
    return [row[:size].tobytes() for row, size in zip(rows, sizes_P, strict=True)]


def agree(action: Callable[[], TreeT]) -> TreeT:
    """The local result of `action`, after it has succeeded in every process. Every process must
    call it.

    Raises:
      SharedError: `action` raised an `InputError` in a process.
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


def on_primary(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run only by the first process; all processes get its JSON value. Every process
    must call it.

    Raises:
      SharedError, InputError: see `agree`.
    """

    @functools.wraps(function)
    def shared(*arguments: Any) -> Any:
        value = agree(lambda: function(*arguments) if is_primary() else None)
        return json.loads(gather(json.dumps(value).encode())[0]) if count() > 1 else value

    return shared


def from_primary(tree: TreeT) -> TreeT:
    """Sends the first process's arrays to all processes. Every process must call it.

    Args:
      tree: arrays of the same shapes and dtypes in all processes.
    """
    return multihost_utils.broadcast_one_to_all(tree) if count() > 1 else tree


def stop_agreed() -> bool:
    """Whether the job must stop now, because a process has received SIGTERM.

    The result becomes true in the same call in all processes, one or two calls after the signal.
    Every process must call this function after every step.
    """
    # JAX agrees on the call after the last call that any process has made. Calls are counted
    # instead of steps, because a resumed run begins at a later step.
    return multihost_utils.reached_preemption_sync_point(next(_calls))


def on_local_devices(tree: TreeT) -> TreeT:
    """Copies of arrays on every local device, for a `pmap` with `in_axes=None`."""
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), (DEVICES,))
    return jax.device_put(tree, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
