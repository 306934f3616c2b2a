"""The six DCLM models on film reviews, under the recipe of configs/ptb/paper.py.

The model follows the file's name after a colon. Any prepared corpus of documents will do:

    python -m launch.prepare --train=REVIEWS/train.txt --valid=REVIEWS/valid.txt \
        --test=REVIEWS/test.txt --output=data/reviews
    for model in rnnlm drnnlm hrnnlm adclm codclm ccdclm; do
        python -m launch.train --config=configs/movie_reviews/dclm.py:$model \
            --config.data.directory=data/reviews --workdir=runs/reviews/$model
    done
    python -m launch.report --output=reports/reviews --pool=20 \
        --workdirs=$(echo runs/reviews/* | tr ' ' ,)

Coherence of news articles under a model of film reviews, and the other way round (words that a
model does not know count as UNKNOWN):

    python -m launch.coherence --workdir=runs/reviews/ccdclm --input=PTB/test.txt
    python -m launch.coherence --workdir=runs/ptb/ccdclm --input=REVIEWS/test.txt

Setting: as in configs/ptb/paper.py, but rnnlm at a rate of 0.03, where it has a development
perplexity of 117.42, and 133.48 at 0.1. ccdclm was tried with 0.1 alone.
Time: 4 epochs of 2,735 steps, 7 to 12 minutes on one CPU core.
Measured (seed 0; 1,609, 200 and 202 reviews of 1.2 million, 154 and 153 thousand words, V = 10,003;
coherence over 1,000 test sets that draw from 20 permutations of each document):

    model    development    test    coherence
    rnnlm         117.42  116.75       50.00%
    drnnlm        110.39  109.36       95.07%
    hrnnlm        115.47  114.93       84.89%
    adclm         116.54  116.08       86.54%
    codclm        114.45  113.46       89.93%
    ccdclm        114.89  114.36       90.30%

Coherence of the Treebank's test documents under ccdclm and drnnlm of film reviews: 52.8 and 61.8%;
of film reviews under those of the Treebank: 63.3 and 59.9% (20 permutations).
"""

import ml_collections

from configs.ptb.paper import paper_config


def get_config(model: str = "ccdclm") -> ml_collections.ConfigDict:
    """Returns the configuration for the model of that name."""
    config = paper_config(model)
    if model == "rnnlm":
        config.update(optimizer={"learning_rate": 0.03})
    return config
