"""Flags of test-time adaptation and its tuning, for the launchers that adapt runs."""

from collections.abc import Sequence

from absl import flags

from dclm_jax.data.corpus import SPLITS
from dclm_jax.data.readers import STDIN
from dclm_jax.data.text_files import input_files
from dclm_jax.errors import InputError
from dclm_jax.evaluation import adaptation
from dclm_jax.evaluation.datasets import Dataset
from dclm_jax.experiments.results import Store
from dclm_jax.experiments.subjects import Subject
from launch import _app, _evaluation

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
TUNE_INPUT = flags.DEFINE_string(
    "tune_input", None, "Text in place of --tune_on, in the format --format."
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
    """Refuses flags that are wrong or have no effect, and tuning on the measured text.

    Args:
      mixes: whether the weight of a mixture is tuned.
    """
    check_settings()
    tunes = mixes or _num_tuned() > 0
    if not tunes and (TUNE_ON.present or TUNE_INPUT.present):
        mixing = "add --interpolate, or " if "interpolate" in flags.FLAGS else ""
        raise InputError(
            "--tune_on and --tune_input have no effect, because nothing is tuned; "
            f"{mixing}add --adapt without some of its settings, or remove --tune_on and "
            "--tune_input"
        )
    _app.refuse_together("tune_input", "tune_on")
    if tunes:
        _require_other_text("the weight" if mixes else f"--adapt={','.join(ADAPT.value)}")


def _require_other_text(setting: str) -> None:
    """Refuses tuning on the measured text, to which the setting would be fitted."""
    texts = [flags.FLAGS[name].value for name in ("input", "permuted") if name in flags.FLAGS]
    measured, split = next(filter(None, texts), None), flags.FLAGS.split
    if measured is None and TUNE_INPUT.value is None and TUNE_ON.value == split:
        raise InputError(
            f"{setting} would be tuned on the measured split, {split}; choose another --tune_on or "
            "--split"
        )
    if measured is not None and TUNE_INPUT.value is not None:
        if both := _files_of(measured) & _files_of(TUNE_INPUT.value):
            raise InputError(
                f"{setting} would be tuned on the measured text, {min(both)}; choose another "
                "--tune_input or --input"
            )


def _files_of(path: str) -> set[str]:
    return {path} if path == STDIN else {str(file.resolve()) for file in input_files(path)}


def _num_tuned() -> int:
    """The number of kinds of adaptation that are tuned."""
    return sum(None in adaptation.complete(kind, settings(kind)).values() for kind in ADAPT.value)


def reads_split(mixes: bool = False) -> bool:
    """Whether a split of a prepared corpus is read in addition to the measured text: for tuning, or
    as the training text of dynamic evaluation."""
    tunes_on_split = (mixes or _num_tuned() > 0) and TUNE_INPUT.value is None
    return tunes_on_split or "dynamic" in ADAPT.value


def open_tuning(runs: Sequence[Subject]) -> Dataset:
    """The documents to tune on."""
    return _evaluation.open_split(runs, TUNE_ON.value, TUNE_INPUT.value)


def adapt(runs: Sequence[Subject], store: Store) -> list[Subject]:
    """All runs with each kind of adaptation of --adapt; settings without a flag are tuned."""
    for run in runs:
        for kind in ADAPT.value:
            if reason := adaptation.obstacle(run.lm, kind):
                raise InputError(f"--adapt={kind}: {run.label} {reason}")
    times = len(runs) * _num_tuned()
    if TUNE_INPUT.value == STDIN and times > 1:
        raise InputError(
            f"--tune_input=- can be read only once, but tuning reads it {times} times; write the "
            "text to a file"
        )
    return [_adapt_run(run, kind, runs, store) for kind in ADAPT.value for run in runs]


def _adapt_run(run: Subject, kind: str, runs: Sequence[Subject], store: Store) -> Subject:
    numbers = adaptation.complete(kind, settings(kind))
    data = _evaluation.directory_of([run]) if kind == "dynamic" else None
    if None not in numbers.values():
        return run.adapted(kind, numbers, data=data)
    adapted = store.adapted(run, kind, numbers, open_tuning(runs), data)
    assert adapted is not None
    return adapted
