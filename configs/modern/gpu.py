"""A recipe for GPUs on the Penn Treebank: 64 segments per step, factorized embeddings, an EMA.

The name of the model follows the name of the file, after a colon: any model of
dclm_jax/models/README.md. configs/README.md has the commands that prepare the corpus:

    python -m launch.train --config=configs/modern/gpu.py:pointer_drnnlm \
        --config.data.directory=data/ptb --workdir=runs/gpu/pointer_drnnlm
    python -m launch.evaluate --workdir=runs/gpu/pointer_drnnlm --adapt=cache

The settings differ from configs/your_text.py in these values: embeddings of 160 dimensions and
424 hidden units, dropout 0.4 on embeddings, 0.3 on features and 0.2 on recurrent weights, context
carried across segments, 64 segments per step, a constant learning rate of 0.005, an exponential
moving average (EMA) of weights, and training until the validation perplexity has had no new
minimum for three epochs of 144 steps. configs/modern/gpu.md has the results.
"""

import ml_collections

from configs import your_text


def get_config(model: str = "pointer_drnnlm") -> ml_collections.ConfigDict:
    """Returns the settings for `model`; set the data directory with --config.data.directory."""
    config = your_text.get_config(model)
    config.update(
        model={
            "embedding_dim": 160,
            "hidden_dim": 424,
            "dropout": 0.0,
            "input_dropout": 0.4,
            "output_dropout": 0.3,
            "recurrent_dropout": 0.2,
        },
        data={"batch_size": 64, "carry_context": True},
        optimizer={
            "learning_rate": 0.005,
            "warmup_steps": 200,
            "schedule": "constant",
            "average_decay": 0.995,
        },
        training={"epochs": 100, "patience": 3, "evaluation_batch_size": 160},
    )
    return config
