"""The autoencoders of Li, Luong and Jurafsky (2015) on hotel reviews, at the paper's size.

The name of the model follows the name of the file, after a colon: standard_autoencoder,
hierarchical_autoencoder or hierarchical_attention_autoencoder. The reviews (TripAdvisor) are
licensed. Each file has one tokenized sentence per line and a blank line between reviews. `prepare`
retains reviews of 50 to 250 words with at most 2% OOV words:

    python -m launch.prepare --train=HOTELS/train.txt --valid=HOTELS/valid.txt \
        --test=HOTELS/test.txt --vocab_size=25000 --min_words=50 --max_words=250 \
        --max_unknown=0.02 --output=data/hotel_reviews
    config=configs/autoencoder/hotel_reviews.py
    for model in standard hierarchical hierarchical_attention; do
        python -m launch.train --config=$config:${model}_autoencoder \
            --config.data.directory=data/hotel_reviews --workdir=runs/hotel_reviews/$model
        python -m launch.evaluate --workdir=runs/hotel_reviews/$model
    done

The settings are four layers of 1,000 units in each stack, embeddings of 1,000 dimensions, 32
reviews per step, stochastic gradient descent at 0.1, halved every half epoch from epoch 5 on, 7
epochs, clipping at 5, dropout 0.2, reversed input, and initial values from +-0.08. The loss is a
mean over sentences, which the paper does not state. This recipe has not been run, because it needs
an accelerator and 340,000 reviews.
"""

import ml_collections

from dclm_jax.models import MODELS
from dclm_jax.training.config import default_config, require_known

NAMES = tuple(name for name, model in MODELS.items() if model.reads_source)


def get_config(model: str = "hierarchical_attention_autoencoder") -> ml_collections.ConfigDict:
    """Returns the paper's settings for `model`; set the data directory with
    --config.data.directory."""
    require_known(model, NAMES)
    config = default_config(model)
    config.update(
        model={"embedding_dim": 1000, "hidden_dim": 1000, "num_layers": 4, "dropout": 0.2},
        # Documents are read whole.
        data={"segment_length": 0, "batch_size": 32},
        optimizer={"name": "sgd", "learning_rate": 0.1, "schedule": "halve_after"},
        training={"epochs": 7, "loss_per": "sentence", "patience": 0},
    )
    return config
