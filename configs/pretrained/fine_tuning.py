"""A recipe that fine-tunes the pretrained model `english` on a small text.

    python -m launch.prepare --input=new.csv --lowercase --normalize --unicode=nfc \\
        --vocabulary=english --output=data/tuning
    python -m launch.train --config=configs/pretrained/fine_tuning.py \\
        --config.data.directory=data/tuning --workdir=runs/tuned

The settings differ from english.py in these values: 8 segments per step, and three epochs of Adam
from 0.0005, with ten steps of warm-up, a cosine schedule to zero and no average of weights, because
a small text has few steps. --config.training.start_from=RUN starts from another model
of this kind; set the sizes of --config.model to its sizes.
"""

import ml_collections

from configs.pretrained import english


def get_config(model: str = "pointer_drnnlm") -> ml_collections.ConfigDict:
    """Returns the settings for `model`; set the data directory with --config.data.directory."""
    config = english.get_config(model)
    config.update(
        data={"batch_size": 8},
        optimizer={
            "learning_rate": 0.0005,
            "warmup_steps": 10,
            "schedule": "cosine",
            "average_decay": 0.0,
        },
        training={
            "start_from": "english",
            "epochs": 3,
            "evaluate_every": 0,
            "checkpoint_every": 1000,
        },
    )
    return config
