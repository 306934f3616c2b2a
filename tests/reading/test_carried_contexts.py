"""Contexts of training that are carried over from the segment before."""

import dataclasses

import jax
import numpy as np
import pytest

from dclm_jax.models import MODELS
from dclm_jax.nn.plan import ACCELERATOR, CPU
from dclm_jax.reading.likelihoods import batch_likelihood, earlier_sentences
from dclm_jax.reading.reader import Reader
from tests import oracles
from tests.exhaustive import also
from tests.models.support import (
    WORD_MODELS,
    likelihood,
    pack,
    random_params,
    small_model,
)

pytestmark = pytest.mark.usefixtures("x64")

DOCUMENT = ((5, 3, 7, 4), (6,), (8, 2, 3), (4, 9), (7,))
CARRYING = [
    name
    for name in WORD_MODELS
    if MODELS[name].context_order is None and not MODELS[name].reads_source
]


def as_arrays(params):
    return jax.tree.map(np.asarray, params)


@pytest.mark.parametrize(
    "name", ["adclm", "codclm", "hrnnlm", *also(sorted({*CARRYING} - {"adclm", "hrnnlm"}))]
)
def test_a_segment_goes_on_from_the_one_before(name):
    """Its loss is that within its document; a row without a segment before has c_0."""
    model = small_model(name)
    params = random_params(model)
    before = earlier_sentences(model, carried=2)
    assert before == (1 if name == "codclm" else 2)
    batch = pack([DOCUMENT[2:4], DOCUMENT[:2]], S=2, N=8)
    earlier = pack([DOCUMENT[2 - before : 2], ()], S=before, N=8)
    plain = as_arrays(params)
    carried = oracles.read(model, plain, DOCUMENT[:4]).nll[2:]
    fresh = oracles.read(model, plain, DOCUMENT[:2]).nll
    result = likelihood(model, params, dataclasses.replace(batch, earlier=earlier))
    expected = sum(np.sum(nll) for nll in (*carried, *fresh))
    np.testing.assert_allclose(result.nll, expected, rtol=1e-9)
    assert abs(likelihood(model, params, batch).nll - expected) > 1e-6


@pytest.mark.parametrize("name", ["adclm", *also(["ccdclm", "codclm", "hrnnlm"])])
def test_no_gradient_reaches_the_segment_before(name):
    model = small_model(name)
    params = random_params(model)
    before = earlier_sentences(model, carried=2)
    first, second = pack([DOCUMENT[2:4]], S=2, N=8), pack([DOCUMENT[:2]], S=2, N=8)
    reader = Reader(model, params)
    place, _ = reader.read(reader.open(1), [[np.asarray(one) for one in DOCUMENT[:2]]])
    both = pack([DOCUMENT[2:4], DOCUMENT[:2]], S=2, N=8)
    earlier = pack([DOCUMENT[2 - before : 2], ()], S=before, N=8)

    def carried(plan, params):
        batch = dataclasses.replace(both, earlier=earlier)
        result = batch_likelihood(dataclasses.replace(model, plan=plan), params, batch)
        return result.nll + result.extra

    def apart(params):
        fixed = batch_likelihood(model, params, first, context=place.context)
        fresh = batch_likelihood(model, params, second)
        return fixed.nll + fixed.extra + fresh.nll + fresh.extra

    expected = jax.jit(jax.grad(apart))(params)
    for plan in (CPU, ACCELERATOR):
        gradient = jax.jit(jax.grad(carried, argnums=1), static_argnums=0)(plan, params)
        jax.tree.map(
            lambda ours, one: np.testing.assert_allclose(ours, one, rtol=1e-8, atol=1e-10),
            gradient,
            expected,
        )


@pytest.mark.parametrize("name", ["adclm", *also(["ccdclm", "codclm", "hrnnlm"])])
def test_the_gradient_of_a_carried_segment_is_its_central_difference(name):
    """By numpy: the segment before keeps its parameters, those of the carried one move."""
    model = small_model(name)
    params = random_params(model)
    before = earlier_sentences(model, carried=2)
    earlier, segment = DOCUMENT[2 - before : 2], DOCUMENT[2:4]
    batch = dataclasses.replace(pack([segment], S=2, N=8), earlier=pack([earlier], S=before, N=8))
    gradient = jax.grad(lambda params: batch_likelihood(model, params, batch).nll)(params)

    def nll(moved):
        each = [as_arrays(params)] * before + [as_arrays(moved)] * len(segment)
        read = oracles.nll_of_moving_params(model, each, (*earlier, *segment))
        return sum(np.sum(of_sentence).real for of_sentence in read[before:])

    leaves, tree = jax.tree.flatten(params)
    rng, step = np.random.default_rng(2), 1e-5
    for index, leaf in enumerate(leaves):
        direction = [np.zeros(other.shape) for other in leaves]
        direction[index] = rng.normal(size=leaf.shape)
        direction = jax.tree.unflatten(tree, direction)
        above, below = (
            nll(jax.tree.map(lambda p, d, s=s: p + s * d, params, direction)) for s in (step, -step)
        )
        analytic = sum(jax.tree.leaves(jax.tree.map(np.vdot, gradient, direction)))
        np.testing.assert_allclose(analytic, (above - below) / (2 * step), rtol=1e-6, atol=1e-6)


def test_words_as_contexts_come_along_whatever_is_carried():
    rlm = small_model("rlm_bow_lf")
    assert earlier_sentences(rlm) == earlier_sentences(rlm, carried=5) == rlm.context_order
    assert earlier_sentences(small_model("rnnlm"), carried=5) == 0
    assert earlier_sentences(small_model("ccdclm")) == 0
