"""Every configuration file makes a configuration that training accepts."""

import importlib.util
from pathlib import Path

import pytest

from dclm_jax import models
from dclm_jax.errors import InputError
from dclm_jax.training.config import validated

CONFIGS = Path(__file__).parents[1] / "configs"
LARGER_CONTEXT = ("small", "imdb", "bbc", "ptb")
DCLM = ("rnnlm", "drnnlm", "hrnnlm", "adclm", "codclm", "ccdclm")
N_MODELS = [name for name in models.MODELS if name.startswith("rlm_")]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(config):
    config.data.directory = "somewhere"
    return validated(config)


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(CONFIGS.rglob("*.py")) if path.stem != "paper"],
    ids=lambda path: path.relative_to(CONFIGS).as_posix(),
)
def test_defaults_are_accepted_and_run_cards_name_their_file(path):
    module = load(path)
    checked(module.get_config())
    assert f"configs/{path.relative_to(CONFIGS).as_posix()}" in (module.__doc__ or "")


@pytest.mark.parametrize("model", DCLM)
def test_run_cards_of_the_paper_state_the_setting_that_is_configured(model):
    card = load(CONFIGS / f"ptb/{model}.py")
    config = checked(card.get_config())
    assert config.model["name"] == model
    setting = (
        f"K = H = {config.model['hidden_dim']}, two layers of the coupled peephole LSTM, "
        f"AdaGrad {config.optimizer.learning_rate:g}, clipping at {config.optimizer.clip_norm:g}, "
        f"L = {config.data.segment_length}"
    )
    assert setting in " ".join((card.__doc__ or "").split())


@pytest.mark.parametrize("name", LARGER_CONTEXT)
@pytest.mark.parametrize("model", N_MODELS)
def test_larger_contexts_take_model_and_n(name, model):
    get_config = load(CONFIGS / "larger_context" / f"{name}.py").get_config
    units = 128 if name == "small" else 1000
    config = checked(get_config(f"{model}-8"))
    widths = {key: value for key, value in config.model.items() if key.endswith("_dim")}
    assert config.model["name"] == model
    assert config.model["context_sentences"] == 8
    assert len(widths) == (4 if "_att_" in model else 3)
    assert set(widths.values()) == {units}
    assert checked(get_config(model)).model["context_sentences"] == 4
    assert config.data.max_sentence_length == 50
    assert config.training.loss_per == "sentence"
    assert config.optimizer.name == ("adagrad" if name == "small" else "adadelta")


def test_larger_context_arguments_that_mean_nothing():
    get_config = load(CONFIGS / "larger_context" / "small.py").get_config
    assert checked(get_config("rlm")).model["name"] == "rlm"
    with pytest.raises(InputError, match="'rlm-4': rlm has no context sentences; expected rlm"):
        get_config("rlm-4")
    with pytest.raises(InputError, match="'rlm_bow_lf-x': expected MODEL-n"):
        get_config("rlm_bow_lf-x")
    with pytest.raises(InputError, match="unknown model 'rlm_bow'; did you mean 'rlm_bow_"):
        get_config("rlm_bow-2")
