"""What all experiments of "Larger-Context Language Modelling" share (Wang and Cho 2015, 5)."""

import ml_collections

from dclm_jax.training.config import default_config


def paper_config(experiment: str) -> ml_collections.ConfigDict:
    """Returns the paper's settings for `MODEL` or `MODEL-n`, such as rlm or rlm_bow_lf-4.

    n is the number of context sentences (4 without it). The paper gives the number of LSTM units,
    1,000, the optimizer, the objective and the longest training sentence. It says nothing of the
    width of embeddings and context vectors (here as wide as the LSTM), batches and clipping. Its
    vocabularies are set by launch.prepare.
    """
    model, _, n = experiment.partition("-")
    config = default_config(model)
    with config.unlocked():
        config.model.update(embedding_dim=1000, hidden_dim=1000, cell="lstm", num_layers=1)
        if "context_sentences" in config.model:
            config.model.context_dim = 1000
            config.model.context_sentences = int(n or 4)
        elif n:
            raise ValueError(f"{model} has no context sentences; expected {model!r} alone")
        config.data.update(segment_length=5, batch_size=16, max_sentence_length=50)
        config.optimizer.update(name="adadelta", learning_rate=1.0, clip_norm=0.0)
        config.training.update(loss_per="sentence", epochs=30, evaluate_every=0, patience=2)
    return config
