"""Larger-context language models with 128 units and three epochs, for two CPU cores.

MODEL-n follows the name of the file, after a colon: a model of paper.py and its number of context
sentences. Any prepared corpus of documents can be used:

    python -m launch.prepare --train=REVIEWS/train.txt --valid=REVIEWS/valid.txt \
        --test=REVIEWS/test.txt --output=data/film
    for run in rlm rlm_{bow_ef,bow_lf,seqbow_att_lf}-{1,2,4,8}; do
        python -m launch.train --config=configs/larger_context/small.py:$run \
            --config.data.directory=data/film --workdir=runs/larger/$run
    done
    python -m launch.ngram --data=data/film --workdir=runs/larger/kn5
    runs=runs/larger/rlm,runs/larger/rlm_bow_lf-1,runs/larger/rlm_bow_lf-8,runs/larger/kn5
    python -m launch.evaluate --workdirs=$runs --plot=perplexity_by_context.png
    python -m launch.prepare --show=data/film --split=test > test.txt
    python -m configs.larger_context.tag test.txt test.tagged
    python -m launch.evaluate --workdirs=$runs --input=test.tagged --format=tagged --by_pos \
        --plot=perplexity_by_pos.png

The settings differ from paper.py in these values: K = H = 128, 4 segments of 5 sentences per step,
AdaGrad at 0.1 and three epochs. The paper's Adadelta needs many more epochs. A run takes 4 to 8
minutes on one CPU core. configs/larger_context/README.md has the results.
"""

import ml_collections

from configs.larger_context import paper


def get_config(experiment: str = "rlm_bow_lf-4") -> ml_collections.ConfigDict:
    """Returns the configuration for `MODEL` or `MODEL-n`; set the data directory with
    --config.data.directory."""
    config = paper.get_config(experiment, units=128)
    config.update(
        data={"batch_size": 4},
        optimizer={"name": "adagrad", "learning_rate": 0.1},
        training={"epochs": 3},
    )
    return config
