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

import functools
from collections.abc import Sequence

from absl import flags

from dclm_jax.errors import TrainingInterrupted
from dclm_jax.training.loop import train

from . import _app, _cluster, _training

flags.adopt_module_key_flags(_training)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Directory of the run. Without --config, resume the run in it with its saved configuration.",
)
flags.adopt_module_key_flags(_cluster)


def main(argv: Sequence[str]) -> int:
    del argv
    workdir = _app.required("workdir", "DIR, the directory of the run")
    _cluster.join(stops_together=True)
    try:
        train(_training.config(), workdir)
    except TrainingInterrupted:
        return _app.EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    _app.run(main, functools.partial(_training.parse, resumes=True), log_on_stdout=True)
