"""The six DCLM models on film reviews, under the recipe of configs/ptb/paper.py.

The model follows the file's name after a colon. Any prepared corpus of documents will do:

    python -m launch.prepare --train=REVIEWS/train.txt --valid=REVIEWS/valid.txt \
        --test=REVIEWS/test.txt --output=data/reviews
    for model in rnnlm drnnlm hrnnlm adclm codclm ccdclm; do
        python -m launch.train --config=configs/movie_reviews/dclm.py:$model \
            --config.data.directory=data/reviews --workdir=runs/reviews/$model
    done
    python -m launch.report --output=reports/reviews --workdirs=$(echo runs/reviews/* | tr ' ' ,)

Coherence of news articles under a model of film reviews, and the other way round (words that a
model does not know count as UNKNOWN):

    python -m launch.coherence --workdir=runs/reviews/ccdclm --input=PTB/test.txt
    python -m launch.coherence --workdir=runs/ptb/ccdclm --input=REVIEWS/test.txt

Not measured under this recipe yet.
"""

import ml_collections

from configs.ptb.paper import paper_config


def get_config(model: str = "ccdclm") -> ml_collections.ConfigDict:
    """Returns the configuration for the model of that name."""
    config = paper_config(model)
    if model == "rnnlm":
        config.update(optimizer={"learning_rate": 0.03})
    return config
