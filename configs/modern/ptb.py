"""A modern recipe for the six DCLM models on the Penn Treebank: regularised, with K = H = 256.

The model follows the file's name after a colon:

    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb
    for model in rnnlm ccdclm; do
        python -m launch.train --config=configs/modern/ptb.py:$model \
            --config.data.directory=data/ptb --workdir=runs/modern/$model
    done
    python -m launch.report --workdirs=runs/modern/rnnlm,runs/modern/ccdclm --output=reports/modern

Setting: two layers of the plain LSTM, embeddings tied to the output layer, dropout 0.35 with one
mask a sentence and 0.15 on recurrent weights, Adam at 0.002 with a cosine to zero over the run,
gradients clipped at norm 1, 8 segments of 5 sentences a step, 16 epochs.
Time: 74 minutes on one CPU core that was not idle (1,152 steps an epoch).
Measured (ccdclm, seed 0, once): development perplexity 104.81, test 103.78, coherence 83.55% (1,000
test sets that draw from 20 permutations of each document); development after 4, 8 and 12 epochs
137.34, 112.07 and 105.70. The other models were not run.
"""

import ml_collections

from dclm_jax.training.config import default_config


def get_config(model: str = "ccdclm") -> ml_collections.ConfigDict:
    """Returns the configuration for the model of that name."""
    config = default_config(model)
    config.update(
        model={
            "embedding_dim": 256,
            "hidden_dim": 256,
            "num_layers": 1,
            "cell": "lstm",
            "tie_embeddings": True,
            "dropout": 0.35,
            "variational_dropout": True,
            "recurrent_dropout": 0.15,
        },
        data={"segment_length": 5, "batch_size": 8},
        optimizer={
            "name": "adam",
            "learning_rate": 0.002,
            "warmup_steps": 300,
            "schedule": "cosine",
            "clip_norm": 1.0,
        },
        training={"epochs": 16, "patience": 0},
    )
    return config
