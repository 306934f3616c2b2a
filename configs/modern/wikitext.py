"""The modern recipe on WikiText-2: fewer epochs of more text, with the whole vocabulary.

The name of the model follows the name of the file, after a colon: any model of
dclm_jax/models/README.md. The text is the word-level release of WikiText-2, split into three files.

    python -m launch.prepare --corpus=wikitext --input=wikitext-2 --min_count=1 \
        --output=data/wikitext
    python -m launch.train --config=configs/modern/wikitext.py:adclm \
        --config.data.directory=data/wikitext --workdir=runs/wikitext/adclm
    python -m launch.evaluate --workdir=runs/wikitext/adclm --split=test --adapt=unigram,cache

The settings differ from configs/your_text.py in these values: embeddings of 128 dimensions (most
of the work is in the output layer), 384 hidden units, dropout 0.2 and 0.1 on recurrent weights, and
3 epochs of 2,098 steps. A run takes 61 to 72 minutes on one CPU core while another run uses a
second core. configs/modern/wikitext.md has the results.
"""

import ml_collections

from configs import your_text


def get_config(model: str = "adclm") -> ml_collections.ConfigDict:
    """Returns the settings for `model`; set the data directory with --config.data.directory."""
    config = your_text.get_config(model)
    config.update(
        model={
            "embedding_dim": 128,
            "hidden_dim": 384,
            "dropout": 0.2,
            "recurrent_dropout": 0.1,
        },
        training={"epochs": 3},
    )
    return config
