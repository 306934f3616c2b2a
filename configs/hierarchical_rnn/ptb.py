"""The hierarchical RNN language model of Lin et al. (2015) on the Penn Treebank.

The name of the model follows the name of the file, after a colon: rnn_lin (the paper's RNNLM
baseline), rnnslm (the sentence level, which predicts bags of words) or hrnnlm_two_step (both
levels). Two-stage training trains the sentence level first, and then the word level on top of the
fixed sentence level:

    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb
    config=configs/hierarchical_rnn/ptb.py
    python -m launch.train --config=$config:rnnslm --workdir=runs/lin/rnnslm \
        --config.data.directory=data/ptb
    python -m launch.train --config=$config:hrnnlm_two_step --workdir=runs/lin/two_step \
        --config.data.directory=data/ptb \
        --config.training.start_from=runs/lin/rnnslm --config.training.frozen='sentence_*'

Joint training is the last command without its last line. These commands train the baseline and
repeat the comparisons of the paper's sections 6.1 and 6.2:

    python -m launch.train --config=$config:rnn_lin --workdir=runs/lin/rnn_lin \
        --config.data.directory=data/ptb
    python -m launch.evaluate --workdirs=runs/lin/rnn_lin,runs/lin/two_step
    for run in rnnslm two_step; do
        python -m launch.coherence --workdir=runs/lin/$run --metrics=runs/lin/$run/coherence.json
    done

The settings are 30 hidden units (--config.model.hidden_dim=128 for more), 10^7 entries of hashed
features at each level, and 30 epochs of stochastic gradient descent, whose rate is halved after
each epoch that did not lower the training loss. configs/hierarchical_rnn/README.md has the results,
and configs/departures.md lists the departures from the paper.
"""

import ml_collections

from dclm_jax.training.config import default_config, require_known

RATES = {"rnn_lin": 0.1, "rnnslm": 0.5, "hrnnlm_two_step": 0.1}
"""Learning rates. The loss is a mean over the sentences of a step. The loss of a sentence is a sum
over its words; for rnnslm it is a mean. The paper's rate of 0.1 is for one update per word; at the
sentence level it is for one update per sentence."""


def get_config(model: str = "hrnnlm_two_step") -> ml_collections.ConfigDict:
    """Returns the paper's settings for `model`; set the data directory with
    --config.data.directory."""
    require_known(model, RATES)
    config = default_config(model)
    # Words enter the hidden layer directly, so K = H: one flag sets both sizes.
    units = ml_collections.FieldReference(30)
    config.update(
        model={
            "embedding_dim": units,
            "hidden_dim": units,
            "num_layers": 1,
            "cell": "htanh",
            "hash_size": 10_000_000,
        },
        data={"segment_length": 5, "batch_size": 4},
        optimizer={
            "name": "sgd",
            "learning_rate": RATES[model],
            "clip_norm": 15.0,
            "schedule": "halve_on_plateau",
        },
        training={"epochs": 30, "loss_per": "sentence", "patience": 0},
    )
    return config
