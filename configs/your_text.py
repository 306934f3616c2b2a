"""A recipe for your own text: any model, regularized, with K = H = 256, on one CPU core or a GPU.

The name of the model follows the name of the file, after a colon: any model of
dclm_jax/models/README.md. Train rnnlm as the baseline, and pointer_drnnlm with context carried
across segments:

    python -m launch.prepare --input=reviews.csv --text_key=review --lowercase --subwords=8000 \
        --output=data/reviews
    python -m launch.train --config=configs/your_text.py:pointer_drnnlm \
        --config.data.directory=data/reviews --config.data.carry_context=true \
        --workdir=runs/reviews/pointer_drnnlm

Three epochs, for a first impression, took 16 minutes per million words on one busy CPU core:

    python -m launch.train --config=configs/your_text.py:pointer_drnnlm \
        --config.data.directory=data/reviews --config.data.carry_context=true \
        --config.training.epochs=3 --workdir=runs/first/pointer_drnnlm

With --subwords no word is out of vocabulary: names, rare words and words of the topic are targets,
too. For a comparison with the papers leave --subwords out: the vocabulary
then has the most frequent words (--vocab_size, by default 10,000), and all others are UNKNOWN.

The settings are one LSTM layer, embeddings tied to the output layer, dropout 0.35 with one mask per
sentence and 0.15 on recurrent weights, Adam at 0.002 with a cosine schedule to zero, clipping at
norm 1, 8 segments of 5 sentences per step, and 16 epochs. On the Penn Treebank an epoch has 1,152
steps, and a run takes 53 to 88 minutes on one CPU core of a machine that runs other work too
(pointer_drnnlm 73). adclm with --config.data.carry_context=true takes 115 to 117 minutes.
configs/modern/README.md has the results.
"""

import ml_collections

from dclm_jax.training.config import default_config


def get_config(model: str = "pointer_drnnlm") -> ml_collections.ConfigDict:
    """Returns the settings for `model`; set the data directory with --config.data.directory."""
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
