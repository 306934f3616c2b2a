"""What commands do alike: they refuse what is damaged, absent or of another kind."""

import re
import shutil

import jax
import numpy as np
import pytest

import dclm_jax
from dclm_jax.training.workdir import restore_run
from tests.exhaustive import also
from tests.launch.support import BAD_TEXT, launch, refuse

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
    said = launch(name, "--help").stdout
    listed = set(re.findall(r"^  --(?:\[no\])?(\w+):", said, re.MULTILINE))
    assert some <= listed
    assert name != "report" or "tune_on" not in listed


@pytest.mark.parametrize("name", ["evaluate", *also(["coherence", "score", "order"])])
def test_a_flipped_bit_in_a_split_is_found(space, tmp_path, name):
    corpus = tmp_path / "corpus"
    shutil.copytree(space.corpus, corpus)
    tokens = bytearray((corpus / "test.tokens.bin").read_bytes())
    # Another word of the vocabulary, so that nothing but the checksum tells.
    tokens[0] ^= 1
    (corpus / "test.tokens.bin").write_bytes(tokens)
    error = refuse(name, f"--workdir={space.run}", f"--data={corpus}")
    assert error == f"error: {corpus}/test.tokens.bin: its checksum differs from the manifest's"


@pytest.mark.parametrize("name", ["evaluate", "generate", *also(["coherence", "score"])])
def test_a_directory_without_a_run_is_refused(space, tmp_path, name):
    output = tmp_path / "output"
    text = "context" if name == "generate" else "input"
    arguments = [f"--{text}={space.text['test']}", f"--output={output}"]
    error = refuse(name, *arguments, f"--workdir={tmp_path}")
    assert f"{tmp_path} holds no run" in error
    assert "--workdir" in refuse(name, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("evaluate", ["--data=OTHER"], ["OTHER", "another vocabulary"]),
        ("evaluate", ["--data=TESTONLY", "--split=valid"], ["'valid'", "TESTONLY", "test"]),
        ("evaluate", ["--input=absent.txt"], ["absent.txt"]),
        ("evaluate", ["--input=latin1.txt"], ["latin1.txt:3"]),
        ("evaluate", ["--split=tset"], ["--split=tset"]),
        ("score", ["--context=blank.txt"], ["--input is missing"]),
        ("score", ["--format=lines"], ["--format belongs to --input"]),
        ("score", ["--input=latin1.txt", "--split=valid"], ["--input replaces --data and"]),
        ("score", ["--input=absent.txt", "stray"], ["'stray'"]),
    ],
)
def test_evaluation_refuses_bad_input_and_writes_nothing(
    space, tmp_path, name, arguments, expected
):
    (tmp_path / "latin1.txt").write_bytes(BAD_TEXT["latin1.txt"])

    def fill(text):
        return text.replace("OTHER", str(space.other_corpus)).replace(
            "TESTONLY", str(space.test_only)
        )

    error = refuse(
        name, f"--workdir={space.run}", "--output=output", *map(fill, arguments), cwd=tmp_path
    )
    for part in expected:
        assert fill(part) in error
    assert [path.name for path in tmp_path.iterdir()] == ["latin1.txt"]


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
