"""Decoding flags of the launchers that generate text."""

from absl import flags

from dclm_jax.decoding.choices import Decoding
from dclm_jax.errors import InputError
from dclm_jax.log import logger

from ._flags import define_fields, values_of

_FIELDS = define_fields(Decoding, names={"beam_width": "beam"})
SEED = flags.DEFINE_integer("seed", 0, "Random seed for --method=sample.")
ALLOW_UNKNOWN = _FIELDS["allow_unknown"]
_OF_METHODS = {
    "beam": ("beam_width", "length_normalization"),
    "sample": ("temperature", "top_k", "top_p"),
}


def decoding(*sampling: flags.FlagHolder) -> Decoding:
    """The decoding options of the flags; `sampling` are further flags of --method=sample."""
    options = Decoding(**values_of(_FIELDS))
    for method, fields in _OF_METHODS.items():
        others = sampling if method == "sample" else ()
        for flag in (*(_FIELDS[field] for field in fields), *others):
            if flag.present and method != options.method:
                raise InputError(
                    f"--{flag.name} has no effect without --method={method}; add "
                    f"--method={method} or remove --{flag.name}"
                )
    if SEED.present and options.method != "sample":
        logger.info(
            f"--seed has no effect, because --method={options.method} is deterministic; add "
            "--method=sample"
        )
    return options
