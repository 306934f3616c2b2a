"""HRNNLM: a recurrence over bags of words of sentences feeds the word level (baseline 3).

    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb
    python -m launch.train --config=configs/ptb/hrnnlm.py --workdir=runs/ptb/hrnnlm \
        --config.data.directory=data/ptb --config.training.seed=0
    python -m launch.report --workdirs=runs/ptb/hrnnlm --output=reports/hrnnlm --pool=20

Setting: K = H = 128, two layers of the coupled peephole LSTM, AdaGrad 0.03, clipping at 5, L = 5
(paper.py).
Time: 4 epochs of 2,303 steps, 15 minutes on one CPU core, beside other work.
Measured (seed 0): development perplexity 152.69, test 150.66, coherence 72.55% (1,000 test sets
that draw from 20 permutations of each document).
Expected result: The paper's Table 2 has development / test perplexity 66.32 / 70.62,
its Table 3 coherence 75.32 (4.42).
The paper's text keeps punctuation; on the usual text without it every perplexity is much higher,
so compare models with one another, not with the paper.
"""

import ml_collections

from configs.ptb.paper import paper_config


def get_config() -> ml_collections.ConfigDict:
    """Returns this experiment's configuration."""
    return paper_config("hrnnlm")
