"""Larger-context language models of a size that two CPU cores can train: 128 units, three epochs.

MODEL-n follows the file's name after a colon: a model of paper.py and its number of context
sentences. Any prepared corpus of documents will do:

    python -m launch.prepare --train=REVIEWS/train.txt --valid=REVIEWS/valid.txt \
        --test=REVIEWS/test.txt --output=data/reviews
    for run in rlm rlm_bow_lf-{1,8}; do
        python -m launch.train --config=configs/larger_context/small.py:$run \
            --config.data.directory=data/reviews --workdir=runs/reviews/$run
    done
    python -m launch.ngram --data=data/reviews --workdir=runs/reviews/kn5
    runs=runs/reviews/rlm,runs/reviews/rlm_bow_lf-1,runs/reviews/rlm_bow_lf-8,runs/reviews/kn5
    python -m launch.evaluate --workdirs=$runs --plot=perplexity_by_context.png
    python -m launch.evaluate --workdirs=$runs --by_pos --plot=perplexity_by_pos.png

Setting: paper.py, but K = H = 128, 20 sentences a step, AdaGrad 0.1 and three epochs for every
model. The paper's Adadelta needs many more: after one epoch of film reviews RLM has development
perplexity 166 with it (207 with 80 sentences a step), and 111 with AdaGrad.
Time: 4 to 8 minutes a run on one CPU core.
Measured (test perplexity, seed 0): Penn Treebank rlm 124.35, rlm_bow_lf-8 113.44; film reviews rlm
98.22, rlm_bow_lf-4 96.20. All values and their reading are in configs/README.md.
"""

import ml_collections

from configs.larger_context.paper import larger_context_config


def get_config(experiment: str = "rlm_bow_lf-4") -> ml_collections.ConfigDict:
    """Returns the configuration for `MODEL` or `MODEL-n`."""
    config = larger_context_config(experiment, units=128)
    config.update(
        data={"batch_size": 4},
        optimizer={"name": "adagrad", "learning_rate": 0.1},
        training={"epochs": 3},
    )
    return config
