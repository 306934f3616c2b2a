"""Workdirs and results damaged, or made on purpose: they are taken, or refused in one line."""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import dclm_jax
from dclm_jax import ngram
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, UNKNOWN, Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.training.config import default_config
from dclm_jax.training.workdir import read_config
from tests.fuzzing import anything, attack, attack_json, damaged, fuzz, value_or_input_error
from tests.test_ngram import HAS_KENLM, MODEL, StandIn

VOCABULARY = b"<START>\t3\n<END>\t3\n<UNKNOWN>\t1\t<unk>\na\t3\nb\t2\n"


def test_configuration(place):
    workdir = place / "run"
    workdir.mkdir(exist_ok=True)
    (workdir / "vocabulary.tsv").write_bytes(VOCABULARY)
    config = default_config("ccdclm").to_dict()
    config["data"]["directory"] = "data"

    def check(content: bytes) -> None:
        (workdir / "config.json").write_bytes(content)
        read = value_or_input_error(workdir, lambda: read_config(workdir))
        if read is not None:
            Path(read["data"]["directory"]).resolve()
            # There is no checkpoint.
            with pytest.raises(InputError) as error:
                dclm_jax.restore(workdir)
            assert str(error.value).isprintable()

    attack_json(check, config, 100)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("hidden_dim", "x", "model.hidden_dim is 'x'; expected a whole number from 1"),
        ("hidden_dim", 3.5, "model.hidden_dim is 3.5; expected a whole number from 1"),
        ("hidden_dim", True, "model.hidden_dim is True; expected a whole number from 1"),
        ("hidden_dim", 10**30, "model.hidden_dim is 10+.*; expected a whole number from 1"),
        ("num_layers", 1001, "model.num_layers is 1001; expected a whole number from 1 to 1000"),
        ("dropout", "x", "model.dropout is 'x'; expected a number of at least 0"),
        ("remat", 1, "model.remat is 1; expected true or false"),
        ("cell", [1], "config.json: expected plain values by name under 'model'"),
        ("vocab_size", 7, "config.json: model.vocab_size is not an option"),
    ],
)
def test_options_of_a_saved_model(place, option, value, message):
    workdir = place / "options"
    workdir.mkdir(exist_ok=True)
    (workdir / "vocabulary.tsv").write_bytes(VOCABULARY)
    config: dict[str, Any] = {"model": {"name": "ccdclm", option: value}}
    (workdir / "config.json").write_text(json.dumps(config | {"data": {"directory": "x"}}))
    with pytest.raises(InputError, match=message):
        dclm_jax.restore(workdir)


# An n-gram workdir.


@pytest.fixture(scope="module")
def counted(tmp_path_factory) -> Path:
    """As `ngram.train` leaves it; KenLM reads a model from text, too."""
    workdir = tmp_path_factory.mktemp("counted") / "kn"
    workdir.mkdir()
    Vocabulary((*SPECIAL_TOKENS, "a", "b"), (0,) * 5).save(workdir / "vocabulary.tsv")
    (workdir / "model.arpa").write_text(MODEL)
    (workdir / "model.binary").write_text(MODEL)
    checksum = hashlib.sha256(MODEL.encode()).hexdigest()
    config = {
        "model": {"name": "ngram", "order": 3},
        "data": {"directory": "data"},
        "binary": {"sha256": checksum},
    }
    (workdir / "config.json").write_text(json.dumps(config))
    return workdir


@pytest.mark.parametrize("name", ["config.json", "vocabulary.tsv", "model.arpa", "model.binary"])
def test_files_of_an_ngram_model(counted, place, monkeypatch, name):
    if not HAS_KENLM:
        monkeypatch.setitem(sys.modules, "kenlm", StandIn)
    workdir = place / "kn"
    shutil.rmtree(workdir, ignore_errors=True)
    shutil.copytree(counted, workdir)
    original = (workdir / name).read_bytes()

    def check(content: bytes) -> None:
        if name == "config.json" and b"sha256" not in content:
            # KenLM reads a model without a checksum, and may end the process.
            content = content.replace(b"ngram", b"rnnlm")
        (workdir / name).write_bytes(content)
        run = value_or_input_error(workdir, lambda: ngram.restore_run(workdir))
        if run is not None:
            ids = np.array([UNKNOWN, len(run.vocabulary) - 1])
            [(_, nll)] = run.scorer.score([[ids]])
            assert nll[0].shape == (3,) and sum(run.counts) < 2**63

    if name == "config.json":
        attack_json(check, json.loads(original), 50)
    elif name == "model.binary":
        fuzz(50)(given(anything() | damaged(original))(check))()
    else:
        # Of the model as text only the numbers at its top are read.
        attack(check, original.split(b"\\1-grams:")[0] + b"\\1-grams:\n", 50)
