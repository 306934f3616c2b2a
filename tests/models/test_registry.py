"""Names and options that no model has, and values that no model can be built from."""

import re

import pytest

from dclm_jax import models
from dclm_jax.errors import InputError
from dclm_jax.nn.cells import CELLS

BAGS = ("bow", "seqbow", "seqbow_att")


def test_the_models_of_the_papers_are_registered():
    names = {"rnnlm", "drnnlm", "hrnnlm", "ccdclm", "codclm", "adclm", "rlm"}
    names |= {"rnn_lin", "rnnslm", "hrnnlm_two_step"}
    names |= {f"rlm_{bags}_{fusion}" for bags in BAGS for fusion in ("ef", "lf")}
    names |= {f"{kind}_autoencoder" for kind in ("standard", "hierarchical")}
    names |= {"hierarchical_attention_autoencoder"}
    assert set(models.MODELS) == names
    assert {models.create(name, vocab_size=9).name for name in names} == names
    assert models.model_class("adclm") is models.MODELS["adclm"]


def test_options_arrive():
    model = models.create("ccdclm", vocab_size=9, hidden_dim=3, num_layers=1, cell="gru")
    assert (model.vocab_size, model.hidden_dim, model.num_layers, model.cell) == (9, 3, 1, "gru")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ccdlcm", {}, "unknown model 'ccdlcm'; did you mean 'ccdclm'?"),
        (
            "zzz",
            {},
            f"unknown model 'zzz'; known: {', '.join(sorted(models.MODELS))}",
        ),
        (
            "rnnlm",
            {"hiden_dim": 3},
            "model rnnlm has no option 'hiden_dim'; did you mean 'hidden_dim'?",
        ),
        ("rnnlm", {"attention_dim": 3}, "model rnnlm has no option 'attention_dim'"),
        (
            "rnnlm",
            {"cell": "lsmt"},
            "model.cell is 'lsmt'; expected one of "
            "coupled_peephole_lstm, lstm, lstm_plain, gru, rnn, htanh",
        ),
        ("rnnlm", {"num_layers": 0}, "model.num_layers is 0; expected at least 1"),
        ("rnnlm", {"hidden_dim": -1}, "model.hidden_dim is -1; expected at least 1"),
        ("rnnlm", {"embedding_dim": 0}, "model.embedding_dim is 0; expected at least 1"),
        ("rnnlm", {"vocab_size": 0}, "model.vocab_size is 0; expected at least 1"),
        ("rnnlm", {"dropout": 1.0}, "model.dropout is 1.0; expected 0 <= dropout < 1"),
        ("rnnlm", {"dropout": -0.1}, "model.dropout is -0.1; expected 0 <= dropout < 1"),
        (
            "rnnlm",
            {"recurrent_dropout": 1.0},
            "model.recurrent_dropout is 1.0; expected 0 <= recurrent_dropout < 1",
        ),
        (
            "rnnlm",
            {"input_dropout": -0.5},
            "model.input_dropout is -0.5; expected 0 <= input_dropout < 1, or -1",
        ),
        ("adclm", {"attention_dim": 0}, "model.attention_dim is 0; expected at least 1"),
        (
            "rlm_bow_ef",
            {"context_sentences": -1},
            "model.context_sentences is -1; expected at least 1 (rlm is the model without context)",
        ),
        ("rlm_seqbow_ef", {"context_dim": 0}, "model.context_dim is 0; expected at least 1"),
        ("rlm_seqbow_att_lf", {"attention_dim": 0}, "model.attention_dim is 0"),
        (
            "rlm_bow_lf",
            {"cell": "gru"},
            "model.cell is 'gru'; expected a memory cell for late fusion: one of "
            "coupled_peephole_lstm, lstm, lstm_plain",
        ),
        (
            "rnn_lin",
            {"cell": "gru"},
            "model.cell is 'gru'; expected a cell of a simple recurrent network: rnn, htanh",
        ),
        (
            "rnnslm",
            {"hash_size": 8},
            "model.hash_size is 8; expected at least 9, the words of the vocabulary, or 0",
        ),
        (
            "hrnnlm_two_step",
            {"embedding_dim": 3, "hidden_dim": 4},
            "model.embedding_dim is 3; expected model.hidden_dim, 4",
        ),
        ("hrnnlm_two_step", {"sentence_loss_weight": -1.0}, "model.sentence_loss_weight is -1.0"),
        ("rnnslm", {"input_dropout": 0.5}, "model.input_dropout is 0.5; expected -1"),
        ("rnnslm", {"recurrent_dropout": 0.5}, "model.recurrent_dropout is 0.5; expected 0"),
        ("rnnslm", {"tie_embeddings": True}, "model.tie_embeddings is True; expected False"),
        (
            "standard_autoencoder",
            {"reverse": "letters"},
            "model.reverse is 'letters'; expected one of documents, words, sentences, none",
        ),
        (
            "hierarchical_autoencoder",
            {"initial_range": 0.0},
            "model.initial_range is 0.0; expected more than 0",
        ),
        (
            "hrnnlm",
            {"sentence_loss_weight": -1.0},
            "model.sentence_loss_weight is -1.0; expected at least 0",
        ),
    ],
)
def test_bad_values_are_named(name, options, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        models.create(name, **{"vocab_size": 9, **options})


def test_vocabulary_size_is_required():
    with pytest.raises(InputError, match="^model rnnlm needs vocab_size$"):
        models.create("rnnlm")


def test_cells_are_the_papers():
    assert list(CELLS) == ["coupled_peephole_lstm", "lstm", "lstm_plain", "gru", "rnn", "htanh"]
