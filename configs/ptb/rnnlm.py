"""RNNLM: every sentence by itself, no context (the paper's baseline 1).

    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb
    python -m launch.train --config=configs/ptb/rnnlm.py --workdir=runs/ptb/rnnlm \
        --config.data.directory=data/ptb --config.training.seed=0
    python -m launch.report --workdirs=runs/ptb/rnnlm --output=reports/rnnlm --pool=20

Setting: K = H = 128, two layers of the coupled peephole LSTM, AdaGrad 0.1, clipping at 5, L = 5
(paper.py).
Time: 4 epochs of 2,303 steps, 9 to 11 minutes on one CPU core, beside other work.
Measured (seeds 0 and 1): development perplexity 158.07 and 165.87, test 156.12 and 163.93.
Expected result: The paper's Table 2 has development / test perplexity 69.24 / 71.88. Coherence
is 50% by construction: no sentence's probability depends on another sentence.
The paper's text keeps punctuation; on the usual text without it every perplexity is much higher,
so compare models with one another, not with the paper.
"""

import ml_collections

from configs.ptb.paper import paper_config


def get_config() -> ml_collections.ConfigDict:
    """Returns this experiment's configuration."""
    return paper_config("rnnlm")
