"""What commands do alike: they list their flags."""

import dataclasses
import importlib
import io
import re

import jax
import numpy as np
import pytest
from absl import flags

import dclm_jax
from dclm_jax.training.workdir import restore_run
from tests.launch.support import (
    COMMANDS,
    REPOSITORY,
    entry_point,
    launch,
    launcher_state,
    of_launch,
)

_TEXT = {"lowercase", "unicode", "format", "normalize", "text_key", "language", "encoding"}
_WITHOUT_EFFECT = {
    "generate": {"batch_size"},
    "minimal_pairs": {"text_key"},
    "order": {"batch_size"},
    "reconstruct": {"batch_size"},
    "rescore": {"batch_size"} | _TEXT,
    "report": {"workdir"} | _TEXT,
}
"""Flags of shared modules that a command does not list, and so refuses."""


def flags_of(name: str) -> set[str]:
    """The flags that a command and the modules of commands that it imports define."""
    with launcher_state(io.TextIOWrapper(io.BytesIO())):
        importlib.import_module(entry_point(f"launch.{name}"))
        modules = flags.FLAGS.flags_by_module_dict().items()
        return {flag.name for module, defined in modules if of_launch(module) for flag in defined}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_all_flags_of_the_command_and_nothing_else(name):
    text = launch(name, "--help").stdout
    manual, _, listed = text.partition("\nFlags:\n")
    assert f"python -m launch.{name} " in manual
    names = re.findall(r"^  --(?:\[no\])?(\w+):", listed, re.MULTILINE)
    assert sorted(names) == sorted(flags_of(name) - _WITHOUT_EFFECT.get(name, set()))
    assert "helpfull" not in text and str(REPOSITORY) not in text


def test_a_neural_model_in_python_has_its_functions_and_parameters(space):
    lm = dclm_jax.restore(space.run)
    run = restore_run(space.run)
    assert lm.model == dataclasses.replace(run.model, matmul_precision="highest")
    jax.tree.map(np.testing.assert_array_equal, lm.params, run.params)
    assert lm.num_parameters == sum(leaf.size for leaf in jax.tree.leaves(run.params))
    size = f"{lm.num_parameters:,} parameters"
    assert lm.summary == f"ccdclm, {size}, step {run.step}, matmul precision highest"
    # Made when it is first asked for, and once: it holds copies of the parameters.
    assert "scorer" not in vars(lm)
    assert lm.scorer is lm.scorer
    assert (lm.scorer.vocab_size, lm.scorer.context_order) == (98, None)
