"""What the experiments of "Larger-Context Language Modelling" share (Wang and Cho 2015, 5.1)."""

import ml_collections

from dclm_jax.errors import InputError
from dclm_jax.training.config import default_config


def larger_context_config(experiment: str, units: int) -> ml_collections.ConfigDict:
    """Returns the paper's settings for `MODEL` or `MODEL-n`, such as rlm or rlm_bow_lf-8.

    n is the number of context sentences, 4 if it is not given. From the paper: one layer of LSTM,
    Adadelta, the log-likelihood as a mean over sentences, training sentences of up to 50 words,
    early stopping on the validation likelihood. It does not say how wide embeddings, context
    vectors and attention are (here as wide as the LSTM), how many sentences a step takes (here 80),
    or whether gradients are clipped (here not).
    """
    model, dash, n = experiment.partition("-")
    config = default_config(model)
    if "context_sentences" in config.to_dict()["model"]:
        number = _number(n, experiment) if dash else 4
        config.update(model={"context_dim": units, "context_sentences": number})
        if "attention_dim" in config.to_dict()["model"]:
            config.update(model={"attention_dim": units})
    elif dash:
        raise InputError(f"{experiment!r}: {model} has no context sentences; expected {model}")
    config.update(
        model={"embedding_dim": units, "hidden_dim": units, "num_layers": 1, "cell": "lstm"},
        data={"segment_length": 5, "batch_size": 16, "max_sentence_length": 50},
        optimizer={"name": "adadelta", "learning_rate": 1.0, "clip_norm": 0.0},
        training={"loss_per": "sentence", "epochs": 30, "evaluate_every": 0, "patience": 2},
    )
    return config


def _number(text: str, experiment: str) -> int:
    if not text.isdecimal():
        raise InputError(f"{experiment!r}: expected MODEL-n with a number of context sentences n")
    return int(text)
