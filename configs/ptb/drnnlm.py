"""DRNNLM: an RNNLM that reads on over sentence boundaries (the paper's baseline 2).

    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb
    python -m launch.train --config=configs/ptb/drnnlm.py --workdir=runs/ptb/drnnlm \
        --config.data.directory=data/ptb --config.training.seed=0
    python -m launch.report --workdirs=runs/ptb/drnnlm --output=reports/drnnlm --pool=20

Setting: K = H = 128, two layers of the coupled peephole LSTM, AdaGrad 0.03, clipping at 5, L = 5
(paper.py).
Time: 4 epochs of 2,303 steps, 9 minutes on one CPU core, beside other work.
Measured (seed 0): development perplexity 147.66, test 146.39, coherence 77.87% (1,000 test sets
that draw from 20 permutations of each document).
Expected result: The paper's Table 2 has development / test perplexity 65.27 / 69.37,
its Table 3 coherence 72.54 (8.46).
The paper's text keeps punctuation; on the usual text without it every perplexity is much higher,
so compare models with one another, not with the paper.
"""

import ml_collections

from configs.ptb.paper import paper_config


def get_config() -> ml_collections.ConfigDict:
    """Returns this experiment's configuration."""
    return paper_config("drnnlm")
