"""The autoencoders of Li et al. (2015) with 128 units and Adam, for two CPU cores.

The name of the model follows the name of the file, after a colon, as in hotel_reviews.py. Any
prepared corpus of short documents can be used. These commands train for one or two minutes on the
State of the Union addresses, too short for a faithful reconstruction, and reconstruct a text:

    python -m launch.prepare --corpus=sotu --split_documents_at=120 --min_words=50 \
        --max_words=250 --output=data/sotu_paragraphs
    python -m launch.train --config=configs/autoencoder/small.py --workdir=runs/autoencoder \
        --config.data.directory=data/sotu_paragraphs --config.training.max_steps=200
    python -m launch.reconstruct --workdir=runs/autoencoder --input=TEXT.txt --output=output.jsonl

These commands train all three models on paragraphs of 50 to 250 words:

    python -m launch.prepare --train=TEXT/train.txt --valid=TEXT/valid.txt --test=TEXT/test.txt \
        --min_words=50 --max_words=250 --output=data/paragraphs
    config=configs/autoencoder/small.py
    for model in standard hierarchical hierarchical_attention; do
        python -m launch.train --config=$config:${model}_autoencoder \
            --config.data.directory=data/paragraphs --workdir=runs/paragraphs/$model
    done

A model that memorizes a few paragraphs shows its capacity. data/few has 64 paragraphs, prepared
both as --train and as --valid:

    python -m launch.train --config=$config:hierarchical_attention_autoencoder \
        --config.data.directory=data/few --workdir=runs/few \
        --config.model.dropout=0 --config.training.epochs=240

The settings differ from hotel_reviews.py in these values: one layer of 128 units, 16 documents per
step, and Adam at 0.004 (0.002 for the standard model) for 20 epochs. The loss is a mean over
targets. configs/autoencoder/README.md has the results.
"""

import ml_collections

from configs.autoencoder import hotel_reviews

RATES = {"standard_autoencoder": 0.002}
"""Learning rates other than 0.004. At 0.004 the validation perplexity of `standard_autoencoder` is
10^18 in the first epochs: the memory of a cell with h = o c is not bounded over a whole
document."""


def get_config(model: str = "hierarchical_attention_autoencoder") -> ml_collections.ConfigDict:
    """Returns the settings for `model`; set the data directory with --config.data.directory."""
    config = hotel_reviews.get_config(model)
    config.update(
        model={"embedding_dim": 128, "hidden_dim": 128, "num_layers": 1},
        data={"batch_size": 16},
        optimizer={
            "name": "adam",
            "learning_rate": RATES.get(model, 0.004),
            "schedule": "constant",
        },
        training={"epochs": 20, "loss_per": "token"},
    )
    return config
