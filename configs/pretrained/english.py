"""The recipe of the pretrained model `english`, and of its baseline without context, `rnnlm`.

The name of the model follows the name of the file, after a colon. WIKITEXT and REVIEWS are the
folders of sources.py:

    python -m configs.pretrained.sources --wikitext=WIKITEXT --film_reviews=REVIEWS --output=sources
    python -m launch.prepare --train=sources/train.jsonl --valid=sources/valid.jsonl \
        --test=sources/test.jsonl --lowercase --normalize --unicode=nfc --unknown_token='<unk>' \
        --vocab_size=24000 --output=data/english
    for model in pointer_drnnlm rnnlm; do
        python -m launch.train --config=configs/pretrained/english.py:$model \
            --config.data.directory=data/english --workdir=runs/english/$model
    done
    python -c "import dclm_jax; dclm_jax.restore('runs/english/pointer_drnnlm').save('new')"

The sections "Training text" and "Limits" of the model's card are the argument `about` of `save`.
The settings differ from configs/modern/gpu.py in these values: 512 hidden units, less dropout
because there is more text, 128 segments per step, training sentences of at most 127 words, and a
learning rate that is halved every four epochs from the tenth on. README.md has the results.
"""

import ml_collections

from configs.modern import gpu


def get_config(model: str = "pointer_drnnlm") -> ml_collections.ConfigDict:
    """Returns the settings for `model`; set the data directory with --config.data.directory."""
    config = gpu.get_config(model)
    config.update(
        model={
            "hidden_dim": 512,
            "input_dropout": 0.25,
            "output_dropout": 0.25,
            "recurrent_dropout": 0.1,
        },
        data={"batch_size": 128, "max_sentence_length": 127},
        optimizer={
            "warmup_steps": 300,
            "schedule": "halve_after",
            "halve_after": 10.0,
            "halve_every": 4.0,
            "average_decay": 0.998,
        },
        training={
            "epochs": 28,
            "patience": 0,
            "evaluate_every": 588,
            "checkpoint_every": 100_000,
        },
    )
    return config
