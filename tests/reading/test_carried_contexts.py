"""Contexts of training that are carried over from the segment before."""

import dataclasses

import jax
import numpy as np
import pytest

from dclm_jax.nn.plan import CPU, GPU, TPU_V4
from dclm_jax.reading.likelihoods import batch_likelihood, earlier_sentences
from tests import oracles
from tests.exhaustive import also, some
from tests.models.support import (
    LIN,
    VARIANTS,
    WORD_MODELS,
    model_class,
    pack,
    random_params,
    small_model,
)

pytestmark = pytest.mark.usefixtures("x64")

DOCUMENT = ((5, 3, 7, 4), (6,), (8, 2, 3), (4, 9), (7,))
CARRYING = [
    name
    for name in WORD_MODELS
    if model_class(name).context_order is None and not model_class(name).reads_source
]
CARRYING_VARIANTS = [name for name in VARIANTS if name in CARRYING]
USUAL = ("adclm", *CARRYING_VARIANTS, "pointer_drnnlm", "codclm", "hrnnlm")


@pytest.mark.parametrize("name", [*USUAL, *also(sorted({*CARRYING} - {*USUAL}))])
def test_a_segment_continues_the_one_before_it_which_gets_no_gradient(name):
    """Values and gradients are those of numpy, by complex steps: the segment before keeps its
    parameters, those of the carried one move. A row without a segment before it has c_0."""
    # The slope of HTanh is not that of an analytic function.
    model = small_model(name, cell="rnn" if name in LIN else "coupled_peephole_lstm")
    params = random_params(model)
    num_before = earlier_sentences(model, carried=2)
    assert num_before == (1 if name == "codclm" else 2)
    before, segment, fresh = DOCUMENT[2 - num_before : 2], DOCUMENT[2:4], DOCUMENT[:2]
    batch, without = (
        dataclasses.replace(
            pack([segment, fresh], S=2, N=8), earlier=pack(earlier, S=num_before, N=8)
        )
        for earlier in ([before, ()], [(), ()])
    )
    fixed = jax.tree.map(np.asarray, params)

    def of_numpy(moved):
        each = [fixed] * num_before + [moved] * 2
        carried = oracles.read_with_moving_params(model, each, (*before, *segment))
        nll = carried.nll[num_before:]
        first = oracles.read(model, fixed, before)
        alone = oracles.read_with_moving_params(model, [moved] * 2, fresh)
        auxiliary = carried.auxiliary - first.auxiliary + alone.auxiliary
        return auxiliary + sum(of_sentence.sum() for of_sentence in (*nll, *alone.nll))

    def loss(params, plan, batch):
        result = batch_likelihood(dataclasses.replace(model, plan=plan), params, batch)
        return result.nll + result.auxiliary

    plans = (CPU, GPU, TPU_V4)
    for plan in plans if name == "adclm" else some(plans[:1], all=plans):
        of_params = jax.jit(jax.value_and_grad(loss), static_argnums=1)
        value, gradient = of_params(params, plan, batch)
        np.testing.assert_allclose(value, of_numpy(fixed).real, rtol=1e-9)
        assert abs(of_params(params, plan, without)[0] - value) > 1e-6
        oracles.assert_gradient(gradient, of_numpy, params)


def test_words_as_contexts_come_along_whatever_is_carried():
    rlm = small_model("rlm_bow_lf")
    assert earlier_sentences(rlm) == earlier_sentences(rlm, carried=5) == rlm.context_order
    assert earlier_sentences(small_model("rnnlm"), carried=5) == 0
    assert earlier_sentences(small_model("ccdclm")) == 0
