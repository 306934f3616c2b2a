"""The six models of "Document Context Language Models" (Ji et al. 2015) on the Penn Treebank.

The name of the model follows the name of the file, after a colon: rnnlm, drnnlm, hrnnlm, adclm,
codclm or ccdclm.

    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb
    for model in rnnlm drnnlm hrnnlm adclm codclm ccdclm; do
        python -m launch.train --config=configs/ptb/paper.py:$model --workdir=runs/ptb/$model-0 \
            --config.data.directory=data/ptb --config.training.seed=0
    done
    python -m launch.report --workdirs='runs/ptb/*' --measure --output=reports/ptb \
        --permutation_pool=20

The paper selects K and H for each model on the validation split from 32 to 256; grid.txt has the
flags of these 36 combinations, one per line, for launch/slurm/train.sbatch.

The settings of the paper's section 3.1 are K = H = 128, two layers of the coupled peephole LSTM,
AdaGrad at a rate of 0.1, clipping at 5, L = 5, A = 48. The other settings are not from the paper: a
warm-up of 500 steps, 4 segments per step, and epochs of 2,303 steps until the validation perplexity
has had no new minimum for two epochs, at most 20. configs/departures.md has the reason for each
departure. A run takes 17 to 36 minutes on one CPU core while another run uses a second core.
configs/ptb/README.md has the results.
"""

import ml_collections

from dclm_jax.training.config import default_config, require_known

MODELS = ("rnnlm", "drnnlm", "hrnnlm", "adclm", "codclm", "ccdclm")

_MODEL_OPTIONS = {
    "adclm": {"attention_dim": 48},
    # The paper states no weight for the sum of both losses.
    "hrnnlm": {"sentence_loss_weight": 1.0},
}


def get_config(model: str = "ccdclm") -> ml_collections.ConfigDict:
    """Returns the paper's settings for `model`; set the data directory with
    --config.data.directory."""
    require_known(model, MODELS)
    config = default_config(model)
    config.update(
        model={
            "embedding_dim": 128,
            "hidden_dim": 128,
            "num_layers": 2,
            "cell": "coupled_peephole_lstm",
            "dropout": 0.0,
            "tie_embeddings": False,
            **_MODEL_OPTIONS.get(model, {}),
        },
        data={"segment_length": 5, "batch_size": 4},
        optimizer={
            "name": "adagrad",
            "learning_rate": 0.1,
            # AdaGrad's first steps move every coordinate by the full rate, which separates seeds.
            "warmup_steps": 500,
            "clip_norm": 5.0,
            "schedule": "constant",
        },
        training={
            "epochs": 20,
            "evaluate_every": 0,  # once an epoch
            "checkpoint_every": 500,
            "log_every": 50,
            "patience": 2,
        },
    )
    return config
