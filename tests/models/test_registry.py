"""Names and options that no model has, and values that no model can be built from."""

import fnmatch
import re
from pathlib import Path

import numpy as np
import pytest

from dclm_jax import models
from dclm_jax.errors import InputError
from tests import oracles


def test_every_model_is_registered_by_its_name_and_has_an_oracle():
    assert set(models.MODELS) == set(oracles.READERS)
    assert {models.create(name, vocab_size=9).name for name in models.MODELS} == set(models.MODELS)
    assert models.model_class("adclm") is models.MODELS["adclm"]


@pytest.mark.parametrize("name", models.MODELS)
def test_every_model_has_a_row_among_the_equations(name):
    text = (Path(models.__file__).parent / "README.md").read_text()
    rows = [row.split("|")[1] for row in re.findall(r"^\| `.*", text, re.MULTILINE)]
    patterns = [name for row in rows for name in re.findall("`(.*?)`", row)]
    assert any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def test_options_arrive():
    model = models.create("ccdclm", vocab_size=9, hidden_dim=3, num_layers=1, cell="gru")
    assert (model.vocab_size, model.hidden_dim, model.num_layers, model.cell) == (9, 3, 1, "gru")
    numpy_values = {"vocab_size": np.int64(9), "dropout": np.float32(0.5)}
    assert models.create("rnnlm", **numpy_values).dropout == 0.5


SIZE = "a whole number from 1 to 2^31 - 1"
RATE = "a number of at least 0 and below 1"
MEMORY_CELLS = "coupled_peephole_lstm, lstm, lstm_linear_output"


@pytest.mark.parametrize(
    ("name", "option", "value", "expected"),
    [
        ("rnnlm", "cell", "lsmt", f"one of {MEMORY_CELLS}, gru, rnn, htanh"),
        ("rnnlm", "num_layers", 0, "a whole number from 1 to 1000"),
        ("rnnlm", "hidden_dim", -1, SIZE),
        ("rnnlm", "embedding_dim", 0, SIZE),
        ("rnnlm", "vocab_size", 0, SIZE),
        ("rnnlm", "dropout", 1.0, RATE),
        ("rnnlm", "dropout", -0.1, RATE),
        ("rnnlm", "recurrent_dropout", 1.0, RATE),
        ("rnnlm", "input_dropout", -0.5, "0 <= input_dropout < 1, or -1"),
        ("rnnlm", "compute_dtype", "float8", "float32 or bfloat16"),
        ("rnnlm", "matmul_precision", "low", "default or high or highest"),
        ("adclm", "attention_dim", 0, SIZE),
        ("adclm", "memory_sentences", 0, SIZE),
        ("pointer_drnnlm", "memory_targets", 0, SIZE),
        ("pointer_drnnlm", "attention_dim", 0, SIZE),
        (
            "rlm_bow_ef",
            "context_sentences",
            -1,
            "a whole number from 1 to 2^31 - 1 (rlm is the model without context)",
        ),
        ("rlm_seqbow_ef", "context_dim", 0, SIZE),
        ("rlm_seqbow_att_lf", "attention_dim", 0, SIZE),
        ("rlm_bow_lf", "cell", "gru", f"a memory cell for late fusion: one of {MEMORY_CELLS}"),
        ("rnn_lin", "cell", "gru", "a cell of a simple recurrent network: rnn, htanh"),
        ("rnnslm", "hash_size", 8, "at least 9, the size of the vocabulary, or 0"),
        ("hrnnlm_two_step", "embedding_dim", 3, "model.hidden_dim, 128: words enter the hidden"),
        ("hrnnlm_two_step", "sentence_loss_weight", -1.0, "a finite number of at least 0"),
        ("rnnslm", "input_dropout", 0.5, "-1"),
        ("rnnslm", "recurrent_dropout", 0.5, "0"),
        ("rnnslm", "tie_embeddings", True, "False"),
        ("standard_autoencoder", "reverse", "letters", "documents or words or sentences or none"),
        ("hierarchical_autoencoder", "initial_range", 0.0, "a finite number above 0"),
        ("hrnnlm", "sentence_loss_weight", -1.0, "a finite number of at least 0"),
    ],
)
def test_bad_values_are_named(name, option, value, expected):
    message = re.escape(f"model.{option} is {value!r}; expected {expected}")
    with pytest.raises(InputError, match=f"^{message}"):
        models.create(name, **{"vocab_size": 9, option: value})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ccdlcm", {}, "unknown model 'ccdlcm'; did you mean 'ccdclm'?"),
        ("zzz", {}, f"unknown model 'zzz'; known: {', '.join(sorted(models.MODELS))}"),
        ("rnnlm", {"hiden_dim": 3}, "model rnnlm has no option 'hiden_dim'; did you mean 'hidden_"),
        ("rnnlm", {"attention_dim": 3}, "model rnnlm has no option 'attention_dim'"),
        ("drnnlm", {"memory_targets": 9}, "model drnnlm has no option 'memory_targets'"),
        ("adclm", {"memory_sentence": 2}, "model adclm has no option 'memory_sentence'; did you"),
    ],
)
def test_unknown_names_are_refused(name, options, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        models.create(name, **{"vocab_size": 9, **options})


def test_vocabulary_size_is_required():
    with pytest.raises(InputError, match="^model rnnlm has no vocab_size; pass vocab_size=V$"):
        models.create("rnnlm")
