"""CODCLM: the sentence before enters the output layer (the paper's model 5).

    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb
    python -m launch.train --config=configs/ptb/codclm.py --workdir=runs/ptb/codclm \
        --config.data.directory=data/ptb --config.training.seed=0
    python -m launch.report --workdirs=runs/ptb/codclm --output=reports/codclm --pool=20

Setting: K = H = 128, two layers of the coupled peephole LSTM, AdaGrad 0.03, clipping at 5, L = 5
(paper.py).
Time: 4 epochs of 2,303 steps, 11 to 32 minutes on one CPU core, beside other work.
Measured (seeds 0 and 1): development perplexity 148.17 and 160.81, test 146.46 and 160.36,
coherence 73.71 and 73.32% (1,000 test sets that draw from 20 permutations of each document).
Expected result: The paper's Table 2 has development / test perplexity 64.37 / 68.49,
its Table 3 coherence 81.72 (3.81).
The paper's text keeps punctuation; on the usual text without it every perplexity is much higher,
so compare models with one another, not with the paper.
"""

import ml_collections

from configs.ptb.paper import paper_config


def get_config() -> ml_collections.ConfigDict:
    """Returns this experiment's configuration."""
    return paper_config("codclm")
