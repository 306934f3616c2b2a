"""Trains a model, or resumes a run that was interrupted.

  python -m launch.prepare --corpus=sotu --output=data/sotu
  python -m launch.train --config=configs/quickstart.py:ccdclm \\
      --config.data.directory=data/sotu --workdir=runs/ccdclm

Any value of the configuration can be set on the command line, for example
--config.model.hidden_dim=64; --help --config=configs/quickstart.py lists all of them. The workdir
holds config.json, vocabulary.tsv, checkpoints/, metrics.jsonl and, where tensorboardX is installed,
tensorboard/. SIGTERM or Ctrl-C saves and stops (exit code 75). The same command resumes the run, or
the workdir alone, which holds the configuration; a finished run resumes with more epochs or
max_steps, if optimizer.schedule is constant, halve_on_plateau or halve_after:

  python -m launch.train --workdir=runs/ccdclm
  python -m launch.train --workdir=runs/ccdclm --config.training.max_steps=400

A run can start from the best parameters of another run. Parameters of the same name and shape are
taken, words being matched by their spelling; a table lists them. Fine-tuning on another corpus:

  python -m launch.train --config=configs/quickstart.py:ccdclm \\
      --config.data.directory=data/speeches --config.training.start_from=runs/ccdclm \\
      --workdir=runs/speeches

Two-stage training: first a model of sentences, then a model with context, which takes its words
from the first and does not train them. Patterns match names in the table of parameters:

  python -m launch.train --config=configs/quickstart.py:rnnlm \\
      --config.data.directory=data/sotu --workdir=runs/rnnlm
  python -m launch.train --config=configs/quickstart.py:ccdclm \\
      --config.data.directory=data/sotu --config.training.start_from=runs/rnnlm \\
      --config.training.frozen='embedding,output/*' --workdir=runs/two-steps

Several processes make one job, each with its devices: srun, mpirun and TPUs on Kubernetes are
recognised, elsewhere every process is started with

  --coordinator_address=HOST:PORT --num_processes=2 --process_id=0 (then 1)

Process 0 prints and writes. The steps equal those of one process, up to the rounding of sums.
"""

import functools
from collections.abc import Sequence

from absl import flags

from dclm_jax.training.loop import train
from launch import _app, _cluster, _training

flags.adopt_module_key_flags(_training)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Directory of the run; made if it does not exist. Without --config the run there resumes.",
)
flags.adopt_module_key_flags(_cluster)
flags.mark_flag_as_required("workdir")


def main(argv: Sequence[str]) -> int:
    del argv
    _cluster.join(stops_together=True)
    # Flushed, so that a log file shows where the run is.
    report = functools.partial(print, flush=True)
    result = train(_training.config(), _WORKDIR.value or "", report=report)
    return _app.EXIT_INTERRUPTED if result.ending == "interrupted" else 0


if __name__ == "__main__":
    _app.run(main, functools.partial(_training.parse, resumes=True))
