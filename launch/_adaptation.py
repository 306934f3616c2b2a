"""Flags of test-time adaptation and its tuning, for the launchers that adapt runs."""

from collections.abc import Sequence

from absl import flags

from dclm_jax.data.corpus import SPLITS
from dclm_jax.errors import InputError
from dclm_jax.evaluation import adaptation
from dclm_jax.evaluation.datasets import Dataset
from dclm_jax.experiments import subjects
from dclm_jax.experiments.results import Store
from dclm_jax.experiments.subjects import Subject
from launch import _evaluation

ADAPT = flags.DEFINE_list(
    "adapt",
    [],
    "Test-time adaptation to each document, separated by commas: cache (neural cache), unigram "
    "(unigram cache), dynamic (dynamic evaluation).",
)
_HELP = {
    "cache_weight": "Weight l of --adapt=cache or unigram, from 0 to 1",
    "cache_theta": "Sharpness theta of --adapt=cache",
    "cache_window": "Maximum number of targets in the window of --adapt=cache",
    "cache_strength": "Strength s of the model in --adapt=cache or unigram, in targets",
    "dynamic_rate": "Learning rate eta of --adapt=dynamic",
    "dynamic_decay": "Decay lambda of --adapt=dynamic, towards the trained parameters",
    "dynamic_sentences": "Number of sentences per step of --adapt=dynamic",
}
_PREFIXES = {"cache": "cache", "unigram": "cache", "dynamic": "dynamic"}


def _define(name: str) -> flags.FlagHolder:
    default = adaptation.DEFAULTS.get(name.split("_")[1])
    if default is not None:
        return flags.DEFINE_integer(name, default, f"{_HELP[name]}.")
    return flags.DEFINE_float(name, None, f"{_HELP[name]}. Default: tuned.")


_NUMBERS = {name: _define(name) for name in _HELP}
SETTINGS = (ADAPT, *_NUMBERS.values())
TUNE_ON = flags.DEFINE_enum(
    "tune_on",
    "valid",
    SPLITS,
    "Split that tunes the settings of --adapt or the weight of --interpolate.",
)


def check_settings() -> None:
    """Refuses unknown kinds of adaptation, wrong settings, and flags that have no effect."""
    kinds = ADAPT.value
    if ADAPT.present and not kinds:
        raise InputError(f"--adapt is empty; choose from {', '.join(_PREFIXES)}, or remove it")
    if len(set(kinds)) < len(kinds):
        raise InputError(f"--adapt={','.join(kinds)} repeats a name; write each name once")
    for kind in kinds:
        adaptation.complete(kind, settings(kind) if kind in _PREFIXES else {})
    for name, flag in _NUMBERS.items():
        users = [kind for kind in _PREFIXES if name in _names(kind)]
        if flag.present and not set(users) & set(kinds):
            needed = " or ".join(f"--adapt={kind}" for kind in users)
            raise InputError(
                f"--{name} has no effect without {needed}; add {needed} or remove --{name}"
            )


def _names(kind: str) -> dict[str, str]:
    """The flags of a kind of adaptation, and the settings that they set."""
    return {f"{_PREFIXES[kind]}_{number}": number for number in adaptation.SETTINGS[kind]}


def settings(kind: str) -> dict[str, float | None]:
    """The settings of a kind of adaptation from its flags; None is tuned."""
    return {number: _NUMBERS[name].value for name, number in _names(kind).items()}


def check_flags(mixes: bool = False) -> None:
    """Refuses flags that are wrong or have no effect, and tuning on the measured split, to which
    the setting would be fitted.

    Args:
      mixes: whether the weight of a mixture is tuned.
    """
    check_settings()
    tunes = mixes or _tunes()
    if TUNE_ON.present and not tunes:
        mixing = "add --interpolate, or " if "interpolate" in flags.FLAGS else ""
        raise InputError(
            "--tune_on has no effect, because nothing is tuned; "
            f"{mixing}add --adapt without some of its settings, or remove --tune_on"
        )
    if tunes and flags.FLAGS.input is None and TUNE_ON.value == flags.FLAGS.split:
        setting = "the weight" if mixes else f"--adapt={','.join(ADAPT.value)}"
        raise InputError(
            f"{setting} would be tuned on the measured split, {TUNE_ON.value}; choose another "
            "--tune_on or --split"
        )


def _tunes() -> bool:
    """Whether a setting of an adaptation is tuned."""
    return any(None in adaptation.complete(kind, settings(kind)).values() for kind in ADAPT.value)


def reads_split() -> bool:
    """Whether a split of a prepared corpus is read in addition to the measured text: for tuning, or
    as the training text of dynamic evaluation."""
    return _tunes() or "dynamic" in ADAPT.value


def open_tuning(runs: Sequence[Subject]) -> Dataset:
    """The documents to tune on."""
    return _evaluation.open_split(runs, TUNE_ON.value)


def adapt(runs: Sequence[Subject], store: Store) -> list[Subject]:
    """All runs with each kind of adaptation of --adapt; settings without a flag are tuned."""
    for run in runs:
        for kind in ADAPT.value:
            if reason := adaptation.obstacle(run.lm, kind):
                raise InputError(f"--adapt={kind}: {run.label} {reason}")
    return [_adapt_run(run, kind, runs, store) for kind in ADAPT.value for run in runs]


def _adapt_run(run: Subject, kind: str, runs: Sequence[Subject], store: Store) -> Subject:
    numbers = adaptation.complete(kind, settings(kind))
    if None not in numbers.values():
        return subjects.adapted(run, kind, numbers, data=flags.FLAGS.data)
    adapted = store.adapted(run, kind, numbers, open_tuning(runs), flags.FLAGS.data)
    assert adapted is not None
    return adapted
