"""Decoding flags of the launchers that generate text."""

from absl import flags

from dclm_jax.decoding.choices import GREEDY, METHODS, Decoding
from dclm_jax.errors import InputError

_METHOD = flags.DEFINE_enum(
    "method",
    GREEDY.method,
    METHODS,
    "Choice of words: the most probable next word (greedy), beam search (beam), or random words "
    "(sample).",
)
_BEAM = flags.DEFINE_integer("beam", GREEDY.beam_width, "Beam width, for --method=beam.")
_LENGTH_NORMALIZATION = flags.DEFINE_float(
    "length_normalization",
    GREEDY.length_normalization,
    "Exponent a in log P / length^a, for --method=beam. 0 prefers short texts; 1 ranks by the mean "
    "log P of a target.",
)
_TEMPERATURE = flags.DEFINE_float(
    "temperature",
    GREEDY.temperature,
    "Sampling temperature, for --method=sample. Values below 1 favour probable words.",
)
_TOP_K = flags.DEFINE_integer(
    "top_k",
    GREEDY.top_k,
    "Number of most probable words to draw from, for --method=sample.",
)
_TOP_P = flags.DEFINE_float(
    "top_p",
    GREEDY.top_p,
    "Total probability of the most probable words to draw from, for --method=sample.",
)
SEED = flags.DEFINE_integer("seed", 0, "Random seed for --method=sample.")
ALLOW_UNKNOWN = flags.DEFINE_bool("allow_unknown", False, "Generate <UNKNOWN>, too.")


def decoding(*sampling: flags.FlagHolder) -> Decoding:
    """The decoding options of the flags; `sampling` are further flags of --method=sample."""
    for method, method_flags in (
        ("beam", (_BEAM, _LENGTH_NORMALIZATION)),
        ("sample", (_TEMPERATURE, _TOP_K, _TOP_P, SEED, *sampling)),
    ):
        for flag in method_flags:
            if flag.present and method != _METHOD.value:
                raise InputError(
                    f"--{flag.name} has no effect without --method={method}; add "
                    f"--method={method} or remove --{flag.name}"
                )
    return Decoding(
        method=_METHOD.value,
        beam_width=_BEAM.value,
        length_normalization=_LENGTH_NORMALIZATION.value,
        temperature=_TEMPERATURE.value,
        top_k=_TOP_K.value,
        top_p=_TOP_P.value,
        suppress_unknown=not ALLOW_UNKNOWN.value,
    )
