"""The configuration of a run: its keys, defaults and checks."""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from ml_collections import ConfigDict

from dclm_jax import files
from dclm_jax.errors import InputError, brief, did_you_mean
from dclm_jax.models import model_class

_FREE_TO_CHANGE = ("data.directory", "training.log_every", "training.evaluation_batch_size")
"""Keys that may differ when a run resumes: parameters do not depend on them."""
_STEPS = {"training.epochs", "training.max_steps"}


_AtLeastOne = Annotated[int, files.Range(1, 2**63 - 1, "a whole number from 1 to 2^63 - 1")]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Data options.

    directory: output of `python -m launch.prepare`, with splits train and valid.
    segment_length: L, maximum number of sentences per training segment; 0 for whole documents.
    batch_size: number of segments per training step, over all devices; 1 is the online learning of
      Ji et al. (2015). A value above the number of segments gives one batch of all segments.
    max_sentence_length: maximum number of words, or of pieces of words with a vocabulary of
      subwords, per training sentence; 0 for no maximum. Longer sentences are omitted, from contexts
      too. Evaluation scores and reads all sentences.
    carry_context: start a training segment with the last context of the previous segment, which
      is read from the initial context c_0, instead of c_0. No gradient flows into the previous
      segment. Models that read only the words of n earlier sentences always read all n.
    no_context_share: share of the training segments, among segments that would start with the
      context of earlier sentences, that start with c_0. They are drawn anew in every epoch. They
      teach the model to score sentences with no context.
    """

    directory: str = ""
    segment_length: files.Count = 5
    batch_size: _AtLeastOne = 16
    max_sentence_length: files.Count = 0
    carry_context: bool = False
    no_context_share: files.Share = 0.0


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer options.

    name: optimizer: adagrad, adadelta, adam or sgd.
    learning_rate: peak of the learning rate; 1 for Zeiler's adadelta.
    clip_norm: maximum global norm of the gradient; 0 for no clipping.
    schedule: learning-rate schedule: constant; cosine (decay to 0 over the run); halve_on_plateau
      (halved after each epoch whose mean training loss is not below the previous epoch's loss); or
      halve_after (halved every halve_every epochs from epoch halve_after on).
    warmup_steps: number of steps of linear growth to the peak.
    halve_after: number of epochs, warm-up included, before the schedule halve_after halves the rate
      for the first time.
    halve_every: number of epochs between two halvings of the schedule halve_after.
    average_decay: decay of the exponential moving average (EMA) of parameters, which is evaluated
      and saved as the best model; 0 for the parameters themselves.
    """

    name: str = "adagrad"
    learning_rate: files.Finite = 0.1
    clip_norm: files.Finite = 5.0
    schedule: str = "constant"
    warmup_steps: files.Count = 0
    halve_after: files.Finite = 5.0
    halve_every: files.Finite = 0.5
    average_decay: files.Finite = 0.0


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Training options.

    A finished run resumes in its workdir with more epochs or max_steps if its learning rate does
    not depend on the length of the run. The resumed run equals a run of that length, except for the
    evaluation at its first end. A run that ended by patience resumes with a larger patience.

    seed: random seed for initial values, batches and dropout.
    start_from: workdir of another run, a path or an address such as gs://bucket/run, to initialize
      from. Parameters of the same name and shape come from its best checkpoint; words are matched
      by their spelling. Other parameters have initial values. A resumed run does not read it again.
    frozen: parameters that are not trained, separated by commas: names such as embedding or
      stack/0/recurrent, as in the table at the start of training, or shell patterns such as
      output/* or *bias, in which * also matches /.
    epochs: maximum number of passes over the training text.
    max_steps: maximum number of training steps; 0 for no limit.
    evaluate_every: number of steps per evaluation; 0 for one evaluation per epoch.
    checkpoint_every: number of steps per checkpoint; every evaluation saves a checkpoint, too.
    log_every: number of steps per line of metrics.jsonl.
    loss_per: unit over which the optimized loss is a mean: token (a target: a word or END) or
      sentence. The optimized loss of a model of bags of words is always a mean over sentences. The
      log and metrics.jsonl have the mean over targets.
    patience: number of consecutive evaluations without a better perplexity that end training; 0
      for never.
    evaluation_batch_size: number of documents that a process scores together, over all its devices.
    """

    seed: files.Count = 0
    start_from: str = ""
    frozen: str = ""
    epochs: _AtLeastOne = 20
    max_steps: files.Count = 0
    evaluate_every: files.Count = 0
    checkpoint_every: _AtLeastOne = 1000
    log_every: _AtLeastOne = 50
    loss_per: Literal["token", "sentence"] = "token"
    patience: files.Count = 5
    evaluation_batch_size: _AtLeastOne = 32


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """A checked configuration; `model` has the name and the options of `models.create`."""

    model: dict[str, Any]
    data: DataConfig
    optimizer: OptimizerConfig
    training: TrainingConfig


_SECTIONS = {"data": DataConfig, "optimizer": OptimizerConfig, "training": TrainingConfig}


def default_config(model: str = "ccdclm") -> ConfigDict:
    """The default configuration of a model. Two layers, segments of 5 sentences, AdaGrad at 0.1 and
    clipping at 5 follow Ji et al. (2015, section 3.1); the plain `lstm` cell and 16 segments per
    step do not. `configs/ptb/paper.py` has the paper's recipe.

    Section `model` has the model's options (`dclm_jax.models`); for the others see `DataConfig`,
    `OptimizerConfig` and `TrainingConfig`.
    """
    options = {
        field.name: field.default
        for field in model_class(model).options()
        if field.name != "vocab_size"
    }
    sections = {name: dataclasses.asdict(section()) for name, section in _SECTIONS.items()}
    return ConfigDict({"model": {"name": model, **options}, **sections})


def require_known(model: str, known: Iterable[str]) -> None:
    """Refuses a model for which a configuration file has no recipe."""
    names = list(known)
    if model not in names:
        problem = f"unknown model {model!r}" if model else "no model is named"
        raise InputError(f"{problem}; expected one of {', '.join(names)}")


def meanings(model: str) -> dict[str, str]:
    """Meanings of the keys of a model's configuration, from the docstrings of its classes."""
    cls = model_class(model)
    about = (inspect.getdoc(cls) or "").split("\n\n")[0]
    texts = {"model.name": " ".join(about.split())}
    options = {field.name for field in cls.options()}
    for section, fields in {"model": cls, **_SECTIONS}.items():
        texts |= {
            f"{section}.{name}": text
            for name, text in files.field_meanings(fields).items()
            if section != "model" or name in options
        }
    return texts


def validated(config: Mapping[str, Any] | ConfigDict) -> RunConfig:
    """The configuration, in which every key is known and present. Values outside section `model`
    have their types and ranges; `models.create` checks the options of the model."""
    settings = config.to_dict() if isinstance(config, ConfigDict) else dict(config)
    name = settings.get("model", {}).get("name")
    if name is None:
        raise InputError("the configuration has no model.name; add the name of a model")
    values = flat(settings)
    known = flat(default_config(name).to_dict())
    for key in values:
        if key not in known:
            raise InputError(f"unknown configuration key {key!r}{did_you_mean(key, known)}")
    for key, default in known.items():
        if key not in values:
            raise InputError(f"the configuration lacks {key!r}; add it (default {default!r})")
    sections: dict[str, Any] = {
        section: files.converted(dict(settings[section]), cls, "configuration", section)
        for section, cls in _SECTIONS.items()
    }
    return RunConfig(model=settings["model"], **sections)


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested mappings by keys such as "a.b.c"."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        leaves |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return leaves


def changed_keys(saved: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The saved and the given value of each key that affects results and has different values."""
    before, now = flat(saved), flat(given)
    return {
        key: (before.get(key), now.get(key))
        for key in sorted(before | now)
        if key not in _FREE_TO_CHANGE and before.get(key) != now.get(key)
    }


def difference_text(different: Mapping[str, tuple[Any, Any]]) -> str:
    """The first of `changed_keys` and the number of the others, for a message."""
    (key, (before, now)), *others = different.items()
    more = f"; {len(others)} more differences" if others else ""
    return f"{key}: {brief(before)} saved, {brief(now)} given{more}"


def incompatible(saved: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The reason why a run cannot resume with a given configuration; "" if it can.

    The length of the run may change if this changes no earlier step: the learning rate does not
    depend on the length, and the given patience would not have ended the run earlier.
    """
    decays = given["optimizer"]["schedule"] == "cosine"
    obstacles = {}
    for key, (before, now) in changed_keys(saved, given).items():
        longer = now == 0 or (type(before) is type(now) is int and 0 < before <= now)
        if not (key == "training.patience" and longer or key in _STEPS and not decays):
            obstacles[key] = before, now
    if not obstacles:
        return ""
    by_length = decays and _STEPS & obstacles.keys()
    reason = "; the learning rate decays over the whole run" if by_length else ""
    return f"{difference_text(obstacles)}{reason}"
