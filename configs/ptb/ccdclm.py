"""CCDCLM: the sentence before enters every hidden state (the paper's model 6).

    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb
    python -m launch.train --config=configs/ptb/ccdclm.py --workdir=runs/ptb/ccdclm \
        --config.data.directory=data/ptb --config.training.seed=0
    python -m launch.report --workdirs=runs/ptb/ccdclm --output=reports/ccdclm --pool=20

Setting: K = H = 128, two layers of the coupled peephole LSTM, AdaGrad 0.1, clipping at 5, L = 5
(paper.py).
Time: 4 epochs of 2,303 steps, 13 to 14 minutes on one CPU core, beside other work.
Measured (seeds 0 and 1): development perplexity 144.13 and 162.10, test 142.36 and 160.11,
coherence 71.81 and 72.67% (1,000 test sets that draw from 20 permutations of each document).
With L = 1, 10 and whole documents and 20, 2 and 1 segments a step, development perplexity is
207.80, 145.56 and 192.18 (seed 0; --config.data.segment_length, --config.data.batch_size).
Expected result: The paper's Table 2 has development / test perplexity 62.34 / 66.42,
its Table 3 coherence 83.26 (3.77).
The paper's text keeps punctuation; on the usual text without it every perplexity is much higher,
so compare models with one another, not with the paper.
"""

import ml_collections

from configs.ptb.paper import paper_config


def get_config() -> ml_collections.ConfigDict:
    """Returns this experiment's configuration."""
    return paper_config("ccdclm")
