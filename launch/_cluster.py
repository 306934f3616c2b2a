"""Options with which commands join a job of several processes."""

import dataclasses
import os
import signal
import sys

from dclm_jax import processes
from dclm_jax.errors import InputError

from ._options import CommandOptions


@dataclasses.dataclass(frozen=True)
class JobOptions(CommandOptions):
    """Options of a command that may be a job of several processes.

    Attributes:
      coordinator_address: address HOST:PORT of process 0, for a job of several processes. srun,
        mpirun and TPUs on Kubernetes need no address.
      num_processes: number of processes of the job.
      process_id: number of this process, counted from 0.
    """

    coordinator_address: str | None = None
    num_processes: int | None = None
    process_id: int | None = None

    def join(self, *, stops_together: bool = False) -> None:
        """Joins this process to its job, before any device is used. Only the first process prints.

        Args:
          stops_together: whether the caller asks `processes.stop_agreed` for SIGTERM, which
            otherwise ends the process.
        """
        job_flags = (self.coordinator_address, self.num_processes, self.process_id)
        # A process that waits for its peers cannot run a handler.
        handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        processes.start(*job_flags, stops_together=stops_together)
        if processes.count() == 1:
            signal.signal(signal.SIGTERM, handler)
            return
        stdout = os.dup(sys.stdout.fileno())
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        try:
            # At the first meeting Gloo prints to standard output, which may be the output of a
            # result.
            processes.agree(self._check_input)
        finally:
            if processes.is_primary():
                os.dup2(stdout, sys.stdout.fileno())
            os.close(stdout)

    def _check_input(self) -> None:
        if getattr(self, "input", None) == "-":
            raise InputError(
                "--input is '-', which several processes cannot share; write the text to a file"
            )
