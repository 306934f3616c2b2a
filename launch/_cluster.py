"""Flags and functions with which launchers join a job of several processes."""

import os
import signal
import sys

from absl import flags

from dclm_jax import processes
from dclm_jax.errors import InputError

_COORDINATOR = flags.DEFINE_string(
    "coordinator_address",
    None,
    "Address HOST:PORT of process 0, for a job of several processes. srun, mpirun and TPUs on "
    "Kubernetes need no address.",
)
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Number of processes of the job.")
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "Number of this process, counted from 0.")


def join(*, stops_together: bool = False) -> None:
    """Joins this process to its job, before any device is used. Only the first process prints.

    Args:
      stops_together: whether the caller asks `processes.stop_agreed` for SIGTERM, which otherwise
        ends the process.
    """
    flags_given = (_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
    # A process that waits for its peers cannot run a handler.
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    processes.start(*flags_given, stops_together=stops_together)
    if processes.count() == 1:
        signal.signal(signal.SIGTERM, handler)
        return
    stdout = os.dup(sys.stdout.fileno())
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    try:
        # At the first meeting Gloo prints to standard output, which may be the output of a result.
        processes.agree(_check_input)
    finally:
        if processes.is_primary():
            os.dup2(stdout, sys.stdout.fileno())
        os.close(stdout)


def _check_input() -> None:
    if "input" in flags.FLAGS and flags.FLAGS.input == "-":
        raise InputError(
            "--input is '-', which several processes cannot share; write the text to a file"
        )
