"""What commands do alike: they list their flags."""

import dataclasses
import io
import os
import pathlib
import re
import subprocess
import sys
import warnings
from typing import Any

import jax
import numpy as np
import pytest
from absl import flags

import dclm_jax
from dclm_jax import storage
from dclm_jax.data.corpora import COLLECTIONS
from dclm_jax.data.corpus import SPLITS
from dclm_jax.metrics.systems import METRICS
from dclm_jax.scoring.distributions import WORD_MEASURES
from dclm_jax.training.workdir import restore_run
from launch import _app
from launch.benchmark.__main__ import SUITES
from launch.plan import MEMORY
from tests.launch.support import (
    COMMANDS,
    REPOSITORY,
    command_state,
    define_flags,
    launch,
    of_launch,
)

_SEVERAL_MEANINGS = {
    "baseline",
    "bootstrap",
    "data",
    "input",
    "output",
    "seed",
    "split",
    "vocab_size",
    "workdir",
}
"""Flags whose content or effect depends on the command."""


def flags_of(name: str) -> list[flags.Flag]:
    """The flags of a command."""
    with command_state(io.TextIOWrapper(io.BytesIO())):
        define_flags(f"launch.{name}")
        modules = flags.FLAGS.flags_by_module_dict().items()
        return [flag for module, defined in modules if of_launch(module) for flag in defined]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_all_flags_of_the_command_and_nothing_else(name):
    text = launch(name, "--help").stdout
    manual, _, listed = text.partition("\nFlags:\n")
    assert f"python -m launch.{name} " in manual
    names = re.findall(r"^  --(?:\[no\])?(\w+):", listed, re.MULTILINE)
    assert names and sorted(names) == sorted(flag.name for flag in flags_of(name))
    assert "helpfull" not in text and str(REPOSITORY) not in text


def test_a_flag_of_one_meaning_has_one_help_text():
    texts = {}
    for name in COMMANDS:
        for flag in flags_of(name):
            # Defaults differ among commands.
            text = flag.help.partition(" Default:")[0]
            texts.setdefault(flag.name, {}).setdefault(text, []).append(name)
    several = {flag: named for flag, named in texts.items() if len(named) > 1}
    assert set(several) == _SEVERAL_MEANINGS, several


def test_a_neural_model_in_python_has_its_functions_and_parameters(space):
    lm = dclm_jax.restore(space.run)
    run = restore_run(space.run)
    assert lm.model == dataclasses.replace(run.model, matmul_precision="highest")
    jax.tree.map(np.testing.assert_array_equal, lm.params, run.params)
    assert lm.facts.num_parameters == sum(leaf.size for leaf in jax.tree.leaves(run.params))
    size = f"{lm.facts.num_parameters:,} parameters"
    assert lm.summary == f"ccdclm, {size}, step {run.step}, matmul precision highest"
    # Copies on devices are made when they are first asked for, and once.
    assert not {"_copies", "reader"} & vars(lm.scorer.ids).keys()
    assert lm.reader is lm.reader
    assert (lm.scorer.vocab_size, lm.scorer.context_order) == (98, None)


def test_flags_name_all_values_that_the_library_has():
    def values(command: str, flag: str) -> Any:
        (defined,) = [defined for defined in flags_of(command) if defined.name == flag]
        return getattr(defined.parser, "enum_values", None) or defined.help

    assert set(values("rescore", "objective")) == set(METRICS)
    assert set(values("benchmark", "suite")) == set(SUITES)
    assert set(values("plan", "target")) == set(MEMORY)
    assert set(values("score", "split")) == set(SPLITS)
    for name in WORD_MEASURES:
        assert name in values("score", "measures")
    for name in COLLECTIONS:
        assert name in values("prepare", "corpus")


@pytest.mark.parametrize(
    ("command", "listed"),
    [("train", "--workdir:"), ("coherence", "--permutations:")],
)
def test_help_without_docstrings_lists_flags(command, listed):
    """The help of a flag is in the docstring of a dataclass."""
    words = [sys.executable, "-OO", "-m", f"launch.{command}", "--help"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert listed in done.stdout and not done.stderr


def test_without_a_home_directory_the_cache_of_programs_is_off(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    for name in ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pathlib.Path, "home", no_home)
    assert storage.cache_folder() is None
    set_options = {}
    monkeypatch.setattr(jax.config, "update", set_options.__setitem__)
    with warnings.catch_warnings():
        _app._keep_compiled_programs()
    assert set_options["jax_compilation_cache_dir"] is None


PROGRAM = """
import jax
from launch import _app
_app._keep_compiled_programs()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
print(jax.jit(lambda x: 2 * x)(1.5))
"""


def test_a_damaged_cache_of_programs_is_not_mentioned(tmp_path):
    variables = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=REPOSITORY,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
        assert (done.stdout, done.stderr) == ("3.0\n", "")
        programs = list(tmp_path.glob("*-cache"))
        assert programs
        for program in programs:
            program.write_bytes(b"damaged")
