"""Any model on the State of the Union addresses, in minutes on a CPU.

The name of the model follows the name of the file, after a colon. `bash launch/quickstart.sh` runs
these commands for `rnnlm` and `ccdclm`, and reports the results:

    python -m launch.prepare --corpus=sotu --output=runs/quickstart/data
    python -m launch.train --config=configs/quickstart.py:ccdclm --workdir=runs/quickstart/ccdclm \
        --config.data.directory=runs/quickstart/data

The settings are two LSTM layers, K = H = 96, AdaGrad at 0.1 with clipping at 5 as in Ji et al.
(2015), 16 segments of at most 5 sentences per step, and 200 steps (a third of an epoch). Installing
the package and training and measuring both models takes ten minutes on two CPU cores.

With seed 0 the test perplexity is 268.30 for `ccdclm` and 250.90 for `rnnlm`, and the coherence
accuracy is 66.78% for `ccdclm` and 50% for `rnnlm`. `rnnlm` has 50% by definition, because it reads
each sentence alone. The numbers differ between versions and machines: rounding differs, and
AdaGrad's first steps magnify the differences.
"""

import ml_collections

from dclm_jax.training.config import default_config


def get_config(model: str = "ccdclm") -> ml_collections.ConfigDict:
    """Returns the quickstart's configuration for `model`; set the data directory with
    --config.data.directory."""
    config = default_config(model)
    config.update(
        model={
            "embedding_dim": 96,
            "hidden_dim": 96,
            "num_layers": 2,
            "cell": "lstm",
            "dropout": 0.0,
            "tie_embeddings": False,
        },
        data={"segment_length": 5, "batch_size": 16},
        # Adam at 0.003 to 0.01 stays near unigram perplexity for the same number of steps.
        optimizer={
            "name": "adagrad",
            "learning_rate": 0.1,
            "clip_norm": 5.0,
            "schedule": "constant",
        },
        training={
            "epochs": 10,  # never reached: max_steps ends training
            "max_steps": 200,
            "evaluate_every": 50,
            "checkpoint_every": 50,
            "log_every": 25,
        },
    )
    return config
