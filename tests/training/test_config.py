"""Configurations: every key checked by name, type and range."""

import re
import types
from typing import get_args

import pytest

from dclm_jax.errors import InputError
from dclm_jax.models import MODELS
from dclm_jax.nn.cells import CELLS
from dclm_jax.nn.precision import MatmulPrecision
from dclm_jax.training.config import (
    changed_keys,
    default_config,
    flat,
    incompatible,
    meanings,
    require_known,
    validated,
)
from dclm_jax.training.optimizer import OPTIMIZERS, SCHEDULES


def make(model: str = "ccdclm", **values):
    config = default_config(model)
    config.update_from_flattened_dict({"data.directory": "somewhere", **values})
    return config


def test_defaults_are_the_papers_where_they_say_so():
    config = validated(make("adclm"))
    assert config.model["attention_dim"] == 48
    assert config.model["num_layers"] == 2
    assert config.data.segment_length == 5
    assert (config.optimizer.name, config.optimizer.learning_rate) == ("adagrad", 0.1)
    assert config.optimizer.clip_norm == 5.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data.segment_length": -1}, "data.segment_length is -1; expected a whole number from 0"),
        ({"data.batch_size": 0}, "data.batch_size is 0; expected a whole number from 1"),
        ({"data.max_sentence_length": -1}, "data.max_sentence_length is -1; expected a whole num"),
        ({"training.seed": -1}, "training.seed is -1; expected a whole number from 0"),
        ({"optimizer.clip_norm": float("inf")}, "optimizer.clip_norm is inf; expected a finite"),
        ({"training.loss_per": "word"}, "training.loss_per is 'word'; expected token or sentence"),
    ],
)
def test_values_out_of_range(values, message):
    with pytest.raises(InputError, match=message):
        validated(make(**values))


def test_unknown_missing_and_mistyped_keys():
    config = make().to_dict()
    config["model"]["hiden_dim"] = 3
    with pytest.raises(InputError, match=r"'model.hiden_dim'; did you mean 'model.hidden_dim'"):
        validated(config)
    config = make().to_dict()
    del config["training"]["patience"]
    with pytest.raises(InputError, match=r"lacks 'training.patience'"):
        validated(config)
    config = make().to_dict()
    config["training"]["seed"] = "64"
    with pytest.raises(InputError, match="training.seed is '64'; expected a whole number from 0"):
        validated(config)
    with pytest.raises(InputError, match=r"unknown model 'ccdlm'; did you mean 'ccdclm'"):
        validated({"model": {"name": "ccdlm"}})


def test_keys_and_mappings_of_any_kind_are_named():
    values = default_config("rnnlm").to_dict()
    values["data"]["directory"] = "data"
    frozen = {key: types.MappingProxyType(section) for key, section in values.items()}
    assert validated({**frozen, "model": values["model"]}) == validated(values)
    values["model"][3] = 1
    with pytest.raises(InputError, match=r"unknown configuration key 'model\.3'"):
        validated(values)


def test_differences_name_keys_that_decide_the_result():
    old, new = make().to_dict(), make().to_dict()
    new["training"]["log_every"] = 1
    new["data"]["directory"] = "elsewhere"
    assert not changed_keys(old, new)
    new["model"]["hidden_dim"] = 7
    assert changed_keys(old, new) == {"model.hidden_dim": (128, 7)}


@pytest.mark.parametrize("model", MODELS)
def test_every_key_has_a_meaning(model):
    texts = meanings(model)
    keys = flat(default_config(model).to_dict())
    assert set(keys) == set(texts) - {"model.vocab_size"}
    for text in texts.values():
        assert text and "\n" not in text and "  " not in text


def test_meanings_are_those_of_the_docstrings():
    texts = meanings("rlm_seqbow_att_ef")
    assert texts["data.max_sentence_length"] == (
        "maximum number of words, or of pieces of words with a vocabulary of subwords, per "
        "training sentence; 0 for no maximum. Longer sentences are omitted, from contexts too. "
        "Evaluation scores and reads all sentences."
    )
    # Of a line that is part of another entry, and of a class, its base and the base of that.
    assert texts["optimizer.schedule"].endswith(
        "every halve_every epochs from epoch halve_after on)."
    )
    assert texts["optimizer.halve_after"].startswith("number of epochs, warm-up included, before")
    assert texts["model.attention_dim"].startswith("A, ")
    assert texts["model.context_sentences"].startswith("n, ")
    assert texts["model.num_layers"] == "number of recurrent layers of every stack."
    assert (
        texts["model.name"] == "RLM-SeqBoW-ATT-EF-n: attention over n bags of words, early fusion."
    )
    with pytest.raises(InputError, match="unknown model 'rlmm'; did you mean 'rlm'"):
        meanings("rlmm")


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("model.cell", CELLS),
        ("model.compute_dtype", ("float32", "bfloat16")),
        ("model.matmul_precision", get_args(MatmulPrecision)),
        ("optimizer.name", OPTIMIZERS),
        ("optimizer.schedule", SCHEDULES),
        ("training.loss_per", ("token", "sentence")),
    ],
)
def test_meanings_name_all_values(key, values):
    words = re.findall(r"\w+", meanings("rnnlm")[key])
    assert set(values) <= set(words)


def test_names_that_a_configuration_file_does_not_know():
    require_known("a", ("a", "b"))
    with pytest.raises(InputError, match="^unknown model 'c'; expected one of a, b$"):
        require_known("c", ("a", "b"))
    with pytest.raises(InputError, match="^no model is named; expected one of a, b$"):
        require_known("", ("a", "b"))


def test_a_run_of_another_kind_is_incompatible():
    counted = {"model": {"name": "ngram", "order": 5}, "data": {"directory": "somewhere"}}
    assert incompatible(counted, make().to_dict()).startswith("data.batch_size: None saved, ")
