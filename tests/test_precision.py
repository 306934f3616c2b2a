"""The precision of matrix products, read from the programs that JAX lowers and compiles."""

import contextlib
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import pytest

import dclm_jax
from dclm_jax.data.batches import shard_rows
from dclm_jax.decoding.choices import Decoding
from dclm_jax.evaluation.adaptation import adapt
from dclm_jax.neural_language_model import NeuralLanguageModel
from dclm_jax.reading.driver import cast_params
from dclm_jax.scoring import neural
from dclm_jax.scoring.dynamic import DynamicScorer, root_mean_square
from dclm_jax.training import loop
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.job import first_shapes
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import parallel_step
from tests.exhaustive import also
from tests.models.support import EACH_OF_FEW, small_model
from tests.training import support
from tests.training.test_step import make_batch

TEXT = ["a b c", "b", "c a"]


def precisions(program: str) -> set[str]:
    """The precisions of both factors of all products of a program."""
    pairs = re.findall(r"stablehlo\.dot_general .* precision = \[(\w+), (\w+)\]", program)
    assert len(pairs) == program.count("stablehlo.dot_general ")
    return {name for pair in pairs for name in pair}


@contextlib.contextmanager
def compiled_precisions(folder: Path) -> Iterator[set[str]]:
    """The precisions in all programs that are compiled in the block, at its end."""
    names: set[str] = set()
    jax.clear_caches()
    jax.config.update("jax_dump_ir_to", str(folder))
    try:
        yield names
    finally:
        jax.config.update("jax_dump_ir_to", "")
    for path in folder.glob("*.mlir"):
        names |= precisions(path.read_text())


@EACH_OF_FEW
def test_all_products_of_training_and_scoring_have_the_precision_of_the_model(name):
    model = small_model(name, dropout=0.3, matmul_precision="high")
    batch, optimizer = shard_rows(make_batch(name), 1), create_optimizer(OptimizerConfig(), 1)
    state = first_shapes(model, optimizer)
    step = parallel_step(model, optimizer).lower(state, batch, jax.random.key(0))
    assert precisions(step.as_text()) == {"HIGH"}

    params = jax.eval_shape(partial(cast_params, model), state.params)
    open_rows, read = neural._compiled(model, neural.BlockFunctions())
    rows = batch.tokens_BxSxN[:, :, 0, 0], batch.source
    context, _ = jax.eval_shape(open_rows, params, *rows)
    block = read.lower(params, context, batch, batch.mask_BxSxN)
    assert precisions(block.as_text()) == {"HIGH"}
    opened = open_rows.lower(params, *rows).as_text()
    assert precisions(opened) == ({"HIGH"} if model.reads_source else set())


def use_language_model(lm: NeuralLanguageModel) -> None:
    """Compiles every function that has products."""
    list(lm.score([TEXT]))
    lm.attention(TEXT)
    list(lm.vectors([TEXT]))
    state = lm.read(TEXT)
    state.next_words("a")
    state.score(["a b"])
    state.generate(1, Decoding("beam"), max_sentence_words=2)
    numbers = {"weight": 0.1, "strength": 1.0, "theta": 0.1, "window": 10}
    list(adapt(lm, "cache", **numbers).score([TEXT]))
    model: Any = lm.model
    params: Any = lm.params
    document = lm.encode(TEXT)
    scale = root_mean_square(model, params, [document])
    list(DynamicScorer(model, params, lambda: scale, rate=0.1, decay=0.1).score([document]))


@pytest.fixture
def run(data, tmp_path):
    """A function that trains a model for two steps, by name, and returns its workdir."""

    def train(name: str, **values: int | str) -> Path:
        settings = {"training.max_steps": 2, "model.name": name, **values}
        loop.train(support.config(data, **settings), tmp_path / "run")
        return tmp_path / "run"

    return train


def test_a_restored_model_has_highest_precision_unless_another_is_chosen(run, tmp_path):
    workdir = run("adclm", **{"model.matmul_precision": "high"})
    lm = dclm_jax.restore(workdir)
    with compiled_precisions(tmp_path / "highest") as names:
        use_language_model(lm)
    assert names == {"HIGHEST"} == {str(lm.facts.matmul_precision).upper()}
    lm = dclm_jax.restore(workdir, matmul_precision="default")
    with compiled_precisions(tmp_path / "default") as names:
        list(lm.score([TEXT]))
    assert names == {"DEFAULT"} == {str(lm.facts.matmul_precision).upper()}


@pytest.mark.parametrize("precision", ["high", *also(["default"])])
def test_training_has_its_precision_and_validation_the_highest(run, tmp_path, precision):
    with compiled_precisions(tmp_path / "programs") as names:
        run("ccdclm", **{"model.matmul_precision": precision})
    assert names == {precision.upper(), "HIGHEST"}
