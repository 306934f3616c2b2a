"""Configurations: every key checked by name, type and range."""

import pytest

from dclm_jax.errors import InputError
from dclm_jax.training.config import default_config, differences, validated


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
    assert (config.optimizer.clip_norm, config.optimizer.initial_accumulator) == (5.0, 0.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data.segment_length": -1}, "data.segment_length is -1; expected at least 0"),
        ({"data.batch_size": 0}, "data.batch_size is 0; expected at least 1"),
        ({"training.epochs": 0}, "training.epochs is 0; expected at least 1"),
        ({"optimizer.learning_rate": float("nan")}, "optimizer.learning_rate is nan"),
        ({"data.directory": ""}, "data.directory is empty"),
        ({"data.max_sentence_length": -1}, "data.max_sentence_length is -1; expected at least 0"),
        (
            {"training.loss_per": "word"},
            "training.loss_per is 'word'; expected one of token, sentence",
        ),
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
    config["model"]["hidden_dim"] = "64"
    with pytest.raises(InputError, match=r"model.hidden_dim is '64'; expected .* int"):
        validated(config)
    with pytest.raises(InputError, match=r"unknown model 'ccdlm'; did you mean 'ccdclm'"):
        validated({"model": {"name": "ccdlm"}})


def test_differences_name_keys_that_decide_the_result():
    old, new = make().to_dict(), make().to_dict()
    new["training"]["log_every"] = 1
    new["data"]["directory"] = "elsewhere"
    assert differences(old, new) == []
    del old["data"]["max_sentence_length"]
    assert differences(old, new) == []
    new["model"]["hidden_dim"] = 7
    assert differences(old, new) == ["model.hidden_dim is 128 there and 7 here"]
