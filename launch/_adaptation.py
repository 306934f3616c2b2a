"""Flags of test-time adaptation and its tuning, for the launchers that adapt runs."""

from collections.abc import Iterable, Mapping

from absl import flags

from dclm_jax.data.datasets import Dataset
from dclm_jax.errors import InputError
from dclm_jax.evaluation import adaptation
from dclm_jax.evaluation.adaptation import Tuning
from dclm_jax.evaluation.results import Results
from dclm_jax.language_model import LanguageModel
from dclm_jax.scoring.adaptation import SETTINGS, WINDOW, complete

from . import _evaluation

ADAPT = flags.DEFINE_list(
    "adapt",
    [],
    "Test-time adaptation to each document, separated by commas: cache (neural cache), unigram "
    "(unigram cache), dynamic (dynamic evaluation).",
)
_NUMBERS = {
    flag.name: flag
    for flag in (
        flags.DEFINE_float(
            "cache_weight",
            None,
            "Weight l of --adapt=cache or unigram, from 0 to 1. Default: tuned.",
        ),
        flags.DEFINE_float(
            "cache_theta", None, "Sharpness theta of --adapt=cache. Default: tuned."
        ),
        flags.DEFINE_integer(
            "cache_window",
            WINDOW,
            "Maximum number of targets in the window of --adapt=cache.",
        ),
        flags.DEFINE_float(
            "cache_strength",
            None,
            "Strength s of the model in --adapt=cache or unigram, in targets. Default: tuned.",
        ),
        flags.DEFINE_float(
            "dynamic_rate", None, "Learning rate eta of --adapt=dynamic. Default: tuned."
        ),
        flags.DEFINE_float(
            "dynamic_decay",
            None,
            "Decay lambda of --adapt=dynamic, towards the trained parameters. Default: tuned.",
        ),
    )
}
SETTING_FLAGS = (ADAPT, *_NUMBERS.values())
_PREFIXES = {"cache": "cache", "unigram": "cache", "dynamic": "dynamic"}
_TUNED_ON = "valid"
"""The split that tunes settings of --adapt, and the weight of --interpolate."""


def check_settings() -> None:
    """Refuses unknown kinds of adaptation, wrong settings, and flags that have no effect."""
    kinds = ADAPT.value
    if ADAPT.present and not kinds:
        raise InputError(f"--adapt is empty; choose from {', '.join(_PREFIXES)}, or remove it")
    if len(set(kinds)) < len(kinds):
        raise InputError(f"--adapt={','.join(kinds)} repeats a name; write each name once")
    for kind in kinds:
        complete(kind, settings(kind) if kind in _PREFIXES else {})
    for name, flag in _NUMBERS.items():
        users = [kind for kind in _PREFIXES if name in _names(kind)]
        if flag.present and not set(users) & set(kinds):
            needed = " or ".join(f"--adapt={kind}" for kind in users)
            raise InputError(
                f"--{name} has no effect without {needed}; add {needed} or remove --{name}"
            )


def _names(kind: str) -> dict[str, str]:
    """The flags of a kind of adaptation, and the settings that they set."""
    return {f"{_PREFIXES[kind]}_{number}": number for number in SETTINGS[kind]}


def settings(kind: str) -> dict[str, float | None]:
    """The settings of a kind of adaptation from its flags; None is tuned."""
    return {number: _NUMBERS[name].value for name, number in _names(kind).items()}


def check_flags(mixes: bool) -> None:
    """Refuses flags that are wrong or have no effect, and tuning on the measured split, to which
    the setting would be fitted.

    Args:
      mixes: whether the weight of a mixture is tuned.
    """
    check_settings()
    if (mixes or _tunes()) and flags.FLAGS.input is None and flags.FLAGS.split == _TUNED_ON:
        setting = "the weight" if mixes else f"--adapt={','.join(ADAPT.value)}"
        raise InputError(
            f"{setting} would be tuned on the measured split, {_TUNED_ON}; choose another --split"
        )


def _tunes() -> bool:
    """Whether a setting of an adaptation is tuned."""
    return any(None in complete(kind, settings(kind)).values() for kind in ADAPT.value)


def reads_split() -> bool:
    """Whether a split of a prepared corpus is read in addition to the measured text: for tuning, or
    as the training text of dynamic evaluation."""
    return _tunes() or "dynamic" in ADAPT.value


def open_tuning(models: Iterable[LanguageModel]) -> Dataset:
    """The documents to tune on."""
    return _evaluation.open_split(models, _TUNED_ON)


def adapt(runs: Mapping[str, LanguageModel], results: Results) -> dict[str, LanguageModel]:
    """All runs with each kind of adaptation of --adapt, by label; settings without a flag are
    tuned."""
    data, adapted = flags.FLAGS.data, {}
    tunings = [
        (label, lm, Tuning.of(lm, kind, settings(kind), data))
        for kind in ADAPT.value
        for label, lm in runs.items()
    ]
    for label, lm, tuning in tunings:
        tuned_adaptation = tuning.given
        if tuned_adaptation is None:
            tuned_adaptation = results.measured(lm, open_tuning(runs.values()), tuning)
        adapted[f"{label} + {tuning.kind}"] = adaptation.adapted(lm, tuned_adaptation, data)
    return adapted
