"""The recipe of the pretrained models: `english`, and `english_sentences`, which reads no context.

The name of the model follows the name of the file, after a colon. The docstring of sources.py
explains WIKITEXT, REVIEWS and BROWN; BASE is a run or saved model of the same kind and size:

    python -m configs.pretrained.sources --wikitext=WIKITEXT --film_reviews=REVIEWS --brown=BROWN \\
        --output=sources
    python -m launch.prepare --train=sources/train.jsonl --valid=sources/valid.jsonl \\
        --test=sources/test.jsonl --lowercase --normalize --unicode=nfc --unknown_token='<unk>' \\
        --subwords=10000 --output=data/english
    python -m launch.train --config=configs/pretrained/english.py:pointer_drnnlm \\
        --config.data.directory=data/english --config.training.start_from=BASE \\
        --workdir=runs/english/pointer_drnnlm
    python -m launch.train --config=configs/pretrained/english.py:rnnlm \\
        --config.data.directory=data/english --workdir=runs/english/rnnlm \\
        --config.training.start_from=runs/english/pointer_drnnlm
    python -c "import dclm_jax; dclm_jax.restore('runs/english/pointer_drnnlm').save('new')"

The sections "Training text" and "Limits" of a model's card are the argument `about` of `save`.
The settings differ from configs/modern/gpu.py in these values: 512 hidden units, less dropout
because there is more text, 32 segments per step (a fifth begins with no context), training
sentences of at most 127 pieces, and four epochs with 100 steps of warm-up and a learning rate of
0.002, which is halved for the fourth epoch. `rnnlm` starts from the weights of `english`, and has a
rate of 0.001 with a cosine schedule, and 1,755 steps (one and a half epochs). README.md has the
results.
"""

import ml_collections

from configs.modern import gpu


def get_config(model: str = "pointer_drnnlm") -> ml_collections.ConfigDict:
    """Returns the settings for `model`; set the data directory with --config.data.directory."""
    config = gpu.get_config(model)
    config.update(
        model={
            "hidden_dim": 512,
            "input_dropout": 0.1,
            "output_dropout": 0.1,
            "recurrent_dropout": 0.05,
        },
        data={"batch_size": 32, "max_sentence_length": 127, "no_context_share": 0.2},
        optimizer={
            "learning_rate": 0.002,
            "warmup_steps": 100,
            "schedule": "halve_after",
            "halve_after": 3.0,
            "halve_every": 1.0,
            "average_decay": 0.995,
        },
        training={
            "epochs": 4,
            "patience": 0,
            "evaluate_every": 0,
            "checkpoint_every": 100,
            "log_every": 20,
        },
    )
    if model == "rnnlm":
        config.update(
            optimizer={"learning_rate": 0.001, "warmup_steps": 50, "schedule": "cosine"},
            training={"max_steps": 1755, "evaluate_every": 585},
        )
    return config
