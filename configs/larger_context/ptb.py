"""Larger-context language models on the Penn Treebank at the paper's settings (1,000 units).

The model and the number of context sentences follow the file's name after a colon: rlm,
rlm_bow_ef-n, rlm_bow_lf-n, rlm_seqbow_ef-n, rlm_seqbow_lf-n, rlm_seqbow_att_ef-n and
rlm_seqbow_att_lf-n; the paper has n = 1, 2, 4 and 8.

    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb
    python -m launch.train --config=configs/larger_context/ptb.py:rlm_bow_lf-4 \
        --config.data.directory=data/ptb --workdir=runs/ptb/rlm_bow_lf-4
    python -m launch.evaluate --workdir=runs/ptb/rlm_bow_lf-4 --split=test
    python -m launch.ngram --data=data/ptb --workdir=runs/ptb/kn5
    python -m launch.evaluate --workdir=runs/ptb/kn5 --split=test

Setting: paper.py. Without document boundaries (an empty line between documents) the text is one
long document, and the context of an article's first sentence is the article before it.
Time: made for an accelerator; small.py is what a CPU can do.
Expected result: the paper shows its results in figures. Every context model is better than RLM and
than the 5-gram (148), late fusion is better than early fusion, and better with more context.
Measured: on Mikolov's text the 5-gram has test perplexity 141.2 (82,430 targets; `<unk>` is an
ordinary word), and KenLM's own query program says the same. Without the first line of the training
text, which lists rare names, it has 140.84.
"""

import ml_collections

from configs.larger_context.paper import larger_context_config


def get_config(experiment: str = "rlm_bow_lf-4") -> ml_collections.ConfigDict:
    """Returns the configuration for `MODEL` or `MODEL-n`."""
    return larger_context_config(experiment, units=1000)
