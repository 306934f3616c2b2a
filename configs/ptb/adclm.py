"""ADCLM: every word attends to the words of the sentence before (the paper's model 4).

    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb
    python -m launch.train --config=configs/ptb/adclm.py --workdir=runs/ptb/adclm \
        --config.data.directory=data/ptb --config.training.seed=0
    python -m launch.report --workdirs=runs/ptb/adclm --output=reports/adclm --pool=20

Setting: K = H = 128, two layers of the coupled peephole LSTM, AdaGrad 0.03, clipping at 5, L = 5,
A = 48 (paper.py).
Time: 4 epochs of 2,303 steps, 9 to 12 minutes on one CPU core, beside other work.
Measured (seeds 0 and 1): development perplexity 139.79 and 146.65, test 138.58 and 145.10,
coherence 81.31 and 82.41% (1,000 test sets that draw from 20 permutations of each document).
Expected result: The paper's Table 2 has development / test perplexity 64.31 / 68.32,
its Table 3 coherence 75.51 (4.12).
The paper's text keeps punctuation; on the usual text without it every perplexity is much higher,
so compare models with one another, not with the paper.
"""

import ml_collections

from configs.ptb.paper import paper_config


def get_config() -> ml_collections.ConfigDict:
    """Returns this experiment's configuration."""
    return paper_config("adclm")
