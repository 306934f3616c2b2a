"""Larger-context language models on IMDB reviews at the paper's settings (1,000 units).

The corpus is the folder aclImdb of Maas et al. (2011), as it is unpacked. The model and the number
of context sentences follow the file's name after a colon (see ptb.py).

    python -m launch.prepare --corpus=imdb --input=aclImdb --vocab_size=30000 --output=data/imdb
    for run in rlm rlm_seqbow_att_lf-{1,2,4,8}; do
        python -m launch.train --config=configs/larger_context/imdb.py:$run \
            --config.data.directory=data/imdb --workdir=runs/imdb/$run
    done
    python -m launch.ngram --data=data/imdb --workdir=runs/imdb/kn5
    runs=runs/imdb/rlm,runs/imdb/rlm_seqbow_att_lf-1,runs/imdb/rlm_seqbow_att_lf-8
    python -m launch.evaluate --workdir=$runs,runs/imdb/kn5 --plot=figure2.png
    python -m launch.evaluate --workdir=$runs --by_pos --plot=figure3.png

Setting: paper.py; 30,000 words.
Time: made for an accelerator: 930,000 training sentences. Preparing takes some minutes.
Expected result: the paper shows its results in figures; the 5-gram has 110.20. Every context model
but the SeqBoW without attention is better than RLM and the 5-gram, late fusion better than early.
"""

import ml_collections

from configs.larger_context.paper import larger_context_config


def get_config(experiment: str = "rlm_seqbow_att_lf-4") -> ml_collections.ConfigDict:
    """Returns the configuration for `MODEL` or `MODEL-n`."""
    return larger_context_config(experiment, units=1000)
