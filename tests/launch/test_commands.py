"""What commands do alike: they list their flags, and refuse what is absent or of another kind."""

import re

import jax
import numpy as np
import pytest

import dclm_jax
from dclm_jax.training.workdir import restore_run
from tests.launch.support import launch, refuse

_OF_TEXT = {"format", "lowercase", "normalize", "text_key", "encoding"}
_OF_DATA = {"data", "input", "split"} | _OF_TEXT


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("evaluate", {"workdir", "workdirs", "adapt", "tune_on", "interpolate"} | _OF_DATA),
        ("coherence", {"workdir", "workdirs", "adapt", "tune_on", "permutations"} | _OF_DATA),
        ("score", {"workdir", "workdirs", "context"} | _OF_DATA),
        ("order", {"workdir", "beam"} | _OF_DATA),
        ("reconstruct", {"workdir", "outputs", "method"} | _OF_DATA),
        ("generate", {"workdir", "context", "method"} | _OF_TEXT),
        ("rescore", {"workdir", "workdirs", "nbest", "lowercase"}),
        ("report", {"workdirs", "data", "adapt", "cache_theta"}),
    ],
)
def test_help_lists_all_flags(name, some):
    text = launch(name, "--help").stdout
    listed = set(re.findall(r"^  --(?:\[no\])?(\w+):", text, re.MULTILINE))
    assert some <= listed
    assert name != "report" or "tune_on" not in listed


@pytest.mark.parametrize("name", ["evaluate", "generate"])
def test_a_directory_without_a_run_is_refused(space, tmp_path, name):
    text = "context" if name == "generate" else "input"
    arguments = [f"--{text}={space.text['test']}", f"--output={tmp_path / 'output'}"]
    assert f"{tmp_path} holds no run" in refuse(name, *arguments, f"--workdir={tmp_path}")
    assert "--workdir is missing" in refuse(name, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("evaluate --data=OTHER", "another vocabulary"),
        ("evaluate --split=tset", "--split=tset"),
        ("score --context=blank.txt", "--input is missing"),
        ("score --format=lines", "--format belongs to --input, which is missing"),
        ("score --input=a.txt --split=valid", "--input replaces --data and --split"),
        ("score --input=absent.txt", "absent.txt: no such file or folder"),
        ("score stray", "'stray'"),
    ],
)
def test_bad_flags_are_refused_and_nothing_is_written(space, tmp_path, command, message):
    arguments = command.replace("OTHER", str(space.other_corpus)).split()
    error = refuse(*arguments, f"--workdir={space.run}", "--output=output", cwd=tmp_path)
    assert message in error
    assert not list(tmp_path.iterdir())


def test_a_neural_model_in_python_has_its_functions_and_parameters(space):
    lm = dclm_jax.restore(space.run)
    run = restore_run(space.run)
    assert lm.model == run.model
    jax.tree.map(np.testing.assert_array_equal, lm.params, run.params)
    assert lm.num_parameters == sum(leaf.size for leaf in jax.tree.leaves(run.params))
    assert lm.summary == f"ccdclm, {lm.num_parameters:,} parameters, step {run.step}"
    # Made when it is first asked for, and once: it holds copies of the parameters.
    assert "scorer" not in vars(lm)
    assert lm.scorer is lm.scorer
    assert (lm.scorer.vocab_size, lm.scorer.context_order) == (98, None)
