"""Every configuration file makes a configuration that training accepts."""

import importlib.util
from pathlib import Path

import pytest

from dclm_jax import models
from dclm_jax.errors import InputError
from dclm_jax.training.config import validated

CONFIGS = Path(__file__).parents[1] / "configs"
FILES = [
    path.relative_to(CONFIGS).as_posix()
    for path in sorted(CONFIGS.rglob("*.py"))
    if "def get_config(" in path.read_text()
]
INDEX = (CONFIGS / "README.md").read_text()
DCLM = ("rnnlm", "drnnlm", "hrnnlm", "adclm", "codclm", "ccdclm")
N_MODELS = [name for name in models.MODELS if name.startswith("rlm_")]
LARGER_CONTEXT = [("small.py", 128), ("paper.py", 1000)]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(config):
    config.data.directory = "somewhere"
    return validated(config)


@pytest.mark.parametrize("name", FILES)
def test_defaults_are_accepted_and_run_cards_name_their_file(name):
    module = load(CONFIGS / name)
    checked(module.get_config())
    assert f"configs/{name}" in (module.__doc__ or "")
    assert f"`configs/{name}:" in INDEX


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_model_is_one_line_that_names_the_choices(name):
    with pytest.raises(InputError, match="unknown model 'x'; .*(rlm|rnnlm|standard_autoencoder)"):
        load(CONFIGS / name).get_config("x")


@pytest.mark.parametrize("name", ["ptb/paper.py", "movie_reviews/dclm.py"])
def test_recipes_of_the_dclm_paper_name_its_six_models(name):
    with pytest.raises(InputError, match=f"unknown model 'rlm'; expected one of {', '.join(DCLM)}"):
        load(CONFIGS / name).get_config("rlm")


@pytest.mark.parametrize("model", DCLM)
def test_the_run_cards_of_the_paper_state_the_setting_that_is_configured(model):
    card = load(CONFIGS / "ptb/paper.py")
    config = checked(card.get_config(model))
    assert config.model["name"] == model
    setting = (
        f"K = H = {config.model['hidden_dim']}, two layers of the coupled peephole LSTM, "
        f"AdaGrad at a rate of {config.optimizer.learning_rate:g}, clipping at "
        f"{config.optimizer.clip_norm:g}, L = {config.data.segment_length}, A = 48. The other "
        f"settings are not from the paper: a warm-up of {config.optimizer.warmup_steps} steps, "
        f"{config.data.batch_size} segments per step"
    )
    assert setting in " ".join((card.__doc__ or "").split())
    assert f"at most {config.training.epochs}." in (card.__doc__ or "")


@pytest.mark.parametrize(("file", "units"), LARGER_CONTEXT)
@pytest.mark.parametrize("model", N_MODELS)
def test_larger_contexts_take_model_and_n(file, units, model):
    get_config = load(CONFIGS / "larger_context" / file).get_config
    config = checked(get_config(f"{model}-8"))
    widths = {key: value for key, value in config.model.items() if key.endswith("_dim")}
    assert config.model["name"] == model
    assert config.model["context_sentences"] == 8
    assert len(widths) == (4 if "_att_" in model else 3)
    assert set(widths.values()) == {units}
    assert checked(get_config(model)).model["context_sentences"] == 4
    assert config.data.max_sentence_length == 50
    assert config.training.loss_per == "sentence"
    assert config.optimizer.name == ("adadelta" if file == "paper.py" else "adagrad")


@pytest.mark.parametrize(("file", "units"), LARGER_CONTEXT)
def test_larger_context_arguments_that_mean_nothing(file, units):
    get_config = load(CONFIGS / "larger_context" / file).get_config
    assert checked(get_config("rlm")).model["hidden_dim"] == units
    with pytest.raises(InputError, match="'rlm-4': rlm has no context sentences; expected rlm"):
        get_config("rlm-4")
    with pytest.raises(InputError, match="'rlm_bow_lf-x': expected MODEL-n"):
        get_config("rlm_bow_lf-x")
    with pytest.raises(InputError, match="unknown model 'rlm_bow'; expected one of rlm, rlm_bow_"):
        get_config("rlm_bow-2")


@pytest.mark.parametrize("model", ["rnn_lin", "rnnslm", "hrnnlm_two_step"])
def test_words_enter_the_hidden_layer_of_lins_models_at_any_size(model):
    config = load(CONFIGS / "hierarchical_rnn/ptb.py").get_config(model)
    config.model.hidden_dim = 128
    assert checked(config).model["embedding_dim"] == 128
    assert config.optimizer.schedule == "halve_on_plateau"
