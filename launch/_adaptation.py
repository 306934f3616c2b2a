"""The flags of launchers that adapt runs to each document, and of tuning."""

from collections.abc import Sequence

from absl import flags

from dclm_jax.data.corpus import SPLITS
from dclm_jax.data.readers import STDIN
from dclm_jax.data.text_files import input_files
from dclm_jax.errors import InputError
from dclm_jax.evaluation import adaptation
from dclm_jax.evaluation.datasets import Dataset
from dclm_jax.experiments.subjects import Subject
from launch import _evaluation

ADAPT = flags.DEFINE_list(
    "adapt",
    [],
    "Adapt each run to every document as it is read: some of cache (neural), unigram (cache) and "
    "dynamic (evaluation).",
)
_WEIGHT = flags.DEFINE_float(
    "cache_weight",
    None,
    "Weight l of the cache, from 0 to 1; default: tuned.",
    lower_bound=0,
    upper_bound=1,
)
_THETA = flags.DEFINE_float(
    "cache_theta",
    None,
    "Sharpness theta of --adapt=cache; default: tuned.",
    lower_bound=0,
)
_WINDOW = flags.DEFINE_integer(
    "cache_window",
    adaptation.DEFAULTS["window"],
    "Targets that --adapt=cache remembers.",
    lower_bound=1,
)
_STRENGTH = flags.DEFINE_float(
    "cache_strength",
    None,
    "Targets s that the model counts for in a cache; default: tuned.",
    lower_bound=0,
)
_RATE = flags.DEFINE_float(
    "dynamic_rate",
    None,
    "Learning rate eta of --adapt=dynamic; default: tuned.",
    lower_bound=0,
)
_DECAY = flags.DEFINE_float(
    "dynamic_decay",
    None,
    "Decay lambda of --adapt=dynamic towards the trained parameters; default: tuned.",
    lower_bound=0,
)
_SENTENCES = flags.DEFINE_integer(
    "dynamic_sentences",
    1,
    "Sentences after which --adapt=dynamic changes the parameters.",
    lower_bound=1,
)
TUNE_ON = flags.DEFINE_enum(
    "tune_on",
    "valid",
    SPLITS,
    "Split of the prepared corpus that tunes what --adapt leaves open, or --interpolate's weight.",
)
TUNE_INPUT = flags.DEFINE_string(
    "tune_input", None, "Text that tunes it instead, read as --format says."
)
_FLAGS = {
    "cache": (_WEIGHT, _THETA, _WINDOW, _STRENGTH),
    "unigram": (_WEIGHT, _STRENGTH),
    "dynamic": (_RATE, _DECAY, _SENTENCES),
}
_NUMBERS = {flag.name: flag for group in _FLAGS.values() for flag in group}
SETTINGS = (ADAPT, *_NUMBERS.values())


def check_settings() -> None:
    """Refuses what is unknown, settings that are wrong, and flags that have no effect."""
    expected = f"expected some of {', '.join(_FLAGS)}"
    if ADAPT.present and not ADAPT.value:
        raise InputError(f"--adapt is empty; {expected}")
    for kind in ADAPT.value:
        if kind not in _FLAGS:
            raise InputError(f"--adapt={kind} is unknown; {expected}")
        if ADAPT.value.count(kind) > 1:
            raise InputError(f"--adapt names {kind} twice; expected each once")
        adaptation.complete(kind, settings(kind))
    for name, flag in _NUMBERS.items():
        kinds = [kind for kind, group in _FLAGS.items() if name in {one.name for one in group}]
        if flag.present and not set(kinds) & set(ADAPT.value):
            raise InputError(f"--{name} belongs to --adapt={' or '.join(kinds)}, which is missing")


def settings(kind: str) -> dict[str, float | None]:
    """The values of the flags of a way to adapt; None is tuned."""
    return {flag.name.split("_", maxsplit=1)[1]: flag.value for flag in _FLAGS[kind]}


def check_flags(mixes: bool = False) -> None:
    """Refuses flags that are wrong or have no effect, and tuning on what is measured; `mixes` says
    that the weight of a mixture is tuned."""
    check_settings()
    tunes = mixes or _num_tuned() > 0
    if not tunes and (TUNE_ON.present or TUNE_INPUT.present):
        mixing = "--interpolate, or to " if "interpolate" in flags.FLAGS else ""
        raise InputError(
            f"--tune_on and --tune_input belong to {mixing}--adapt where something of it is not "
            "given; there is nothing to tune"
        )
    if TUNE_ON.present and TUNE_INPUT.present:
        raise InputError("--tune_input replaces --tune_on; expected one of the two")
    if tunes:
        _require_other_text("the weight" if mixes else f"--adapt={','.join(ADAPT.value)}")


def _require_other_text(what: str) -> None:
    """Nothing is tuned on what it is measured on: it would be fitted to it."""
    texts = [flags.FLAGS[name].value for name in ("input", "permuted") if name in flags.FLAGS]
    measured, split = next(filter(None, texts), None), flags.FLAGS.split
    if measured is None and TUNE_INPUT.value is None and TUNE_ON.value == split:
        raise InputError(
            f"{what} would be tuned on the split it is measured on, {split}; "
            "expected another one as --tune_on or --split"
        )
    if measured is not None and TUNE_INPUT.value is not None:
        if both := _files_of(measured) & _files_of(TUNE_INPUT.value):
            raise InputError(
                f"{what} would be tuned on text it is measured on, {min(both)}; "
                "expected other text as --tune_input or --input"
            )


def _files_of(path: str) -> set[str]:
    return {path} if path == STDIN else {str(file.resolve()) for file in input_files(path)}


def _num_tuned() -> int:
    """The number of ways to adapt that are tuned."""
    return sum(None in adaptation.complete(kind, settings(kind)).values() for kind in ADAPT.value)


def reads_split(mixes: bool = False) -> bool:
    """Whether a split of a prepared corpus is read beside what is measured: to tune on, or the
    training text of dynamic evaluation."""
    tunes_on_split = (mixes or _num_tuned() > 0) and TUNE_INPUT.value is None
    return tunes_on_split or "dynamic" in ADAPT.value


def open_tuning(runs: Sequence[Subject]) -> Dataset:
    """The text to tune on."""
    if TUNE_INPUT.value is None:
        return _evaluation.open_split(runs, TUNE_ON.value)
    return _evaluation.open_text([run.lm for run in runs], TUNE_INPUT.value)


def require_adaptable(runs: Sequence[Subject]) -> None:
    """Refuses runs that cannot be adapted in the ways that are asked for."""
    for run in runs:
        for kind in ADAPT.value:
            if reason := adaptation.obstacle(run.lm, kind):
                raise InputError(f"--adapt={kind}: {run.label} {reason}")
    if TUNE_INPUT.value == STDIN and len(runs) * _num_tuned() > 1:
        raise InputError(
            f"--tune_input=- can be read once, and is tuned on {len(runs) * _num_tuned()} times; "
            "expected a file"
        )


def adapt(runs: Sequence[Subject]) -> list[Subject]:
    """All runs adapted in every way that is asked for, tuned where that is needed."""
    return [adapt_run(run, kind, runs) for kind in ADAPT.value for run in runs]


def adapt_run(run: Subject, kind: str, runs: Sequence[Subject]) -> Subject:
    """A run with test-time adaptation, tuned on the corpus of `runs`."""
    tunes = None in adaptation.complete(kind, settings(kind)).values()
    label, tune_on = f"{run.label} + {kind}", open_tuning(runs) if tunes else None
    total = None if tune_on is None or kind == "dynamic" else tune_on.num_documents
    with _evaluation.Progress(f"tuning {label}", total) as progress:
        lm = run.lm.adapt(
            kind,
            tune_on=tune_on,
            data=_evaluation.directory_of([run]) if kind == "dynamic" else None,
            label=run.label,
            on_document=progress,
            **settings(kind),
        )
    return Subject(label, run.workdir, lm)
