"""Flags of the launchers that generate text: how words are chosen."""

from absl import flags

from dclm_jax.decoding.choices import GREEDY, METHODS, Decoding
from dclm_jax.errors import InputError

_METHOD = flags.DEFINE_enum(
    "method",
    GREEDY.method,
    METHODS,
    "The likeliest next word, a beam of partial hypotheses, or words that are drawn.",
)
_BEAM = flags.DEFINE_integer("beam", GREEDY.beam_width, "With --method=beam: beam width.")
_LENGTH_NORMALIZATION = flags.DEFINE_float(
    "length_normalization",
    GREEDY.length_normalization,
    "With --method=beam: a in log P / length^a; 0 prefers short texts, 1 compares means.",
)
_TEMPERATURE = flags.DEFINE_float(
    "temperature",
    GREEDY.temperature,
    "Sampling temperature for --method=sample. Values below 1 favour likely words; values near 0 "
    "give greedy decoding.",
)
_TOP_K = flags.DEFINE_integer(
    "top_k", GREEDY.top_k, "With --method=sample: draw from the k likeliest words alone."
)
_TOP_P = flags.DEFINE_float(
    "top_p",
    GREEDY.top_p,
    "With --method=sample: draw from the likeliest words that have this probability together.",
)
SEED = flags.DEFINE_integer("seed", 0, "Random seed for --method=sample.")
ALLOW_UNKNOWN = flags.DEFINE_bool("allow_unknown", False, "Generate <UNKNOWN> as well.")
_OF_BEAM = (_BEAM, _LENGTH_NORMALIZATION)
_OF_SAMPLING = (_TEMPERATURE, _TOP_K, _TOP_P, SEED)


def decoding(*more_of_sampling: flags.FlagHolder) -> Decoding:
    """The decoding of the flags; `more_of_sampling` are further flags of --method=sample."""
    for method, of_method in {
        "beam": _OF_BEAM,
        "sample": (*_OF_SAMPLING, *more_of_sampling),
    }.items():
        for flag in of_method:
            if flag.present and method != _METHOD.value:
                raise InputError(f"--{flag.name} belongs to --method={method}")
    return Decoding(
        method=_METHOD.value,
        beam_width=_BEAM.value,
        length_normalization=_LENGTH_NORMALIZATION.value,
        temperature=_TEMPERATURE.value,
        top_k=_TOP_K.value,
        top_p=_TOP_P.value,
        suppress_unknown=not ALLOW_UNKNOWN.value,
    )
