"""Larger-context language models on BBC articles at the paper's settings (1,000 units).

The corpus is the folder bbc of Greene and Cunningham (2006), raw text by topic, as it is unpacked.
The model and the number of context sentences follow the file's name after a colon (see ptb.py).

    python -m launch.prepare --corpus=bbc --input=bbc --vocab_size=10000 --output=data/bbc
    python -m launch.train --config=configs/larger_context/bbc.py:rlm_seqbow_att_lf-4 \
        --config.data.directory=data/bbc --workdir=runs/bbc/rlm_seqbow_att_lf-4
    python -m launch.evaluate --workdir=runs/bbc/rlm_seqbow_att_lf-4 --split=test

Setting: paper.py; 10,000 words.
Time: made for an accelerator: 37,000 training sentences.
Expected result: the paper shows its results in figures; the 5-gram has 127.32. SeqBoW with
attention and late fusion is the best, and better with more context.
"""

import ml_collections

from configs.larger_context.paper import larger_context_config


def get_config(experiment: str = "rlm_seqbow_att_lf-4") -> ml_collections.ConfigDict:
    """Returns the configuration for `MODEL` or `MODEL-n`."""
    return larger_context_config(experiment, units=1000)
