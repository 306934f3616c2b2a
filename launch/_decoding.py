"""Flags of the launchers that generate text: how words are chosen."""

from absl import flags

from dclm_jax.decoding.choices import GREEDY, METHODS, Decoding
from dclm_jax.errors import InputError

_METHOD = flags.DEFINE_enum(
    "method",
    GREEDY.method,
    METHODS,
    "The likeliest next word, a beam of texts so far, or words that are drawn.",
)
_BEAM = flags.DEFINE_integer(
    "beam", GREEDY.beam_width, "With --method=beam: texts so far that are kept."
)
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
SEED = flags.DEFINE_integer("seed", 0, "With --method=sample: what is drawn.")
ALLOW_UNKNOWN = flags.DEFINE_bool("allow_unknown", False, "Generate <UNKNOWN> as well.")
_METHOD_OF = {
    "beam": (_BEAM, _LENGTH_NORMALIZATION),
    "sample": (_TEMPERATURE, _TOP_K, _TOP_P, SEED),
}


def decoding(*more: flags.FlagHolder) -> Decoding:
    """What the flags say; `more` are flags of sampling that a launcher has of its own."""
    for method, own in _METHOD_OF.items():
        for flag in (*own, *more) if method == "sample" else own:
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
