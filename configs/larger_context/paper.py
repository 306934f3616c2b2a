"""RLM and the models of "Larger-Context Language Modelling" (Wang and Cho 2015) at 1,000 units.

MODEL-n follows the name of the file, after a colon. MODEL is rlm, which has no context and no n, or
rlm_bow_ef, rlm_bow_lf, rlm_seqbow_ef, rlm_seqbow_lf, rlm_seqbow_att_ef or rlm_seqbow_att_lf. The
number of context sentences is n (default 4; the paper has n = 1, 2, 4 and 8).

    python -m launch.prepare --corpus=imdb --input=aclImdb --vocab_size=30000 --output=data/imdb
    for run in rlm rlm_seqbow_att_lf-{1,2,4,8}; do
        python -m launch.train --config=configs/larger_context/paper.py:$run \
            --config.data.directory=data/imdb --workdir=runs/imdb/$run
    done
    python -m launch.ngram --data=data/imdb --workdir=runs/imdb/kn5
    runs=runs/imdb/rlm,runs/imdb/rlm_seqbow_att_lf-1,runs/imdb/rlm_seqbow_att_lf-8
    python -m launch.evaluate --workdirs=$runs,runs/imdb/kn5 --plot=figure2.png
    python -m launch.prepare --show=data/imdb --split=test > test.txt
    python -m configs.larger_context.tag test.txt test.tagged
    python -m launch.evaluate --workdirs=$runs --input=test.tagged --format=tagged --by_pos \
        --plot=figure3.png

These commands prepare the other two corpora:

    python -m launch.prepare --corpus=bbc --input=bbc --vocab_size=10000 --output=data/bbc
    python -m launch.prepare --train=PTB/train.txt --valid=PTB/valid.txt --test=PTB/test.txt \
        --unknown_token='<unk>' --output=data/ptb

The settings follow the paper's section 5.1: one LSTM layer, Adadelta, the log-likelihood as a mean
over sentences, training sentences of at most 50 words, and early stopping on the validation
likelihood. No run was trained to its end. On the Penn Treebank an epoch of rlm takes 15 minutes on
a CPU core (1,000 targets/s), and its validation perplexity is 249.5 after the first epoch and 176.5
after the second. configs/larger_context/README.md has the results of small.py and of Wang and Cho
(2015).
"""

import ml_collections

from dclm_jax import models
from dclm_jax.errors import InputError
from dclm_jax.training.config import default_config, require_known

MODELS = tuple(name for name in models.MODELS if name.startswith("rlm"))


def get_config(
    experiment: str = "rlm_seqbow_att_lf-4", units: int = 1000
) -> ml_collections.ConfigDict:
    """Returns the paper's settings for `MODEL` or `MODEL-n`, such as rlm or rlm_bow_lf-8; set the
    data directory with --config.data.directory.

    Args:
      experiment: the model and its number of context sentences n (default 4).
      units: width of the LSTM, embeddings, context vectors and attention. The paper gives only the
        width of the LSTM.
    """
    model, dash, n = experiment.partition("-")
    require_known(model, MODELS)
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
        raise InputError(
            f"{experiment!r}: expected MODEL-n, where n is the number of context sentences"
        )
    return int(text)
