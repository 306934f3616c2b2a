"""RNNLM or any other model on the embedded State of the Union corpus, within minutes on a CPU.

The model's name follows the file's after a colon. `bash launch/quickstart.sh` runs all of this:

    python -m launch.prepare --corpus=sotu --output=runs/quickstart/data
    python -m launch.train --config=configs/quickstart.py:ccdclm --workdir=runs/quickstart/ccdclm \
        --config.data.directory=runs/quickstart/data

Setting: two LSTM layers, K = H = 96, the paper's AdaGrad 0.1 and clipping at 5, 16 segments
of at most 5 sentences a step, 200 steps: a third of an epoch.
Time: two trained and measured models in ten minutes on two CPU cores, installation included.
Expected result (seed 0): test perplexity 268.30 (CCDCLM) against 250.90 (RNNLM), coherence 66.78%
against 50%, which is RNNLM's by construction: no sentence's probability depends on another one.
Rounding differs between versions and machines; AdaGrad's first steps magnify it.
"""

import ml_collections

from dclm_jax.training.config import default_config


def get_config(model: str = "ccdclm") -> ml_collections.ConfigDict:
    """Returns the quickstart's configuration for the model of that name."""
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
        # The papers' AdaGrad. Adam at 0.003 to 0.01 stays near unigram perplexity for as long.
        optimizer={
            "name": "adagrad",
            "learning_rate": 0.1,
            "clip_norm": 5.0,
            "schedule": "constant",
        },
        training={
            "epochs": 10,  # never reached: the number of steps decides
            "max_steps": 200,
            "evaluate_every": 50,
            "checkpoint_every": 50,
            "log_every": 25,
        },
    )
    return config
