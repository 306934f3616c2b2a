"""The six DCLM models on film reviews, with four epochs of configs/ptb/paper.py.

The name of the model follows the name of the file, after a colon. Any prepared corpus of documents
can be used:

    python -m launch.prepare --train=REVIEWS/train.txt --valid=REVIEWS/valid.txt \
        --test=REVIEWS/test.txt --output=data/film
    for model in rnnlm drnnlm hrnnlm adclm codclm ccdclm; do
        python -m launch.train --config=configs/movie_reviews/dclm.py:$model \
            --config.data.directory=data/film --workdir=runs/film/$model
    done
    python -m launch.report --workdirs='runs/film/*' --measure --output=reports/film \
        --permutation_pool=20

The settings differ from configs/ptb/paper.py in these values: four epochs of 2,735 steps, no
warm-up, and a learning rate of 0.1 for ccdclm and 0.03 for the other models. A run takes 8 to 17
minutes on one CPU core. configs/movie_reviews/README.md has the results.
"""

import ml_collections

from configs.ptb import paper


def get_config(model: str = "ccdclm") -> ml_collections.ConfigDict:
    """Returns the settings for `model`; set the data directory with --config.data.directory."""
    config = paper.get_config(model)
    config.update(
        optimizer={"learning_rate": 0.1 if model == "ccdclm" else 0.03, "warmup_steps": 0},
        training={"epochs": 4, "patience": 5},
    )
    return config
