"""Autoencoders of a size that two CPU cores can train: one layer of 128 units, Adam.

The model follows the file's name after a colon, as for hotel_reviews.py.
"""

import ml_collections

from configs.autoencoder import hotel_reviews


def get_config(model: str = "hierarchical_attention_autoencoder") -> ml_collections.ConfigDict:
    """Returns the settings for the model of that name; the data directory is for a flag.

    Raises:
      InputError: the paper has no such model.
    """
    config = hotel_reviews.get_config(model)
    config.update(
        model={"embedding_dim": 128, "hidden_dim": 128, "num_layers": 1},
        optimizer={"name": "adam", "learning_rate": 0.003, "schedule": "constant"},
        training={"epochs": 10, "loss_per": "token"},
    )
    return config
