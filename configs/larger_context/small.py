"""Larger-context language models of a size that two CPU cores can train: 128 units, four epochs.

The model and the number of context sentences follow the file's name after a colon (see ptb.py). Any
prepared corpus of documents will do:

    python -m launch.prepare --train=REVIEWS/train.txt --valid=REVIEWS/valid.txt \
        --test=REVIEWS/test.txt --output=data/reviews
    python -m launch.train --config=configs/larger_context/small.py:rlm_bow_lf-4 \
        --config.data.directory=data/reviews --workdir=runs/reviews/rlm_bow_lf-4
    python -m launch.evaluate --workdir=runs/reviews/rlm,runs/reviews/rlm_bow_lf-4 --split=test

Setting: paper.py, but K = H = 128 and four epochs for every model.
"""

import ml_collections

from configs.larger_context.paper import larger_context_config


def get_config(experiment: str = "rlm_bow_lf-4") -> ml_collections.ConfigDict:
    """Returns the configuration for `MODEL` or `MODEL-n`."""
    config = larger_context_config(experiment, units=128)
    config.update(training={"epochs": 4})
    return config
