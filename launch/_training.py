"""The option --config with its help and errors, for the commands that take a configuration."""

import argparse
import dataclasses
import difflib
import importlib.util
import os
import pathlib
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence

from absl import flags
from ml_collections import ConfigDict, config_flags

from dclm_jax import storage
from dclm_jax.errors import InputError
from dclm_jax.training.config import default_config, flat, meanings
from dclm_jax.training.workdir import CONFIG_FILE, read_config

from ._options import CommandOptions, Flag


def _define(flag: Flag) -> None:
    config_flags.DEFINE_config_file(flag.name, flag.default, flag.help)
    flags.FLAGS[flag.name].default_as_str = ""


@dataclasses.dataclass(frozen=True)
class ConfigOptions(CommandOptions):
    """Options of a command that takes the configuration of a run.

    Attributes:
      config: configuration file and name, such as configs/quickstart.py:ccdclm. --config.KEY=VALUE
        sets a key. --help --config=FILE:NAME lists all keys.
    """

    config: ConfigDict | None = dataclasses.field(default=None, metadata={"define": _define})

    @property
    def settings(self) -> ConfigDict:
        """The configuration, with the values of --config.KEY=VALUE."""
        if isinstance(self.config, ConfigDict):
            return self.config
        return _checked(self.config, config_flags.get_config_filename(flags.FLAGS["config"]))


def parse(argv: Sequence[str], *, resumes: bool = False) -> list[str]:
    """Parses flags; help and errors refer to the keys of the configuration.

    Args:
      resumes: whether the saved configuration of the run in --workdir replaces a missing --config.

    Returns:
      The command line without flags.
    """
    config_file, workdir = _peek(argv)
    if config_file and (recipe := _packaged(config_file)):
        prefixes = "", "-config=", "--config="
        replaced = {f"{prefix}{config_file}": f"{prefix}{recipe}" for prefix in prefixes}
        argv = [replaced.get(argument, argument) for argument in argv]
        config_file = recipe
    if resumes and workdir and config_file is None:
        _take_saved(workdir)
    nowhere = f", and {workdir} has no run to resume" if resumes and workdir else ""
    example = "--config=configs/quickstart.py:ccdclm"
    missing = InputError(f"--config is missing{nowhere}; add a file, such as {example}")
    try:
        rest = flags.FLAGS(list(argv))
    except SystemExit:
        # absl has printed its help.
        for line in _help(config_file):
            print(line)
        raise
    except flags.UnrecognizedFlagError as error:
        value = flags.FLAGS["config"].value
        if value is None and error.flagname.startswith("config."):
            raise missing from error
        keys = value if isinstance(value, ConfigDict) else default_config()
        raise InputError(f"{error}{_meant(error.flagname, _keys(keys))}") from error
    except (AttributeError, KeyError):
        if config_file is not None:
            file = flags.FLAGS["config"].parser.parse(config_file)
            _refuse_unknown_keys(argv, _keys(_checked(file, config_file)))
        raise
    if flags.FLAGS["config"].value is None:
        raise missing
    return rest


def _peek(argv: Sequence[str]) -> tuple[str | None, str | None]:
    """The values of --config and --workdir, before flags are parsed: they determine the flags."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("config", "workdir"):
        parser.add_argument(f"--{name}", f"-{name}", nargs="?")
    arguments = flags.FLAGS.read_flags_from_files(list(argv[1:]), force_gnu=False)
    values, _ = parser.parse_known_args(arguments)
    return values.config, values.workdir


def _packaged(config_file: str) -> str:
    """The value of --config with the path of the installed recipe in place of configs/FILE.py;
    empty if the current directory has this file, or if the package has no such recipe."""
    path, colon, name = config_file.partition(":")
    folder, file = pathlib.Path(path).parent, pathlib.Path(path).name
    package = importlib.util.find_spec("dclm_jax.configs")
    if folder != pathlib.Path("configs") or os.path.exists(path) or package is None:
        return ""
    files = [pathlib.Path(folder, file) for folder in package.submodule_search_locations or ()]
    return next((f"{file}{colon}{name}" for file in files if file.is_file()), "")


def _take_saved(workdir: str) -> None:
    """Makes the saved configuration of a run, if it exists, the default of --config."""
    with storage.fetched(workdir, {CONFIG_FILE}.intersection) as folder:
        if not (folder / CONFIG_FILE).is_file():
            return
        saved = ConfigDict(read_config(folder))
    help_text = flags.FLAGS["config"].help
    delattr(flags.FLAGS, "config")
    config_flags.DEFINE_config_dict("config", saved, help_text)
    flag = flags.FLAGS["config"]
    flag.default_as_str = ""
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def _checked(value: object, config_file: str) -> ConfigDict:
    # For a file that cannot be read, the value is an object that raises on every access.
    if isinstance(value, ConfigDict):
        return value
    path = config_file.split(":")[0]
    if os.path.isfile(path):
        raise InputError(f"{path}: its get_config does not return a ConfigDict; return one")
    raise InputError(f"{path}: there is no such configuration file; choose another --config")


def _keys(config: ConfigDict) -> dict[str, object]:
    return flat(config.to_dict())


def _help(config_file: str | None) -> Iterator[str]:
    """The keys of the configuration with values and meaning; nothing without a configuration."""
    flag = flags.FLAGS["config"]
    value, place = flag.value, "the run"
    if config_file is not None:
        value, place = _checked(flag.parser.parse(config_file), config_file), config_file
    if value is None:
        return
    yield f"\nKeys of the configuration, with the values of {place}:\n"
    keys = _keys(value)
    texts = meanings(str(keys.get("model.name", "")))
    # Python -OO removes docstrings, which have the meanings.
    for key in dict.fromkeys([*texts, *keys]):
        if key not in keys:
            continue
        text = str(keys[key]).lower() if isinstance(keys[key], bool) else str(keys[key])
        yield f"  --config.{key}={text}"
        yield textwrap.indent(textwrap.fill(texts.get(key, ""), 74), " " * 6)


def _refuse_unknown_keys(argv: Sequence[str], keys: Collection[str]) -> None:
    for argument in argv:
        name = argument.lstrip("-").partition("=")[0]
        key = name.removeprefix("config.")
        if key != name and key not in keys:
            hint = _meant(key, keys) or "; add --help to list all keys"
            raise InputError(f"unknown configuration key {key!r}{hint}")


def _meant(flag: str, keys: Iterable[str]) -> str:
    """The end of a message: the keys with names like the flag."""
    named: dict[str, list[str]] = {}
    for key in keys:
        for name in (key, key.rpartition(".")[2]):
            named.setdefault(name, []).append(f"--config.{key}")
    nearest = difflib.get_close_matches(flag, named, n=1, cutoff=0.8)
    return f"; did you mean {' or '.join(named[nearest[0]])}?" if nearest else ""
