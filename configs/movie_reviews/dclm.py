"""The six DCLM models on film reviews, with four epochs of configs/ptb/paper.py.

The model follows the file's name after a colon. Any prepared corpus of documents will do:

    python -m launch.prepare --train=REVIEWS/train.txt --valid=REVIEWS/valid.txt \
        --test=REVIEWS/test.txt --output=data/reviews
    for model in rnnlm drnnlm hrnnlm adclm codclm ccdclm; do
        python -m launch.train --config=configs/movie_reviews/dclm.py:$model \
            --config.data.directory=data/reviews --workdir=runs/reviews/$model
    done
    python -m launch.report --output=reports/reviews --permutation_pool=20 \
        --workdirs=$(echo runs/reviews/* | tr ' ' ,)

Coherence of news articles under a model of film reviews, and the other way round (words that a
model does not know count as UNKNOWN):

    python -m launch.coherence --workdir=runs/reviews/ccdclm --input=PTB/test.txt
    python -m launch.coherence --workdir=runs/short/ccdclm-0 --input=REVIEWS/test.txt

Setting: as in configs/ptb/paper.py, but four epochs without a warm-up, at a rate of 0.03, where
rnnlm has a development perplexity of 117.42 (133.48 at 0.1), and of 0.1 for ccdclm, which was tried
with no other.
Time: 4 epochs of 2,735 steps, 8 to 17 minutes on one CPU core.
Measured (test perplexity and coherence, seed 0): rnnlm 116.75 and 50.00%, ccdclm 114.36 and 90.30%,
drnnlm 109.36 and 95.07%. All values and their reading are in configs/README.md.
"""

import ml_collections

from configs.ptb import paper


def get_config(model: str = "ccdclm") -> ml_collections.ConfigDict:
    """Returns the configuration for the model of that name."""
    config = paper.get_config(model)
    config.update(
        optimizer={"learning_rate": 0.1 if model == "ccdclm" else 0.03, "warmup_steps": 0},
        training={"epochs": 4, "patience": 5},
    )
    return config
