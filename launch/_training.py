"""What the launchers that train share: the configuration and its flag."""

import os

from absl import flags
from ml_collections import ConfigDict, config_flags

from dclm_jax.errors import InputError

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Configuration file, configs/... ; see its docstring for the run it describes."
)
flags.mark_flag_as_required("config")


def config() -> ConfigDict:
    """What --config=FILE[:ARGUMENT] returns, with the values of --config.KEY=VALUE.

    Raises:
      InputError: there is no such file, or it returns something else.
    """
    # A file that cannot be read leaves an object here that raises whenever it is touched.
    if isinstance(_CONFIG.value, ConfigDict):
        return _CONFIG.value
    path = source().split(":")[0]
    if os.path.isfile(path):
        raise InputError(f"{path}: expected its get_config to return a ConfigDict")
    raise InputError(f"{path}: there is no such configuration file")


def source() -> str:
    """FILE[:ARGUMENT] of --config, as it was given."""
    return config_flags.get_config_filename(flags.FLAGS["config"])


def overrides() -> dict[str, object]:
    """The values of --config.KEY=VALUE by key."""
    return config_flags.get_override_values(flags.FLAGS["config"])
